/* Memory regions. */
#ifndef SND_ENDPOINT_MR_H
#define SND_ENDPOINT_MR_H

#include "window/window.h"

/* snd_mr_register_at is snd_mr_register, but requests of both sides name the first byte by the address base. */
snd_status snd_mr_register_at(snd_adapter *adapter, void *buffer, uint64_t length, uint64_t base, uint32_t flags, snd_mr **mr);
/* snd_mr_private_because returns why the fabric has not adopted the memory of a region, see mr_adopt.h; NULL: it has, or does not adopt. */
const char *snd_mr_private_because(snd_mr *mr);
/* snd_mr_replace closes a region as snd_mr_close does, and gives its tokens to next, a new one whose own tokens no other call has returned. If it fails, next is
 * unchanged. */
snd_status snd_mr_replace(snd_mr *mr, snd_mr *next);

#endif

/* Memory regions. */
#ifndef SND_ENDPOINT_MR_H
#define SND_ENDPOINT_MR_H

#include "window/window.h"

/* snd_mr_register_at is snd_mr_register, but requests of both sides name the first byte by the address base. */
snd_status snd_mr_register_at(snd_adapter *adapter, void *buffer, uint64_t length, uint64_t base, uint32_t flags, snd_mr **mr);

#endif

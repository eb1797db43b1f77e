/* Fabrics that processes join by name. */
#ifndef SND_SHM_FABRIC_NAME_H
#define SND_SHM_FABRIC_NAME_H

#include "shm/fabric.h"

/* snd_check_name refuses a name that no fabric can have. */
snd_status snd_check_name(const char *name, const char *op);
/* snd_find_fabric attaches f to the arena of the fabric with a name, or creates it. A negative deadline is none. */
snd_status snd_find_fabric(struct snd_fabric *f, const char *name, uint32_t ranks, uint32_t host, uint64_t size, int64_t deadline, const char *op);
/* snd_find_arena attaches a to the arena of the fabric with a name, as an observer. It fails with SND_HOST_UNREACHABLE if no process is in the fabric. */
snd_status snd_find_arena(struct snd_arena *a, const char *name, const char *op);
/* snd_serve_joiners answers processes that join the fabric, and reports whether some have connected. Any member may
 * answer. It never blocks. */
bool snd_serve_joiners(struct snd_fabric *f, int64_t now);
void snd_stop_serving(struct snd_fabric *f);

#endif

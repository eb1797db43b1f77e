/* The engine: a thread that makes progress when the program does not. */
#ifndef SND_ENDPOINT_PROGRESS_ENGINE_H
#define SND_ENDPOINT_PROGRESS_ENGINE_H

#include "shm/fabric.h"

snd_status snd_engine_start(struct snd_fabric *f, const char *op);
void snd_engine_stop(struct snd_fabric *f);
/* snd_engine_polls_on sets for how long the engine of a fabric with numbers polls after traffic, in nanoseconds; 0 = it does not. It does so only
 * while a core is idle. */
void snd_engine_polls_on(struct snd_fabric *f, int64_t ns);

/* snd_engine_leaves_rings returns when the engine reads no ring without the lock, which the caller has. Then a ring can be freed. */
void snd_engine_leaves_rings(struct snd_fabric *f);

#endif

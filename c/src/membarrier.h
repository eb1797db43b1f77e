/* Barriers that the rare side of a handshake executes for both sides, as internal/asym of the Go code. */
#ifndef SND_MEMBARRIER_H
#define SND_MEMBARRIER_H

#include <stdbool.h>

/* snd_membarrier_register registers the process; it takes some milliseconds the first time. */
void snd_membarrier_register(void);
/* snd_has_heavy_global reports whether snd_heavy_global works, and reaches this process. */
bool snd_has_heavy_global(void);
/* snd_heavy_global is a full barrier in every running thread of every registered process. */
void snd_heavy_global(void);

#endif

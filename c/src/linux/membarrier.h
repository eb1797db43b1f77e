/* Barriers that the rare side of a handshake executes for both sides, as internal/asym of the Go code. */
#ifndef SND_MEMBARRIER_H
#define SND_MEMBARRIER_H

#include <stdbool.h>

#include "atomic.h"

/* snd_membarrier_register registers the process; it takes some milliseconds the first time. */
void snd_membarrier_register(void);
/* snd_has_heavy_global reports whether snd_heavy_global works, and reaches this process. */
bool snd_has_heavy_global(void);
/* snd_heavy_global is a full barrier in every running thread of every registered process. */
void snd_heavy_global(void);
/* snd_heavy is a full barrier in every running thread of this process. */
void snd_heavy(void);
/* snd_light is the other side of snd_heavy: it costs nothing where membarrier works. */
extern bool snd_has_membarrier;
#define snd_light() \
	do { \
		if (snd_likely(snd_has_membarrier)) \
			atomic_signal_fence(memory_order_seq_cst); \
		else \
			atomic_thread_fence(memory_order_seq_cst); \
	} while (0)

#endif

/* Calls that wait. */
#ifndef SND_ENDPOINT_PROGRESS_WAIT_H
#define SND_ENDPOINT_PROGRESS_WAIT_H

#include "shm/fabric.h"

/* snd_spin_rounds returns how many rounds a wait spins, at most most. The caller calls snd_spin_ended after the spin unless it is 0. */
uint32_t snd_spin_rounds(struct snd_spin *s, uint32_t most);
/* snd_spin_ended stores whether a spin has found its event. */
void snd_spin_ended(struct snd_spin *s, bool found);
/* snd_wait blocks until ready returns true: SND_SUCCESS, SND_IO_TIMEOUT, or SND_CANCELED if the fabric is
 * closed. It makes progress on everything meanwhile. drive, if not NULL, is called more often than the rest is
 * driven. Observers see call while it sleeps, or spins for long. The caller holds the lock. */
snd_status snd_wait(struct snd_fabric *f, int64_t timeout, bool (*ready)(void *), void (*drive)(void *), void *arg, struct snd_call *call);
/* snd_wait_drained is snd_wait for what no ring announces: the end of a peer's copy, or a poll that frees a slot. */
snd_status snd_wait_drained(struct snd_fabric *f, int64_t timeout, bool (*drained)(void *), void *arg, struct snd_call *call);

#endif

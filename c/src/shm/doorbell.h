/* Doorbells, at which threads sleep. */
#ifndef SND_SHM_DOORBELL_H
#define SND_SHM_DOORBELL_H

#include "shm/fabric.h"

void snd_ring_peer_slow(struct snd_fabric *f, struct snd_member_record *r);
bool snd_ring(struct snd_fabric *f, struct snd_doorbell *d);
void snd_wake_doorbell(struct snd_doorbell *d);
uint32_t snd_arm(struct snd_doorbell *d);
void snd_disarm(struct snd_doorbell *d);
void snd_sleep(struct snd_doorbell *d, uint32_t ticket, int64_t timeout);
/* snd_ring_peer wakes the peer's waiting calls, or its engine if none sleeps. The caller has stored the work
 * before, with a full barrier unless the peer issues it. */
static inline void snd_ring_peer(struct snd_fabric *f, const struct snd_peer *p)
{
	/* ORDER doorbell-armed: pairs with the store in snd_arm */
	if (snd_unlikely(snd_load32(&p->record->waiters.armed) != 0 || snd_load32(&p->record->engine.armed) != 0))
		snd_ring_peer_slow(f, p->record);
}

/* snd_wake makes sleeping waits of this process check their conditions again. */
static inline void snd_wake(struct snd_fabric *f)
{
	if (snd_unlikely(f->sleepers != 0))
		snd_ring(f, &f->record->waiters);
}

#endif

/* Doorbells: how a waiting call sleeps, and how another member wakes it. See docs/shared-memory.md.
 * TWIN internal/doorbell/doorbell.go. */
#include "shm/doorbell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { UNARMED = 0, ARMED = 1 };

void snd_wake_doorbell(struct snd_doorbell *d)
{
	SND_KEEP_ERRNO;
	atomic_fetch_add(&d->seq, 1);
	syscall(SYS_futex, &d->seq, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* snd_ring wakes all waiters of an armed doorbell and reports whether it was armed. If it was disarmed
 * meanwhile, its last waiter may have checked before the caller's store was visible. */
bool snd_ring(struct snd_fabric *f, struct snd_doorbell *d)
{
	uint32_t left = f->mark, seen = ARMED;
	if (snd_load32(&d->armed) == UNARMED) /* ORDER doorbell-armed: pairs with the store in snd_arm */
		return false;
	if (!atomic_compare_exchange_strong(&d->armed, &seen, f->mark)) { /* ORDER doorbell-disarmed: pairs with the store in snd_disarm */
		seen = snd_load32(&d->armed);
		if (seen == UNARMED)
			return false;
		left = seen == ARMED ? UNARMED : seen; /* armed again: its waiter checks after this exchange, so it stays armed */
	}
	snd_wake_doorbell(d);
	atomic_compare_exchange_strong(&d->armed, &left, UNARMED);
	return true;
}

void snd_ring_peer_slow(struct snd_fabric *f, struct snd_member_record *r)
{
	if (!snd_ring(f, &r->waiters))
		snd_ring(f, &r->engine);
}

uint32_t snd_arm(struct snd_doorbell *d)
{
	uint32_t ticket = snd_load32(&d->seq);
	snd_store_full32(&d->armed, ARMED); /* ORDER doorbell-armed: pairs with the loads in snd_ring_peer and snd_ring */
	snd_heavy_global();                 /* for ringers whose stores are no full barriers */
	return ticket;
}

/* A caller that checks for work afterwards sees what was stored before a ring that found the doorbell armed. */
void snd_disarm(struct snd_doorbell *d) { snd_store_full32(&d->armed, UNARMED); } /* ORDER doorbell-disarmed: pairs with the exchange in snd_ring */

void snd_sleep(struct snd_doorbell *d, uint32_t ticket, int64_t timeout)
{
	struct timespec t = {(time_t)(timeout / 1000000000), (long)(timeout % 1000000000)};
	syscall(SYS_futex, &d->seq, FUTEX_WAIT, ticket, &t, NULL, 0);
}

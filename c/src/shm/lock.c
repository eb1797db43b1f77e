/* The lock of a fabric: all but its fast path, which is in fabric.h. TWIN internal/asym/mutex.go.
 *
 * One thread at a time may have the bias, and locks with plain loads and stores. Every other thread, and that one while it has no bias, holds
 * the mutex instead. A thread with the mutex revokes the bias of another one, and waits until that is outside. So
 *
 * - a thread may end while it has the bias: nothing waits for it. A new thread at the same place has the bias from the start;
 * - while a thread is stopped in a call, all others wait, as for a mutex;
 * - a bias exists only where membarrier works. Elsewhere the lock is the mutex.
 *
 * And threads that use a fabric at the same time without SND_THREAD_SAFE, for which SOFTND_CHECK=1 looks. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shm/fabric.h"

enum {
	/* Consecutive locks that give a thread the bias: worth the microsecond that revoking it takes. */
	THRESHOLD = 64,
	/* A thread that waits for the biased one first yields, and then sleeps between checks, each time twice as long. */
	YIELDS = 100,
	SHORTEST_NAP = 20 * 1000,
	LONGEST_NAP = 2000 * 1000
};

/* can_bias reports whether the barriers that a bias needs work. Under ThreadSanitizer both sides have full ones, so that it checks the
 * biased lock, too. */
static bool can_bias(void)
{
#if defined(__SANITIZE_THREAD__)
	return true;
#else
	return snd_has_membarrier;
#endif
}

static void await_outside(const struct snd_bias *b)
{
	long nap = SHORTEST_NAP;
	for (int checks = 0; snd_acquire32(&b->inside) != 0; checks++) {
		if (checks < YIELDS) {
			sched_yield();
			continue;
		}
		nanosleep(&(struct timespec){0, nap}, NULL);
		nap = nap * 2 < LONGEST_NAP ? nap * 2 : LONGEST_NAP;
	}
}

/* revoke ends the bias toward another thread, and waits until that is outside. It reports whether there was one. The caller has the
 * mutex, and with it the lock when revoke_bias returns. */
static bool revoke_bias(struct snd_fabric *f)
{
	struct snd_bias *b = atomic_load_explicit(&f->bias, memory_order_relaxed);
	if (b == NULL || atomic_load_explicit(&b->thread, memory_order_relaxed) == snd_thread())
		return false;
	SND_KEEP_ERRNO;
	atomic_store_explicit(&f->bias, NULL, memory_order_relaxed);
	snd_heavy(); /* ORDER bias: between the store of bias and the load of inside; pairs with snd_light_of_bias in snd_lock_by_bias */
	await_outside(b);
	return true;
}

static void give_bias(struct snd_fabric *f, uintptr_t thread)
{
	f->streak = 0;
	struct snd_bias *b = f->biases;
	for (; b < f->biases + SND_BIASES; b++) {
		const uintptr_t owner = atomic_load_explicit(&b->thread, memory_order_relaxed);
		if (owner != 0 && owner != thread)
			continue;
		atomic_store_explicit(&b->thread, thread, memory_order_relaxed);
		f->latest = b;
		atomic_store_explicit(&f->bias, b, memory_order_release);
		return;
	}
}

static uint32_t this_thread(void)
{
	static _Thread_local uint32_t id;
	if (id == 0)
		id = (uint32_t)syscall(SYS_gettid);
	return id;
}

static void name_of(uint32_t thread, char *name, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%u/comm", thread);
	FILE *f = snd_open_text(path);
	if (f == NULL || fgets(name, (int)size, f) == NULL)
		snprintf(name, size, "ended");
	name[strcspn(name, "\n")] = 0;
	if (f != NULL)
		fclose(f);
}

static void report(struct snd_fabric *f, uint32_t other)
{
	SND_KEEP_ERRNO;
	char mine[32], theirs[32], rank[32] = "";
	name_of(this_thread(), mine, sizeof mine);
	name_of(other, theirs, sizeof theirs);
	if (f->rank >= 0)
		snprintf(rank, sizeof rank, "rank %d: ", f->rank);
	fprintf(stderr, "softnd: check: %sthread %u (%s) is in a call on a fabric, and thread %u (%s) makes another call on it: let one thread at a time use "
		"the objects of a fabric, or leave threading of its options at SND_THREAD_SAFE\n", rank, other, theirs, this_thread(), mine);
}

static void lock_watched(struct snd_fabric *f)
{
	/* A thread in a wait has given the mutex back, but not its place as the user. */
	const uint32_t user = snd_load32(&f->user);
	pthread_mutex_lock(&f->mutex);
	if (user != 0 && user != this_thread() && !f->crossed) {
		f->crossed = true;
		report(f, user);
	}
	if (f->calls == 0)
		snd_set32(&f->user, this_thread());
}

static void unlock_watched(struct snd_fabric *f)
{
	if (f->calls == 0)
		snd_set32(&f->user, 0);
}

void snd_lock_slow(struct snd_fabric *f)
{
	if (f->lock == SND_LOCK_WATCHED) {
		lock_watched(f);
	} else {
		pthread_mutex_lock(&f->mutex);
		(void)revoke_bias(f);
	}
	f->slow = true;
}

void snd_unlock_slow(struct snd_fabric *f)
{
	const uintptr_t thread = snd_thread();
	f->slow = false; /* before another thread gets in by its bias */
	if (f->lock == SND_LOCK_WATCHED) {
		unlock_watched(f);
	} else if (f->last != thread) {
		f->last = thread;
		f->streak = 0;
	} else if (++f->streak >= THRESHOLD && can_bias()) {
		give_bias(f, thread);
	}
	pthread_mutex_unlock(&f->mutex);
}

void snd_lock_aside(struct snd_fabric *f)
{
	pthread_mutex_lock(&f->mutex);
	f->revoked = revoke_bias(f);
	f->slow = true;
}

void snd_unlock_aside(struct snd_fabric *f)
{
	f->slow = false;
	if (f->revoked)
		atomic_store_explicit(&f->bias, f->latest, memory_order_release);
	pthread_mutex_unlock(&f->mutex);
}

bool snd_enter_slow(const struct snd_object *o, enum snd_type type)
{
	if (o == NULL || __atomic_load_n(&o->magic, __ATOMIC_RELAXED) != SND_MAGIC_OF(type))
		return false;
	struct snd_fabric *f = snd_fabric_of(o);
	snd_lock(f);
	if (f->lock == SND_LOCK_NONE || snd_is_of(o, type, f))
		return true;
	snd_unlock(f);
	return false;
}

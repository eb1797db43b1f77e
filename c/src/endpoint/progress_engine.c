/* The engine makes progress when the program does not. While the program polls or waits, the engine sleeps on a timer,
 * with its doorbell disarmed, so that requests of peers make no system call. When the program does neither, the engine
 * arms its doorbell and sleeps until a peer rings. TWIN endpoint/progress_engine.go. */
#include "endpoint/progress_engine.h"

#include <sched.h>
#include <time.h>

#include "endpoint/endpoint.h"
#include "endpoint/progress.h"
#include "endpoint/progress_housekeeper.h"
#include "linux/clock.h"
#include "linux/thread.h"
#include "shm/work.h"

#define MIN_GAP INT64_C(200000)
#define MAX_GAP INT64_C(2000000)
#define NAP INT64_C(5000)
#define CHECK_INTERVAL INT64_C(10000000)
#define NEEDED_FOR INT64_C(100000000)
static const char name_of_thread[] = "softnd";

enum { MAX_BURST = 16, MAX_NAPS = 16, MAX_PUT_OFF = 8, MAX_FRONTS = 16, ROUNDS_PER_CLOCK = 16 };

static bool drive(struct snd_fabric *f)
{
	bool progressed = snd_progress_by_engine(f);
	if (!snd_list_is_empty(&f->work))
		snd_run_deferred(f);
	snd_housekeep(f, snd_clock());
	return progressed;
}

static void pause_for(int64_t ns) { nanosleep(&(struct timespec){0, (long)ns}, NULL); }

/* enter locks the fabric. A thread that polls would have to leave it first, and makes the progress itself meanwhile. */
static void enter(struct snd_fabric *f, int naps)
{
	for (int i = 0; snd_relaxed32(&f->serves_memory) != 0 && i < naps && snd_is_inside(f); i++)
		pause_for(NAP);
	snd_lock_aside(f);
}

/* rest sleeps until a peer rings the engine's doorbell. */
static void rest(struct snd_fabric *f)
{
	struct snd_doorbell *d = &f->record->engine;
	snd_lock_aside(f);
	uint32_t ticket = snd_arm(d);
	f->engine_armed = true;
	bool progressed = drive(f);
	/* A wait of the program polls by itself, and wakes the engine if it ends before that work does. */
	int64_t sleep = f->calls == 0 && snd_needs_polling(f) ? snd_poll_interval(f) : snd_idle_time(f);
	snd_unlock_aside(f);
	if (!progressed && snd_load32(&f->quit) == 0)
		snd_sleep(d, ticket, sleep);
	snd_lock_aside(f);
	f->engine_armed = false;
	snd_disarm(d);
	snd_unlock_aside(f);
}

/* serves reports whether a request of a peer waits that only this process can execute. A program that polls one queue, or its memory, may
 * never see it. */
static bool serves(struct snd_fabric *f)
{
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next) {
		const struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		const struct snd_slot *slot = ep->state == SND_QP_CONNECTED ? snd_front(&ep->conn->in) : NULL;
		if (slot != NULL && (snd_relaxed(&slot->words[0]) & SNDL_ENTRY_KIND_MASK) >= SNDL_KIND_WRITE_FRAGMENT)
			return true;
	}
	return false;
}

/* is_needed is serves for a fabric whose programs may not poll while peers need them. */
static bool is_needed(struct snd_fabric *f, int naps)
{
	if (snd_relaxed32(&f->serves_memory) == 0)
		return false;
	enter(f, naps);
	const bool needed = serves(f);
	snd_unlock_aside(f);
	return needed;
}

/* is_needed_meanwhile is is_needed while the program polls. To stop a thread that is in a call costs more than it helps, above all one that copies much
 * and is nearly always in one: the check is put off then, but not for ever. */
static bool is_needed_meanwhile(struct snd_fabric *f, int *put_off)
{
	if (snd_is_inside(f) && ++*put_off < MAX_PUT_OFF)
		return false;
	*put_off = 0;
	return is_needed(f, 0);
}

/* check is the result of a check of the threads of the machine. */
struct check {
	int64_t at;
	bool spare;
};

/* has_spare_core reports whether the engine may spin: a core would be idle otherwise. */
static bool has_spare_core(const struct snd_fabric *f, struct check *c)
{
	const int64_t now = snd_clock();
	if (f->engine_spin == 0)
		return false;
	if (c->at == 0 || now - c->at >= CHECK_INTERVAL) {
		c->at = now;
		c->spare = snd_runnable_threads() <= f->cores; /* this one is among them */
	}
	return c->spare;
}

void snd_engine_leaves_rings(struct snd_fabric *f)
{
	snd_set32(&f->stop_polls, 1);
	while (snd_acquire32(&f->polls_on) != 0) /* ORDER polls-on: pairs with the store in poll_on */
		sched_yield();
	snd_set32(&f->stop_polls, 0);
}

/* poll_on polls the rings of peers without the lock, for a time, and reports whether an entry has come. The caller has the lock, before and after
 * it. */
static bool poll_on(struct snd_fabric *f)
{
	struct {
		const snd_word *seq;
		uint64_t want;
	} fronts[MAX_FRONTS];
	int n = 0;
	bool found = false;
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints && n < MAX_FRONTS; l = l->next) {
		const struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		if (ep->state != SND_QP_CONNECTED)
			continue;
		const struct snd_consumer *in = &ep->conn->in;
		fronts[n].seq = &in->slots[in->next & in->mask].seq;
		fronts[n++].want = in->next + 1;
	}
	const int64_t end = snd_deadline(f->engine_spin);
	snd_set32(&f->polls_on, 1);
	snd_unlock_aside(f);
	while (!found && snd_load32(&f->quit) == 0 && snd_clock() < end && snd_relaxed32(&f->stop_polls) == 0)
		for (int round = 0; round < ROUNDS_PER_CLOCK && !found; round++) {
			snd_pause();
			for (int i = 0; i < n && !found; i++)
				found = snd_relaxed(fronts[i].seq) == fronts[i].want; /* plain: the holder of the lock loads it again */
		}
	snd_release32(&f->polls_on, 0); /* ORDER polls-on: after the last load of a ring; pairs with the load in snd_engine_leaves_rings */
	enter(f, MAX_NAPS);
	return found;
}

/* serve is the engine while peers need it, whether the program polls or not: it sleeps with its doorbell armed. A program that spins on its memory
 * may leave it little time, so it takes the lock, and the barrier of the doorbell, once for each sleep. */
static void serve(struct snd_fabric *f)
{
	struct snd_doorbell *d = &f->record->engine;
	int64_t needed = snd_clock();
	struct check checked = {0};
	snd_thread_naps_exactly();
	while (snd_load32(&f->quit) == 0 && snd_clock() - needed < NEEDED_FOR) {
		enter(f, MAX_NAPS);
		f->engine_armed = false;
		snd_disarm(d);
		if (serves(f))
			needed = snd_clock();
		for (int burst = 0; burst < MAX_BURST && f->calls == 0 && drive(f); burst++) {
		}
		if (has_spare_core(f, &checked) && poll_on(f)) {
			snd_unlock_aside(f);
			continue;
		}
		const uint32_t ticket = snd_arm(d);
		f->engine_armed = true;
		const bool progressed = drive(f);
		const int64_t sleep = f->calls == 0 && snd_needs_polling(f) ? snd_poll_interval(f) : snd_idle_time(f);
		snd_unlock_aside(f);
		if (!progressed && snd_load32(&f->quit) == 0)
			snd_sleep(d, ticket, sleep < NEEDED_FOR ? sleep : NEEDED_FOR);
	}
	snd_lock_aside(f);
	f->engine_armed = false;
	snd_disarm(d);
	snd_unlock_aside(f);
}

static void *run(void *arg)
{
	struct snd_fabric *f = arg;
	snd_thread_name(name_of_thread);
	uint64_t seen = snd_relaxed(&f->activity);
	int64_t gap = MIN_GAP;
	int burst = 0, put_off = 0;
	while (snd_load32(&f->quit) == 0) {
		if (f->stepwise) { /* steps are counted, so something always remains to do */
			snd_lock_aside(f);
			if (f->calls == 0)
				drive(f);
			snd_unlock_aside(f);
			pause_for(snd_poll_interval(f));
			continue;
		}
		uint64_t now = snd_relaxed(&f->activity);
		if (now != seen && snd_relaxed32(&f->event_fds) == 0) { /* the program drives its endpoints */
			seen = now;
			pause_for(gap);
			gap = gap * 2 < MAX_GAP ? gap * 2 : MAX_GAP;
			if (is_needed_meanwhile(f, &put_off)) {
				serve(f);
				gap = MIN_GAP;
			}
			continue;
		}
		if (is_needed(f, MAX_NAPS))
			serve(f);
		snd_lock_aside(f);
		bool progressed = f->calls == 0 && drive(f); /* a wait drives everything */
		snd_unlock_aside(f);
		if (progressed && ++burst < MAX_BURST)
			continue;
		burst = 0;
		gap = MIN_GAP;
		rest(f);
	}
	return NULL;
}

void snd_engine_polls_on(struct snd_fabric *f, int64_t ns)
{
	snd_lock(f);
	f->engine_spin = ns;
	snd_unlock(f);
}

snd_status snd_engine_start(struct snd_fabric *f, const char *op)
{
	snd_status s = snd_thread_start(&f->engine, run, f, name_of_thread, op);
	f->engine_runs = s == SND_SUCCESS;
	return s;
}

void snd_engine_stop(struct snd_fabric *f)
{
	if (!f->engine_runs)
		return;
	atomic_store(&f->quit, 1);
	snd_wake_doorbell(&f->record->engine);
	snd_thread_join(f->engine);
	f->engine_runs = false;
}

/* How a blocking call waits: it spins for about as long as an answer from another core takes, then yields, then sleeps.
 * TWIN endpoint/progress_wait.go, endpoint/internal/waiter/spin.go. */
#include "endpoint/progress_wait.h"

#include <sched.h>

#include "endpoint/cm_ports.h"
#include "endpoint/progress.h"
#include "endpoint/progress_housekeeper.h"
#include "endpoint/progress_statuspage.h"
#include "linux/clock.h"
#include "shm/work.h"

enum { SPINS = 500, YIELDS = 200, ROUNDS_PER_PROGRESS = 64, YIELDS_PER_PROGRESS = 4, SPINS_PER_CLOCK = 16, MAX_PER_CORE_TO_YIELD = 64 };
/* A wait that spins for longer, about a millisecond, is listed for observers while it spins. */
#define MAX_SPINS_BEFORE_LISTING (UINT32_C(1) << 16)

enum {
	MAX_HALVINGS = 3, /* after one more, waits do not spin */
	/* After this many waits that do not spin, one tries. Each failed try doubles the number, at most MAX_DOUBLINGS times. */
	FIRST_REST = 64,
	MAX_DOUBLINGS = 4
};

enum {
	/* In nanoseconds. It ends SPINS early if a round takes long because it drives many endpoints. */
	SPIN_LIMIT = 20 * 1000,
	/* For each process per core. After a yield a relay on this core runs for long, and it needs the core to bring the answer. */
	YIELD_LIMIT = 100 * 1000
};

uint32_t snd_spin_rounds(struct snd_spin *s, uint32_t most)
{
	if (s->halvings <= MAX_HALVINGS)
		return most >> s->halvings;
	if (s->rest == 0)
		return most;
	s->rest--;
	return 0;
}

void snd_spin_ended(struct snd_spin *s, bool found)
{
	const bool is_try = s->halvings > MAX_HALVINGS;
	if (found && s->halvings > 0) {
		s->halvings = is_try ? 0 : s->halvings - 1;
	} else if (!found && is_try) {
		s->doublings += s->doublings < MAX_DOUBLINGS;
		s->rest = (uint32_t)FIRST_REST << s->doublings;
	} else if (!found && ++s->halvings > MAX_HALVINGS) {
		s->doublings = 0;
		s->rest = FIRST_REST;
	}
}

/* budget is how long a wait spins and how long it then yields: numbers of rounds, and nanoseconds. INT64_MAX is no limit. */
struct budget {
	uint32_t spins, yields;
	int64_t spin_limit, yield_limit;
};

/* budget_of is spinBudget of the Go provider. */
static struct budget budget_of(struct snd_fabric *f)
{
	const uint32_t per_core = (f->processes + f->cores - 1) / f->cores;
	struct budget b = {.yields = per_core <= MAX_PER_CORE_TO_YIELD ? YIELDS : 0, .spin_limit = SPIN_LIMIT, .yield_limit = INT64_MAX};
	/* Each round is a step. Other processes run meanwhile, and see what is delayed. */
	if (f->stepwise)
		return b;
	if (snd_has_relay(f))
		b.yield_limit = (int64_t)YIELD_LIMIT * per_core;
	if (f->spin_budget == 0) {
		b.spins = snd_spin_rounds(&f->spin, SPINS);
		b.spin_limit = (int64_t)SPIN_LIMIT * b.spins / SPINS;
	} else if (f->spin_budget != SND_NO_SPIN) {
		b.spins = f->spin_budget;
		if (b.spins > SPINS)
			b.spin_limit = INT64_MAX;
	}
	return b;
}

/* relax lets other threads of the process use the fabric. */
static void relax(struct snd_fabric *f)
{
	snd_unlock(f);
	snd_pause();
	snd_lock(f);
}

/* wait is a call of snd_wait. */
struct wait {
	struct snd_fabric *f;
	bool (*ready)(void *);
	void (*driver)(void *);
	void *arg;
	int64_t timeout, deadline; /* deadline -1: none */
	struct snd_call *call;
	bool listed; /* observers see the call */
};

static void list(struct wait *w)
{
	if (!w->listed)
		snd_begin_call(w->f, w->call);
	w->listed = true;
}

/* check is a round of a wait that does not sleep. It returns SND_UNSUCCESSFUL if the wait goes on. */
static snd_status check(struct wait *w, bool progress_all)
{
	struct snd_fabric *f = w->f;
	if (w->driver != NULL)
		w->driver(w->arg);
	if (progress_all) {
		snd_progress_all(f);
		if (!snd_list_is_empty(&f->work))
			snd_run_deferred(f);
	}
	if (w->ready(w->arg))
		return SND_SUCCESS;
	if (f->closed)
		return SND_CANCELED;
	return w->timeout == 0 ? SND_IO_TIMEOUT : SND_UNSUCCESSFUL;
}

static snd_status spin(struct wait *w, uint32_t rounds, int64_t limit)
{
	struct snd_fabric *f = w->f;
	int64_t began = -1;
	for (uint32_t i = 0; i < rounds; i++) {
		snd_status s = check(w, i % ROUNDS_PER_PROGRESS == 0);
		if (s == SND_SUCCESS)
			snd_spin_ended(&f->spin, true);
		if (s != SND_UNSUCCESSFUL)
			return s;
		relax(f);
		if (i % SPINS_PER_CLOCK != SPINS_PER_CLOCK - 1)
			continue;
		int64_t now = snd_clock();
		if (w->deadline >= 0 && now >= w->deadline) {
			snd_spin_ended(&f->spin, false);
			return SND_IO_TIMEOUT;
		}
		if (i >= MAX_SPINS_BEFORE_LISTING)
			list(w);
		if (i >= SPINS)
			snd_housekeep(f, now);
		if (began < 0)
			began = now; /* not before, because most waits are shorter */
		else if (now - began > limit)
			break;
	}
	if (rounds > 0)
		snd_spin_ended(&f->spin, false);
	return SND_UNSUCCESSFUL;
}

static snd_status yield(struct wait *w, uint32_t rounds, int64_t limit)
{
	struct snd_fabric *f = w->f;
	const int64_t began = limit == INT64_MAX ? 0 : snd_clock();
	for (uint32_t i = 0; i < rounds; i++) {
		snd_status s = check(w, i % YIELDS_PER_PROGRESS == 0);
		if (s != SND_UNSUCCESSFUL)
			return s;
		snd_unlock(f);
		sched_yield();
		snd_lock(f);
		if (w->deadline < 0 && limit == INT64_MAX)
			continue;
		int64_t now = snd_clock();
		if (w->deadline >= 0 && now >= w->deadline)
			return SND_IO_TIMEOUT;
		if (now - began > limit)
			break;
	}
	return SND_UNSUCCESSFUL;
}

static snd_status park(struct wait *w)
{
	struct snd_fabric *f = w->f;
	for (;;) {
		f->sleepers++;
		uint32_t ticket = snd_arm(&f->record->waiters);
		int64_t now = snd_clock();
		snd_housekeep(f, now);
		bool progressed = snd_progress_all(f);
		if (!snd_list_is_empty(&f->work))
			snd_run_deferred(f);
		bool done = w->ready(w->arg);
		bool over = f->closed || (w->deadline >= 0 && now >= w->deadline);
		if (!done && !over && !progressed) {
			int64_t sleep = snd_needs_polling(f) ? snd_poll_interval(f) : snd_idle_time(f);
			if (w->deadline >= 0 && w->deadline - now < sleep)
				sleep = w->deadline - now;
			snd_unlock(f);
			snd_sleep(&f->record->waiters, ticket, sleep);
			snd_lock(f);
		}
		if (--f->sleepers == 0)
			snd_disarm(&f->record->waiters);
		progressed = snd_progress_all(f); /* a ring while this wait was armed has woken no other thread */
		if (progressed && f->engine_armed)
			snd_ring(f, &f->record->engine); /* the rest is its work if this wait is over */
		if (done || w->ready(w->arg))
			return SND_SUCCESS;
		if (f->closed)
			return SND_CANCELED;
		if (over)
			return SND_IO_TIMEOUT;
	}
}

snd_status snd_wait(struct snd_fabric *f, int64_t timeout, bool (*ready)(void *), void (*driver)(void *), void *arg, struct snd_call *call)
{
	if (ready(arg))
		return SND_SUCCESS;
	if (f->closed)
		return SND_CANCELED;
	struct wait w = {f, ready, driver, arg, timeout, timeout < 0 ? -1 : snd_deadline(timeout), call, false};
	const struct budget budget = budget_of(f);
	f->calls++;
	snd_set(&f->activity, snd_relaxed(&f->activity) + 1);
	snd_status s = spin(&w, budget.spins, budget.spin_limit);
	if (s == SND_UNSUCCESSFUL)
		s = yield(&w, budget.yields, budget.yield_limit);
	if (s == SND_UNSUCCESSFUL) {
		list(&w);
		s = park(&w);
	}
	if (w.listed)
		snd_end_call(f, call, s == SND_SUCCESS);
	if (--f->calls == 0 && f->engine_armed && (snd_needs_polling(f) || snd_is_asked(f)))
		snd_ring(f, &f->record->engine); /* it has left the polling to this wait, and an observer has rung only this wait */
	f->progress_made += s == SND_SUCCESS;
	return s;
}

snd_status snd_wait_drained(struct snd_fabric *f, int64_t timeout, bool (*drained)(void *), void *arg, struct snd_call *call)
{
	f->drains++;
	snd_status s = snd_wait(f, timeout, drained, NULL, arg, call);
	f->drains--;
	return s;
}

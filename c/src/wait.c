/* How a blocking call waits: it spins for about as long as an answer from another core takes, then yields, then sleeps. */
#include <sched.h>

#include "endpoint.h"
#include "fabric.h"
#include "status_page.h"

enum { SPINS = 500, YIELDS = 160, ROUNDS_PER_PROGRESS = 64, YIELDS_PER_PROGRESS = 4, SPINS_PER_CLOCK = 16, MAX_PER_CORE_TO_YIELD = 64 };

enum {
	/* In nanoseconds. It ends the spins early if a round takes long because it drives many endpoints. */
	SPIN_LIMIT = 20 * 1000,
	/* For each process per core. After a yield a relay on this core runs for long, and it needs the core to bring the answer. */
	YIELD_LIMIT = 100 * 1000
};

/* budget is how long a wait spins and how long it then yields: numbers of rounds, and nanoseconds. INT64_MAX is no limit. */
struct budget {
	uint32_t spins, yields;
	int64_t spin_limit, yield_limit;
};

/* budget_of is waiter.Budget. */
static struct budget budget_of(const struct snd_fabric *f)
{
	const uint32_t per_core = (f->processes + f->cores - 1) / f->cores;
	struct budget b = {
		.spins = f->processes <= f->cores ? SPINS : 0,
		.yields = per_core <= MAX_PER_CORE_TO_YIELD ? YIELDS : 0,
		.spin_limit = SPIN_LIMIT,
		.yield_limit = INT64_MAX,
	};
	/* With a weak order each round is a step of its delays. Other processes run meanwhile, and see what is delayed. */
	if (f->weak_order)
		b.spins = 0;
	else if (snd_has_relay(f))
		b.yield_limit = (int64_t)YIELD_LIMIT * per_core;
	return b;
}

/* relax lets other threads of the process use the fabric. */
static void relax(struct snd_fabric *f)
{
	snd_unlock(f);
	snd_pause();
	snd_lock(f);
}

static snd_status park(struct snd_fabric *f, int64_t deadline, bool (*ready)(void *), void *arg)
{
	for (;;) {
		f->sleepers++;
		uint32_t ticket = snd_arm(&f->record->waiters);
		int64_t now = snd_clock();
		snd_housekeep(f, now);
		bool progressed = snd_progress_all(f);
		if (!snd_list_is_empty(&f->work))
			snd_run_deferred(f);
		bool done = ready(arg);
		bool over = f->closed || (deadline >= 0 && now >= deadline);
		if (!done && !over && !progressed) {
			int64_t sleep = snd_needs_polling(f) ? snd_poll_interval(f) : snd_idle_time(f);
			if (deadline >= 0 && deadline - now < sleep)
				sleep = deadline - now;
			snd_unlock(f);
			snd_sleep(&f->record->waiters, ticket, sleep);
			snd_lock(f);
		}
		if (--f->sleepers == 0)
			snd_disarm(&f->record->waiters);
		progressed = snd_progress_all(f); /* a ring while this wait was armed has woken no other thread */
		if (progressed && f->engine_armed)
			snd_ring(f, &f->record->engine); /* the rest is its work if this wait is over */
		if (done || ready(arg))
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
	int64_t deadline = timeout < 0 ? -1 : snd_deadline(timeout);
	const struct budget budget = budget_of(f);
	uint32_t spins = budget.spins;
	f->calls++;
	snd_set(&f->activity, snd_relaxed(&f->activity) + 1);
	snd_status s = SND_UNSUCCESSFUL;
	int64_t began = -1; /* the spins, or the yields */
	for (uint32_t i = 0; i < spins + budget.yields && s == SND_UNSUCCESSFUL; i++) {
		if (i == spins && budget.yield_limit != INT64_MAX)
			began = snd_clock();
		if (driver != NULL)
			driver(arg);
		if (i % (i < spins ? ROUNDS_PER_PROGRESS : YIELDS_PER_PROGRESS) == 0) {
			snd_progress_all(f);
			if (!snd_list_is_empty(&f->work))
				snd_run_deferred(f);
		}
		if (ready(arg))
			s = SND_SUCCESS;
		else if (f->closed)
			s = SND_CANCELED;
		else if (timeout == 0)
			s = SND_IO_TIMEOUT;
		else if (i < spins) {
			relax(f);
			if (i % SPINS_PER_CLOCK == SPINS_PER_CLOCK - 1) {
				int64_t now = snd_clock();
				if (began < 0)
					began = now; /* not before, because most waits are shorter */
				else if (now - began > budget.spin_limit)
					spins = i + 1;
			}
		} else {
			snd_unlock(f);
			sched_yield();
			snd_lock(f);
			if (deadline < 0 && budget.yield_limit == INT64_MAX)
				continue;
			int64_t now = snd_clock();
			if (deadline >= 0 && now >= deadline)
				s = SND_IO_TIMEOUT;
			else if (now - began > budget.yield_limit)
				break;
		}
	}
	if (s == SND_UNSUCCESSFUL) {
		snd_begin_call(f, call);
		s = park(f, deadline, ready, arg);
		snd_end_call(f, call, s == SND_SUCCESS);
	}
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

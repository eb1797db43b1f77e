/* Collective calls: barrier and exchange. */
#include "job/collective.h"

#include <inttypes.h>
#include <string.h>

#include "endpoint/progress_wait.h"
#include "job/group.h"
#include "job/hostcalls.h"
#include "job/hosts.h"
#include "linux/clock.h"
#include "shm/liveness.h"

enum { SPINS = 1000 };

static uint64_t arrive(struct snd_job *j)
{
	struct snd_arena *a = &j->fabric->arena;
	if (j->group == 2) {
		struct snd_rank_record *mine = snd_rank(a, j->local), *other = snd_rank(a, 1 - j->local);
		j->round++;
		if (j->plain_stores) {
			snd_release(&mine->round, j->round); /* ORDER barrier-round: pairs with the load in passed */
			atomic_signal_fence(memory_order_seq_cst);
		} else {
			snd_store_full(&mine->round, j->round); /* ORDER barrier-round: pairs with the load in passed */
		}
		/* ORDER barrier-round: after the store; pairs with the other rank's store and the barrier in snd_arm */
		if (snd_load(&other->round) >= j->round)
			snd_wake_ranks(j);
		return j->round;
	}
	struct snd_header *h = snd_header(a);
	uint64_t n = atomic_fetch_add(&h->arrived, 1) + 1; /* ORDER barrier-arrived: pairs with itself in the last rank */
	uint64_t ticket = (n + j->group - 1) / j->group * j->group;
	j->round = ticket / j->group;
	if (n == ticket) {
		snd_store_full(&h->opened, ticket); /* ORDER barrier-open: pairs with the load in passed */
		snd_wake_ranks(j);
	}
	return ticket;
}

static bool passed(const struct snd_job *j, uint64_t ticket)
{
	const struct snd_arena *a = &j->fabric->arena;
	if (j->group == 2)
		return snd_load(&snd_rank(a, 1 - j->local)->round) >= ticket; /* ORDER barrier-round: pairs with the stores in arrive */
	return snd_load(&snd_header(a)->opened) >= ticket; /* ORDER barrier-open: pairs with the store in arrive */
}

/* is_missing reports whether the member of a rank has died or left, also if another process has joined as that rank since then. Until
 * all ranks have joined, a process that has left and still runs is not missing: it has closed an earlier job of this rank, and may join
 * again. Nor is one that has left if its record has another owner, which hides whether it runs. A process that has refused to
 * take part is missing. TWIN collective.go. */
static bool is_missing(const struct snd_job *j, uint32_t local)
{
	struct snd_peer p;
	if (j->started)
		return !snd_member_of_rank(j, local, &p) || snd_peer_gone(&p);
	const uint64_t word = snd_load(&snd_rank(&j->fabric->arena, local)->member); /* a refusal is ordered by death-count */
	if (word == 0 || (word & SND_RANK_REFUSED) != 0)
		return word != 0;
	return !snd_member_of_rank(j, local, &p) || (snd_peer_gone(&p) && !snd_may_join_again(j, local, &p));
}

struct barrier_wait {
	struct snd_job *j;
	uint64_t ticket;
	uint32_t missing; /* rank + 1 */
};

/* has_ended reports whether a wait for all ranks ends without them. */
static bool has_ended(struct barrier_wait *w)
{
	struct snd_job *j = w->j;
	uint64_t deaths = snd_load(&snd_header(&j->fabric->arena)->deaths);
	if (deaths == j->deaths && snd_clock() - j->checked_at < SND_CHECK_INTERVAL)
		return false;
	for (uint32_t rank = 0; rank < j->group; rank++)
		if (is_missing(j, rank)) {
			snd_record_lost_peer(j->fabric, j->started ? j->members[rank] : snd_load(&snd_rank(&j->fabric->arena, rank)->member) & SND_RANK_MEMBER);
			w->missing = rank + 1;
			return true;
		}
	j->deaths = deaths;
	j->checked_at = snd_clock();
	return false;
}

static bool barrier_ready(void *arg)
{
	struct barrier_wait *w = arg;
	return passed(w->j, w->ticket) || has_ended(w);
}

static bool form_ready(void *arg)
{
	struct barrier_wait *w = arg;
	return snd_formed(w->j) || snd_place_has_ended(&w->j->place, "init") != SND_SUCCESS || has_ended(w);
}

static snd_status makes_another_call(const struct snd_job *j, uint32_t local, const char *op)
{
	return snd_fail(SND_INVALID_DEVICE_STATE, "%s: rank %" PRIu32 " makes another collective call: let all ranks make the same collective calls in the same order",
		op, snd_rank_at(j, local));
}

static snd_status has_left(const struct snd_job *j, uint32_t local, const char *op)
{
	return snd_fail(SND_CONNECTION_ABORTED, "%s: rank %" PRIu32 " has died or left", op, snd_rank_at(j, local));
}

snd_status snd_form(struct snd_job *j, int64_t timeout, const char *op)
{
	struct barrier_wait w = {j, 0, 0};
	snd_status s = snd_wait(j->fabric, timeout, form_ready, NULL, &w, &(struct snd_call){.op = op, .round = j->round + 1});
	if (s != SND_SUCCESS)
		return s == SND_CANCELED ? snd_fail(s, "%s: the job was closed", op) : snd_fail(s, "%s: not all ranks have arrived within %s", op, snd_duration(timeout).text);
	if (j->started || snd_formed(j)) /* a rank that has ended since may have formed the group first */
		return s;
	return w.missing != 0 ? has_left(j, w.missing - 1, op) : snd_place_has_ended(&j->place, op);
}

/* in_step fails if an earlier collective call has failed. */
static snd_status in_step(const struct snd_job *j, const char *op)
{
	if (j->broken)
		return snd_fail(SND_INVALID_DEVICE_STATE, "%s: an earlier barrier of this rank has failed, and the ranks are out of step: start the job again", op);
	return SND_SUCCESS;
}

snd_status snd_barrier(struct snd_job *j, int64_t timeout, const char *op)
{
	struct snd_fabric *f = j->fabric;
	snd_status step = in_step(j, op);
	if (step != SND_SUCCESS)
		return step;
	struct barrier_wait w = {j, arrive(j), 0};
	/* The others are often close. A number of checks that the program has set is that of the wait alone. */
	const uint32_t rounds = f->spin_budget == 0 ? snd_spin_rounds(&j->spin, SPINS) : 0;
	for (uint32_t i = 0; i < rounds; i++)
		if (passed(j, w.ticket)) {
			snd_spin_ended(&j->spin, true);
			return SND_SUCCESS;
		}
	if (rounds > 0)
		snd_spin_ended(&j->spin, false);
	snd_status s = snd_wait(f, timeout, barrier_ready, NULL, &w, &(struct snd_call){.op = op, .round = j->round});
	if (s == SND_SUCCESS && !passed(j, w.ticket))
		s = has_left(j, w.missing - 1, op);
	else if (s != SND_SUCCESS)
		s = s == SND_CANCELED ? snd_fail(s, "%s: the job was closed", op) : snd_fail(s, "%s: not all ranks have arrived within %s", op, snd_duration(timeout).text);
	j->broken = s != SND_SUCCESS;
	return s;
}

snd_status snd_check_barrier(struct snd_job *j, const char *op)
{
	for (uint32_t local = 0; local < j->group; local++)
		/* Ordered by the barrier. A rank that is ahead has published for a later one. */
		if (local != j->local && snd_relaxed(&snd_rank(&j->fabric->arena, local)->published_round) == j->round) {
			j->broken = true;
			return makes_another_call(j, local, op);
		}
	return SND_SUCCESS;
}

snd_status snd_job_barrier(snd_job *job, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "barrier";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(job, SND_TYPE_JOB, op);
	struct snd_job *j = job;
	snd_status s = j->hosts == NULL ? snd_barrier(j, timeout, op) : in_step(j, op);
	if (s == SND_SUCCESS)
		s = j->hosts != NULL ? snd_across_hosts(j, NULL, timeout, op) : snd_check_barrier(j, op);
	return snd_leave_with(j->fabric, s);
}

/* is_window_pair reports whether one length is that of a descriptor in memory, and the other that of an encoded one. */
static bool is_window_pair(uint64_t a, uint64_t b)
{
	return (a == sizeof(snd_window_descriptor) && b == SND_WINDOW_DESCRIPTOR_SIZE) || (b == sizeof(snd_window_descriptor) && a == SND_WINDOW_DESCRIPTOR_SIZE);
}

snd_status snd_wrong_length(uint32_t rank, uint64_t theirs, uint64_t mine, const char *op)
{
	return snd_fail(SND_INVALID_BUFFER_SIZE, "%s: rank %" PRIu32 " passes %" PRIu64 " bytes, this rank %" PRIu64 ": pass the same length on all ranks%s", op,
		rank, theirs, mine, is_window_pair(theirs, mine) ? ", and window descriptors with snd_job_exchange_windows" : "");
}

/* collect copies the bytes that a rank has published for the last barrier. */
static snd_status collect(struct snd_job *j, uint32_t rank, uint64_t length, unsigned char *to, const char *op)
{
	const struct snd_arena *a = &j->fabric->arena;
	const struct snd_rank_record *r = snd_rank(a, rank);
	struct snd_peer p;
	/* Ordered by the barrier: the rank stored all three before it arrived. */
	uint64_t offset = snd_relaxed(&r->blob), n = snd_relaxed(&r->length), round = snd_relaxed(&r->published_round);
	if (!snd_member_of_rank(j, rank, &p))
		return snd_fail(SND_CONNECTION_ABORTED, "%s: rank %" PRIu32 " has died or left", op, rank);
	if (round != j->round) {
		j->broken = true;
		return makes_another_call(j, rank, op);
	}
	if (n != length)
		return snd_wrong_length(rank, n, length, op);
	if (n == 0)
		return SND_SUCCESS;
	if (!snd_peer_owns(j->fabric, &p, offset, n))
		return snd_fail(SND_CONNECTION_ABORTED, "%s: the bytes of rank %" PRIu32 " are not in its memory", op, rank);
	memcpy(to, a->base + offset, n);
	return SND_SUCCESS;
}

void snd_publish_at(struct snd_job *j, uint64_t offset, uint64_t length)
{
	struct snd_rank_record *r = snd_rank(&j->fabric->arena, j->local);
	snd_set(&r->blob, offset);
	snd_set(&r->length, length);
	snd_set(&r->published_round, j->round + 1);
}

snd_status snd_publish_blob(struct snd_job *j, const void *bytes, uint64_t length, uint64_t *offset, const char *op)
{
	struct snd_fabric *f = j->fabric;
	snd_status s = snd_alloc(&f->heap, length > 0 ? length : 1, false, offset, op);
	if (s != SND_SUCCESS)
		return s;
	if (length > 0)
		memcpy(f->arena.base + *offset, bytes, length);
	snd_publish_at(j, *offset, length);
	return s;
}

snd_status snd_job_exchange(snd_job *job, const void *mine, uint64_t length, void *all, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "exchange";
	SND_CHECK(job, SND_TYPE_JOB, op);
	if (length > 0 && (mine == NULL || all == NULL))
		return snd_fail(SND_INVALID_PARAMETER, "%s: mine or all is NULL", op);
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(job, SND_TYPE_JOB, op);
	struct snd_job *j = job;
	struct snd_fabric *f = j->fabric;
	uint64_t offset;
	if (length > SND_MAX_EXCHANGE / j->size)
		return snd_leave_with(f,
			snd_fail(SND_INVALID_BUFFER_SIZE, "%s: %" PRIu64 " bytes of each rank, at most %" PRIu64 " of all together", op, length, SND_MAX_EXCHANGE));
	snd_status s = in_step(j, op); /* else each call would keep a blob */
	if (s == SND_SUCCESS && j->hosts != NULL)
		return snd_leave_with(f, snd_across_hosts(j, &(struct snd_exchange){mine, length, all}, timeout, op));
	if (s == SND_SUCCESS)
		s = snd_publish_blob(j, mine, length, &offset, op);
	if (s == SND_SUCCESS) {
		s = snd_barrier(j, timeout, op);
		snd_status bad = SND_SUCCESS;
		for (uint32_t rank = 0; s == SND_SUCCESS && bad == SND_SUCCESS && rank < j->size; rank++)
			bad = collect(j, rank, length, (unsigned char *)all + rank * length, op);
		if (s == SND_SUCCESS && !j->broken)
			s = snd_barrier(j, timeout, op); /* the ranks stay in step even if the lengths differ */
		if (!j->broken) /* else a rank that is late may still copy from there; there is no further exchange */
			snd_free(&f->heap, offset);
		s = s == SND_SUCCESS ? bad : s;
	}
	return snd_leave_with(f, s);
}

snd_status snd_job_exchange_windows(snd_job *job, const snd_window_descriptor *mine, snd_window_descriptor *all, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "exchange windows";
	SND_CHECK(job, SND_TYPE_JOB, op);
	if (mine == NULL || all == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s is NULL", op, mine == NULL ? "mine" : "all");
	SND_CHECK_TIMEOUT(timeout, op);
	snd_status s = snd_check_reserved(mine, op);
	if (s != SND_SUCCESS)
		return s;
	uint8_t bytes[SND_WINDOW_DESCRIPTOR_SIZE];
	snd_window_descriptor_encode(mine, bytes);
	s = snd_job_exchange(job, bytes, sizeof bytes, all, timeout);
	/* The encoded descriptors are the shorter ones: the last can be decoded in place first. */
	for (uint32_t rank = s == SND_SUCCESS ? snd_job_size(job) : 0; rank-- > 0;) {
		memcpy(bytes, (unsigned char *)all + (size_t)rank * sizeof bytes, sizeof bytes);
		snd_window_descriptor_decode(bytes, &all[rank]);
	}
	return s;
}

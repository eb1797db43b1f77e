/* The rank group of a host: how its members become ranks. TWIN shm/group.go. */
#include "job/group.h"

#include <inttypes.h>
#include <unistd.h>

#include "shm/doorbell.h"
#include "shm/liveness.h"

/* wake rings the wait doorbell of a rank. When the group is formed, it does not read the rank's record, which moves in a barrier. */
static void wake(struct snd_job *j, uint32_t local)
{
	struct snd_peer p;
	if (local == j->local)
		return;
	const uint64_t id = j->started ? j->members[local] : snd_load(&snd_rank(&j->fabric->arena, local)->member) & SND_RANK_MEMBER;
	if (snd_peer_of(j->fabric, id, &p))
		snd_ring(j->fabric, &p.record->waiters);
}

void snd_wake_ranks(struct snd_job *j)
{
	for (uint32_t local = 0; local < j->group; local++)
		wake(j, local);
}

/* next_word is the word of the member that takes the place of the one of word, which is gone. */
static uint64_t next_word(uint64_t word, uint64_t id)
{
	const bool died = (word & SND_RANK_MEMBER) != 0 && (word & SND_RANK_LEFT) == 0;
	return SND_RANK_TAKEN | ((word + (died ? SND_RANK_DEATH : 0)) & SND_RANK_DEATHS) | id;
}

void snd_refuse_rank(struct snd_job *j)
{
	snd_mark_rank(j->fabric, SND_RANK_REFUSED);
	atomic_fetch_add(&snd_header(&j->fabric->arena)->deaths, 1); /* ORDER death-count: after the mark, so that the others check all ranks; pairs with the load in has_ended */
	snd_wake_ranks(j);
}

/* holder_died reports whether the member of a rank has died, and leaves the word with that member at *word. */
static bool holder_died(const struct snd_job *j, uint32_t local, uint64_t *word)
{
	const struct snd_rank_record *r = snd_rank(&j->fabric->arena, local);
	for (;;) {
		struct snd_peer p;
		*word = snd_load(&r->member); /* ORDER rank-taken: pairs with the exchange in snd_join_group */
		if (!snd_peer_of(j->fabric, *word & SND_RANK_MEMBER, &p) || !snd_peer_gone(&p))
			return false;
		if (snd_load(&r->member) == *word) /* ORDER rank-left: after the state; pairs with the exchange in snd_mark_rank */
			return (*word & SND_RANK_LEFT) == 0;
	}
}

uint64_t snd_rank_deaths(const struct snd_job *j, uint32_t local)
{
	uint64_t word;
	const bool died = holder_died(j, local, &word);
	return ((word + (died ? SND_RANK_DEATH : 0)) & SND_RANK_DEATHS) / SND_RANK_DEATH;
}

bool snd_may_join_again(const struct snd_job *j, uint32_t local, const struct snd_peer *p)
{
	uint64_t word;
	const bool runs = snd_process_runs(p);
	return snd_has_next_owner(p) ? !holder_died(j, local, &word) : runs;
}

snd_status snd_join_group(struct snd_job *j, const char *op)
{
	struct snd_fabric *f = j->fabric;
	struct snd_rank_record *r = snd_rank(&f->arena, j->local);
	for (;;) {
		uint64_t word = snd_load(&r->member);
		struct snd_peer holder;
		if (snd_peer_of(f, word & SND_RANK_MEMBER, &holder) && snd_check_alive(f, &holder))
			return holder.pid == (uint32_t)getpid() && snd_is_own_pid_namespace(holder.pid_ns)
				? snd_fail(SND_SHARING_VIOLATION, "%s: this process is rank %" PRIu32 " already: use its open job, or close that first", op, j->rank)
				: snd_fail(SND_SHARING_VIOLATION, "%s: rank %" PRIu32 " belongs to another process; %s", op, j->rank, j->place.taken);
		if (atomic_compare_exchange_strong(&r->member, &word, next_word(word, f->id))) /* ORDER rank-taken: pairs with the load in snd_member_of_rank */
			break;
	}
	snd_set(&r->length, 0);
	snd_set(&r->published_round, 0);
	snd_set(&r->lost_peer_at, 0);
	snd_release32(&r->membarrier, snd_has_heavy_global());
	return SND_SUCCESS;
}

bool snd_member_of_rank(const struct snd_job *j, uint32_t local, struct snd_peer *p)
{
	const struct snd_fabric *f = j->fabric;
	const uint64_t word = snd_load(&snd_rank(&f->arena, local)->member); /* ORDER rank-taken: pairs with the swap in snd_join_group */
	if (j->started && (word & ~SND_RANK_LEFT) != j->members[local])
		return false;
	return word != 0 && snd_peer_of(f, word & SND_RANK_MEMBER, p);
}

bool snd_is_earlier(const struct snd_job *j, uint32_t local)
{
	const uint64_t word = snd_load(&snd_rank(&j->fabric->arena, local)->member);
	return word != 0 && (word & (SND_RANK_TAKEN | SND_RANK_WAITS)) == 0;
}

/* is_ready reports whether a rank has a live member that waits until the group is formed. */
static bool is_ready(const struct snd_job *j, uint32_t local)
{
	struct snd_peer p;
	const uint64_t word = snd_load(&snd_rank(&j->fabric->arena, local)->member); /* ORDER rank-waits: pairs with the exchange in snd_formed */
	return (word & SND_RANK_BITS) == SND_RANK_WAITS && snd_peer_of(j->fabric, word & SND_RANK_MEMBER, &p) && !snd_peer_gone(&p);
}

static uint64_t higher(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* admit_all admits the members of all ranks, this one last, if all wait for that. */
static bool admit_all(struct snd_job *j)
{
	const struct snd_arena *a = &j->fabric->arena;
	struct snd_header *h = snd_header(a);
	for (uint32_t local = 0; local < j->group; local++)
		if (!is_ready(j, local))
			return false;
	/* No member of an earlier group is left, and the new ones arrive nowhere before they are admitted. */
	snd_set(&h->formed_by, j->fabric->id);
	if (j->group == 2) {
		const uint64_t round = higher(snd_load(&snd_rank(a, 0)->round), snd_load(&snd_rank(a, 1)->round)) + 1;
		snd_set(&snd_rank(a, 0)->round, round);
		snd_set(&snd_rank(a, 1)->round, round);
	} else {
		const uint64_t round = (higher(snd_load(&h->arrived), snd_load(&h->opened)) + j->group - 1) / j->group + 1;
		snd_set(&h->arrived, round * j->group);
		snd_set(&h->opened, round * j->group);
	}
	for (uint32_t local = j->group; local-- > 0;) {
		struct snd_rank_record *r = snd_rank(a, local);
		uint64_t word = snd_load(&r->member);
		if ((word & SND_RANK_BITS) == SND_RANK_WAITS)
			atomic_compare_exchange_strong(&r->member, &word, word & SND_RANK_MEMBER); /* ORDER rank-admitted: after the numbers of the barrier; pairs with the load in snd_formed */
	}
	snd_wake_ranks(j);
	return true;
}

bool snd_formed(struct snd_job *j)
{
	const struct snd_arena *a = &j->fabric->arena;
	if (j->started)
		return true;
	const uint32_t group = j->group;
	if (group == 0)
		return false; /* each group has a rank, which analysers cannot know */
	uint64_t taken = snd_load(&snd_rank(a, j->local)->member);
	/* ORDER rank-waits: after the other words of the record; pairs with the load in is_ready */
	if ((taken & SND_RANK_MEMBER) == j->fabric->id && (taken & SND_RANK_TAKEN) != 0 &&
		atomic_compare_exchange_strong(&snd_rank(a, j->local)->member, &taken, taken ^ (SND_RANK_TAKEN | SND_RANK_WAITS)))
		wake(j, 0);
	if ((j->local == 0 && !admit_all(j)) || snd_load(&snd_rank(a, j->local)->member) != j->fabric->id) /* ORDER rank-admitted: pairs with the exchange in admit_all */
		return false;
	/* The rank 0 that has admitted this member may still be admitting others, itself last. If it has ended meanwhile, it is noted all the
	 * same, and missing from then on. No other can form a group as long as this member stays. */
	const uint64_t first = snd_load(&snd_header(a)->formed_by); /* ORDER rank-admitted: after the own word; pairs with the exchanges in admit_all */
	const uint64_t word0 = snd_load(&snd_rank(a, 0)->member);
	if ((word0 & SND_RANK_BITS) == SND_RANK_WAITS && (word0 & SND_RANK_MEMBER) == first)
		return false;
	j->members[0] = first;
	for (uint32_t local = 1; local < group; local++) {
		/* A rank that has left since then may have a next member, which waits as long as this one stays. */
		const uint64_t word = snd_load(&snd_rank(a, local)->member);
		j->members[local] = (word & (SND_RANK_TAKEN | SND_RANK_WAITS)) == 0 ? word & SND_RANK_MEMBER : 0;
	}
	j->plain_stores = group == 2 && snd_has_heavy_global() && snd_load32(&snd_rank(a, 1 - j->local)->membarrier) == 1; /* it was stored before the other rank was ready */
	j->round = group == 2 ? snd_load(&snd_rank(a, j->local)->round) : snd_load(&snd_header(a)->opened) / group; /* no barrier opens before this rank has arrived */
	j->checked_at = 0; /* from now on, a rank that has left is missing */
	j->started = true;
	return true;
}

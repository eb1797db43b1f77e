/* The deaths of ranks, as a program asks for them. */
#include <inttypes.h>
#include <stdlib.h>

#include "error.h"
#include "job.h"
#include "memory_limit.h"

/* has_died is Arena.HasDied: whether member id of a rank has ended without leaving. */
static bool has_died(const struct snd_job *j, uint32_t local, uint64_t id)
{
	const struct snd_rank_record *r = snd_rank(&j->fabric->arena, local);
	struct snd_peer p;
	if (snd_peer_of(j->fabric, id, &p) && !snd_peer_gone(&p))
		return false;
	bool left = snd_load32(&r->left) != 0; /* ORDER rank-left: pairs with the stores in join_group and in the leave of a member */
	return !left && snd_load(&r->member) == id; /* else the rank's next member has cleared the word */
}

struct death_wait {
	struct snd_job *j;
	uint32_t found; /* rank of this host + 1 */
};

static bool death_ready(void *arg)
{
	struct death_wait *w = arg;
	struct snd_job *j = w->j;
	uint64_t deaths = snd_load(&snd_header(&j->fabric->arena)->deaths);
	if (deaths == j->death_watch.deaths && snd_clock() - j->death_watch.checked_at < SND_CHECK_INTERVAL)
		return false;
	for (uint32_t local = 0; local < j->group; local++) {
		uint64_t id = snd_load(&snd_rank(&j->fabric->arena, local)->member); /* ORDER rank-taken: pairs with the swap in join_group */
		if (id != 0 && id != j->death_watch.returned[local] && has_died(j, local, id)) {
			j->death_watch.returned[local] = id;
			w->found = local + 1;
			return true;
		}
	}
	j->death_watch.deaths = deaths;
	j->death_watch.checked_at = snd_clock();
	return false;
}

snd_status snd_job_next_death(snd_job *job, int64_t timeout, uint32_t *rank)
{
	SND_KEEP_ERRNO;
	const char *op = "next death";
	SND_CHECK(job, SND_TYPE_JOB, op);
	if (rank == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: rank is NULL", op);
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(job, SND_TYPE_JOB, op);
	struct snd_job *j = job;
	if (j->death_watch.returned == NULL && (j->death_watch.returned = calloc(j->group, sizeof(uint64_t))) == NULL)
		return snd_leave_with(j->fabric, snd_no_memory(j->group * sizeof(uint64_t), "private memory", op));
	struct death_wait w = {j, 0};
	snd_status s = snd_wait(j->fabric, timeout, death_ready, NULL, &w, &(struct snd_call){.op = op});
	if (w.found != 0) {
		*rank = snd_rank_at(j, w.found - 1);
		s = SND_SUCCESS;
	} else if (s != SND_SUCCESS) {
		s = snd_fail(s, "%s: no rank has died", op);
	}
	return snd_leave_with(j->fabric, s);
}

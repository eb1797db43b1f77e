/* The deaths of ranks, as a program asks for them. */
#include <inttypes.h>
#include <stdlib.h>

#include "endpoint/progress_wait.h"
#include "job/collective.h"
#include "job/group.h"
#include "job/hosts.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"

struct death_wait {
	struct snd_job *j;
	uint32_t found; /* rank of this host + 1 */
};

/* A death is not lost if another process takes the rank before the check: that process counts it. TWIN death.go. */
static bool death_ready(void *arg)
{
	struct death_wait *w = arg;
	struct snd_job *j = w->j;
	uint64_t deaths = snd_load(&snd_header(&j->fabric->arena)->deaths);
	if (deaths == j->death_watch.deaths && snd_clock() - j->death_watch.checked_at < SND_CHECK_INTERVAL)
		return false;
	for (uint32_t local = 0; local < j->group; local++) {
		uint64_t *returned = &j->death_watch.returned[local];
		if (snd_rank_deaths(j, local) != *returned) {
			*returned = (*returned + 1) % (SND_RANK_DEATHS / SND_RANK_DEATH + 1);
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
	SND_CHECK_POINTER(rank, op);
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
		s = s == SND_CANCELED ? snd_fail(s, "%s: the job was closed", op) : snd_fail(s, "%s: no rank has died within %s", op, snd_duration(timeout).text);
	}
	return snd_leave_with(j->fabric, s);
}

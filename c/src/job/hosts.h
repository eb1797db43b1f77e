/* The begin of a job over several hosts. */
#ifndef SND_JOB_HOSTS_H
#define SND_JOB_HOSTS_H

#include "job/job.h"

/* snd_start_hosts is the part of snd_job_init that connects the hosts. */
snd_status snd_start_hosts(struct snd_job *j, int64_t deadline, const char *op);
/* snd_rank_at returns the number in the job of a rank of this host. */
uint32_t snd_rank_at(const struct snd_job *j, uint32_t local);
bool snd_is_remote(const struct snd_job *j, uint32_t rank);

#endif

/* The private part of a job. */
#ifndef SND_JOB_H
#define SND_JOB_H

#include "bootstrap.h"

enum { SND_CONNECT_PORT = 1 }; /* at which every rank listens */

struct snd_job {
	struct snd_object object;
	struct snd_fabric *fabric;
	snd_adapter *adapter;
	snd_listener *listener;
	struct snd_kept *kept; /* requests that no call has taken, the oldest first */
	uint32_t rank, size;
	struct snd_place place;
	bool broken;  /* a barrier has failed, and the ranks are out of step */
	bool started; /* all ranks have joined */
	uint64_t round;
	uint64_t deaths;
	int64_t checked_at;
};

/* job.c */
/* snd_member_of_rank returns the member that has a rank; false if none has taken it. */
bool snd_member_of_rank(const struct snd_job *j, uint32_t rank, struct snd_peer *p);

/* collective.c */
/* snd_barrier returns when all ranks have arrived. The caller holds the lock. */
snd_status snd_barrier(struct snd_job *j, int64_t timeout, const char *op);

/* abort.c */
/* snd_job_is_current makes j the job that snd_job_abort takes if it gets none. */
void snd_job_is_current(struct snd_job *j);
/* snd_job_retire makes the handle of j invalid, also for snd_job_abort. */
void snd_job_retire(struct snd_job *j);

/* job_connect.c */
/* snd_forget_kept frees what no call has taken, when the job is closed. */
void snd_forget_kept(struct snd_job *j);

#endif

/* The private part of a job. */
#ifndef SND_JOB_H
#define SND_JOB_H

#include "fabric.h"

enum { SND_CONNECT_PORT = 1 }; /* at which every rank listens */

struct snd_job {
	struct snd_object object;
	snd_adapter *adapter;
	snd_listener *listener;
	struct snd_kept *kept;
	uint32_t rank, size;
	int channel; /* to the launcher; -1 = none */
	bool broken; /* a barrier has failed, and the ranks are out of step */
	uint64_t round;
	uint64_t deaths;
	int64_t checked_at;
};

/* job.c */
/* snd_member_of_rank returns the member that has a rank; false if none has taken it. */
bool snd_member_of_rank(const struct snd_job *j, uint32_t rank, struct snd_peer *p);

/* job_connect.c */
/* snd_forget_kept frees what no call has taken, when the job is closed. */
void snd_forget_kept(struct snd_job *j);

#endif

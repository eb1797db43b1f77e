/* Barrier and exchange over several hosts. */
#ifndef SND_JOB_HOSTCALLS_H
#define SND_JOB_HOSTCALLS_H

#include "job/job.h"

struct snd_exchange {
	const void *mine;
	uint64_t length;
	void *all;
};
/* snd_across_hosts is a barrier over several hosts, or an exchange if x is not NULL. The caller holds the lock, and the ranks are
 * in step. */
snd_status snd_across_hosts(struct snd_job *j, const struct snd_exchange *x, int64_t timeout, const char *op);

#endif

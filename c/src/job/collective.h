/* Barrier and exchange of the ranks of a host. */
#ifndef SND_JOB_COLLECTIVE_H
#define SND_JOB_COLLECTIVE_H

#include "job/job.h"

#define SND_CHECK_INTERVAL INT64_C(100000000) /* the longest time between two checks of all ranks, in nanoseconds */
#define SND_MAX_EXCHANGE (UINT64_C(256) << 20)
/* snd_form waits until the group of this host is formed. The caller holds the lock. */
snd_status snd_form(struct snd_job *j, int64_t timeout, const char *op);
/* snd_barrier returns when all ranks of this host have arrived. The caller holds the lock. */
snd_status snd_barrier(struct snd_job *j, int64_t timeout, const char *op);
/* snd_check_barrier fails if another rank of this host has taken the last barrier for an exchange. */
snd_status snd_check_barrier(struct snd_job *j, const char *op);
/* snd_publish_blob copies bytes into the arena and publishes them for the next barrier. The caller frees the memory when all have
 * read it. snd_publish_at publishes what is there already. */
snd_status snd_publish_blob(struct snd_job *j, const void *bytes, uint64_t length, uint64_t *offset, const char *op);
void snd_publish_at(struct snd_job *j, uint64_t offset, uint64_t length);
/* snd_wrong_length is the failure of an exchange in which a rank passes another length than this one. */
snd_status snd_wrong_length(uint32_t rank, uint64_t theirs, uint64_t mine, const char *op);

#endif

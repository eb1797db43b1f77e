/* The rank group of a host. */
#ifndef SND_JOB_GROUP_H
#define SND_JOB_GROUP_H

#include "job/job.h"

/* snd_join_group takes the rank in the rank group. */
snd_status snd_join_group(struct snd_job *j, const char *op);
/* snd_formed is Group.Formed: it makes this member ready for the group, and reports whether each rank has a member that waits for that, and rank 0 has admitted them all. */
bool snd_formed(struct snd_job *j);
/* snd_is_earlier reports whether the member that has a rank was admitted to a group. While this group is not formed, that is an earlier one. */
bool snd_is_earlier(const struct snd_job *j, uint32_t local);
/* snd_member_of_rank returns the member that is a rank of this host; false if none is, or if it has left the formed group and
 * another process is that rank. */
bool snd_member_of_rank(const struct snd_job *j, uint32_t local, struct snd_peer *p);
/* snd_refuse_rank is Group.Refuse: it tells the other ranks that this member is their rank, and does not take part in the group. */
void snd_refuse_rank(struct snd_job *j);
/* snd_rank_deaths is Arena.RankDeaths: how many members of a rank have died since the group was formed, the present one included, modulo
 * SND_RANK_DEATHS / SND_RANK_DEATH + 1. */
uint64_t snd_rank_deaths(const struct snd_job *j, uint32_t local);
/* snd_may_join_again is mayJoinAgain of shm/group.go: it reports whether the process of a rank's member p, which is gone, may become the next member. */
bool snd_may_join_again(const struct snd_job *j, uint32_t local, const struct snd_peer *p);
/* snd_wake_ranks rings the wait doorbells of the other ranks of this host. Their engines do not wait for a rank. */
void snd_wake_ranks(struct snd_job *j);

#endif

/* The private part of a job. */
#ifndef SND_JOB_H
#define SND_JOB_H

#include "meet/bootstrap.h"

enum { SND_CONNECT_PORT = 1 }; /* at which every rank listens */

struct snd_job {
	struct snd_object object;
	struct snd_fabric *fabric;
	snd_adapter *adapter;
	snd_listener *listener;
	struct snd_kept *kept; /* requests that no call has taken, the oldest first */
	uint32_t rank, size;
	uint32_t local, group; /* number of this rank among those of its host; their number */
	struct snd_hosts *hosts; /* that of place; NULL if all ranks run on one host */
	struct snd_place place;
	bool broken;  /* a barrier has failed, and the ranks are out of step */
	bool started; /* the group is formed: all ranks have joined */
	bool retired; /* guarded by the mutex of abort.c */
	uint64_t members[SNDL_RANKS]; /* of all ranks of this host when the group was formed */
	uint64_t round;
	struct snd_spin spin; /* of its barriers */
	uint64_t deaths;
	int64_t checked_at;
	struct {
		uint64_t *returned; /* number of deaths of each rank of this host that snd_job_next_death has returned; NULL before its first call */
		uint64_t deaths;
		int64_t checked_at;
	} death_watch;
};

/* group.c */
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
/* snd_wake_ranks rings the wait doorbells of the other ranks of this host. Their engines do not wait for a rank. */
void snd_wake_ranks(struct snd_job *j);

/* hosts.c */
/* snd_start_hosts is the part of snd_job_init that connects the hosts. */
snd_status snd_start_hosts(struct snd_job *j, int64_t deadline, const char *op);
/* snd_rank_at returns the number in the job of a rank of this host. */
uint32_t snd_rank_at(const struct snd_job *j, uint32_t local);
bool snd_is_remote(const struct snd_job *j, uint32_t rank);

/* hostcalls.c */
struct snd_exchange {
	const void *mine;
	uint64_t length;
	void *all;
};
/* snd_across_hosts is a barrier over several hosts, or an exchange if x is not NULL. The caller holds the lock, and the ranks are
 * in step. */
snd_status snd_across_hosts(struct snd_job *j, const struct snd_exchange *x, int64_t timeout, const char *op);

/* collective.c */
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

/* abort.c */
/* snd_job_is_current makes j the job that snd_job_abort takes if it gets none. */
void snd_job_is_current(struct snd_job *j);
/* snd_job_ends ends this process, because another rank has ended the job and no launcher ends this process. It does nothing if the job
 * is retired. Any thread may call it before the job is freed. */
void snd_job_ends(void *job, int code, const char *why);
/* snd_job_retire makes the handle of j invalid. Then snd_job_abort does not take j, unless the ranks meet at SOFTND_ROOT. There rank 0
 * may wait for the others, and can still abort. Before j is freed, snd_job_forget makes snd_job_abort forget it. */
void snd_job_retire(struct snd_job *j);
void snd_job_forget(const struct snd_job *j);

/* connect.c */
/* snd_forget_kept frees what no call has taken, when the job is closed. */
void snd_forget_kept(struct snd_job *j);

#endif

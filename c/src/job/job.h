/* The private part of a job. */
#ifndef SND_JOB_H
#define SND_JOB_H

#include "endpoint/cm_listener.h"
#include "meet/bootstrap.h"

enum {
	SND_CONNECT_PORT = 1, /* at which every rank listens, for snd_job_connect */
	SND_DIAL_PORT = 2     /* of a rank that has called snd_job_listen */
};

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
	bool exits;     /* the process ends when another rank has ended the job */
	snd_half ended; /* another rank has ended it */
	uint64_t members[SNDL_RANKS]; /* of all ranks of this host when the group was formed */
	uint64_t round;
	bool plain_stores; /* both of two ranks call snd_heavy_global before their last check for work; a copy, because the other's line moves in each barrier */
	struct snd_spin spin; /* of its barriers */
	uint64_t deaths;
	int64_t checked_at;
	struct {
		uint64_t *returned; /* number of deaths of each rank of this host that snd_job_next_death has returned; NULL before its first call */
		uint64_t deaths;
		int64_t checked_at;
	} death_watch;
};

#endif

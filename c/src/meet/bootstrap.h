/* The place of this process in a job, as its launcher says in the environment: ndrun, a launcher that speaks PMI, Open MPI's
 * mpirun, or Slurm's srun. Without a launcher the user says it, or the process is a job of its own. See internal/meet/bootstrap. */
#ifndef SND_BOOTSTRAP_H
#define SND_BOOTSTRAP_H

#include <stdbool.h>

#include "meet/hosts.h"
#include "meet/pmi.h"
#include "sha256.h"
#include "shm/fabric.h"

enum { SND_FABRIC_NAME = 64 };

struct snd_place {
	uint32_t rank, size;
	struct snd_hosts *hosts; /* NULL if all ranks run on one host */
	bool mute;          /* the launcher does not print the reasons that it is given */
	char launcher[400]; /* for people */
	char taken[200];    /* the next step for the user if another process has the rank already */
	int channel;        /* to ndrun; -1 = none */
	struct snd_pmi pmi;
	struct snd_root *root; /* NULL unless the ranks meet at SOFTND_ROOT */
};

/* snd_place_init makes p a place without a launcher. */
void snd_place_init(struct snd_place *p);
/* snd_place_find finds the place of this process, and opens the fabric of its job. It asks the innermost launcher first:
 * ndrun sets its own variables over those of a launcher that has started ndrun. */
snd_status snd_place_find(struct snd_place *p, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op);
/* snd_place_visit opens the fabric of the job of ndrun that has started this process, for a program that does not call snd_job_init.
 * To ndrun, the exit code alone says whether it has failed. */
snd_status snd_place_visit(const snd_fabric_options *o, snd_fabric **fabric, const char *op);
/* snd_place_leave tells the launcher that this rank ends in good order. It fails if another rank has ended a job without a
 * launcher. snd_place_hang_up only closes the connection: the launcher then takes this rank for failed. Hydra
 * ends this process at that, before the program can print the cause, so the cause is printed first. */
snd_status snd_place_leave(struct snd_place *p, const char *op);
void snd_place_hang_up(struct snd_place *p, const char *cause);
/* snd_wait_until_read waits, for a second at most, until the reader of a pipe has read all of it. Hydra does not read the output of
 * ranks that it ends. */
void snd_wait_until_read(int fd);
/* snd_place_free frees what p has, after one of the two. */
void snd_place_free(struct snd_place *p);
/* snd_place_abort asks the launcher to end the job with an exit code. It returns false if the launcher was not told. */
bool snd_place_abort(struct snd_place *p, int code, const char *reason);
/* snd_place_has_ended fails if another rank has ended the job, and no launcher is there to end this process. snd_place_watch has a
 * thread of the library call a function then. */
snd_status snd_place_has_ended(const struct snd_place *p, const char *op);
void snd_place_watch(struct snd_place *p, void (*ended)(void *arg, int code, const char *why), void *arg);

/* foreign.c: a job of a launcher other than ndrun. */
extern const struct snd_launcher_variables {
	const char *name;
	const char *rank, *size; /* names of variables */
	const char *local, *all; /* the same number in both if the job is on one host; all may be NULL: 1 */
	const char *job[4];      /* the first is the job's number; no other job has the same values of all */
	const char *one_host;    /* how to ask for one host */
	const char *prefix;      /* of the fabric's name */
} snd_open_mpi, snd_slurm;
snd_status snd_place_in_variables(struct snd_place *p, const struct snd_launcher_variables *v, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op);

/* root_place.c: a job whose ranks meet at SOFTND_ROOT. */
snd_status snd_place_at_root(struct snd_place *p, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op);

/* agree.c: a job of a launcher that speaks PMI. snd_place_meet is the rest for ranks that meet there or at SOFTND_ROOT. secret is that
 * of the user, or NULL. */
snd_status snd_place_meet(struct snd_place *p, const struct snd_bytes *secret, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op);
snd_status snd_place_over_pmi(struct snd_place *p, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op);
/* snd_place_share passes a text of each host to all ranks, indexed by host. All ranks call it with the same name, and the first
 * rank of each host passes the text of the host. Escaped, the text has at most SND_PMI_VALUE bytes. */
typedef char snd_shared_text[SND_PMI_VALUE + 1];
snd_status snd_place_share(struct snd_place *p, const char *name, const char *mine, snd_shared_text *all, int64_t deadline, const char *op);

#endif

/* A rank's side of version 1 of the Process Management Interface, by which launchers such as mpiexec.hydra serve their
 * ranks. internal/meet/pmi describes the protocol. */
#ifndef SND_PMI_H
#define SND_PMI_H

#include <stdbool.h>
#include <stdint.h>

#include "softnd/softnd.h"

enum { SND_PMI_NAME = 256, SND_PMI_KEY = 64, SND_PMI_VALUE = 960, SND_PMI_LINE = 4096 };

/* snd_pmi is the connection to the launcher. A process has one in its life: the launcher closes it after finalize. */
struct snd_pmi {
	int socket; /* -1 = none */
	int inherited; /* the descriptor that the launcher has opened; socket is a duplicate */
	uint32_t rank, size;
	char name[SND_PMI_NAME + 1]; /* of the job's key-value store */
	size_t filled, used;         /* bytes of line: received, and those of the last answer */
	char line[SND_PMI_LINE + 1];
};

/* snd_pmi_answer is a parsed line: words name=value. The first is cmd. */
enum { SND_PMI_WORDS = 64 };
struct snd_pmi_answer {
	int count;
	const char *names[SND_PMI_WORDS], *values[SND_PMI_WORDS];
};
/* snd_pmi_parse splits a line in place. It returns what is wrong, or NULL. */
const char *snd_pmi_parse(char *line, struct snd_pmi_answer *a);
/* snd_pmi_value returns the value of a name after the first word, or NULL. */
const char *snd_pmi_value(const struct snd_pmi_answer *a, const char *name);

/* snd_pmi_dial begins with the launcher that PMI_FD, PMI_RANK and PMI_SIZE describe. Deadlines are in the time of
 * snd_clock; a negative one is none. */
snd_status snd_pmi_dial(struct snd_pmi *c, int64_t deadline, const char *op);
/* snd_pmi_put sets the value of a key, which all ranks can get after the next barrier. */
snd_status snd_pmi_put(struct snd_pmi *c, const char *key, const char *value, int64_t deadline, const char *op);
snd_status snd_pmi_get(struct snd_pmi *c, const char *key, char value[SND_PMI_VALUE + 1], int64_t deadline, const char *op);
snd_status snd_pmi_barrier(struct snd_pmi *c, int64_t deadline, const char *op);
/* snd_pmi_abort asks the launcher to end the job with an exit code. It returns false if the launcher cannot be reached. */
bool snd_pmi_abort(struct snd_pmi *c, int code);
/* snd_pmi_ends_job reports whether the launcher ends the job by itself when a rank dies. It notices that by the end of the rank's
 * connection, of which another process must have no duplicate then. */
bool snd_pmi_ends_job(const struct snd_pmi *c);
/* snd_pmi_is_shared reports whether an MPI library uses the connection, too. Then MPI_Finalize tells the launcher that the rank
 * ends well, and closes the inherited descriptor. */
bool snd_pmi_is_shared(void);
/* snd_pmi_finalize tells the launcher that this rank ends in good order, and closes the connection, with all duplicates. */
snd_status snd_pmi_finalize(struct snd_pmi *c, int64_t deadline, const char *op);
/* snd_pmi_hang_up only closes the connection. The launcher then takes the rank for failed, unless another process has a
 * duplicate. */
void snd_pmi_hang_up(struct snd_pmi *c);

#endif

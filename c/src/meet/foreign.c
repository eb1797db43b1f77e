/* Under a launcher that speaks no PMI, the ranks of a job open a fabric together. The launcher's variables tell their rank, the
 * size of the job, and a name for the fabric that no other job has. The names are those of internal/meet/bootstrap/foreign.go, so
 * that C and Go ranks meet. TWIN internal/meet/bootstrap/foreign.go. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encoding.h"
#include "endpoint/provider.h"
#include "linux/memory_limit.h"
#include "meet/bootstrap.h"
#include "settings.h"

const struct snd_launcher_variables snd_open_mpi = {
	"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE",
	{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMIX_SERVER_URI2", "OMPI_MCA_orte_precondition_transports"},
	"mpirun --host localhost:N", "openmpi"};

/* For steps without the pmi2 plugin (--mpi=none). */
const struct snd_launcher_variables snd_slurm = {
	"Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", NULL,
	{"SLURM_STEP_ID", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_SRUN_COMM_PORT"},
	"srun -N 1", "slurm"};

enum { JOB_VARIABLES = 4, DIGEST = 12 };

/* digest writes a short hash of text that can be part of a fabric's name. */
static void digest(const char *text, size_t length, char hex[2 * DIGEST + 1])
{
	unsigned char sum[32];
	snd_sha256(text, length, sum);
	snd_hex(sum, DIGEST, hex);
}

/* number_in reads a variable of the launcher; a name of NULL is the number 1. */
static snd_status number_in(const char *name, const struct snd_launcher_variables *v, int64_t *n, const char *op)
{
	*n = name == NULL ? 1 : snd_number_in(name);
	if (*n >= 0)
		return SND_SUCCESS;
	const char *text = getenv(name);
	return snd_fail(SND_INVALID_PARAMETER, "%s: %s=\"%s\", set by %s: want a number", op, name, text != NULL ? text : "", v->name);
}

/* name_of_job derives the fabric's name from the variables that identify the job. */
static snd_status name_of_job(const struct snd_launcher_variables *v, char name[SND_FABRIC_NAME + 1], const char *op)
{
	char *text = NULL, hex[2 * DIGEST + 1];
	size_t length = 0;
	bool known = false;
	FILE *f = open_memstream(&text, &length);
	if (f == NULL)
		return snd_no_memory(BUFSIZ, "private memory", op);
	for (int i = 0; i < JOB_VARIABLES; i++) {
		const char *value = getenv(v->job[i]);
		known = known || (value != NULL && *value != 0);
		fprintf(f, "%s=%s\n", v->job[i], value != NULL ? value : "");
	}
	if (fclose(f) != 0) {
		free(text);
		return snd_no_memory(BUFSIZ, "private memory", op);
	}
	digest(text, length, hex);
	free(text);
	snprintf(name, SND_FABRIC_NAME + 1, "%s-%s", v->prefix, hex);
	if (!known)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s has set %s, but none of %s, %s, %s, %s, which identify the job: start the program with %s, or unset %s",
			op, v->name, v->rank, v->job[0], v->job[1], v->job[2], v->job[3], v->name, v->rank);
	return SND_SUCCESS;
}

snd_status snd_place_in_variables(struct snd_place *p, const struct snd_launcher_variables *v, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op)
{
	int64_t rank, size, local, all;
	char name[SND_FABRIC_NAME + 1];
	snd_status s = number_in(v->rank, v, &rank, op);
	if (s == SND_SUCCESS)
		s = number_in(v->size, v, &size, op);
	if (s == SND_SUCCESS)
		s = number_in(v->local, v, &local, op);
	if (s == SND_SUCCESS)
		s = number_in(v->all, v, &all, op);
	if (s != SND_SUCCESS)
		return s;
	if (rank >= size)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s=%" PRId64 " is not a rank of %s=%" PRId64 ": want a rank from 0 to size-1", op, v->rank, rank, v->size, size);
	if (local != all)
		return snd_fail(SND_HOST_UNREACHABLE, "%s: %s runs the job on several hosts (%s is %" PRId64 ", not %" PRId64 "), but its ranks cannot meet through it: start the job with %s for one host, or with a launcher that speaks PMI",
			op, v->name, v->local, local, all, v->one_host);
	if ((s = name_of_job(v, name, op)) != SND_SUCCESS)
		return s;
	p->rank = (uint32_t)rank;
	snprintf(p->launcher, sizeof p->launcher, "started by %s, meeting as %s", v->name, name);
	return snd_fabric_join(name, (uint32_t)size, 0, 0, (int32_t)rank, o, deadline, fabric, op);
}

/* Under a launcher other than ndrun, the ranks of a job open a fabric together. From the launcher they need their rank, the
 * size of the job, and a name for the fabric that no other job has. Names, keys and values are those of
 * internal/bootstrap/foreign.go, so that C and Go ranks meet. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "bootstrap.h"
#include "error.h"
#include "memory_limit.h"
#include "settings.h"
#include "sha256.h"

#define FABRIC_KEY "softnd-fabric" /* of rank 0: the name of the fabric, or why there is none */
#define HOST_KEY "softnd-host-%" PRIu32 /* of each rank: its host */

const struct snd_launcher_variables snd_open_mpi = {
	"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE",
	{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMIX_SERVER_URI2", "OMPI_MCA_orte_precondition_transports"},
	"mpirun --host localhost:N", "openmpi"};

/* For steps without the pmi2 plugin (--mpi=none). */
const struct snd_launcher_variables snd_slurm = {
	"Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", NULL,
	{"SLURM_STEP_ID", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_SRUN_COMM_PORT"},
	"srun -N 1", "slurm"};

enum { JOB_VARIABLES = 4, DIGEST = 12, FABRIC_NAME = 64 };

/* digest writes a short hash of text that can be part of a fabric's name. */
static void digest(const char *text, size_t length, char hex[2 * DIGEST + 1])
{
	unsigned char sum[32];
	snd_sha256(text, length, sum);
	for (size_t i = 0; i < DIGEST; i++)
		snprintf(hex + 2 * i, 3, "%02x", sum[i]);
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
static snd_status name_of_job(const struct snd_launcher_variables *v, char name[FABRIC_NAME + 1], const char *op)
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
	snprintf(name, FABRIC_NAME + 1, "%s-%s", v->prefix, hex);
	if (!known)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s has set %s, but none of %s, %s, %s, %s, which identify the job: start the program with %s, or unset %s",
			op, v->name, v->rank, v->job[0], v->job[1], v->job[2], v->job[3], v->name, v->rank);
	return SND_SUCCESS;
}

snd_status snd_place_in_variables(struct snd_place *p, const struct snd_launcher_variables *v, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op)
{
	int64_t rank, size, local, all;
	char name[FABRIC_NAME + 1];
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
		return snd_fail(SND_HOST_UNREACHABLE, "%s: %s runs the job on several hosts (%s is %" PRId64 ", not %" PRId64 "), but softnd's ranks share the memory of one host: start the job with %s",
			op, v->name, v->local, local, all, v->one_host);
	if ((s = name_of_job(v, name, op)) != SND_SUCCESS)
		return s;
	p->rank = (uint32_t)rank;
	snprintf(p->launcher, sizeof p->launcher, "started by %s, meeting as %s", v->name, name);
	return snd_fabric_join(name, (uint32_t)size, 0, (int32_t)rank, o, deadline, fabric, op);
}

/* host says where a process runs, as far as that decides whether two processes can open the same fabric. */
struct host {
	char boot[64]; /* identity of the kernel's boot; "" if it cannot be read */
	char network[64]; /* network namespace, which holds the names of fabrics */
	char name[256]; /* for people */
	int64_t user;
};

static struct host this_host(void)
{
	struct host h = {.user = (int64_t)geteuid()};
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re"); /* a container may hide it */
	if (f != NULL) {
		if (fgets(h.boot, sizeof h.boot, f) != NULL)
			h.boot[strcspn(h.boot, " \n")] = 0;
		fclose(f);
	}
	ssize_t n = readlink("/proc/self/ns/net", h.network, sizeof h.network - 1);
	h.network[n > 0 ? n : 0] = 0;
	if (gethostname(h.name, sizeof h.name - 1) != 0)
		snprintf(h.name, sizeof h.name, "?");
	return h;
}

/* escape writes text as part of a query of a URL, as long as it fits. */
static void escape(const char *text, char *to, size_t size)
{
	size_t n = 0;
	for (; *text != 0 && n + 4 <= size; text++) {
		const unsigned char c = (unsigned char)*text;
		if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-_.~", c) != NULL)
			to[n++] = (char)c;
		else if (c == ' ')
			to[n++] = '+';
		else
			n += (size_t)snprintf(to + n, size - n, "%%%02X", c);
	}
	to[n] = 0;
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c == 0 ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
	return at == NULL ? -1 : (int)(at - digits);
}

/* unescape undoes escape for length bytes. It fails if text is malformed or does not fit. */
static bool unescape(const char *text, size_t length, char *to, size_t size)
{
	size_t n = 0;
	for (size_t i = 0; i < length; i++) {
		char c = (char)(text[i] == '+' ? ' ' : text[i]);
		if (n + 1 >= size)
			return false;
		if (c == '%') {
			const int high = i + 2 < length ? hex_digit(text[i + 1]) : -1, low = i + 2 < length ? hex_digit(text[i + 2]) : -1;
			if (high < 0 || low < 0)
				return false;
			c = (char)(high << 4 | low);
			i += 2;
		}
		to[n++] = c;
	}
	to[n] = 0;
	return true;
}

static void format_host(const struct host *h, char text[SND_PMI_VALUE + 1])
{
	char boot[3 * sizeof h->boot], network[3 * sizeof h->network], name[SND_PMI_VALUE - 6 * 64 - 40];
	escape(h->boot, boot, sizeof boot);
	escape(h->network, network, sizeof network);
	escape(h->name, name, sizeof name);
	snprintf(text, SND_PMI_VALUE + 1, "boot=%s&host=%s&network=%s&user=%" PRId64, boot, name, network, h->user);
}

static bool parse_host(const char *text, struct host *h)
{
	char user[24] = "";
	const struct {
		const char *name;
		char *to;
		size_t size;
	} fields[] = {{"boot=", h->boot, sizeof h->boot}, {"network=", h->network, sizeof h->network}, {"host=", h->name, sizeof h->name}, {"user=", user, sizeof user}};
	*h = (struct host){0};
	while (*text != 0) {
		const size_t n = strcspn(text, "&");
		for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
			const size_t k = strlen(fields[i].name);
			if (n >= k && strncmp(text, fields[i].name, k) == 0 && !unescape(text + k, n - k, fields[i].to, fields[i].size))
				return false;
		}
		text += n + (text[n] == '&');
	}
	char *end;
	h->user = strtoll(user, &end, 10);
	return user[0] != 0 && *end == 0;
}

/* separated writes why rank 0, on h, cannot open a fabric together with another rank. It returns false if it can. */
static bool separated(const struct host *h, const struct host *other, uint32_t rank, char *why, size_t size)
{
	if (strcmp(other->boot, h->boot) != 0)
		snprintf(why, size, "rank %" PRIu32 " runs on host %.100s, rank 0 on host %.100s; softnd's ranks share the memory of one host: ask the launcher for one (mpiexec without -hosts, srun -N 1)", rank, other->name, h->name);
	else if (strcmp(other->network, h->network) != 0)
		snprintf(why, size, "rank %" PRIu32 " is in another network namespace (%s) than rank 0 (%s): run both in the same, or start the job with ndrun inside", rank, other->network, h->network);
	else if (other->user != h->user)
		snprintf(why, size, "rank %" PRIu32 " runs as user %" PRId64 ", rank 0 as user %" PRId64 ": run all as one", rank, other->user, h->user);
	else
		return false;
	return true;
}

/* random_text writes 26 random characters, at least 128 bits. */
static bool random_text(char text[27])
{
	unsigned char b[26];
	if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
		return false;
	for (size_t i = 0; i < sizeof b; i++)
		text[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[b[i] % 32];
	text[sizeof b] = 0;
	return true;
}

/* choose_fabric writes rank 0's value of FABRIC_KEY: "name:" and the name, or "error:" and why there is none. */
static snd_status choose_fabric(struct snd_pmi *c, const struct host *own, char answer[SND_PMI_VALUE + 1], int64_t deadline, const char *op)
{
	char text[SND_PMI_VALUE + 1], key[SND_PMI_KEY + 1], why[SND_PMI_VALUE / 2], hex[2 * DIGEST + 1];
	for (uint32_t rank = 1; rank < c->size; rank++) {
		struct host theirs;
		snprintf(key, sizeof key, HOST_KEY, rank);
		snd_status s = snd_pmi_get(c, key, text, deadline, op);
		if (s != SND_SUCCESS)
			return s;
		if (!parse_host(text, &theirs))
			return snd_fail(SND_UNSUCCESSFUL, "%s: pmi: host of rank %" PRIu32 ": malformed value \"%.100s\"", op, rank, text);
		if (separated(own, &theirs, rank, why, sizeof why)) {
			escape(why, stpcpy(answer, "error:"), SND_PMI_VALUE + 1 - 6);
			return SND_SUCCESS;
		}
	}
	if (!random_text(text))
		return snd_fail(SND_UNSUCCESSFUL, "%s: getrandom failed", op);
	digest(c->name, strlen(c->name), hex);
	snprintf(answer, SND_PMI_VALUE + 1, "name:pmi-%s-%.26s", hex, text);
	return SND_SUCCESS;
}

/* agree_on_fabric gets the name of the fabric, which rank 0 chooses. Rank 0 also checks whether all ranks can open it, so that
 * all get the same answer. */
static snd_status agree_on_fabric(struct snd_pmi *c, char name[FABRIC_NAME + 1], int64_t deadline, const char *op)
{
	char text[SND_PMI_VALUE + 1], key[SND_PMI_KEY + 1];
	const struct host own = this_host();
	format_host(&own, text);
	snprintf(key, sizeof key, HOST_KEY, c->rank);
	snd_status s = snd_pmi_put(c, key, text, deadline, op);
	if (s == SND_SUCCESS)
		s = snd_pmi_barrier(c, deadline, op);
	if (s == SND_SUCCESS && c->rank == 0) {
		s = choose_fabric(c, &own, text, deadline, op);
		if (s == SND_SUCCESS)
			s = snd_pmi_put(c, FABRIC_KEY, text, deadline, op);
	}
	if (s == SND_SUCCESS)
		s = snd_pmi_barrier(c, deadline, op);
	if (s == SND_SUCCESS)
		s = snd_pmi_get(c, FABRIC_KEY, text, deadline, op);
	if (s != SND_SUCCESS)
		return s;
	char why[SND_PMI_VALUE + 1];
	if (strncmp(text, "name:", 5) == 0 && unescape(text + 5, strlen(text + 5), name, FABRIC_NAME + 1))
		return SND_SUCCESS;
	if (strncmp(text, "error:", 6) == 0 && unescape(text + 6, strlen(text + 6), why, sizeof why))
		return snd_fail(SND_HOST_UNREACHABLE, "%s: %s", op, why);
	if (strncmp(text, "hosts:", 6) == 0)
		return snd_fail(SND_NOT_SUPPORTED, "%s: the job runs on several hosts, and ranks in C cannot: run all ranks on one host", op);
	return snd_fail(SND_UNSUCCESSFUL, "%s: pmi: malformed value of " FABRIC_KEY ": \"%.100s\"", op, text);
}

snd_status snd_place_over_pmi(struct snd_place *p, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op)
{
	char name[FABRIC_NAME + 1];
	snd_status s = snd_pmi_dial(&p->pmi, deadline, op);
	if (s == SND_SUCCESS)
		s = agree_on_fabric(&p->pmi, name, deadline, op);
	if (s != SND_SUCCESS)
		return s;
	p->rank = p->pmi.rank;
	p->mute = true;
	snprintf(p->launcher, sizeof p->launcher, "started by a launcher that speaks PMI (job %s), meeting as %s", p->pmi.name, name);
	return snd_fabric_join(name, p->pmi.size, 0, (int32_t)p->rank, o, deadline, fabric, op);
}

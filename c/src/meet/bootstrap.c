/* TWIN internal/meet/bootstrap/bootstrap.go. */
#include "meet/bootstrap.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "endpoint/provider.h"
#include "linux/clock.h"
#include "linux/fork.h"
#include "meet/control_channel.h"
#include "meet/root_rank.h"
#include "settings.h"

#define ATTACH_TIMEOUT INT64_C(10000000000) /* of an arena whose creator has not finished */
#define FINALIZE_TIMEOUT INT64_C(5000000000)
enum { REASON = 400 };

static bool is_set(const char *name) { return getenv(name) != NULL; }

void snd_place_init(struct snd_place *p)
{
	p->channel = p->pmi.socket = -1;
	snprintf(p->taken, sizeof p->taken, "start each rank once");
}

/* set_taken says what the user can do if another process has the rank already. A launcher that runs as a rank of ndrun passes
 * ndrun's variables on to its own ranks. */
static void set_taken(struct snd_place *p)
{
	const bool inner = is_set(snd_open_mpi.rank) || is_set(snd_slurm.rank); /* ndrun sets PMI_FD too, which comes before those */
	snprintf(p->taken, sizeof p->taken, "if a launcher that runs under ndrun has started this process, start that launcher with env "
		"-u SOFTND_ARENA_FD -u SOFTND_CONTROL%s; else start each rank once", inner ? " -u PMI_FD" : "");
}

/* attach_inherited attaches the arena behind the inherited descriptor. If home is not NULL, it must be the arena that home
 * names. */
static snd_status attach_inherited(struct snd_arena *a, const char *home, const char *op)
{
	const int64_t fd = snd_number_in("SOFTND_ARENA_FD");
	if (fd < 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_ARENA_FD=\"%s\" is not a descriptor number: start the program with ndrun, or unset it", op, snd_value_of("SOFTND_ARENA_FD"));
	char where[120];
	snprintf(where, sizeof where, "%s: SOFTND_ARENA_FD (did a wrapper close or replace it?)", op);
	snd_status s = snd_arena_attach(a, (int)fd, snd_clock() + ATTACH_TIMEOUT, where);
	if (s == SND_NOT_SUPPORTED) /* another layout: no wrapper is the cause */
		return snd_arena_attach(a, (int)fd, snd_clock() + ATTACH_TIMEOUT, op);
	if (s != SND_SUCCESS)
		return s;
	if (home != NULL && !snd_control_names(home, a->id)) {
		snd_arena_close(a);
		return snd_fail(SND_INVALID_PARAMETER, "%s: descriptor %" PRId64 " (SOFTND_ARENA_FD) is the arena of another job: start the program with ndrun, or unset the variables of ndrun", op, fd);
	}
	(void)fcntl((int)fd, F_SETFD, FD_CLOEXEC); /* programs that this process starts do not inherit it */
	return SND_SUCCESS;
}

/* attach takes the arena from the inherited descriptor, or, if that is not the arena of the job, from ndrun over the control
 * channel. */
static snd_status attach(struct snd_place *p, struct snd_arena *a, const char *op)
{
	const char *home = getenv("SOFTND_CONTROL");
	char lost[REASON];
	snd_status s = attach_inherited(a, home, op);
	if (s == SND_NOT_SUPPORTED || home == NULL) /* another layout: the descriptor is the right one */
		return s;
	snprintf(lost, sizeof lost, "%s", snd_last_error());
	int file = -1;
	p->channel = snd_control_dial(home, p->rank, s == SND_SUCCESS ? NULL : &file, op);
	if (s == SND_SUCCESS) {
		if (p->channel < 0)
			snprintf(p->launcher, sizeof p->launcher, "started by ndrun (which does not listen: %.300s)", snd_last_error());
		return s;
	}
	if (p->channel < 0) {
		char why[REASON];
		snprintf(why, sizeof why, "%s", snd_last_error() + strlen(op) + 2);
		return snd_fail(strstr(why, SND_OTHER_VERSION) != NULL ? SND_NOT_SUPPORTED : s, "%s; SOFTND_CONTROL: %s", lost, why); /* the launcher's words */
	}
	snprintf(p->launcher, sizeof p->launcher, "started by ndrun behind a wrapper, arena from ndrun");
	s = snd_arena_attach(a, file, snd_clock() + ATTACH_TIMEOUT, op);
	snd_fork_close(file);
	return s;
}

static snd_status place_under_ndrun(struct snd_place *p, const snd_fabric_options *o, snd_fabric **fabric, const char *op)
{
	const char *home = getenv("SOFTND_CONTROL");
	const int64_t rank = snd_number_in("SOFTND_RANK");
	if (rank < 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_RANK=\"%s\" is not a rank number: start the program with ndrun", op, snd_value_of("SOFTND_RANK"));
	if (home != NULL && !snd_control_is_address(home))
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_CONTROL=\"%.100s\": want name:secret:identity: start the program with ndrun, or unset it", op, home);
	p->rank = (uint32_t)rank;
	snprintf(p->launcher, sizeof p->launcher, "started by ndrun");
	set_taken(p);
	struct snd_fabric *f;
	snd_status s = snd_fabric_begin(o, fabric, &f, op);
	if (s != SND_SUCCESS)
		return s;
	s = attach(p, &f->arena, op);
	if (s == SND_SUCCESS && (snd_number_in("SOFTND_SIZE") != (int64_t)f->arena.ranks || p->rank >= f->arena.ranks))
		s = snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_RANK=%" PRIu32 " and SOFTND_SIZE=\"%s\" do not match the arena, which is that of a job of size %" PRIu32 ": start the program with ndrun, and keep its variables",
			op, p->rank, snd_value_of("SOFTND_SIZE"), f->arena.ranks);
	return snd_fabric_finish(f, s, (int32_t)rank, fabric, op);
}

snd_status snd_place_visit(const snd_fabric_options *o, snd_fabric **fabric, const char *op)
{
	struct snd_place p;
	snd_place_init(&p);
	const snd_status s = place_under_ndrun(&p, o, fabric, op);
	if (p.channel >= 0)
		snd_control_leave(p.channel);
	return s;
}

static snd_status place_alone(struct snd_place *p, const snd_fabric_options *o, snd_fabric **fabric, const char *op)
{
	struct snd_fabric *f;
	snprintf(p->launcher, sizeof p->launcher, "alone: no launcher's variables are set");
	snd_status s = snd_fabric_begin(o, fabric, &f, op);
	if (s != SND_SUCCESS)
		return s;
	return snd_fabric_finish(f, snd_arena_create(&f->arena, 1, 0, 0, op), 0, fabric, op);
}

snd_status snd_place_find(struct snd_place *p, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op)
{
	bool debug;
	snd_status s = snd_read_flag("SOFTND_DEBUG", &debug, op);
	if (s != SND_SUCCESS)
		return s;
	if (is_set("SOFTND_ARENA_FD") || is_set("SOFTND_CONTROL"))
		s = place_under_ndrun(p, o, fabric, op);
	else if (is_set("SOFTND_ROOT"))
		s = snd_place_at_root(p, o, deadline, fabric, op);
	else if (is_set("PMI_FD"))
		s = snd_place_over_pmi(p, o, deadline, fabric, op);
	else if (is_set("PMI_PORT"))
		s = snd_fail(SND_NOT_SUPPORTED, "%s: the launcher offers PMI over the network only (PMI_PORT), which softnd does not support; "
			"start the program with a launcher that sets PMI_FD, such as mpiexec.hydra without -pmi-port", op);
	else if (is_set(snd_open_mpi.rank))
		s = snd_place_in_variables(p, &snd_open_mpi, o, deadline, fabric, op);
	else if (is_set(snd_slurm.rank) && is_set(snd_slurm.job[0]))
		s = snd_place_in_variables(p, &snd_slurm, o, deadline, fabric, op);
	else if (is_set("SOFTND_RANK") || is_set("SOFTND_SIZE"))
		s = snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_RANK or SOFTND_SIZE is set, but none of SOFTND_ARENA_FD, SOFTND_CONTROL and SOFTND_ROOT, through which the ranks meet: "
			"start the program with ndrun, or unset both to run it alone", op);
	else
		s = place_alone(p, o, fabric, op);
	if (s == SND_SUCCESS && p->hosts == NULL)
		p->size = (*fabric)->arena.ranks;
	if (s == SND_SUCCESS && debug)
		dprintf(STDERR_FILENO, "softnd: rank %" PRIu32 " of %" PRIu32 ", %s\n", p->rank, p->size, p->launcher);
	return s;
}

snd_status snd_place_leave(struct snd_place *p, const char *op)
{
	if (p->root != NULL) {
		if (p->hosts != NULL)
			snd_relay_release(&p->hosts->relay); /* the ranks of other hosts learn that this one has left: rank 0 waits for theirs */
		return snd_root_leave(p->root, op);
	}
	if (p->channel >= 0)
		snd_control_leave(p->channel);
	if (p->hosts != NULL && !snd_pmi_is_shared() && snd_relay_finalize(&p->hosts->relay))
		snd_pmi_hang_up(&p->pmi); /* finalize would end the relay's duplicate of the connection */
	else if (p->pmi.socket >= 0)
		(void)snd_pmi_finalize(&p->pmi, snd_clock() + FINALIZE_TIMEOUT, "close job");
	p->channel = -1;
	return SND_SUCCESS;
}

void snd_wait_until_read(int fd)
{
	struct stat st;
	int unread;
	if (fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode))
		return;
	for (int i = 0; i < 1000 && ioctl(fd, FIONREAD, &unread) == 0 && unread > 0; i++)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
}

void snd_place_hang_up(struct snd_place *p, const char *cause)
{
	if (p->pmi.socket >= 0 && snd_pmi_ends_job(&p->pmi)) {
		dprintf(STDERR_FILENO, "softnd: rank %" PRIu32 " of %" PRIu32 " cannot join the job: %s\n", p->pmi.rank, p->pmi.size, cause);
		snd_wait_until_read(STDERR_FILENO);
	}
	if (p->channel >= 0)
		snd_fork_close(p->channel);
	p->channel = -1;
	snd_pmi_hang_up(&p->pmi);
	if (p->root != NULL)
		snd_root_hang_up(p->root);
	p->root = NULL;
}

void snd_place_free(struct snd_place *p)
{
	if (p->root != NULL)
		snd_root_close(p->root);
	p->root = NULL;
	snd_hosts_free(p->hosts);
	p->hosts = NULL;
}

bool snd_place_abort(struct snd_place *p, int code, const char *reason)
{
	if (p->root != NULL)
		return snd_root_abort(p->root, code, reason);
	if (p->pmi.socket >= 0)
		return snd_pmi_abort(&p->pmi, code);
	return p->channel >= 0 && snd_control_abort(p->channel, code, reason);
}

snd_status snd_place_has_ended(const struct snd_place *p, const char *op) { return p->root != NULL ? snd_root_has_ended(p->root, op) : SND_SUCCESS; }

void snd_place_watch(struct snd_place *p, void (*ended)(void *arg, int code, const char *why), void *arg)
{
	if (p->root != NULL)
		snd_root_watch(p->root, ended, arg);
}

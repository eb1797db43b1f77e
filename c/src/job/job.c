/* Jobs: how a process becomes a rank, and leaves. */
#include "job/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "endpoint/progress_wait.h"
#include "endpoint/provider.h"
#include "job/abort.h"
#include "job/collective.h"
#include "job/connect.h"
#include "job/group.h"
#include "job/hosts.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"
#include "settings.h"
#include "structure.h"

enum { NAMED_ABSENT = 8, CAUSE = 1024 };

#define REFUSAL_TIMEOUT INT64_C(5000000000) /* of the wait of a rank that cannot take part for the others */

/* environment has what a job takes from the environment beside options, and why the process cannot take part in the job: a setting. */
struct environment {
	int64_t receive_timeout;
	snd_status status;
	char cause[CAUSE];
};

/* name_missing adds the ranks that have not joined the group yet, or have left it, to the text of a failure. */
static snd_status name_missing(const struct snd_job *j, snd_status s)
{
	char text[200], ranks[NAMED_ABSENT * 50 + 20];
	size_t n = 0;
	uint32_t absent = 0;
	struct snd_peer p;
	for (uint32_t local = 0; local < j->group; local++) {
		const bool joined = snd_member_of_rank(j, local, &p), left = joined && snd_peer_gone(&p), earlier = joined && !left && !j->started && snd_is_earlier(j, local);
		if ((!joined || left || earlier) && ++absent <= NAMED_ABSENT)
			n += (size_t)snprintf(ranks + n, sizeof ranks - n, ", rank %" PRIu32 "%s", snd_rank_at(j, local),
				left ? " (has left)" : earlier ? " (has not left an earlier job)" : "");
	}
	if (absent == 0)
		return s;
	if (absent > NAMED_ABSENT)
		snprintf(ranks + n, sizeof ranks - n, ", and %" PRIu32 " more", absent - NAMED_ABSENT);
	snprintf(text, sizeof text, "%s", snd_last_error());
	return snd_fail(s, "%s; missing: %s", text, ranks + 2);
}

/* meet waits for the other ranks. */
static snd_status meet(struct snd_job *j, int64_t deadline, const char *op)
{
	struct snd_fabric *f = j->fabric;
	snd_lock(f);
	snd_status s = snd_form(j, snd_time_left(deadline), op);
	if (s == SND_SUCCESS)
		s = snd_place_has_ended(&j->place, op);
	if (s == SND_IO_TIMEOUT)
		s = name_missing(j, s);
	snd_unlock(f);
	return s == SND_SUCCESS && j->hosts != NULL ? snd_start_hosts(j, deadline, op) : s;
}

static bool all_have_joined(void *arg)
{
	const struct snd_job *j = arg;
	struct snd_peer p;
	uint32_t local = 0;
	while (local < j->group && snd_member_of_rank(j, local, &p))
		local++;
	return local == j->group || snd_place_has_ended(&j->place, "init") != SND_SUCCESS;
}

/* refuse lets the other ranks know this process as their rank that does not take part, before it leaves. They would otherwise wait for
 * it. It waits until they are there: the memory of a named job ends with its last process, and a rank that comes later would find no
 * trace of this one. TWIN job.go. */
static snd_status refuse(struct snd_job *j, snd_status status, const char *why, int64_t deadline)
{
	struct snd_fabric *f = j->fabric;
	int64_t left = snd_time_left(deadline);
	char cause[CAUSE];
	snprintf(cause, sizeof cause, "%s", why); /* the wait may replace the text of the last error */
	snd_lock(f);
	snd_refuse_rank(j);
	(void)snd_wait(f, left < 0 || left > REFUSAL_TIMEOUT ? REFUSAL_TIMEOUT : left, all_have_joined, NULL, j, &(struct snd_call){.op = "init"});
	snd_unlock(f);
	return snd_fail(status, "%s", cause);
}

/* start makes the process a rank of the fabric's group, and waits for the other ranks. s is the status of opening the
 * fabric. If it fails, or the process cannot take part, it frees everything. */
static snd_status start(struct snd_job *j, snd_fabric *f, snd_status s, const struct environment *e, int64_t deadline, snd_job **job, const char *op)
{
	if (s == SND_SUCCESS) {
		f->of_job = true;
		j->fabric = f;
		j->rank = j->local = j->place.rank;
		j->size = j->group = f->arena.ranks;
		if ((j->hosts = j->place.hosts) != NULL) {
			j->size = j->hosts->size;
			j->local = j->hosts->local;
		}
		s = snd_join_group(j, op);
	}
	const bool joined = s == SND_SUCCESS;
	if (s == SND_SUCCESS && e->receive_timeout != SND_DEFAULT_TIMEOUT)
		f->receive_timeout = f->default_receive_timeout = e->receive_timeout;
	if (e->status != SND_SUCCESS)
		s = snd_fail(e->status, "%s", e->cause);
	if (s == SND_SUCCESS)
		s = snd_adapter_open(f, &j->adapter);
	if (s == SND_SUCCESS) {
		j->adapter->of_job = true;
		s = snd_listener_create(j->adapter, &j->listener);
	}
	if (s == SND_SUCCESS)
		s = snd_listener_bind(j->listener, (snd_address){0, SND_CONNECT_PORT, 0});
	if (s == SND_SUCCESS)
		s = snd_listener_listen(j->listener, 0);
	if (s == SND_SUCCESS)
		s = meet(j, deadline, op);
	else if (joined)
		s = refuse(j, s, snd_last_error(), deadline);
	if (s == SND_SUCCESS) {
		snd_object_show(&j->object, f);
		snd_job_is_current(j);
		*job = j;
		if (j->hosts == NULL) /* else snd_start_hosts has done so */
			snd_place_watch(&j->place, snd_job_ends, j);
		return s;
	}
	char cause[CAUSE];
	snprintf(cause, sizeof cause, "%s", snd_last_error());
	snd_job_retire(j); /* the thread that learns of the end of the job uses the fabric no more */
	if (f != NULL) {
		snd_lock(f);
		snd_close_fabric(f);
	}
	snd_place_hang_up(&j->place, cause);
	snd_place_free(&j->place);
	snd_object_free(&j->object);
	return s;
}

/* new_job checks what snd_job_init and snd_job_join have in common. A refused setting becomes e, and the process meets the others yet. */
static snd_status new_job(const snd_fabric_options *options, snd_fabric_options *o, struct snd_job **j, struct environment *e, int64_t timeout, const char *op)
{
	SND_CHECK_TIMEOUT(timeout, op);
	snd_status s = snd_start(op);
	const snd_fabric_options given = options != NULL ? *options : (snd_fabric_options){0};
	if (s != SND_SUCCESS)
		return s;
	*o = given;
	e->receive_timeout = SND_DEFAULT_TIMEOUT;
	if ((e->status = snd_apply_environment(o, op)) != SND_SUCCESS || (e->status = snd_read_receive_timeout(&e->receive_timeout, op)) != SND_SUCCESS) {
		snprintf(e->cause, sizeof e->cause, "%s", snd_last_error());
		*o = given;
	}
	if ((*j = snd_object_new(SND_TYPE_JOB, sizeof **j, sizeof(struct snd_object), NULL, o->threading == SND_THREAD_SAFE)) == NULL)
		return snd_no_memory(sizeof **j, "private memory", op);
	snd_place_init(&(*j)->place);
	(*j)->exits = o->exit_with_job != 0;
	return SND_SUCCESS;
}

snd_status snd_job_init(size_t options_size, const snd_fabric_options *options, int64_t timeout, snd_job **job)
{
	SND_KEEP_ERRNO;
	const char *op = "init";
	SND_CHECK_POINTER(job, op);
	*job = NULL;
	SND_KNOWN(snd_fabric_options, options, options_size, op);
	const int64_t deadline = timeout < 0 ? -1 : snd_deadline(timeout);
	snd_fabric_options o;
	struct snd_job *j;
	struct environment e;
	snd_status s = new_job(options, &o, &j, &e, timeout, op);
	if (s != SND_SUCCESS)
		return s;
	snd_fabric *f = NULL;
	s = snd_place_find(&j->place, &o, deadline, &f, op);
	return start(j, f, s, &e, deadline, job, op);
}

snd_status snd_job_join(size_t options_size, const char *name, uint32_t rank, uint32_t size, const snd_fabric_options *options, int64_t timeout,
	snd_job **job)
{
	SND_KEEP_ERRNO;
	const char *op = "join";
	SND_CHECK_POINTER(job, op);
	*job = NULL;
	SND_KNOWN(snd_fabric_options, options, options_size, op);
	const int64_t deadline = timeout < 0 ? -1 : snd_deadline(timeout);
	snd_fabric_options o;
	struct snd_job *j;
	struct environment e;
	snd_status s = new_job(options, &o, &j, &e, timeout, op);
	if (s != SND_SUCCESS)
		return s;
	snd_fabric *f = NULL;
	j->place.rank = rank;
	if (size < 1 || rank >= size)
		s = snd_fail(SND_INVALID_PARAMETER, "%s: rank %" PRIu32 " of %" PRIu32 ": want a rank from 0 to size-1", op, rank, size);
	else
		s = snd_fabric_join(name, size, 0, 0, (int32_t)rank, &o, deadline, &f, op);
	return start(j, f, s, &e, deadline, job, op);
}

uint32_t snd_job_rank(snd_job *job) { SND_GET(job, SND_TYPE_JOB, "rank of job", uint32_t, job->rank, 0); }
uint32_t snd_job_size(snd_job *job) { SND_GET(job, SND_TYPE_JOB, "size of job", uint32_t, job->size, 0); }
snd_fabric *snd_job_fabric(snd_job *job) { SND_GET(job, SND_TYPE_JOB, "fabric of job", snd_fabric *, job->fabric, NULL); }
snd_adapter *snd_job_adapter(snd_job *job) { SND_GET(job, SND_TYPE_JOB, "adapter of job", snd_adapter *, job->adapter, NULL); }

snd_status snd_job_close(snd_job *job)
{
	SND_KEEP_ERRNO;
	SND_ENTER(job, SND_TYPE_JOB, "close job");
	struct snd_job *j = job;
	snd_job_retire(j);
	snd_close_fabric(j->fabric); /* calls on the job have ended then */
	snd_forget_kept(j);
	const snd_status s = snd_place_leave(&j->place, "close job");
	snd_job_forget(j);
	free(j->death_watch.returned);
	snd_place_free(&j->place);
	snd_object_free(&j->object);
	return s;
}

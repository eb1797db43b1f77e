/* The end of a job by one of its ranks: snd_job_abort, and how the others learn of it. */
#include "job/abort.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "endpoint/progress_wait.h"
#include "linux/fork.h"
#include "meet/control_channel.h"
#include "shm/doorbell.h"

/* current is the job that this process joined last, NULL when that is closed. mutex guards it, and the launcher's
 * connection of each job against snd_job_close. An abort keeps it until the end of the process. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct snd_job *current;

static void reset(void)
{
	pthread_mutex_init(&mutex, NULL);
	current = NULL;
}
SND_RESET_IN_CHILD(reset)

void snd_job_is_current(struct snd_job *j)
{
	pthread_mutex_lock(&mutex);
	current = j;
	pthread_mutex_unlock(&mutex);
}

void snd_job_retire(struct snd_job *j)
{
	pthread_mutex_lock(&mutex);
	snd_object_hide(&j->object);
	j->retired = true;
	if (current == j && j->place.root == NULL)
		current = NULL;
	pthread_mutex_unlock(&mutex);
}

void snd_job_forget(const struct snd_job *j)
{
	pthread_mutex_lock(&mutex);
	if (current == j)
		current = NULL;
	pthread_mutex_unlock(&mutex);
}

void snd_job_ends(void *job, int code, const char *why)
{
	struct snd_job *j = job;
	pthread_mutex_lock(&mutex);
	if (j->retired || !j->exits) {
		snd_store_full32(&j->ended, 1);
		if (!j->retired) /* snd_job_close frees the fabric later */
			snd_ring(j->fabric, &j->fabric->record->waiters);
		pthread_mutex_unlock(&mutex);
		return;
	}
	dprintf(STDERR_FILENO, "softnd: rank %" PRIu32 " of %" PRIu32 " ends with the job: %s\n", j->rank, j->size, why);
	_exit(code);
}

static bool has_ended(void *arg)
{
	struct snd_job *j = arg;
	return snd_load32(&j->ended) != 0;
}

snd_status snd_job_wait_end(snd_job *job, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "wait for the end of the job";
	SND_CHECK(job, SND_TYPE_JOB, op);
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(job, SND_TYPE_JOB, op);
	struct snd_job *j = job;
	snd_status s = snd_wait(j->fabric, timeout, has_ended, NULL, j, &(struct snd_call){.op = op});
	if (s == SND_SUCCESS)
		s = snd_place_has_ended(&j->place, op);
	else
		s = s == SND_CANCELED ? snd_fail(s, "%s: the job was closed", op) : snd_fail(s, "%s: no rank has ended it within %s", op, snd_duration(timeout).text);
	return snd_leave_with(j->fabric, s);
}

static void report(const char *who, int code, const char *reason)
{
	dprintf(STDERR_FILENO, "softnd: %s aborts the job with code %d: %s\n", who, code, reason);
}

void snd_job_abort(snd_job *job, int code, const char *reason)
{
	SND_KEEP_ERRNO;
	if (code < 1 || code > 255)
		code = 1;
	if (reason == NULL)
		reason = "no reason given";
	if (snd_forked()) { /* the launcher's connection is the parent's, and the mutex may be locked forever */
		report("a forked child", code, reason);
		_exit(code);
	}
	pthread_mutex_lock(&mutex);
	struct snd_job *j = job != NULL && snd_has_magic(SND_OBJECT(job), SND_TYPE_JOB) ? job : current;
	if (j == NULL) {
		report("this process", code, reason);
		_exit(code);
	}
	char who[60];
	snprintf(who, sizeof who, "rank %" PRIu32 " of %" PRIu32, j->rank, j->size);
	const bool is_line = strlen(reason) <= SND_MAX_REASON && strpbrk(reason, "\r\n") == NULL;
	if (j->place.mute || !is_line) {
		report(who, code, reason); /* first: the launcher may kill this process as soon as it is told */
		snd_wait_until_read(STDERR_FILENO);
		(void)snd_place_abort(&j->place, code, is_line ? reason : "the rank has printed the reason");
	} else if (!snd_place_abort(&j->place, code, reason)) {
		report(who, code, reason);
	}
	_exit(code);
}

void snd_check(snd_status status)
{
	char reason[SND_MAX_REASON];
	if (status == SND_SUCCESS)
		return;
	snprintf(reason, sizeof reason, "%s: %s", snd_status_name(status), snd_last_error());
	snd_job_abort(NULL, 1, reason);
}

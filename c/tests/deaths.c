/* The deaths of ranks as snd_job_next_death returns them, and ranks that do not take part. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "job/job.h"
#include "shm/fabric.h"
#include "shm/liveness.h"

#define SECOND INT64_C(1000000000)

static char name[60];

/* start_as starts this program with the name and another argument. */
static pid_t start_as(const char *executor, const char *argument)
{
	char program[] = "/proc/self/exe";
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(setenv("SOFTND_EXEC", executor, 1) == 0);
		execl(program, program, name, argument, NULL);
		_exit(127);
	}
	return pid;
}

/* start starts a process that joins as rank 1 of 2 and stays. */
static pid_t start(const char *executor) { return start_as(executor, NULL); }

static void end(pid_t pid)
{
	int status;
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* replace starts a process that takes the place of rank 1. */
static pid_t replace(snd_job *job)
{
	const struct snd_job *j = job;
	const snd_word *member = &snd_rank(&j->fabric->arena, 1)->member;
	const uint64_t before = snd_load(member) & SND_RANK_MEMBER;
	const pid_t pid = start("auto");
	for (uint64_t word = snd_load(member); (word & SND_RANK_MEMBER) == before || (word & SND_RANK_WAITS) == 0; word = snd_load(member)) {
		OK(snd_fabric_progress(snd_job_fabric(job))); /* it answers the process that joins */
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	return pid;
}

static void died(snd_job *job)
{
	uint32_t rank = 99;
	OK(snd_job_next_death(job, 20 * SECOND, &rank));
	CHECK(rank == 1);
}

static void no_more(snd_job *job)
{
	uint32_t rank = 99;
	CHECK(snd_job_next_death(job, SECOND * 3 / 10, &rank) == SND_IO_TIMEOUT && rank == 99);
	CHECK(strcmp(snd_last_error(), "next death: no rank has died within 300 ms") == 0);
}

/* A process takes the place of a rank that has died, before and after the call has returned the death. Neither the death is lost, nor
 * is the process dead while it lives. */
static void test_taken_again(bool early)
{
	snd_job *job;
	snprintf(name, sizeof name, "softnd-test-taken-%d-%d", (int)getpid(), early);
	pid_t other = start("auto");
	OK(snd_job_join(name, 0, 2, test_options(), 20 * SECOND, &job));
	for (int i = 0; i < 3; i++) {
		end(other);
		if (!early)
			died(job);
		other = replace(job);
		if (early)
			died(job);
		no_more(job);
	}
	end(other);
	end(replace(job));
	died(job);
	died(job);
	no_more(job);
	OK(snd_job_close(job));
}

/* A rank that a setting refuses goes on without the library. The other rank does not wait for it. */
static void test_refused(void)
{
	snd_job *job;
	snprintf(name, sizeof name, "softnd-test-refused-%d", (int)getpid());
	const pid_t other = start("wrong");
	CHECK(snd_job_join(name, 0, 2, test_options(), 20 * SECOND, &job) == SND_CONNECTION_ABORTED);
	CHECK(strcmp(snd_last_error(), "join: rank 1 has died or left") == 0);
	end(other);
}

static snd_fabric *open_arena(int32_t rank)
{
	snd_fabric *f;
	OK(snd_fabric_open(name, 2, UINT64_C(1) << 28, rank, &(snd_fabric_options){.progress = SND_PROGRESS_AUTO}, &f));
	return f;
}

/* await waits until record 1 has a status, and its present or last owner is its nth. */
static void await(const snd_fabric *fabric, uint64_t status, uint32_t n)
{
	const struct snd_fabric *f = (const struct snd_fabric *)fabric;
	for (uint64_t state = 0; snd_state_status(state) != status || snd_state_incarnation(state) != n; state = snd_load(&snd_member(&f->arena, 1)->state))
		nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Before the group is formed, a rank dies, or leaves and may come again. Its record has another owner then, whose process says nothing
 * about the rank's. */
static void test_next_owner(void)
{
	snd_job *job;
	snprintf(name, sizeof name, "softnd-test-owner-%d", (int)getpid());
	snd_fabric *f = open_arena(-1);
	const pid_t victim = start("auto");
	await(f, SNDL_STATUS_LIVE, 1);
	while ((snd_load(&snd_rank(&((struct snd_fabric *)f)->arena, 1)->member) & SND_RANK_WAITS) == 0)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	end(victim);
	await(f, SNDL_STATUS_FREE, 1);
	snd_fabric *next = open_arena(1);
	await(f, SNDL_STATUS_LIVE, 2);
	CHECK(snd_job_join(name, 0, 2, test_options(), 20 * SECOND, &job) == SND_CONNECTION_ABORTED);
	CHECK(strcmp(snd_last_error(), "join: rank 1 has died or left") == 0);
	OK(snd_fabric_close(next));
	await(f, SNDL_STATUS_FREE, 2);

	const snd_word *word = &snd_rank(&((struct snd_fabric *)f)->arena, 1)->member;
	const uint64_t before = snd_load(word);
	while (snd_load(word) == before) /* on a loaded machine it may not get so far */
		CHECK(snd_job_join(name, 1, 2, test_options(), SECOND / 10, &job) == SND_IO_TIMEOUT);
	const uint64_t id = snd_load(word) & SND_RANK_MEMBER;
	const uint32_t n = (uint32_t)(id >> 16);
	CHECK(snd_member_slot(id) == 1);
	await(f, SNDL_STATUS_FREE, n);
	struct snd_member_record *r = snd_member(&((struct snd_fabric *)f)->arena, 1);
	snd_set(&r->death_epoch, snd_not_counted(n + 1)); /* as a process leaves it that dies while it takes the record */
	snd_set32(&r->pid, (uint32_t)victim);
	CHECK(snd_job_join(name, 0, 2, test_options(), SECOND / 2, &job) == SND_IO_TIMEOUT);
	const pid_t other = start_as("auto", "member");
	await(f, SNDL_STATUS_LIVE, n + 1);
	end(other);
	CHECK(snd_job_join(name, 0, 2, test_options(), SECOND / 2, &job) == SND_IO_TIMEOUT);
	OK(snd_fabric_close(f));
}

static void *close_soon(void *job)
{
	nanosleep(&(struct timespec){0, 50000000}, NULL);
	OK(snd_job_close(job));
	return NULL;
}

/* Another thread closes the job during the call. On a loaded machine it may be faster. */
static void test_closed(void)
{
	snd_fabric_options o = *test_options();
	o.threading = SND_THREAD_SAFE;
	snd_status s;
	do {
		snd_job *job;
		pthread_t thread;
		uint32_t rank;
		OK(snd_job_join(name, 0, 1, &o, 20 * SECOND, &job));
		CHECK(pthread_create(&thread, NULL, close_soon, job) == 0);
		s = snd_job_next_death(job, 20 * SECOND, &rank);
		CHECK(s == SND_INVALID_HANDLE || (s == SND_CANCELED && strcmp(snd_last_error(), "next death: the job was closed") == 0));
		CHECK(pthread_join(thread, NULL) == 0);
	} while (s == SND_INVALID_HANDLE);
}

int main(int argc, char **argv)
{
	alarm(120);
	if (argc > 1) {
		snd_job *job;
		snprintf(name, sizeof name, "%s", argv[1]);
		if (argc > 2)
			(void)open_arena(1);
		else
			(void)snd_job_join(name, 1, 2, test_options(), 20 * SECOND, &job);
		for (;;)
			pause();
	}
	test_taken_again(false);
	test_taken_again(true);
	test_refused();
	test_next_owner();
	test_closed();
	return 0;
}

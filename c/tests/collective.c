/* Collective calls that fail. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "job/job.h"
#include "shm/fabric.h"

#define SECOND INT64_C(1000000000)

enum { MOST_RANKS = 3 };
static char name[60];
static uint32_t ranks;
static int joined[2], failed[2], timed_out[2];

static snd_status join(uint32_t rank, int64_t timeout, snd_job **job) { return snd_job_join(name, rank, ranks, test_options(), timeout, job); }

/* meet_all makes collective calls in which all ranks take part. */
static void meet_all(snd_job *job)
{
	for (uint32_t round = 0; round < 4; round++) {
		const uint32_t mine = round << 8 | snd_job_rank(job);
		uint32_t all[MOST_RANKS];
		OK(snd_job_exchange(job, &mine, sizeof mine, all, 20 * SECOND));
		for (uint32_t i = 0; i < ranks; i++)
			CHECK(all[i] == (round << 8 | i));
		OK(snd_job_barrier(job, 20 * SECOND));
	}
	OK(snd_job_close(job));
}

static void stay(uint32_t rank, bool exchange)
{
	snd_job *job;
	OK(join(rank, 20 * SECOND, &job));
	const struct snd_job *j = job;
	const snd_word *last = &snd_rank(&j->fabric->arena, ranks - 1)->member;
	while ((snd_load(last) & SND_RANK_BITS) != SND_RANK_WAITS) { /* it answers the process that joins */
		OK(snd_fabric_progress(snd_job_fabric(job)));
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	uint32_t mine = 1, all[MOST_RANKS];
	snd_status s = exchange ? snd_job_exchange(job, &mine, sizeof mine, all, 20 * SECOND) : snd_job_barrier(job, 20 * SECOND);
	char want[80];
	snprintf(want, sizeof want, "rank %u has died or left", ranks - 1);
	CHECK(s == SND_CONNECTION_ABORTED && strstr(snd_last_error(), want) != NULL);
	CHECK(write(failed[1], "", 1) == 1);
	char byte;
	struct pollfd told = {.fd = timed_out[0], .events = POLLIN};
	while (poll(&told, 1, 1) == 0)
		OK(snd_fabric_progress(snd_job_fabric(job))); /* as before */
	CHECK(read(timed_out[0], &byte, 1) == 1);
	OK(snd_job_close(job));
	OK(join(rank, 20 * SECOND, &job));
	meet_all(job);
}

/* wait_in_place joins as a rank, and is there for longer than the calls of the others wait. */
static void wait_in_place(uint32_t rank, bool unused)
{
	(void)unused;
	snd_job *job;
	(void)join(rank, 60 * SECOND, &job);
}

static void come_again(uint32_t rank, bool unused)
{
	(void)unused;
	snd_job *job;
	/* On a loaded machine the time may end sooner, before the others have answered. */
	for (snd_status s = SND_SUCCESS; s == SND_SUCCESS || strstr(snd_last_error(), "rank 0 (has not left an earlier job)") == NULL;) {
		s = join(rank, SECOND / 2, &job);
		CHECK(s == SND_IO_TIMEOUT);
	}
	CHECK(write(timed_out[1], "12", ranks - 1) == ranks - 1);
	OK(join(rank, 20 * SECOND, &job));
	meet_all(job);
}

static pid_t start(void (*body)(uint32_t, bool), uint32_t rank, bool flag)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(500);
		body(rank, flag);
		exit(0);
	}
	return pid;
}

static void be_last(uint32_t rank, bool dies)
{
	snd_job *job;
	OK(join(rank, 20 * SECOND, &job));
	if (!dies)
		OK(snd_job_close(job));
	CHECK(write(joined[1], "", 1) == 1);
	while (dies)
		pause();
}

/* A rank dies or leaves, and another process joins as that rank. The collective calls of the others fail, and the process waits until
 * they have left the job. Then all can join it again. */
static void test_return(bool dies, bool exchange)
{
	char byte;
	int status;
	pid_t others[MOST_RANKS];
	snprintf(name, sizeof name, "softnd-test-rejoin-%d-%u-%d-%d", (int)getpid(), ranks, dies, exchange);
	CHECK(pipe(joined) == 0 && pipe(failed) == 0 && pipe(timed_out) == 0);
	for (uint32_t rank = 0; rank + 1 < ranks; rank++)
		others[rank] = start(stay, rank, exchange);
	const pid_t victim = start(be_last, ranks - 1, dies);
	CHECK(read(joined[0], &byte, 1) == 1);
	if (dies)
		kill(victim, SIGKILL);
	CHECK(waitpid(victim, &status, 0) == victim && (dies ? WIFSIGNALED(status) : status == 0));
	const pid_t next = start(wait_in_place, ranks - 1, false);
	for (uint32_t rank = 0; rank + 1 < ranks; rank++)
		CHECK(read(failed[0], &byte, 1) == 1);
	kill(next, SIGKILL);
	CHECK(waitpid(next, &status, 0) == next && WIFSIGNALED(status));
	others[ranks - 1] = start(come_again, ranks - 1, false);
	for (uint32_t rank = 0; rank < ranks; rank++)
		CHECK(waitpid(others[rank], &status, 0) == others[rank] && status == 0);
	for (int i = 0; i < 2; i++) {
		close(joined[i]);
		close(failed[i]);
		close(timed_out[i]);
	}
}

static void cross(uint32_t rank, bool leads)
{
	snd_job *job;
	OK(join(rank, 20 * SECOND, &job));
	const uint32_t mine = 1;
	uint32_t all[MOST_RANKS];
	OK(snd_job_exchange(job, &mine, sizeof mine, all, 20 * SECOND));
	OK(snd_job_barrier(job, 20 * SECOND));
	const snd_status s = leads ? snd_job_exchange(job, &mine, sizeof mine, all, 20 * SECOND) : snd_job_barrier(job, 20 * SECOND);
	char want[80];
	snprintf(want, sizeof want, "rank %u makes another collective call", leads ? 0 : 1);
	CHECK(s == SND_INVALID_DEVICE_STATE && strstr(snd_last_error(), want) != NULL);
	CHECK(snd_job_barrier(job, 20 * SECOND) == SND_INVALID_DEVICE_STATE);
	OK(snd_job_close(job));
}

/* Rank 1 calls an exchange, and the others a barrier: all fail. */
static void test_crossed(void)
{
	pid_t all[MOST_RANKS];
	int status;
	snprintf(name, sizeof name, "softnd-test-crossed-%d-%u", (int)getpid(), ranks);
	for (uint32_t rank = 0; rank < ranks; rank++)
		all[rank] = start(cross, rank, rank == 1);
	for (uint32_t rank = 0; rank < ranks; rank++)
		CHECK(waitpid(all[rank], &status, 0) == all[rank] && status == 0);
}

int main(void)
{
	alarm(120);
	for (ranks = 2; ranks <= MOST_RANKS; ranks++) {
		for (int i = 0; i < 4; i++)
			test_return(i & 1, i & 2);
		test_crossed();
	}
	return 0;
}

/* While nothing is under way, the library's threads sleep: the process has hardly any context switches. The death of a peer
 * wakes them at once. Also of a process that blocks in a call, and with manual progress, where there are no threads. */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>

#include "two.h"

enum { IDLE_MS = 2000, MOST_QUIET = 8, MOST_MANUAL = 150, NOTICED_MS = 100, NOTICED_AT_LAST_MS = 1500 };

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* switches counts the voluntary context switches of all threads of a process. */
static long switches(pid_t pid)
{
	char path[400], line[200];
	long sum = 0;
	snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
	DIR *d = opendir(path);
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		snprintf(path, sizeof path, "/proc/%ld/task/%s/status", (long)pid, e->d_name);
		FILE *f = e->d_name[0] != '.' ? fopen(path, "r") : NULL;
		long n;
		while (f != NULL && fgets(line, sizeof line, f) != NULL)
			if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
				sum += n;
		if (f != NULL)
			fclose(f);
	}
	closedir(d);
	return sum;
}

/* run_rank is rank 1: it connects and then does nothing, or blocks in a call. */
static void run_rank(const char *name, const snd_fabric_options *o, bool blocks)
{
	struct two t;
	two_join(&t, name, 1, o);
	two_round(&t, 7);
	snd_result r;
	uint32_t n;
	while (blocks)
		(void)snd_cq_wait(t.cq, &r, 1, SECONDS(100), &n);
	for (;;)
		pause();
}

/* is_quiet measures a pair of processes: how often the idle one wakes, and how long this one takes to notice its death. */
static bool is_quiet(const char *test, snd_progress_model progress, bool blocks, long most, int noticed_ms)
{
	char name[64];
	const snd_fabric_options o = {.progress = progress};
	two_name(name, test, (long)getpid());
	pid_t child = fork();
	if (child == 0) {
		execl("/proc/self/exe", test, name, progress == SND_PROGRESS_AUTO ? "auto" : "manual", blocks ? "blocks" : "idle", (char *)NULL);
		_exit(127);
	}
	struct two t;
	int fd = -1;
	two_join(&t, name, 0, &o);
	two_round(&t, 7);
	if (progress == SND_PROGRESS_AUTO)
		OK(snd_cq_event_fd(t.cq, &fd));
	nanosleep(&(struct timespec){0, 300000000}, NULL); /* the last periodic work after the requests */
	const int64_t from = now();
	const long before = switches(child), mine = switches(getpid());
	nanosleep(&(struct timespec){IDLE_MS / 1000, 0}, NULL);
	const long woken = switches(child) - before, woken_here = switches(getpid()) - mine;
	const long limit = most * (now() - from) / 1000000 / IDLE_MS; /* a busy machine sleeps for longer */
	printf("%s: %ld and %ld context switches in %d ms\n", test, woken, woken_here, IDLE_MS);
	if (progress == SND_PROGRESS_AUTO) /* the death flushes it */
		OK(snd_endpoint_receive(t.ep, 9, &(snd_sge){snd_mr_buffer(t.mr), 8, snd_mr_local_token(t.mr)}, 1));
	CHECK(kill(child, SIGKILL) == 0);
	const int64_t killed = now();
	int status;
	if (fd >= 0) {
		struct pollfd p = {fd, POLLIN, 0};
		snd_result r;
		CHECK(poll(&p, 1, 10000) == 1);
		CHECK(snd_cq_poll(t.cq, &r, 1) == 1 && r.status != SND_SUCCESS && snd_endpoint_error(t.ep) == SND_CONNECTION_ABORTED);
	} else {
		snd_status s = SND_SUCCESS;
		while (s == SND_SUCCESS && now() - killed < SECONDS(10)) {
			OK(snd_fabric_progress(snd_job_fabric(t.job)));
			s = snd_endpoint_error(t.ep);
		}
		CHECK(s == SND_CONNECTION_ABORTED);
	}
	const double ms = (double)(now() - killed) / 1e6;
	printf("%s: the death is noticed after %.1f ms\n", test, ms);
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
	OK(snd_job_close(t.job));
	return woken <= limit && (progress == SND_PROGRESS_MANUAL || (woken_here <= limit && ms < noticed_ms));
}

/* is_quiet_at_last fails if the processes never sleep as they should. On a busy machine the periodic work may be late, and so may the death. The
 * periodic check would notice it after two seconds. */
static void is_quiet_at_last(const char *test, snd_progress_model progress, bool blocks, long most)
{
	char name[32];
	int noticed_ms = NOTICED_MS;
	for (int i = 0; snprintf(name, sizeof name, "%s%d", test, i), !is_quiet(name, progress, blocks, most, noticed_ms); i++) {
		CHECK(i < 10);
		noticed_ms = noticed_ms * 2 < NOTICED_AT_LAST_MS ? noticed_ms * 2 : NOTICED_AT_LAST_MS;
	}
}

int main(int argc, char **argv)
{
	if (argc == 4)
		run_rank(argv[1], &(snd_fabric_options){.progress = strcmp(argv[2], "auto") == 0 ? SND_PROGRESS_AUTO : SND_PROGRESS_MANUAL}, strcmp(argv[3], "blocks") == 0);
	is_quiet_at_last("idle", SND_PROGRESS_AUTO, false, MOST_QUIET);
	is_quiet_at_last("blocked", SND_PROGRESS_AUTO, true, MOST_QUIET);
	is_quiet_at_last("manual", SND_PROGRESS_MANUAL, true, MOST_MANUAL);
	return 0;
}

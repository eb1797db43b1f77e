/* A program starts children in every way and at any time, while other threads open fabrics and move data. Children inherit no
 * descriptor of the library. Those that only fork get a documented status from each call, and have no memory of the arena. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "two.h"

enum { ROUNDS = 30 };

extern char **environ;
static char program[4096], inherited[20];
static atomic_int over, rounds, opens;
static struct two pair[2];
static void *memory; /* of the arena */

static void *move(void *arg)
{
	struct two *t = arg;
	char name[64];
	two_join(t, two_name(name, "children", (long)getpid()), t == &pair[1], &(snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO});
	uint64_t more = 1;
	for (uint64_t i = 1; more != 0; i++) {
		uint64_t go_on[2], mine = !over;
		for (int k = 0; k < 20; k++)
			two_round(t, 20 * i + (uint64_t)k);
		OK(snd_job_exchange(t->job, &mine, sizeof mine, go_on, SECONDS(30)));
		more = go_on[0] & go_on[1];
		rounds++;
	}
	two_leave(t);
	return NULL;
}

/* churn opens every kind of descriptor that the library has. */
static void *churn(void *arg)
{
	char name[64];
	two_name(name, "churn", (long)getpid());
	for (; !over; opens++) {
		snd_fabric *f, *g;
		snd_adapter *a;
		snd_cq *q;
		int fd;
		OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, &(snd_fabric_options){.progress = SND_PROGRESS_AUTO}, &f));
		OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, MANUAL, &g));
		OK(snd_adapter_open(f, &a));
		OK(snd_cq_create(a, 8, &q));
		OK(snd_cq_event_fd(q, &fd));
		OK(snd_fabric_close(g));
		OK(snd_fabric_close(f));
	}
	return arg;
}

/* check_fork is a child that only forks. It calls nothing that another thread of the parent may have locked. The test forks has children that open
 * a fabric. */
static void check_fork(void)
{
	struct two *t = &pair[0];
	snd_result r;
	uint32_t n;
	const snd_status got[] = {snd_endpoint_send(t->ep, 1, NULL, 0, 0), snd_cq_wait(t->cq, &r, 1, SND_FOREVER, &n), snd_fabric_progress(snd_job_fabric(t->job)),
		snd_mr_close(t->mr, SND_FOREVER), snd_job_barrier(t->job, SND_FOREVER), snd_job_close(t->job)};
	for (size_t i = 0; i < sizeof got / sizeof got[0]; i++)
		if (got[i] != SND_DEVICE_REMOVED)
			_exit(10 + (int)i);
	if ((snd_status)snd_cq_poll(t->cq, &r, 1) != SND_DEVICE_REMOVED || snd_last_error()[0] == 0)
		_exit(2);
	unsigned char resident;
	if (mincore(memory, 1, &resident) == 0 || errno != ENOMEM) /* the arena is not mapped */
		_exit(3);
	_exit(0);
}

static void check_status(const char *how, pid_t child)
{
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	if (status != 0) {
		fprintf(stderr, "%s: the child ended with %#x\n", how, (unsigned)status);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2) { /* a child that was executed */
		int extra = descriptors() - atoi(argv[1]);
		if (extra != 0) {
			fprintf(stderr, "%d descriptors more than before the library was used\n", extra);
			for (int fd = 3; fd < 1000; fd++) {
				char path[40], to[300] = "";
				snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
				if (readlink(path, to, sizeof to - 1) > 0)
					fprintf(stderr, "%d: %s\n", fd, to);
			}
		}
		return extra != 0;
	}
	CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
	snprintf(inherited, sizeof inherited, "%d", descriptors());
	char *const args[] = {argv[0], inherited, NULL};
	char command[5000];
	snprintf(command, sizeof command, "'%s' %s", program, inherited);
	pthread_t threads[3];
	CHECK(pthread_create(&threads[0], NULL, move, &pair[0]) == 0 && pthread_create(&threads[1], NULL, move, &pair[1]) == 0);
	CHECK(pthread_create(&threads[2], NULL, churn, NULL) == 0);
	while (rounds == 0)
		usleep(1000);
	memory = snd_mr_buffer(pair[0].mr);
	for (int i = 0; i < ROUNDS; i++) {
		pid_t child;
		CHECK(posix_spawn(&child, program, NULL, NULL, args, environ) == 0);
		check_status("posix_spawn", child);
		if ((child = fork()) == 0) {
			execv(program, args);
			_exit(127);
		}
		check_status("fork and exec", child);
		if ((child = vfork()) == 0) {
			execv(program, args);
			_exit(127);
		}
		check_status("vfork and exec", child);
		CHECK(system("exit 0") == 0);
		FILE *p = popen(command, "r");
		CHECK(p != NULL);
		while (fgetc(p) != EOF)
			;
		int status = pclose(p);
		CHECK(WIFEXITED(status)); /* the shell has a pipe more: it is the child's standard output */
		CHECK(WEXITSTATUS(status) == 0);
		if ((child = fork()) == 0)
			check_fork();
		check_status("fork", child);
	}
	over = 1;
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	printf("%d times 20 rounds of data, %d times two fabrics\n", rounds, opens);
	return 0;
}

/* Children that are forked without exec while other threads join and leave. They outlive their parent, and must keep neither
 * the lock of a member nor the name of a fabric. In the children every call on a handle of the parent returns SND_DEVICE_REMOVED,
 * and they can join an arena themselves. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "endpoint/progress_housekeeper.h"
#include "linux/clock.h"
#include "shm/fabric.h"
#include "shm/liveness.h"
#include "shm/member.h"

enum { ROUNDS = 30, CHILDREN = 30, BEGINNERS = 100, SLEEP_US = 150 };

static void *join_and_leave(void *arg)
{
	const int fd = *(int *)arg;
	for (;;) {
		snd_fabric *f;
		OK(snd_fabric_attach(fd, -1, MANUAL, &f));
		OK(snd_fabric_close(f));
	}
	return NULL;
}

static snd_fabric *parents; /* handle */

/* stay waits for the end of the test, which closes the pipe. */
static void stay(int end_of_test)
{
	char c;
	CHECK(snd_fabric_close(parents) == SND_DEVICE_REMOVED);
	CHECK(read(end_of_test, &c, 1) == 0);
	_exit(0);
}

/* gcc's address sanitizer does not work in a child that was forked while another thread allocated memory. */
#if defined(__SANITIZE_ADDRESS__)
enum { CHURNS = false, FORKS_WITH = SND_PROGRESS_MANUAL };
#else
enum { CHURNS = true, FORKS_WITH = SND_PROGRESS_AUTO };
#endif

/* join joins the arena of the parent, which a child can if it has its descriptor, and makes another one. */
static snd_fabric *join(int arena, snd_progress_model progress)
{
	snd_fabric *f, *own;
	snd_adapter *a;
	snd_mr *mr;
	CHECK(snd_fabric_close(parents) == SND_DEVICE_REMOVED);
	OK(snd_fabric_attach(arena, -1, &(snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = progress}, &f));
	CHECK(snd_fabric_close(parents) == SND_INVALID_HANDLE);
	OK(snd_adapter_open(f, &a));
	OK(snd_mr_allocate(a, 1 << 20, 0, &mr));
	memset(snd_mr_buffer(mr), 1, 1 << 20);
	OK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, &own));
	OK(snd_fabric_close(own));
	return f;
}

static void await(pid_t child)
{
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* begin_anew is a child that joins, and makes a child that does. */
static void begin_anew(int arena)
{
	parents = join(arena, FORKS_WITH);
	const pid_t child = fork();
	if (child == 0) {
		OK(snd_fabric_close(join(arena, SND_PROGRESS_AUTO)));
		_exit(0);
	}
	await(child);
	OK(snd_fabric_close(parents));
	_exit(0);
}

/* parent forks children, and says when it is done. */
static int parent(int arena, int end_of_test, const char *name)
{
	pthread_t t;
	snd_fabric *named;
	OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, MANUAL, &named));
	parents = named;
	pthread_create(&t, NULL, join_and_leave, &arena);
	for (int i = 0; i < CHILDREN; i++) {
		nanosleep(&(struct timespec){0, SLEEP_US * 1000}, NULL);
		if (fork() == 0)
			stay(end_of_test);
	}
	CHECK(write(STDOUT_FILENO, "x", 1) == 1);
	pause();
	return 0;
}

static _Atomic bool is_over;

/* churn makes and frees objects while children are forked. */
static void *churn(void *arg)
{
	snd_adapter *a;
	snd_mr *mr;
	while (!is_over) {
		OK(snd_adapter_open(arg, &a));
		OK(snd_mr_allocate(a, 100, 0, &mr));
		OK(snd_mr_close(mr, 0));
		OK(snd_adapter_close(a, 0));
	}
	return NULL;
}

static pthread_barrier_t both;

static void *begin_at_once(void *unused)
{
	snd_fabric *own;
	(void)unused;
	pthread_barrier_wait(&both);
	OK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, &own));
	OK(snd_fabric_close(own));
	return NULL;
}

/* Two threads of a child make its first calls at once. */
static void test_first_calls(void)
{
	for (int i = 0; i < BEGINNERS; i++) {
		const pid_t child = fork();
		if (child == 0) {
			pthread_t t;
			CHECK(pthread_barrier_init(&both, NULL, 2) == 0 && pthread_create(&t, NULL, begin_at_once, NULL) == 0);
			begin_at_once(NULL);
			_exit(pthread_join(t, NULL));
		}
		await(child);
	}
}

static void test_beginners(snd_fabric *joined, int arena)
{
	snd_fabric *f;
	pthread_t t;
	OK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, &f));
	parents = f;
	CHECK(!CHURNS || pthread_create(&t, NULL, churn, f) == 0);
	for (int i = 0; i < BEGINNERS; i++) {
		const pid_t child = fork();
		if (child == 0)
			begin_anew(arena);
		await(child);
		snd_check_liveness(joined); /* so that what the children had is freed */
	}
	is_over = true;
	CHECK(!CHURNS || pthread_join(t, NULL) == 0);
	OK(snd_fabric_close(f));
}

static int live_members(snd_fabric *f)
{
	int n = 0;
	struct snd_peer p;
	for (uint32_t slot = 0; slot < SNDL_MEMBERS; slot++)
		n += snd_peer_in_slot(f, slot, &p);
	return n;
}

int main(int argc, char **argv)
{
	if (argc == 4)
		return parent(atoi(argv[1]), atoi(argv[2]), argv[3]);
	snd_fabric *f, *named;
	OK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, &f));
	test_first_calls();
	char fd_text[12], end_text[12], name[40];
	snprintf(name, sizeof name, "forks-%d", (int)getpid());
	int fd = fcntl(snd_fabric_descriptor(f), F_DUPFD, 100), end[2];
	snprintf(fd_text, sizeof fd_text, "%d", fd);
	for (int round = 0; round < ROUNDS; round++) {
		int done[2], status;
		char c;
		CHECK(pipe2(end, O_CLOEXEC) == 0 && pipe2(done, O_CLOEXEC) == 0);
		int inherited = fcntl(end[0], F_DUPFD, 100);
		snprintf(end_text, sizeof end_text, "%d", inherited);
		pid_t pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			dup2(done[1], STDOUT_FILENO);
			execl("/proc/self/exe", "test_forks", fd_text, end_text, name, (char *)NULL);
			_exit(127);
		}
		close(inherited);
		close(done[1]);
		CHECK(read(done[0], &c, 1) == 1);
		CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
		/* The children live. Of the parent only members are left whose locks are free. */
		for (int i = 0; i < 4; i++)
			for (uint32_t slot = 0; slot < SNDL_MEMBERS; slot++) {
				struct snd_peer p;
				if (snd_peer_in_slot(f, slot, &p))
					(void)snd_check_alive(f, &p);
			}
		if (live_members(f) != 1) {
			fprintf(stderr, "round %d: %d members live, want 1\n", round, live_members(f));
			return 1;
		}
		OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, MANUAL, &named)); /* the name is free. With a member that does not answer, this fails */
		OK(snd_fabric_close(named));
		close(end[0]);
		close(end[1]);
		close(done[0]);
		snd_check_liveness(f);
	}
	test_beginners(f, fd);
	OK(snd_fabric_close(f));
	(void)argv;
	return 0;
}

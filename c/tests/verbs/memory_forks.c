/* Forked children of a process with adopted memory. */
#include "memory.h"

/* A child has the bytes of the fork, and neither process sees what the other writes then. */
static void fork_often(unsigned char *at, size_t length, int used)
{
	for (unsigned i = 0; i < 50; i++) {
		fill(at, length, i);
		const pid_t child = fork();
		if (child == 0) {
			expect_filled(at, length, i);
			if (used >= 0)
				close(used);
			CHECK(kind(at, NULL) == 0);
			memset(at, 0xee, length);
			_exit(0);
		}
		fill(at, length, i + 100); /* at once */
		int status;
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
		expect_filled(at, length, i + 100);
	}
}

static void forks(void)
{
	begin("auto");
	const size_t length = 300 * PAGE;
	unsigned char *at = map_pages(length);
	struct ibv_mr *mr = registered(at, length);
	fork_often(at, length, -1);
	CHECK(kind(at, NULL) == 's' && ibv_dereg_mr(mr) == 0);
	finish();
}

/* So it is if the program uses all descriptors, and its pages become private. */
static void crowded(void)
{
	begin("auto");
	const size_t length = 300 * PAGE;
	unsigned char *at = map_pages(length), *other = map_pages(PAGE);
	struct ibv_mr *mr = registered(at, length), *second = registered(other, PAGE);
	const int first = use_up();
	fork_often(at, length, first);
	CHECK(ibv_dereg_mr(mr) == 0);
	free_up(first);
	CHECK(kind(at, NULL) == 0 && kind(other, NULL) == 's' && ibv_dereg_mr(second) == 0);
	expect_filled(at, length, 149);
	finish();
}

/* A child that has no descriptor to read its mappings still gets its own pages, and the parent may have unmapped some. */
static void blind_child(void)
{
	begin("auto");
	unsigned char *at = map_pages(9 * PAGE);
	struct ibv_mr *mr = registered(at, 9 * PAGE);
	struct rlimit limit;
	fill(at, 9 * PAGE, 1);
	CHECK(munmap(at + 2 * PAGE, PAGE) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, limit.rlim_max}) == 0);
	const pid_t child = fork();
	CHECK(child >= 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (child == 0) {
		for (int i = 0; i < 9; i++)
			CHECK(kind(at + i * PAGE, NULL) == 0 && (i == 2 || at[i * PAGE] == (unsigned char)(i + 1)));
		memset(at, 0xee, 2 * PAGE);
		memset(at + 3 * PAGE, 0xee, 6 * PAGE);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	expect_filled(at, 2 * PAGE, 1);
	expect_filled(at + 3 * PAGE, 6 * PAGE, 4);
	CHECK(ibv_dereg_mr(mr) == 0);
	finish();
}

static int delay; /* microseconds, by which a child is late */
static volatile sig_atomic_t signals_parent; /* the next child */

static void dawdle(void)
{
	if (delay > 0)
		usleep((useconds_t)delay);
	if (signals_parent)
		CHECK(kill(getppid(), SIGALRM) == 0);
}

/* The parent waits, too, if a registration has found pages of an ended region, and no others are adopted. */
static void parked(void)
{
	begin("auto");
	unsigned char *at = map_pages(PAGE);
	park(registered(at, PAGE), at);
	struct ibv_mr *mr = registered(at, PAGE);
	CHECK(kind(at, NULL) == 's');
	delay = 50000;
	at[0] = 1;
	const pid_t child = fork();
	if (child == 0)
		_exit(at[0]);
	at[0] = 2;
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1 && ibv_dereg_mr(mr) == 0);
	finish();
}

static void fail(void *unused)
{
	(void)unused;
	_exit(1);
}

/* A thread is not canceled in fork. */
static void canceled(void)
{
	begin("auto");
	unsigned char *at = map_pages(PAGE);
	struct ibv_mr *mr = registered(at, PAGE);
	CHECK(kind(at, NULL) == 's' && pthread_cancel(pthread_self()) == 0);
	pthread_cleanup_push(fail, NULL);
	const pid_t child = fork();
	if (child == 0)
		_exit(0);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0 && ibv_dereg_mr(mr) == 0);
	finish();
	pthread_cleanup_pop(0);
}

static void fork_once(int number)
{
	if (number == SIGALRM)
		signals_parent = 0;
	const pid_t child = fork();
	if (child == 0)
		_exit(0);
	CHECK(child > 0);
}

/* A signal that comes while the parent waits for its child finds a handler that forks. The child sends it before the library's handler runs there: at
 * other moments, the C library may have a lock that fork needs. */
static void signals(void)
{
	begin("auto");
	const size_t length = 600 * PAGE;
	unsigned char *at = map_pages(length);
	struct ibv_mr *mr = registered(at, length);
	fill(at, length, 1);
	CHECK(kind(at, NULL) == 's'); /* so the parent waits */
	CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR && signal(SIGALRM, fork_once) != SIG_ERR);
	for (int i = 0; i < 100; i++) {
		delay = i % 50 * 60;
		signals_parent = 1;
		fork_once(0);
		CHECK(!signals_parent); /* the handler has run */
	}
	CHECK(ibv_dereg_mr(mr) == 0);
	expect_filled(at, length, 1);
	finish();
}

int main(int argc, char **argv)
{
	CHECK(pthread_atfork(NULL, NULL, dawdle) == 0); /* before the library's */
	return RUN_PARTS(argc, argv, {"forks", forks}, {"parked", parked}, {"canceled", canceled}, {"crowded", crowded}, {"blind_child", blind_child}, {"signals", signals});
}

/* Adopted memory: registered pages that peers access without their owner. Each part of a test runs in a process of its own. */
#ifndef SOFTND_VERBS_MEMORY_H
#define SOFTND_VERBS_MEMORY_H

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "sides.h"

enum { PAGE = 4096, SMALL_ARENA = 176 << 20, SKIPPED = 77 };

static struct ibv_context *context;
static struct ibv_pd *pd;

static inline void begin(const char *adopt)
{
	CHECK(setenv("SOFTND_VERBS_ADOPT", adopt, 1) == 0);
	context = open_device();
	pd = ibv_alloc_pd(context);
	CHECK(pd != NULL);
}

static inline struct ibv_mr *registered(void *at, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, length, RIGHTS);
	CHECK(mr != NULL);
	return mr;
}

/* kind returns how memory is mapped: 's' as shared memory of the arena, 'p' as private memory of it, 0 otherwise. first, if it is not NULL, is where the
 * mapping begins. */
static inline char kind(const void *at, unsigned long *first)
{
	char line[512], found = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL) {
		unsigned long start, end;
		char how;
		CHECK(sscanf(line, "%lx-%lx %*c%*c%*c%c", &start, &end, &how) == 3);
		if (start > (uintptr_t)at || (uintptr_t)at >= end)
			continue;
		found = strstr(line, "softnd-arena") != NULL ? how : 0;
		if (first != NULL)
			*first = start;
	}
	fclose(f);
	return found;
}

/* finish closes the device, and checks that nothing of the arena is left in the process. */
static inline void finish(void)
{
	char line[512];
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL)
		CHECK(strstr(line, "softnd-arena") == NULL);
	fclose(f);
}

static inline void fill(unsigned char *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (unsigned char)(i * 31 + i / PAGE + seed);
}

static inline void expect_filled(const unsigned char *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		CHECK(at[i] == (unsigned char)(i * 31 + i / PAGE + seed));
}

static inline unsigned char *map_pages(size_t length)
{
	unsigned char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

/* use_up opens descriptors until there is no free one, and returns the first. free_up closes them. */
static inline int use_up(void)
{
	CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}) == 0);
	const int first = dup(STDERR_FILENO);
	CHECK(first >= 0);
	while (dup(first) >= 0) {
	}
	CHECK(errno == EMFILE);
	return first;
}

static inline void free_up(int first)
{
	struct stat mine, st;
	CHECK(fstat(first, &mine) == 0);
	for (int fd = first; fd < 64; fd++)
		if (fstat(fd, &st) == 0 && st.st_dev == mine.st_dev && st.st_ino == mine.st_ino)
			close(fd);
}

static inline int threads_now(void)
{
	int n = -2;
	DIR *d = opendir("/proc/self/task");
	CHECK(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

/* await_alone waits until threads that have been joined are gone for the kernel, too. */
static inline void await_alone(int threads)
{
	const time_t end = time(NULL) + 30;
	while (threads_now() != threads)
		CHECK(time(NULL) < end);
}

static inline void *sleep_until(void *pipe_end)
{
	char c;
	CHECK(read(*(int *)pipe_end, &c, 1) == 0);
	return NULL;
}

/* park ends a region while the program has a thread, which is gone when it returns. */
static inline void park(struct ibv_mr *mr, const unsigned char *at)
{
	const int alone = threads_now();
	int ends[2];
	pthread_t thread;
	CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, sleep_until, &ends[0]) == 0 && ibv_dereg_mr(mr) == 0 && kind(at, NULL) == 'p');
	close(ends[1]);
	CHECK(pthread_join(thread, NULL) == 0);
	close(ends[0]);
	await_alone(alone);
}

struct part {
	const char *name;
	void (*run)(void);
};

/* skip ends a part that the machine does not allow. */
static inline void skip(const char *reason)
{
	printf("skipped: %s\n", reason);
	exit(SKIPPED);
}

/* run_parts runs the part that the program names in its arguments, or all. */
static inline int run_parts(int argc, char **argv, const struct part *parts, size_t count)
{
	int result = 0, ran = 0;
	name_fabric("memory");
	for (const struct part *p = parts; p < parts + count; p++) {
		if (argc > 1 && strcmp(argv[1], p->name) != 0)
			continue;
		ran++;
		const pid_t child = fork();
		int status;
		if (child == 0) {
			p->run();
			exit(0);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
			result = SKIPPED;
			continue;
		}
		if (status != 0)
			fprintf(stderr, "%s: status %#x\n", p->name, (unsigned)status);
		CHECK(status == 0);
	}
	CHECK(ran > 0);
	return result;
}
#define RUN_PARTS(argc, argv, ...) \
	run_parts(argc, argv, (const struct part[]){__VA_ARGS__}, sizeof((const struct part[]){__VA_ARGS__}) / sizeof(struct part))

#endif

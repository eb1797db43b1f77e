/* A program may close all descriptors that it does not know, as daemons do, and open others with their numbers. The library
 * does not take those for its own, refuses calls that need its own, and can still be closed. */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "two_members.h"

enum { PAGE = SND_PAGE_SIZE, PAGES = 4, DUPLICATES = 64 };

/* take_numbers closes all descriptors but the first three, and makes them refer to a file. It returns the file. */
static int take_numbers(void)
{
	char name[] = "/tmp/softnd-test-XXXXXX";
	static const char zero[64 * PAGE];
	CHECK(syscall(SYS_close_range, 3u, ~0u, 0u) == 0);
	int file = mkstemp(name);
	CHECK(file >= 0 && unlink(name) == 0 && write(file, zero, sizeof zero) == (ssize_t)sizeof zero);
	for (int i = 0; i < DUPLICATES; i++)
		CHECK(dup(file) >= 0);
	return file;
}

/* check_file checks that the library has neither written to the file nor closed a descriptor of it, and closes all. */
static void check_file(int file)
{
	static char now[64 * PAGE + 1], zero[64 * PAGE];
	CHECK(pread(file, now, sizeof now, 0) == (ssize_t)sizeof zero && memcmp(now, zero, sizeof zero) == 0);
	for (int fd = file; fd <= file + DUPLICATES; fd++)
		CHECK(fcntl(fd, F_GETFD) >= 0);
	CHECK(syscall(SYS_close_range, 3u, ~0u, 0u) == 0);
}

static double processor_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* test_limit: with no descriptor left, the text says which limit to raise. */
static void test_limit(void)
{
	struct rlimit before, none;
	snd_fabric *f;
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = 3;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	CHECK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, &f) != SND_SUCCESS && strstr(snd_last_error(), "too many open files: raise the limit of the process (ulimit -n)") != NULL);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void test_close(snd_progress_model progress, const char *name)
{
	snd_fabric *f;
	const snd_fabric_options o = {.progress = progress};
	OK(name != NULL ? snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, &o, &f) : snd_fabric_create(0, UINT64_C(1) << 28, &o, &f));
	int file = take_numbers();
	const double before = processor_time();
	nanosleep(&(struct timespec){1, 0}, NULL);
	OK(snd_fabric_progress(f));
	CHECK(processor_time() - before < 0.5); /* no thread runs all the time */
	OK(snd_fabric_close(f));
	check_file(file);
}

/* test_fast_register has scattered pages of the arena mapped, for which the descriptor is needed. */
static void test_fast_register(void)
{
	snd_mr *memory, *fast;
	snd_mapping *mapping;
	uint64_t pages[PAGES];
	open_members(SND_EXECUTOR_AUTO);
	connect_members(NULL);
	OK(snd_mr_allocate(b.adapter, PAGES * PAGE, SND_ALLOW_LOCAL_WRITE, &memory));
	OK(snd_mapping_create(memory, snd_mr_buffer(memory), PAGES * PAGE, &mapping));
	CHECK(snd_mapping_pages(mapping, pages, PAGES) == PAGES);
	OK(snd_mr_create_fast(b.adapter, PAGES, 1, &fast));
	int file = take_numbers();
	const uint64_t scattered[] = {pages[2], pages[0]};
	const snd_fast_registration g = {.pages = scattered, .page_count = 2, .length = 2 * PAGE, .address = PAGE, .rights = SND_ALLOW_REMOTE_WRITE};
	CHECK(snd_endpoint_fast_register(b.ep, 1, fast, &g, 0) == SND_DEVICE_REMOVED);
	close_members();
	check_file(file);
}

int main(void)
{
	test_limit();
	char name[64];
	snprintf(name, sizeof name, "descriptors.%ld", (long)getpid());
	alarm(500); /* a hang ends the test */
	test_close(SND_PROGRESS_MANUAL, NULL);
	test_close(SND_PROGRESS_AUTO, NULL);
	test_close(SND_PROGRESS_MANUAL, name);
	test_close(SND_PROGRESS_AUTO, name);
	test_fast_register();
	puts("ok");
	return 0;
}

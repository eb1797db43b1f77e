/* Under low limits of the process, opening a fabric succeeds, or fails with a message and leaves nothing. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "two.h"

#define MIB (UINT64_C(1) << 20)

static int count(const char *path)
{
	int n = 0;
	DIR *d = opendir(path);
	CHECK(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static uint64_t mapped_pages(void)
{
	unsigned long n = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	CHECK(f != NULL && fscanf(f, "%lu", &n) == 1);
	fclose(f);
	return n;
}

static snd_status use(const char *name, snd_progress_model progress, uint64_t size)
{
	const snd_fabric_options o = {.progress = progress};
	snd_fabric *f;
	snd_adapter *a;
	snd_mr *mr;
	snd_status s = name != NULL ? snd_fabric_open(name, 0, size, -1, &o, &f) : snd_fabric_create(0, size, &o, &f);
	if (s != SND_SUCCESS)
		return s;
	OK(snd_adapter_open(f, &a));
	s = snd_mr_allocate(a, 100000, SND_ALLOW_LOCAL_WRITE, &mr);
	CHECK(snd_fabric_close(f) == SND_SUCCESS);
	return s;
}

/* check_left waits until the process has as many threads and descriptors as before. A joined thread may take a moment to end, and a
   member of the arena opens descriptors for one that joins and closes them when that has left. */
static void check_left(int threads, int descriptors)
{
	bool same = false;
	for (int i = 0; i < 60000 && !same; i++) {
		if (i > 0)
			usleep(1000);
		same = count("/proc/self/task") == threads && count("/proc/self/fd") == descriptors;
	}
	CHECK(same);
}

/* try_limit uses the library under a limit, and returns the status. */
static snd_status try_limit(__rlimit_resource_t resource, uint64_t limit, const char *name, snd_progress_model progress, uint64_t size)
{
	struct rlimit before, low;
	CHECK(getrlimit(resource, &before) == 0);
	low = before;
	low.rlim_cur = limit;
	const int descriptors = count("/proc/self/fd"), threads = count("/proc/self/task");
	CHECK(setrlimit(resource, &low) == 0);
	snd_status s = use(name, progress, size);
	char text[600];
	snprintf(text, sizeof text, "%s", s != SND_SUCCESS ? snd_last_error() : "works");
	CHECK(setrlimit(resource, &before) == 0);
	if (s != SND_SUCCESS && strlen(text) < 20) {
		fprintf(stderr, "resource %d, limit %lu: status %#x: '%s'\n", (int)resource, (unsigned long)limit, s, text);
		exit(1);
	}
	check_left(threads, descriptors);
	return s;
}

int main(void)
{
	char name[64];
	two_name(name, "limits", (long)getpid());
	for (int fd = 3; fd < 1000; fd++) /* inherited: a limit is on the number of a descriptor */
		(void)close(fd);
	OK(use(name, SND_PROGRESS_AUTO, 256 * MIB)); /* the C library has allocated what it keeps */
	const uint64_t base = mapped_pages();
	check_left(3, count("/proc/self/fd")); /* . and .. and this thread */
	const int descriptors = count("/proc/self/fd");
	const rlim_t open_now = (rlim_t)descriptors - 3; /* . and .. and the directory itself */

	snd_status s = SND_UNSUCCESSFUL;
	rlim_t extra = 0;
	for (; extra < 30 && s != SND_SUCCESS; extra++)
		s = try_limit(RLIMIT_NOFILE, open_now + extra, name, SND_PROGRESS_AUTO, 256 * MIB);
	CHECK(s == SND_SUCCESS && extra > 3);
	printf("%lu descriptors suffice\n", (unsigned long)extra - 1);
	for (s = SND_UNSUCCESSFUL, extra = 0; extra < 30 && s != SND_SUCCESS; extra++)
		s = try_limit(RLIMIT_NOFILE, open_now + extra, NULL, SND_PROGRESS_MANUAL, 256 * MIB);
	CHECK(s == SND_SUCCESS);
	printf("%lu descriptors suffice with manual progress\n", (unsigned long)extra - 1);

	/* Address space for a part of what it needs: the arena, objects, stacks. */
	const uint64_t pages = base * (uint64_t)sysconf(_SC_PAGESIZE);
	int failed = 0, worked = 0;
	for (uint64_t more = 0; more <= 320 * MIB; more += more < 2 * MIB ? MIB / 8 : 8 * MIB) {
		s = try_limit(RLIMIT_AS, pages + more, NULL, SND_PROGRESS_AUTO, 256 * MIB);
		*(s == SND_SUCCESS ? &worked : &failed) += 1;
	}
	CHECK(worked > 0 && failed > 0);

	/* No memory is locked, and files may be short: the signal of a too long file is no way to report that. */
	OK(try_limit(RLIMIT_MEMLOCK, 0, NULL, SND_PROGRESS_AUTO, 256 * MIB));
	CHECK(try_limit(RLIMIT_FSIZE, 64 * MIB, NULL, SND_PROGRESS_AUTO, 256 * MIB) != SND_SUCCESS);
	OK(try_limit(RLIMIT_FSIZE, 512 * MIB, NULL, SND_PROGRESS_AUTO, 256 * MIB));
	CHECK(try_limit(RLIMIT_FSIZE, 100, NULL, SND_PROGRESS_AUTO, 0) != SND_SUCCESS);
	(void)try_limit(RLIMIT_STACK, MIB / 4, NULL, SND_PROGRESS_AUTO, 256 * MIB);

	/* A process with a lower limit joins an arena that is longer. */
	snd_fabric *f;
	OK(snd_fabric_open(name, 0, 256 * MIB, -1, &(snd_fabric_options){.progress = SND_PROGRESS_AUTO}, &f));
	OK(try_limit(RLIMIT_FSIZE, MIB, name, SND_PROGRESS_AUTO, 256 * MIB));
	OK(snd_fabric_close(f));
	check_left(3, descriptors);
	CHECK(mapped_pages() <= base + 64 * 1024 * 1024 / (uint64_t)sysconf(_SC_PAGESIZE)); /* stacks that the C library keeps */
	return 0;
}

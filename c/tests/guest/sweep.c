/* Under every limit from 1 MiB to 2 GiB, an allocation succeeds or fails with an error. The error names the bytes that were wanted,
 * those that are left, and the limit. After a success all its bytes can be written: a page that is not there would raise SIGBUS.
 * shm/limits_sweep_test.go is the same in Go. */
#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum { ALLOCATIONS = 100, WRITTEN = 8 << 20 };

static uint64_t seed;

static uint64_t random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* check_shortage checks the text of a failed allocation of wanted bytes at least: it names those, fewer that are left, and a limit. */
static void check_shortage(snd_status s, uint64_t wanted)
{
	static const char *const limits[] = {"(ulimit -v)", "raise ulimit -f", "the arena of ", "the machine or a memory cgroup", "the kernel's limit on shared memory", "left in the machine"};
	const char *text = snd_last_error();
	uint64_t asked = 0;
	bool less = false, limit = false;
	if (s == SND_INVALID_PARAMETER && (strstr(text, "is too small: its tables need ") != NULL || strstr(text, "at most") != NULL))
		return; /* an arena of that size holds nothing, or no region is that long */
	for (const char *p = text; *p != 0;) {
		if (!isdigit((unsigned char)*p)) {
			p++;
			continue;
		}
		char *end;
		const uint64_t n = strtoull(p, &end, 10);
		if (asked == 0)
			asked = n;
		less = less || (n < asked && memcmp(end, " left", 5) == 0) || (n < asked && strstr(text, "have at most") != NULL) || (n < asked && strstr(text, "contiguous") != NULL);
		p = end;
	}
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
		limit = limit || strstr(text, limits[i]) != NULL;
	if ((s != SND_NO_MEMORY && s != SND_INSUFFICIENT_RESOURCES) || asked < wanted || asked == 0 || !less || !limit) {
		fprintf(stderr, "wanted %" PRIu64 ": %s: %s\n", wanted, snd_status_name(s), text);
		exit(1);
	}
}

/* sweep makes an arena of asked bytes, or of the default size, and allocates. It returns the last error. */
static void sweep(uint64_t asked)
{
	snd_fabric *f;
	snd_adapter *a;
	snd_mr *held[ALLOCATIONS];
	size_t first = 0, count = 0;
	uint64_t written = 0;
	seed = asked * 2 + 77;
	snd_status s = snd_fabric_create(0, asked, MANUAL, &f);
	if (s != SND_SUCCESS) {
		check_shortage(s, asked);
		printf("%s\n", snd_last_error());
		return;
	}
	if ((s = snd_adapter_open(f, &a)) != SND_SUCCESS) {
		check_shortage(s, 1);
		OK(snd_fabric_close(f));
		return;
	}
	int failed = 0;
	for (int i = 0; i < ALLOCATIONS; i++) {
		uint64_t n = 1 + random64() % (UINT64_C(1) << (6 + random64() % 20));
		if (random64() % 10 == 0)
			n = (asked != 0 ? asked : GIB) * (1 + random64() % 4) / 2 + (random64() % 2 == 0 ? UINT64_C(1) << 40 : 0);
		if ((s = snd_mr_allocate(a, n, SND_ALLOW_LOCAL_WRITE, &held[count])) != SND_SUCCESS) {
			check_shortage(s, n);
			failed++;
			continue;
		}
		unsigned char *b = snd_mr_buffer(held[count++]);
		if (written + n < WRITTEN)
			memset(b, 1, n);
		written += n < WRITTEN ? n : WRITTEN;
		b[0] = b[n - 1] = 1;
		if (random64() % 4 == 0 || written > WRITTEN) {
			OK(snd_mr_close(held[first++], 0));
			written = written < WRITTEN ? written : WRITTEN;
		}
	}
	printf("%d of %d allocations failed%s%s\n", failed, ALLOCATIONS, failed > 0 ? ", the last with " : "", failed > 0 ? snd_last_error() : "");
	OK(snd_fabric_close(f));
}

static uint64_t address_space(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	CHECK(f != NULL && fscanf(f, "%lu", &pages) == 1);
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static const char *const kinds[] = {"arena size", "file size", "address space", "locked memory"};

static void run_rank(size_t kind, uint64_t limit)
{
	static const __rlimit_resource_t resources[] = {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_MEMLOCK};
	if (kind == 0) {
		sweep(limit);
		return;
	}
	struct rlimit l;
	CHECK(getrlimit(resources[kind], &l) == 0);
	l.rlim_cur = limit + (resources[kind] == RLIMIT_AS ? address_space() : 0);
	l.rlim_cur = l.rlim_cur < l.rlim_max ? l.rlim_cur : l.rlim_max;
	CHECK(setrlimit(resources[kind], &l) == 0);
	sweep(resources[kind] == RLIMIT_MEMLOCK ? GIB / 4 : 0);
	sweep(4 * limit); /* more than the limit, if it applies */
}

int main(void)
{
	for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
		for (uint64_t mib = 1; mib <= 2048; mib *= 2) {
			printf("%s, %d MiB\n", kinds[kind], (int)mib);
			fflush(stdout);
			int status;
			const pid_t child = fork();
			if (child == 0) {
				run_rank(kind, mib * MIB);
				exit(0);
			}
			CHECK(waitpid(child, &status, 0) == child);
			if (status != 0) {
				fprintf(stderr, "%s, %d MiB: status %#x\n", kinds[kind], (int)mib, (unsigned)status);
				return 1;
			}
		}
	return 0;
}

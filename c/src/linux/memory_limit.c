/* TWIN internal/linux/memory.go. */
#include "linux/memory_limit.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "error.h"
#include "linux/clock.h"
#include "linux/descriptor.h"

#define MAX_MARGIN (UINT64_C(256) << 20)

static uint64_t margin(uint64_t limit) { return limit / 16 < MAX_MARGIN ? limit / 16 : MAX_MARGIN; }
static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* number_after returns the number behind a word at the start of a line of a file; otherwise if there is none. An empty
 * word stands for the start of the file. */
static uint64_t number_after(const char *path, const char *word, uint64_t otherwise)
{
	char line[256];
	size_t n = strlen(word);
	uint64_t v = otherwise;
	FILE *f = snd_open_text(path);
	if (f == NULL)
		return otherwise;
	while (fgets(line, sizeof line, f) != NULL) {
		char *end;
		if (strncmp(line, word, n) != 0)
			continue;
		unsigned long long got = strtoull(line + n, &end, 10);
		if (end != line + n) /* "max" is no number: there is no limit */
			v = got;
		break;
	}
	fclose(f);
	return v;
}

/* address_space_used returns the size of this process's mappings. It needs no memory of its own. */
static uint64_t address_space_used(void)
{
	char text[64];
	const int fd = snd_above_standard(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
	const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void snd_record_no_memory(uint64_t size, const char *what, const char *op)
{
	const int reason = errno != 0 ? errno : ENOMEM;
	struct rlimit lim;
	uint64_t left;
	if (reason == ENOMEM && getrlimit(RLIMIT_AS, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY) {
		left = minus(lim.rlim_cur, address_space_used());
		snd_record_failure("%s: %s of %" PRIu64 " bytes: the address space limit of %" PRIu64 " bytes (ulimit -v) has %" PRIu64 " left: raise the limit, or use a smaller arena (ndrun --arena-size)",
			op, what, size, (uint64_t)lim.rlim_cur, left < size ? left : size - 1);
		return;
	}
	left = snd_memory_available();
	snd_record_failure("%s: %s of %" PRIu64 " bytes: %s, with %" PRIu64 " left in the machine or a memory cgroup: free memory, or raise a limit (ulimit -d, vm.max_map_count)",
		op, what, size, strerror(reason), left);
}

/* kind names the files of a version of the memory controller. */
struct kind {
	const char *root, *limit, *used, *cache;
};

/* of_cgroup returns what a memory cgroup has left. Page cache that the kernel can drop does not count as used. */
static uint64_t of_cgroup(const struct kind *k, const char *dir)
{
	char path[700];
	snprintf(path, sizeof path, "%s/%s", dir, k->limit);
	uint64_t limit = number_after(path, "", UINT64_MAX);
	if (limit >= UINT64_MAX / 4) /* version 1 writes "no limit" as a huge number */
		return UINT64_MAX;
	snprintf(path, sizeof path, "%s/%s", dir, k->used);
	uint64_t used = number_after(path, "", 0);
	snprintf(path, sizeof path, "%s/memory.stat", dir);
	used = minus(used, number_after(path, k->cache, 0));
	return minus(limit - margin(limit), used);
}

/* has_memory reports whether a list of controllers, separated by commas, contains that of memory. */
static int has_memory(const char *list)
{
	for (; list != NULL; list = strchr(list, ',')) {
		list += *list == ',';
		if (strcmp(list, "memory") == 0 || strncmp(list, "memory,", 7) == 0)
			return 1;
		if (*list == 0)
			return 0;
	}
	return 0;
}

uint64_t snd_memory_available(void)
{
	static const struct kind version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
		version2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
	uint64_t total = number_after("/proc/meminfo", "MemTotal:", 0) << 10, left = UINT64_MAX;
	uint64_t machine = number_after("/proc/meminfo", "MemAvailable:", UINT64_MAX);
	if (machine != UINT64_MAX)
		left = minus(machine << 10, margin(total));
	char line[512], dir[600];
	FILE *f = snd_open_text("/proc/self/cgroup");
	if (f == NULL)
		return left;
	while (fgets(line, sizeof line, f) != NULL) { /* number:controllers:path */
		line[strcspn(line, "\n")] = 0;
		char *list = strchr(line, ':'), *path = list != NULL ? strchr(list + 1, ':') : NULL;
		if (path == NULL)
			continue;
		*path++ = 0;
		const struct kind *k = strcmp(line, "0:") == 0 ? &version2 : has_memory(list + 1) ? &version1 : NULL;
		if (k == NULL)
			continue;
		snprintf(dir, sizeof dir, "%s%s", k->root, path);
		for (;;) { /* the group itself, then its ancestors */
			uint64_t n = of_cgroup(k, dir);
			left = n < left ? n : left;
			char *end = strrchr(dir, '/');
			if (end == NULL || strlen(dir) <= strlen(k->root))
				break;
			*end = 0;
		}
	}
	fclose(f);
	return left;
}

bool snd_take_spare(struct snd_spare_memory *s, uint64_t wanted, uint64_t now)
{
	if (now >= snd_load(&s->until))
		return false;
	uint64_t have = snd_load(&s->bytes);
	do
		if (wanted > have)
			return false;
	while (!atomic_compare_exchange_weak(&s->bytes, &have, have - wanted));
	return true;
}

void snd_refill_spare(struct snd_spare_memory *s, uint64_t left, uint64_t now)
{
	const uint64_t share = left / SND_SPARE_SHARE;
	atomic_store(&s->bytes, share < SND_MAX_SPARE ? share : SND_MAX_SPARE);
	atomic_store(&s->until, now + SND_SPARE_AGE);
}

bool snd_can_reserve(uint64_t wanted, uint64_t *left)
{
	static struct snd_spare_memory spare;
	const uint64_t now = (uint64_t)snd_clock();
	if (snd_take_spare(&spare, wanted, now))
		return true;
	*left = snd_memory_available();
	snd_refill_spare(&spare, minus(*left, wanted), now);
	return wanted <= *left;
}

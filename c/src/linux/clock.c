/* TWIN internal/linux/clock.go. */
#include "linux/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "linux/descriptor.h"

int64_t snd_clock(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t snd_clock_ahead(void)
{
	char line[80], clock[20];
	int64_t ahead = 0;
	FILE *f = snd_open_text("/proc/self/timens_offsets"); /* none: the kernel has no time namespaces */
	while (f != NULL && fgets(line, sizeof line, f) != NULL) {
		long long seconds, nanoseconds;
		/* Linux before 5.11 writes the number of the clock. */
		if (sscanf(line, "%19s %lld %lld", clock, &seconds, &nanoseconds) == 3 && (strcmp(clock, "monotonic") == 0 || strcmp(clock, "1") == 0))
			ahead = seconds * 1000000000 + nanoseconds;
	}
	if (f != NULL)
		fclose(f);
	return ahead;
}

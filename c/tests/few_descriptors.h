/* A limit of descriptors for tests. */
#ifndef SND_FEW_DESCRIPTORS_H
#define SND_FEW_DESCRIPTORS_H

#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

/* limit_to sets the limit to so many more descriptors than are open; -1 means the highest one. open is one that is open. */
static inline void limit_to(int open, int more)
{
	struct rlimit l;
	CHECK(getrlimit(RLIMIT_NOFILE, &l) == 0);
	l.rlim_cur = l.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
	if (more < 0)
		return;
	const int free_one = dup(open);
	CHECK(free_one >= 0 && close(free_one) == 0);
	l.rlim_cur = (rlim_t)(free_one + more);
	CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
}

#endif

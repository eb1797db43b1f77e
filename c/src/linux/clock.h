/* Times and time limits. */
#ifndef SND_CLOCK_H
#define SND_CLOCK_H

#include <stdint.h>

#include "softnd/softnd.h"

/* snd_clock returns CLOCK_MONOTONIC in nanoseconds. */
int64_t snd_clock(void);

/* snd_clock_ahead returns by how much the clock of this process's time namespace is ahead of that of the host. */
int64_t snd_clock_ahead(void);

/* snd_deadline returns the time at which timeout nanoseconds from now have passed; INT64_MAX if there is no such time. */
static inline int64_t snd_deadline(int64_t timeout)
{
	const int64_t now = snd_clock();
	return timeout > INT64_MAX - now ? INT64_MAX : now + timeout;
}

/* snd_time_left returns the time until a deadline, SND_FOREVER if that is negative: none. */
static inline int64_t snd_time_left(int64_t deadline)
{
	const int64_t now = snd_clock();
	return deadline < 0 ? SND_FOREVER : deadline > now ? deadline - now : 0;
}

#endif

/* Included before every source of the library in a fuzz build. Each load of a shared word can do damage right
 * afterwards, as a peer on another core could. Time passes only when the library asks for it or sleeps. */
#ifndef SND_FUZZ_HOOK_H
#define SND_FUZZ_HOOK_H

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

void snd_fuzz_loaded(const volatile void *word);
int snd_fuzz_clock_gettime(clockid_t clock, struct timespec *t);
int snd_fuzz_nanosleep(const struct timespec *wanted, struct timespec *left);
int snd_fuzz_yield(void);

#undef atomic_load_explicit
#define atomic_load_explicit(at, order) \
	__extension__({ \
		__auto_type at_ = (at); \
		__auto_type value_ = __c11_atomic_load(at_, order); \
		snd_fuzz_loaded(at_); \
		value_; \
	})
#define clock_gettime snd_fuzz_clock_gettime
#define nanosleep snd_fuzz_nanosleep
#define sched_yield snd_fuzz_yield

#endif

/* The text of the latest failure of each thread. */
#ifndef SND_ERROR_H
#define SND_ERROR_H

#include <errno.h>
#include <pthread.h>

#include "softnd/softnd.h"

/* SND_UNCANCELED keeps the thread from being canceled until the block ends: most system calls are points at which that happens, and a thread
 * that ends in a call keeps the lock. */
#define SND_UNCANCELED __attribute__((cleanup(snd_restore_cancel), unused)) const int kept_cancel = snd_keep_cancel()
static inline int snd_keep_cancel(void)
{
	int kept;
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &kept);
	return kept;
}
static inline void snd_restore_cancel(const int *kept) { (void)pthread_setcancelstate(*kept, NULL); }

/* SND_KEEP_ERRNO is SND_UNCANCELED, and restores errno when the block ends. The calls of the hot path do without it: the functions that make
 * system calls for them have it. All other calls begin with it. */
#define SND_KEEP_ERRNO \
	SND_UNCANCELED; \
	__attribute__((cleanup(snd_restore_errno), unused)) const int kept_errno = errno
static inline void snd_restore_errno(const int *kept) { errno = *kept; }

/* snd_fail records the text of a failure; its value is the status. It is a macro so that compilers and analysers see the
 * status at the call, and know that a failure has no result. */
#define snd_fail(status, ...) (snd_record_failure(__VA_ARGS__), (snd_status)(status))
/* snd_check_reserved refuses a structure whose reserved member is not 0, so that a later version can give it a meaning. */
#define snd_check_reserved(p, op) ((p)->reserved == 0 ? SND_SUCCESS : snd_fail(SND_INVALID_PARAMETER, "%s: reserved is not 0: set all members that the program does not use to 0", op))
/* snd_check_switch refuses a member of a structure that is neither 0 nor 1. */
#define snd_check_switch(value, name, op) ((value) <= 1 ? SND_SUCCESS : snd_fail(SND_INVALID_PARAMETER, "%s: %s is %" PRIu32 ": pass 0 or 1", op, name, value))
/* snd_errno_text is strerror, and the next step for the errors of a limit. */
const char *snd_errno_text(int e);
/* snd_duration returns a duration with its unit, such as "250 ms". */
struct snd_duration_text {
	char text[32];
};
struct snd_duration_text snd_duration(int64_t ns);
void snd_record_failure(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

#endif

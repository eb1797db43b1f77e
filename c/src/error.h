/* The text of the latest failure of each thread. */
#ifndef SND_ERROR_H
#define SND_ERROR_H

#include "softnd/softnd.h"

/* snd_fail records the text of a failure; its value is the status. It is a macro so that compilers and analysers see the
 * status at the call, and know that a failure has no result. */
#define snd_fail(status, ...) (snd_record_failure(__VA_ARGS__), (snd_status)(status))
void snd_record_failure(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

#endif

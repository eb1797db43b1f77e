/* The text of the latest failure of each thread. */
#ifndef SND_ERROR_H
#define SND_ERROR_H

#include "softnd/softnd.h"

/* snd_fail records the text of a failure and returns its status. */
snd_status snd_fail(snd_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

#endif

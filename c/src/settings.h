/* Settings that the user makes in the environment. docs/environment.md lists them. */
#ifndef SND_SETTINGS_H
#define SND_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "softnd/softnd.h"

/* snd_apply_environment checks the settings of a job, and applies those that the program has left at their defaults. */
snd_status snd_apply_environment(snd_fabric_options *o, const char *op);
/* snd_read_receive_timeout reads SOFTND_RECEIVE_TIMEOUT, in nanoseconds or SND_FOREVER. It leaves the limit if the variable is not set. */
snd_status snd_read_receive_timeout(int64_t *limit, const char *op);
/* snd_read_flag reads a setting whose value is 0 or 1. */
snd_status snd_read_flag(const char *name, bool *flag, const char *op);
/* snd_value_of returns the value of a variable, "" if it is not set. */
const char *snd_value_of(const char *name);
/* snd_parse_duration reads a duration as Go writes it, in nanoseconds: 0, or numbers with units, such as 1m30s or 1.5s. */
bool snd_parse_duration(const char *text, int64_t *duration);
/* snd_number_in returns the number in a variable, from 0 to 2^31-1, and -1 if there is none. */
int64_t snd_number_in(const char *name);

#endif

/* How much memory can still be reserved. */
#ifndef SND_MEMORY_LIMIT_H
#define SND_MEMORY_LIMIT_H

#include <stdint.h>

#include "softnd/softnd.h"

/* snd_memory_available returns how many bytes the machine and the memory cgroups above this process have left, without a
 * margin that the processes need for themselves. The kernel answers a fallocate beyond a cgroup's limit with its
 * out-of-memory killer, not with an error. */
uint64_t snd_memory_available(void);

/* snd_no_memory is the failure of an mmap or of a private allocation of size bytes, for which errno is the reason. The text names the
 * bytes that are left, and the limit. */
#define snd_no_memory(size, what, op) (snd_record_no_memory(size, what, op), (snd_status)SND_NO_MEMORY)
void snd_record_no_memory(uint64_t size, const char *what, const char *op);

#endif

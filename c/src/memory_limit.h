/* How much memory can still be reserved. */
#ifndef SND_MEMORY_LIMIT_H
#define SND_MEMORY_LIMIT_H

#include <stdint.h>

/* snd_memory_available returns how many bytes the machine and the memory cgroups above this process have left, without a
 * margin that the processes need for themselves. The kernel answers a fallocate beyond a cgroup's limit with its
 * out-of-memory killer, not with an error. */
uint64_t snd_memory_available(void);

#endif

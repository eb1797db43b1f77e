/* How much memory can still be reserved. */
#ifndef SND_MEMORY_LIMIT_H
#define SND_MEMORY_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "atomic.h"
#include "softnd/softnd.h"

/* snd_memory_available returns how many bytes the machine and the memory cgroups above this process have left, without a
 * margin that the processes need for themselves. The kernel answers a fallocate beyond a cgroup's limit with its
 * out-of-memory killer, not with an error. */
uint64_t snd_memory_available(void);

/* snd_can_reserve reports whether an arena can still reserve wanted bytes, and sets *left to how many if not. Most calls for little memory
 * do not read the limits, which takes some ten system calls: they take from what the process has to spare. */
bool snd_can_reserve(uint64_t wanted, uint64_t *left);

/* snd_spare_memory is what a process may reserve before it reads the limits again.
 *
 * Memory that a process takes from it is invisible to the checks of the other processes, which may reserve all memory that is left at the same time.
 * So each process can take SND_MAX_SPARE of the margin, within SND_SPARE_AGE of its last read. A limit that is lowered has its effect within
 * SND_SPARE_AGE. If less than 256 MiB are left, the share is less than a chunk of the heap, so a reservation in the heap reads the limits each
 * time. */
struct snd_spare_memory {
	snd_word bytes;
	snd_word until; /* of snd_clock */
};
#define SND_SPARE_SHARE UINT64_C(4096) /* of the memory that is left */
#define SND_MAX_SPARE (UINT64_C(1) << 20)
#define SND_SPARE_AGE (UINT64_C(100) * 1000 * 1000) /* nanoseconds */

/* snd_take_spare takes wanted bytes, or none if there are fewer or they are too old. */
bool snd_take_spare(struct snd_spare_memory *s, uint64_t wanted, uint64_t now);
/* snd_refill_spare takes the process's share of the memory that is left, at most SND_MAX_SPARE. */
void snd_refill_spare(struct snd_spare_memory *s, uint64_t left, uint64_t now);

/* snd_no_memory is the failure of an mmap or of a private allocation of size bytes, for which errno is the reason. The text names the
 * bytes that are left, and the limit. */
#define snd_no_memory(size, what, op) (snd_record_no_memory(size, what, op), (snd_status)SND_NO_MEMORY)
void snd_record_no_memory(uint64_t size, const char *what, const char *op);

#endif

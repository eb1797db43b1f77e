/* Which access the mappings of this process allow. The check touches no page of the memory, so sparse memory stays sparse. */
#ifndef SND_PROCMAPS_H
#define SND_PROCMAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "softnd/softnd.h"

/* snd_inaccessible is a range of addresses that the process must not access in the way asked for. */
struct snd_inaccessible {
	uint64_t start, end; /* end is excluded */
	const char *reason;  /* "not mapped", "not readable" or "not writable"; NULL = all of the memory is accessible */
};

/* snd_check_access finds the first part of length bytes at start that the process must not read, or not write if write.
 * Kernels from 6.11 find a mapping by its address. For older ones it reads the list of all mappings. */
snd_status snd_check_access(uint64_t start, uint64_t length, bool write, struct snd_inaccessible *found, const char *op);

#endif

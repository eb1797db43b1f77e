/* The mappings of this process, and which access they allow. The check touches no page of the memory, so sparse memory stays sparse. */
#ifndef SND_PROCMAPS_H
#define SND_PROCMAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "softnd/softnd.h"

/* snd_inaccessible is a range of addresses that the process must not access in the way asked for. */
struct snd_inaccessible {
	uint64_t start, end; /* end is excluded */
	const char *reason;  /* "not mapped", "not readable" or "not writable"; NULL = all of the memory is accessible */
};

/* snd_check_access finds the first part of length bytes at start that the process must not read, or not write if write.
 * Kernels from 6.11 find a mapping by its address. For older ones it reads the list of all mappings. */
snd_status snd_check_access(uint64_t start, uint64_t length, bool write, struct snd_inaccessible *found, const char *op);

/* snd_vma is a mapping. */
struct snd_vma {
	uint64_t start, end, offset, inode; /* offset: in the file; inode: 0 = it has no file */
	dev_t device;
	bool readable, writable, shared;
	char name[32]; /* the first characters of the path, or a name such as [heap] */
};

/* snd_each_vma calls visit for all mappings between two addresses, sorted by address, until visit returns false. visit may replace the mapping that it
 * gets. The function returns false if visit has, or if the mappings cannot be read. Its caller is one of snd_open_proc. */
bool snd_each_vma(uint64_t start, uint64_t end, bool (*visit)(void *arg, const struct snd_vma *v), void *arg);

#endif

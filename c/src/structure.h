/* The structures of softnd.h that can grow: a program may have been compiled with another version of them. */
#ifndef SND_STRUCTURE_H
#define SND_STRUCTURE_H

#include "softnd/softnd.h"

enum { SND_MAX_STRUCTURE = 4096 }; /* no version has a larger one: such a size is a mistake */

/* snd_check_size refuses the size of a structure that no version can have. */
snd_status snd_check_size(size_t size, const char *type, const char *op);
/* snd_store_known stores the members of a structure that fit into size bytes, and 0 in bytes that this version does not know. */
void snd_store_known(void *to, size_t size, const void *from, size_t known);
/* snd_copy_known copies a structure of the program, of size bytes, to one of this version, of known bytes. Members that the program lacks
 * become 0. It refuses one with members that this version does not know, unless they are 0. If from is NULL, all members become 0. */
snd_status snd_copy_known(void *to, size_t known, const void *from, size_t size, const char *type, const char *op);

/* SND_KNOWN lets a parameter p point to the copy of snd_copy_known. The call returns if that fails. */
#define SND_KNOWN(type, p, size, op) \
	type known_##p; \
	do { \
		const snd_status copied = snd_copy_known(&known_##p, sizeof known_##p, p, size, #type, op); \
		if (copied != SND_SUCCESS) \
			return copied; \
		if (p != NULL) \
			p = &known_##p; \
	} while (0)

/* SND_CHECK_STORED refuses a structure to store to, or its size. The call returns then. */
#define SND_CHECK_STORED(type, p, size, op) \
	do { \
		SND_CHECK_POINTER(p, op); \
		const snd_status checked = snd_check_size(size, #type, op); \
		if (checked != SND_SUCCESS) \
			return checked; \
	} while (0)

#endif

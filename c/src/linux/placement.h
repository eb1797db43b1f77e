/* Where the kernel places memory: in huge pages or small ones, on which NUMA node, and whether page tables have it already. */
#ifndef SND_PLACEMENT_H
#define SND_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softnd/softnd.h"

enum { SND_NODES = 1024 };

/* snd_policy says from which nodes the kernel takes new memory of a thread. */
struct snd_policy {
	int mode;
	unsigned long nodes[SND_NODES / 8 / sizeof(unsigned long)];
};

/* The functions below return 0, or the errno of the kernel. */

/* snd_collapse moves memory of a shared file into huge pages. It begins at a multiple of their size, as does its place in the file, and
 * has whole huge pages. */
int snd_collapse(void *at, size_t length);
/* snd_prefault fills the page tables of this process for the pages of the memory, for writing or for reading only. */
int snd_prefault(void *at, size_t length, bool write);
/* snd_prefer_node makes the kernel take new memory of this thread from a node, or from others if the node has not enough. snd_set_policy
 * undoes that. */
int snd_prefer_node(uint32_t node, struct snd_policy *before);
int snd_set_policy(const struct snd_policy *p);
/* snd_find_node stores the number of the node that has a page. */
int snd_find_node(void *at, int *node);

#endif

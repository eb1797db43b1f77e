/* A member's part of the arena's heap: chunks that it claims, and small objects in some of them. */
#ifndef SND_HEAP_H
#define SND_HEAP_H

#include "shm/arena.h"

enum { SND_SMALLEST_CLASS = 6, SND_LARGEST_CLASS = 15 };
#define SND_NODE_FLAGS 0x3ff00000u /* of SND_ON_NODE */

/* snd_claims are one member's claims in a shared table of owners. held repeats them in private memory,
 * because a peer can clear a shared word. */
struct snd_claims {
	snd_half *words;
	uint64_t count;
	uint64_t *held; /* bit i%64 of held[i/64] */
	uint32_t self;  /* slot + 1 */
};

struct snd_chunk {
	uint32_t run;   /* chunks of the large object that begins here */
	uint16_t used;  /* small objects in use */
	uint8_t class_; /* size class of a chunk that is divided; 0 = it is not */
	uint8_t pad;
};

struct snd_free_list {
	uint64_t *offsets;
	size_t count, capacity;
	size_t total; /* objects of the class, free or in use */
};

struct snd_heap {
	struct snd_arena *arena;
	struct snd_claims claims;
	struct snd_chunk *chunks;
	struct snd_free_list free[SND_LARGEST_CLASS + 1];
	uint64_t hint;
	uint64_t colored;
};

bool snd_claims_init(struct snd_claims *c, snd_half *words, uint64_t count, uint32_t slot);
void snd_claims_end(struct snd_claims *c);
/* snd_claim_run claims n consecutive words, and searches from hint on. */
bool snd_claim_run(struct snd_claims *c, uint64_t hint, uint64_t n, uint64_t *first);

/* snd_unclaim_run frees claimed words. */
void snd_unclaim_run(struct snd_claims *c, uint64_t first, uint64_t n);

bool snd_heap_init(struct snd_heap *h, struct snd_arena *a, uint32_t slot);
void snd_heap_end(struct snd_heap *h);
/* snd_alloc allocates length > 0 bytes of zeroed arena memory, aligned to 64 bytes. With colored, objects of
 * one size begin at different cache lines of their allocation. It returns SND_NO_MEMORY if there is no room. */
snd_status snd_alloc(struct snd_heap *h, uint64_t length, bool colored, uint64_t *offset, const char *op);
/* snd_alloc_placed is snd_alloc for memory with the placement of flags, which are those of regions. It stores what the memory has of it.
 * With SND_REQUIRE_PLACEMENT it returns SND_NOT_SUPPORTED if that is not all. */
snd_status snd_alloc_placed(struct snd_heap *h, uint64_t length, uint32_t flags, uint64_t *offset, uint32_t *placement, const char *op);
/* snd_heap_free returns how many bytes of the heap no member has claimed. */
uint64_t snd_heap_free(const struct snd_heap *h);
/* snd_refuse_placement fails because memory lacks a placement that the program requires. */
snd_status snd_refuse_placement(const char *lacks, const char *op);
/* snd_free frees an object of snd_alloc. No other member may use it. */
void snd_free(struct snd_heap *h, uint64_t offset);

#endif

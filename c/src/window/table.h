/* The window table: tokens, and this member's private record of the entries that it owns. */
#ifndef SND_TABLE_H
#define SND_TABLE_H

#include "shm/heap.h"

struct snd_invalidatable;

/* snd_location says where in the arena memory is. */
struct snd_location {
	uint64_t offset; /* of the first byte behind head; 0 = all of it is private */
	uint32_t head, tail; /* private bytes at the start and at the end, less than a page */
};

/* snd_own_entry is the private record of one entry. A peer can write anything into the shared entry, so
 * the owner never relies on what it reads there, apart from binds. */
struct snd_own_entry {
	uint64_t word; /* of the latest bind, with the valid bit while its token is valid; 0 = none yet */
	unsigned char *memory;
	uint64_t base; /* address of memory[0] for requests */
	uint64_t length; /* 0 if mapped is not */
	uint64_t mapped; /* length of memory that local requests name by another address than its own. The fast paths, for which the two are one, find length 0 */
	struct snd_location place;
	uint64_t adapter;
	uint64_t scope;    /* the endpoint whose peer alone may use the token; 0 = any */
	struct snd_invalidatable *invalidates; /* the object that an Invalidate of the token ends, or NULL */
	struct snd_invalidatable *window; /* whose entry this is; NULL = of no window */
	struct snd_access_entry *entry;
	uint32_t index;
	uint32_t bind_base;
	bool taken;
};

struct snd_table {
	struct snd_arena *arena;
	struct snd_claims blocks;
	struct snd_own_entry *own[SNDL_WINDOW_BLOCKS]; /* arrays of SNDL_WINDOW_BLOCK_ENTRIES; NULL = not ours */
	uint32_t *free;                                /* indexes, in a ring; the one that has been free for longest first */
	uint64_t free_head, free_tail, free_size;
	uint64_t entries; /* of all blocks */
	bool checks_pages; /* accesses of own memory check that the program has not unmapped it; for regions that are registered later, all of them do */
};

static inline uint32_t snd_index_of(uint32_t token) { return token & (uint32_t)SNDL_TOKEN_INDEX_MASK; }
static inline uint32_t snd_word_token(uint64_t word) { return (uint32_t)word; }
static inline uint32_t snd_word_rights(uint64_t word) { return (uint32_t)(word >> SNDL_WORD_RIGHTS_SHIFT & SNDL_WORD_RIGHTS_MASK); }
static inline uint64_t snd_word_of(uint32_t token, uint32_t rights) { return (uint64_t)rights << SNDL_WORD_RIGHTS_SHIFT | token; }
#define SND_WORD_VALID (SNDL_WORD_VALID_MASK << SNDL_WORD_VALID_SHIFT)

static inline bool snd_is_valid(const struct snd_own_entry *e) { return (e->word & SND_WORD_VALID) != 0; }
static inline uint64_t snd_length_of(const struct snd_own_entry *e) { return e->mapped != 0 ? e->mapped : e->length; }

/* snd_table_new returns the table of the member of a slot, NULL if there is no memory. */
struct snd_table *snd_table_new(struct snd_arena *a, uint32_t slot);
void snd_table_free(struct snd_table *t);
/* snd_is_shared reports whether n bytes at a distance from the start of memory are in the arena. */
static inline bool snd_is_shared(uint64_t at, uint64_t n, uint64_t length, struct snd_location p)
{
	return p.offset != 0 && (uint64_t)p.head + p.tail <= length && snd_within(at, n, p.head, length - p.head - p.tail);
}
/* snd_take_entry returns the entry that has been unused for longest. */
snd_status snd_take_entry(struct snd_table *t, struct snd_own_entry **e, const char *op);
/* snd_give_back returns an entry whose token is invalid and drained. */
void snd_give_back(struct snd_table *t, struct snd_own_entry *e);

/* snd_bind_base_of returns the number before that of the first bind of an index. */
uint32_t snd_bind_base_of(const uint64_t secret[2], uint32_t index);
/* snd_next_token reserves the number of the next bind and returns its token. */
uint32_t snd_next_token(struct snd_own_entry *e, uint32_t *bind);
/* snd_tagged_token does so for the next bind whose token has the tag of like. It skips at most SNDL_TOKEN_TAG_MASK numbers. */
uint32_t snd_tagged_token(struct snd_own_entry *e, uint32_t like, uint32_t *bind);
/* snd_unbound_token returns the token of the latest bind, as if it were one of this member. */
uint32_t snd_unbound_token(const struct snd_own_entry *e);
/* snd_window_of returns the window whose entry is at the index of a token, or NULL. No bind need have the token. */
struct snd_invalidatable *snd_window_of(const struct snd_table *t, uint32_t token);
/* snd_bind_entry makes the token of a bind valid. The caller has set the other fields of e. */
void snd_bind_entry(struct snd_own_entry *e, uint32_t token, uint32_t bind, uint32_t rights);
/* snd_revoke makes the token invalid and returns it; 0 if it was invalid. Peers may use the memory until it is drained. */
uint32_t snd_revoke(struct snd_own_entry *e);

/* snd_lookup returns the entry of a valid token of this member, NULL if there is none. */
static inline struct snd_own_entry *snd_lookup(const struct snd_table *t, uint32_t token)
{
	uint32_t index = snd_index_of(token);
	struct snd_own_entry *block = t->own[index / SNDL_WINDOW_BLOCK_ENTRIES];
	if (block == NULL)
		return NULL;
	struct snd_own_entry *e = &block[index % SNDL_WINDOW_BLOCK_ENTRIES];
	return snd_is_valid(e) && snd_word_token(e->word) == token ? e : NULL;
}

#endif

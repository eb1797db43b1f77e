/* TWIN window/table.go, window/token.go. */
#include "window/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "error.h"
#include "linux/memory_limit.h"
#include "xxh64.h"

struct snd_table *snd_table_new(struct snd_arena *a, uint32_t slot)
{
	struct snd_table *t = calloc(1, sizeof *t);
	if (t == NULL)
		return NULL;
	t->arena = a;
	if (snd_claims_init(&t->blocks, a->block_owners, SNDL_WINDOW_BLOCKS, slot))
		return t;
	snd_table_free(t);
	return NULL;
}

void snd_table_free(struct snd_table *t)
{
	if (t == NULL)
		return;
	for (size_t i = 0; i < SNDL_WINDOW_BLOCKS; i++)
		free(t->own[i]);
	free(t->free);
	snd_claims_end(&t->blocks);
	free(t);
}

uint32_t snd_bind_base_of(const uint64_t secret[2], uint32_t index)
{
	unsigned char b[20];
	for (unsigned i = 0; i < 16; i++)
		b[i] = (unsigned char)(secret[i / 8] >> (8 * (i % 8)));
	for (unsigned i = 0; i < 4; i++)
		b[16 + i] = (unsigned char)(index >> (8 * i));
	return (uint32_t)(snd_xxh64(b, sizeof b) & SNDL_TOKEN_TAG_MASK);
}

/* make_room makes room in the ring for all entries of another block, so that every entry can be given back. */
static bool make_room(struct snd_table *t)
{
	uint64_t size = t->free_size == 0 ? 512 : t->free_size;
	while (size < t->entries + SNDL_WINDOW_BLOCK_ENTRIES)
		size *= 2;
	if (size == t->free_size)
		return true;
	uint32_t *list = malloc((size_t)size * sizeof *list);
	if (list == NULL)
		return false;
	for (uint64_t i = t->free_head; i != t->free_tail; i++)
		list[i & (size - 1)] = t->free[i & (t->free_size - 1)];
	free(t->free);
	t->free = list;
	t->free_size = size;
	return true;
}

static void put_free(struct snd_table *t, uint32_t index) { t->free[t->free_tail++ & (t->free_size - 1)] = index; }

/* claim_block adds a block of entries to the unused ones. Tokens that its last owner left valid become invalid. */
static snd_status claim_block(struct snd_table *t, const char *op)
{
	SND_KEEP_ERRNO;
	const uint64_t bytes = (uint64_t)SNDL_WINDOW_BLOCK_ENTRIES * SNDL_WINDOW_ENTRY_SIZE;
	struct snd_own_entry *own = make_room(t) ? calloc(SNDL_WINDOW_BLOCK_ENTRIES, sizeof *own) : NULL;
	if (own == NULL)
		return snd_no_memory(SNDL_WINDOW_BLOCK_ENTRIES * sizeof *own, "private memory", op);
	uint64_t block;
	snd_status s = SND_SUCCESS;
	/* Each member starts at a different block, so that members rarely compete for a word. The secret decides which: the index
	 * in a token of another arena is most likely in a block that no member owns here. */
	const uint64_t first = (t->arena->secret[0] % SNDL_WINDOW_BLOCKS + (uint64_t)(t->blocks.self - 1) * 2) % SNDL_WINDOW_BLOCKS;
	if (!snd_claim_run(&t->blocks, first, 1, &block))
		s = snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: all window entries are taken: close unused regions and windows", op);
	else if ((s = snd_reserve(t->arena, t->arena->window_table + block * bytes, bytes, op)) != SND_SUCCESS)
		snd_unclaim_run(&t->blocks, block, 1);
	if (s != SND_SUCCESS) {
		free(own);
		return s;
	}
	t->own[block] = own;
	t->entries += SNDL_WINDOW_BLOCK_ENTRIES;
	for (uint32_t i = 0; i < SNDL_WINDOW_BLOCK_ENTRIES; i++) {
		uint32_t index = (uint32_t)block * SNDL_WINDOW_BLOCK_ENTRIES + i;
		own[i].index = index;
		own[i].entry = &t->arena->entries[index];
		own[i].bind_base = snd_bind_base_of(t->arena->secret, index);
		snd_store_full(&own[i].entry->word, 0);
		if (index != 0)
			put_free(t, index);
	}
	return SND_SUCCESS;
}

snd_status snd_take_entry(struct snd_table *t, struct snd_own_entry **e, const char *op)
{
	/* A reserve of unused entries keeps each of them from being used again soon. */
	if (t->free_tail - t->free_head <= SNDL_WINDOW_BLOCK_ENTRIES / 2) {
		snd_status s = claim_block(t, op);
		if (s != SND_SUCCESS && t->free_tail == t->free_head)
			return s;
	}
	uint32_t index = t->free[t->free_head++ & (t->free_size - 1)];
	*e = &t->own[index / SNDL_WINDOW_BLOCK_ENTRIES][index % SNDL_WINDOW_BLOCK_ENTRIES];
	(*e)->word = 0;
	(*e)->taken = true;
	(*e)->invalidates = NULL;
	(*e)->window = NULL;
	(*e)->scope = 0;
	(*e)->mapped = 0;
	return SND_SUCCESS;
}

void snd_give_back(struct snd_table *t, struct snd_own_entry *e)
{
	if (!e->taken)
		return;
	e->taken = false;
	e->invalidates = NULL;
	e->window = NULL;
	put_free(t, e->index);
}

static uint32_t token_of(const struct snd_own_entry *e, uint32_t bind)
{
	return (uint32_t)((bind & SNDL_TOKEN_TAG_MASK) << SNDL_TOKEN_TAG_SHIFT) | e->index;
}

/* next_bind reads the number of the next bind: once, because a peer can change it. */
static uint32_t next_bind(const struct snd_own_entry *e) { return e->bind_base + snd_relaxed32(&e->entry->binds) + 1; }

/* take_bind reserves the number of a bind, and returns its token. */
static uint32_t take_bind(struct snd_own_entry *e, uint32_t number, uint32_t *bind)
{
	snd_release32(&e->entry->binds, number - e->bind_base);
	*bind = number;
	return token_of(e, number);
}

uint32_t snd_next_token(struct snd_own_entry *e, uint32_t *bind) { return take_bind(e, next_bind(e), bind); }

uint32_t snd_tagged_token(struct snd_own_entry *e, uint32_t like, uint32_t *bind)
{
	const uint32_t next = next_bind(e);
	return take_bind(e, next + (((like >> SNDL_TOKEN_TAG_SHIFT) - next) & (uint32_t)SNDL_TOKEN_TAG_MASK), bind);
}

uint32_t snd_unbound_token(const struct snd_own_entry *e) { return token_of(e, e->bind_base + snd_relaxed32(&e->entry->binds)); }

struct snd_invalidatable *snd_window_of(const struct snd_table *t, uint32_t token)
{
	const uint32_t index = snd_index_of(token);
	const struct snd_own_entry *block = t->own[index / SNDL_WINDOW_BLOCK_ENTRIES];
	return block == NULL ? NULL : block[index % SNDL_WINDOW_BLOCK_ENTRIES].window;
}

static uint64_t bound_word(uint32_t token, uint32_t bind, uint32_t rights)
{
	return snd_word_of(token, rights) | (uint64_t)(bind >> 12) << SNDL_WORD_GENERATION_SHIFT;
}

void snd_bind_entry(struct snd_own_entry *e, uint32_t token, uint32_t bind, uint32_t rights)
{
	struct snd_access_entry *s = e->entry;
	snd_release(&s->base, e->base);
	snd_release(&s->length, snd_length_of(e));
	snd_release(&s->offset, e->place.offset);
	snd_release32(&s->ends, e->place.head << SNDL_ENDS_HEAD_SHIFT | e->place.tail << SNDL_ENDS_TAIL_SHIFT);
	snd_release(&s->owner, e->adapter);
	snd_release(&s->scope, e->scope);
	e->word = bound_word(token, bind, rights) | SND_WORD_VALID;
	snd_release(&s->word, e->word); /* ENTRY-BIND. ORDER entry-valid: pairs with the loads in check_peer, snd_learn and snd_is_present */
}

uint32_t snd_revoke(struct snd_own_entry *e)
{
	if (!snd_is_valid(e))
		return 0;
	e->word &= ~SND_WORD_VALID;
	/* ENTRY-INVALIDATE. ORDER hazard: this store, then the loads of is_drained; pairs with the store of
	 * snd_publish_hazard and the loads that follow it. ORDER entry-recheck: pairs with the loads after a copy. */
	snd_store_full(&e->entry->word, e->word & ~(SNDL_WORD_RIGHTS_MASK << SNDL_WORD_RIGHTS_SHIFT));
	return snd_word_token(e->word);
}

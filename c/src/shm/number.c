/* Members claim numbers in blocks, as they claim window entries. */
#include "shm/number.h"

#include <stdlib.h>

#include "error.h"
#include "linux/memory_limit.h"

/* A reserve of free numbers keeps each of them from being used again soon. */
enum { RESERVE = SNDL_NUMBER_BLOCK_ENTRIES / 2, LAST_INDEX = SNDL_NUMBER_ENTRIES - 1 };

struct snd_numbers {
	struct snd_claims blocks;
	struct snd_own_number *own[SNDL_NUMBER_BLOCKS]; /* arrays of SNDL_NUMBER_BLOCK_ENTRIES; NULL = not ours */
	uint32_t first, last; /* indexes of free numbers; 0 = none */
	uint32_t free;
};

static uint32_t index_of(uint32_t number) { return number & (uint32_t)SNDL_NUMBER_INDEX_MASK; }

static bool is_number(uint32_t number)
{
	const uint32_t index = index_of(number);
	return number >> (SNDL_NUMBER_TAG_OF_SHIFT + 8) == 0 && index > 1 && index < LAST_INDEX;
}

static struct snd_own_number *own_at(const struct snd_numbers *t, uint32_t index)
{
	struct snd_own_number *block = t->own[index / SNDL_NUMBER_BLOCK_ENTRIES];
	return block == NULL ? NULL : &block[index % SNDL_NUMBER_BLOCK_ENTRIES];
}

static struct snd_number_entry *entry_at(const struct snd_arena *a, uint32_t index)
{
	return (struct snd_number_entry *)(void *)(a->base + a->number_table + (uint64_t)index * SNDL_NUMBER_ENTRY_SIZE);
}

static void put_free(struct snd_numbers *t, uint32_t index)
{
	if (t->last == 0)
		t->first = index;
	else
		own_at(t, t->last)->next = index;
	own_at(t, index)->next = 0;
	t->last = index;
	t->free++;
}

void snd_show_number(struct snd_fabric *f, struct snd_own_number *n, uint32_t state)
{
	n->state = state;
	/* ORDER number-ready: pairs with the load in snd_find_number, at the other side */
	snd_store_full(&n->entry->word, f->id << SNDL_NUMBER_MEMBER_SHIFT | (uint64_t)(n->value >> SNDL_NUMBER_TAG_OF_SHIFT) << SNDL_NUMBER_TAG_SHIFT | state);
}

void snd_show_ready(struct snd_fabric *f, struct snd_own_number *n, uint32_t dest)
{
	snd_release(&n->entry->dest, SNDL_DEST_VALID_MASK << SNDL_DEST_VALID_SHIFT | (n->use & SNDL_DEST_USE_MASK) << SNDL_DEST_USE_SHIFT | dest);
	snd_show_number(f, n, SNDL_NUMBER_READY);
}

/* claim_block adds a block of numbers to the free ones. */
static snd_status claim_block(struct snd_fabric *f, const char *op)
{
	SND_KEEP_ERRNO;
	struct snd_numbers *t = f->numbers;
	struct snd_arena *a = &f->arena;
	const uint64_t bytes = (uint64_t)SNDL_NUMBER_BLOCK_ENTRIES * SNDL_NUMBER_ENTRY_SIZE;
	struct snd_own_number *own = calloc(SNDL_NUMBER_BLOCK_ENTRIES, sizeof *own);
	if (own == NULL)
		return snd_no_memory(SNDL_NUMBER_BLOCK_ENTRIES * sizeof *own, "private memory", op);
	uint64_t block;
	snd_status s = SND_SUCCESS;
	if (!snd_claim_run(&t->blocks, (a->secret[0] + f->slot) % SNDL_NUMBER_BLOCKS, 1, &block))
		s = snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: all %u numbers of endpoints are taken", op, SNDL_NUMBER_ENTRIES);
	else if ((s = snd_reserve(a, a->number_table + block * bytes, bytes, op)) != SND_SUCCESS)
		snd_unclaim_run(&t->blocks, block, 1);
	if (s != SND_SUCCESS) {
		free(own);
		return s;
	}
	t->own[block] = own;
	for (uint32_t i = 0; i < SNDL_NUMBER_BLOCK_ENTRIES; i++) {
		const uint32_t index = (uint32_t)block * SNDL_NUMBER_BLOCK_ENTRIES + i;
		own[i].entry = entry_at(a, index);
		/* The tag follows that of the last owner. */
		own[i].value = index | (uint32_t)(snd_relaxed(&own[i].entry->word) >> SNDL_NUMBER_TAG_SHIFT & SNDL_NUMBER_TAG_MASK) << SNDL_NUMBER_TAG_OF_SHIFT;
		snd_show_number(f, &own[i], SNDL_NUMBER_FREE);
		if (is_number(own[i].value))
			put_free(t, index);
	}
	return SND_SUCCESS;
}

snd_status snd_take_number(struct snd_fabric *f, uint32_t *number, const char *op)
{
	if (f->numbers == NULL) {
		struct snd_numbers *t = calloc(1, sizeof *t);
		if (t == NULL || !snd_claims_init(&t->blocks, f->arena.number_owners, SNDL_NUMBER_BLOCKS, f->slot)) {
			free(t);
			return snd_no_memory(sizeof *t, "private memory", op);
		}
		f->numbers = t;
	}
	struct snd_numbers *t = f->numbers;
	if (t->free <= RESERVE) {
		snd_status s = claim_block(f, op);
		if (s != SND_SUCCESS && t->free == 0)
			return s;
	}
	struct snd_own_number *n = own_at(t, t->first);
	t->first = n->next;
	if (t->first == 0)
		t->last = 0;
	t->free--;
	n->value = (n->value + (1 << SNDL_NUMBER_TAG_OF_SHIFT)) & ((1 << 24) - 1);
	n->use = 0;
	snd_show_number(f, n, SNDL_NUMBER_RESET);
	*number = n->value;
	return SND_SUCCESS;
}

void snd_give_number(struct snd_fabric *f, struct snd_own_number *n)
{
	snd_show_number(f, n, SNDL_NUMBER_FREE);
	put_free(f->numbers, index_of(n->value));
}

struct snd_own_number *snd_find_own_number(const struct snd_fabric *f, uint32_t number)
{
	struct snd_own_number *n = f->numbers == NULL || !is_number(number) ? NULL : own_at(f->numbers, index_of(number));
	return n != NULL && n->value == number && n->state != SNDL_NUMBER_FREE ? n : NULL;
}

bool snd_find_number(const struct snd_fabric *f, uint32_t number, struct snd_seen_number *seen)
{
	const uint32_t index = index_of(number);
	if (!is_number(number) || snd_load32(&f->arena.number_owners[index / SNDL_NUMBER_BLOCK_ENTRIES]) == 0)
		return false; /* a page without an owner is not reserved */
	const struct snd_number_entry *e = entry_at(&f->arena, index);
	const uint64_t word = snd_load(&e->word); /* ORDER number-ready: pairs with the exchange in snd_show_number, at the other side */
	const uint64_t dest = snd_acquire(&e->dest);
	*seen = (struct snd_seen_number){.state = (uint32_t)(word >> SNDL_NUMBER_STATE_SHIFT & SNDL_NUMBER_STATE_MASK), .dest = (uint32_t)(dest & SNDL_DEST_NUMBER_MASK),
		.use = dest >> SNDL_DEST_USE_SHIFT & SNDL_DEST_USE_MASK};
	return (word >> SNDL_NUMBER_TAG_SHIFT & SNDL_NUMBER_TAG_MASK) == number >> SNDL_NUMBER_TAG_OF_SHIFT && seen->state != SNDL_NUMBER_FREE &&
		snd_peer_of(f, word >> SNDL_NUMBER_MEMBER_SHIFT, &seen->peer) && !snd_peer_gone(&seen->peer);
}

void snd_numbers_free(struct snd_fabric *f)
{
	struct snd_numbers *t = f->numbers;
	if (t == NULL)
		return;
	for (size_t i = 0; i < SNDL_NUMBER_BLOCKS; i++)
		free(t->own[i]);
	snd_claims_end(&t->blocks);
	free(t);
	f->numbers = NULL;
}

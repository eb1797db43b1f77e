/* TWIN shm/heap.go, shm/owner_map.go. */
#include "shm/heap.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "error.h"
#include "linux/memory_limit.h"

enum { CLAIM_TRIES = 16 };

static void *map_zero(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static size_t held_bytes(const struct snd_claims *c) { return (size_t)(c->count / 64 + 1) * 8; }

bool snd_claims_init(struct snd_claims *c, snd_half *words, uint64_t count, uint32_t slot)
{
	*c = (struct snd_claims){words, count, NULL, slot + 1};
	return (c->held = map_zero(held_bytes(c))) != NULL;
}

void snd_claims_end(struct snd_claims *c)
{
	if (c->held != NULL)
		munmap(c->held, held_bytes(c));
	c->held = NULL;
}

static bool holds(const struct snd_claims *c, uint64_t i) { return (c->held[i / 64] >> (i % 64) & 1) != 0; }

static void hold(struct snd_claims *c, uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++)
		c->held[i / 64] |= UINT64_C(1) << (i % 64);
}

static void unhold(struct snd_claims *c, uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++)
		c->held[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

static bool swap(snd_half *w, uint32_t from, uint32_t to) { return atomic_compare_exchange_strong(w, &from, to); }

/* claim claims one word. A held word that a peer has cleared was not free; claim restores it. */
static bool claim(struct snd_claims *c, uint64_t i)
{
	return snd_relaxed32(&c->words[i]) == 0 && swap(&c->words[i], 0, c->self) && /* ORDER owned: pairs with the swap in release_run */
		!holds(c, i);
}

static void release_run(struct snd_claims *c, uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++)
		swap(&c->words[i], c->self, 0); /* ORDER owned: after the last use; pairs with the swap in claim */
}

void snd_unclaim_run(struct snd_claims *c, uint64_t first, uint64_t n)
{
	unhold(c, first, n);
	release_run(c, first, n);
}

bool snd_claim_run(struct snd_claims *c, uint64_t hint, uint64_t n, uint64_t *first)
{
	if (n == 0 || n > c->count)
		return false;
	hint = hint < c->count ? hint : c->count;
	for (int pass = 0; pass < 2; pass++) {
		uint64_t at = pass == 0 ? hint : 0;
		uint64_t end = pass == 0 || hint + n > c->count ? c->count : hint + n;
		while (at + n <= end) {
			uint64_t run = 0;
			while (run < n && claim(c, at + run))
				run++;
			if (run == n) {
				hold(c, at, n);
				*first = at;
				return true;
			}
			for (uint64_t i = at; i < at + run; i++)
				if (!holds(c, i))
					release_run(c, i, 1);
			at += run + 1;
		}
	}
	return false;
}

static uint64_t largest_free(const struct snd_claims *c)
{
	uint64_t run = 0, longest = 0;
	for (uint64_t i = 0; i < c->count; i++) {
		run = snd_relaxed32(&c->words[i]) == 0 ? run + 1 : 0;
		longest = run > longest ? run : longest;
	}
	return longest;
}

bool snd_heap_init(struct snd_heap *h, struct snd_arena *a, uint32_t slot)
{
	memset(h, 0, sizeof *h);
	h->arena = a;
	h->chunks = map_zero((size_t)a->chunks * sizeof *h->chunks);
	return h->chunks != NULL && snd_claims_init(&h->claims, a->chunk_owners, a->chunks, slot);
}

void snd_heap_end(struct snd_heap *h)
{
	if (h->chunks != NULL)
		munmap(h->chunks, (size_t)h->arena->chunks * sizeof *h->chunks);
	h->chunks = NULL;
	snd_claims_end(&h->claims);
	for (int i = 0; i <= SND_LARGEST_CLASS; i++)
		free(h->free[i].offsets);
	memset(h->free, 0, sizeof h->free);
}

static uint64_t chunk_offset(const struct snd_heap *h, uint64_t i) { return h->arena->heap + i * SNDL_CHUNK_SIZE; }
static uint64_t chunk_of(const struct snd_heap *h, uint64_t offset) { return (offset - h->arena->heap) / SNDL_CHUNK_SIZE; }

/* unclaim clears chunks and frees them. It leaves chunks alone whose word a peer has given to another member. */
static void unclaim(struct snd_heap *h, uint64_t first, uint64_t n)
{
	struct snd_claims *c = &h->claims;
	for (uint64_t i = first; i < first + n; i++)
		swap(&c->words[i], 0, c->self); /* if a peer has cleared it: no other member may claim it before it is clean */
	unhold(c, first, n);
	for (uint64_t i = first; i < first + n;) {
		uint64_t run = 0;
		while (i + run < first + n && snd_relaxed32(&c->words[i + run]) == c->self)
			run++;
		if (run == 0) {
			i++;
		} else {
			if (snd_release_pages(h->arena, chunk_offset(h, i), run * SNDL_CHUNK_SIZE))
				release_run(c, i, run);
			else
				hold(c, i, run);
			i += run;
		}
	}
	h->hint = first < h->hint ? first : h->hint;
}

static snd_status arena_full(const struct snd_heap *h, uint64_t wanted, const char *op)
{
	return snd_fail(SND_NO_MEMORY,
		"%s: %" PRIu64 " bytes: the arena of %" PRIu64 " bytes has %" PRIu64 " in one contiguous range: free memory, or start the job with a larger arena (ndrun --arena-size)", op,
		wanted, h->arena->size, largest_free(&h->claims) * SNDL_CHUNK_SIZE);
}

static snd_status claim_chunks(struct snd_heap *h, uint64_t n, uint64_t *first, const char *op)
{
	bool ok = snd_claim_run(&h->claims, h->hint, n, first);
	/* Two members that claim long runs can each fail because of the other's incomplete run. */
	for (int i = 0; i < CLAIM_TRIES && !ok && largest_free(&h->claims) >= n; i++) {
		sched_yield();
		ok = snd_claim_run(&h->claims, h->hint, n, first);
	}
	if (!ok)
		return arena_full(h, n * SNDL_CHUNK_SIZE, op);
	snd_status s = snd_reserve(h->arena, chunk_offset(h, *first), n * SNDL_CHUNK_SIZE, op);
	if (s != SND_SUCCESS) {
		unclaim(h, *first, n);
		return s;
	}
	h->hint = *first + n;
	return SND_SUCCESS;
}

/* carve claims a chunk and divides it into objects of one class. */
static snd_status carve(struct snd_heap *h, int class_, const char *op)
{
	struct snd_free_list *l = &h->free[class_];
	size_t n = SNDL_CHUNK_SIZE >> class_;
	if (l->total + n > l->capacity) { /* room for every object of the class, so that snd_free cannot fail */
		size_t capacity = (l->total + n) * 2;
		uint64_t *offsets = realloc(l->offsets, capacity * sizeof *offsets);
		if (offsets == NULL)
			return snd_no_memory(capacity * sizeof *offsets, "private memory", op);
		l->offsets = offsets;
		l->capacity = capacity;
	}
	uint64_t chunk;
	snd_status s = claim_chunks(h, 1, &chunk, op);
	if (s != SND_SUCCESS)
		return s;
	h->chunks[chunk].class_ = (uint8_t)class_;
	h->chunks[chunk].used = 0;
	l->total += n;
	for (size_t i = n; i-- > 0;) /* so that the lowest is used first */
		l->offsets[l->count++] = chunk_offset(h, chunk) + ((uint64_t)i << class_);
	return SND_SUCCESS;
}

snd_status snd_alloc(struct snd_heap *h, uint64_t length, bool colored, uint64_t *offset, const char *op)
{
	SND_KEEP_ERRNO;
	snd_status s;
	if (length == 0 || length > h->arena->size)
		return arena_full(h, length, op);
	int class_ = SND_SMALLEST_CLASS;
	while (class_ <= SND_LARGEST_CLASS && UINT64_C(1) << class_ < length)
		class_++;
	if (class_ > SND_LARGEST_CLASS) {
		uint64_t n = (length + SNDL_CHUNK_SIZE - 1) / SNDL_CHUNK_SIZE, first;
		if ((s = claim_chunks(h, n, &first, op)) != SND_SUCCESS)
			return s;
		h->chunks[first].run = (uint32_t)n;
		h->chunks[first].class_ = 0;
		*offset = chunk_offset(h, first);
		return SND_SUCCESS;
	}
	struct snd_free_list *l = &h->free[class_];
	if (l->count == 0 && (s = carve(h, class_, op)) != SND_SUCCESS)
		return s;
	*offset = l->offsets[--l->count];
	h->chunks[chunk_of(h, *offset)].used++;
	if (colored)
		*offset += h->colored++ % (((UINT64_C(1) << class_) - length) / 64 + 1) * 64;
	return SND_SUCCESS;
}

void snd_free(struct snd_heap *h, uint64_t offset)
{
	SND_KEEP_ERRNO;
	uint64_t chunk = chunk_of(h, offset);
	struct snd_chunk *c = &h->chunks[chunk];
	if (c->class_ == 0) {
		uint64_t n = c->run;
		c->run = 0;
		unclaim(h, chunk, n);
		return;
	}
	struct snd_free_list *l = &h->free[c->class_];
	uint64_t base = chunk_offset(h, chunk);
	offset = base + ((offset - base) >> c->class_ << c->class_);
	memset(h->arena->base + offset, 0, (size_t)1 << c->class_);
	l->offsets[l->count++] = offset; /* carve has made room */
	if (--c->used > 0)
		return;
	size_t kept = 0;
	for (size_t i = 0; i < l->count; i++)
		if (chunk_of(h, l->offsets[i]) != chunk)
			l->offsets[kept++] = l->offsets[i];
	l->count = kept;
	l->total -= SNDL_CHUNK_SIZE >> c->class_;
	c->class_ = 0;
	unclaim(h, chunk, 1);
}

/* TWIN shm/heap.go, shm/owner_map.go, shm/placement.go. */
#include "shm/heap.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"
#include "linux/memory_limit.h"
#include "linux/placement.h"

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

uint64_t snd_heap_free(const struct snd_heap *h)
{
	uint64_t chunks = 0;
	for (uint64_t i = 0; i < h->claims.count; i++)
		chunks += snd_relaxed32(&h->claims.words[i]) == 0;
	return chunks * SNDL_CHUNK_SIZE;
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

/* search claims a run of free chunks. */
static bool search(struct snd_heap *h, uint64_t n, uint64_t *first)
{
	bool ok = snd_claim_run(&h->claims, h->hint, n, first);
	/* Two members that claim long runs can each fail because of the other's incomplete run. */
	for (int i = 0; i < CLAIM_TRIES && !ok && largest_free(&h->claims) >= n; i++) {
		sched_yield();
		ok = snd_claim_run(&h->claims, h->hint, n, first);
	}
	return ok;
}

/* reserve allocates the pages of chunks that search has found. If it fails, it frees the chunks. */
static snd_status reserve(struct snd_heap *h, uint64_t first, uint64_t n, const char *op)
{
	snd_status s = snd_reserve(h->arena, chunk_offset(h, first), n * SNDL_CHUNK_SIZE, op);
	if (s == SND_SUCCESS)
		h->hint = first + n;
	else
		unclaim(h, first, n);
	return s;
}

static snd_status claim_chunks(struct snd_heap *h, uint64_t n, uint64_t *first, const char *op)
{
	return search(h, n, first) ? reserve(h, *first, n, op) : arena_full(h, n * SNDL_CHUNK_SIZE, op);
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

/* begin_run makes chunks a large object, and returns its offset. */
static uint64_t begin_run(struct snd_heap *h, uint64_t first, uint64_t n)
{
	h->chunks[first].run = (uint32_t)n;
	h->chunks[first].class_ = 0;
	return chunk_offset(h, first);
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
		if ((s = claim_chunks(h, n, &first, op)) == SND_SUCCESS)
			*offset = begin_run(h, first, n);
		return s;
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

/* lacking is what memory lacks of its placement, as a text; empty: nothing. */
struct lacking {
	char text[400];
	size_t length;
};
#define LACKS(l, ...) \
	do { \
		const char *and_ = (l)->length == 0 ? "" : "; "; \
		(l)->length += (size_t)snprintf((l)->text + (l)->length, sizeof(l)->text - (l)->length, "%s", and_); \
		(l)->length += (size_t)snprintf((l)->text + (l)->length, sizeof(l)->text - (l)->length, __VA_ARGS__); \
	} while (0)

/* search_huge is search for chunks that begin a huge page, of the file and of this process. */
static bool search_huge(struct snd_heap *h, uint64_t n, uint64_t *first, struct lacking *lacks)
{
	const uint64_t aligned = SND_HUGE_PAGE / SNDL_CHUNK_SIZE;
	if (sysconf(_SC_PAGESIZE) != SND_PAGE_SIZE)
		LACKS(lacks, "huge pages: the kernel's pages have %ld bytes, want %u", sysconf(_SC_PAGESIZE), SND_PAGE_SIZE);
	else if ((uintptr_t)h->arena->base % SND_HUGE_PAGE != 0)
		LACKS(lacks, "huge pages: the arena is mapped at %p, which is no multiple of %d", (void *)h->arena->base, SND_HUGE_PAGE);
	else if (!search(h, n + aligned - 1, first))
		LACKS(lacks, "huge pages: the arena has no %" PRIu64 " bytes in one contiguous range", (n + aligned - 1) * SNDL_CHUNK_SIZE);
	if (lacks->length != 0)
		return false;
	const uint64_t unused = -(h->arena->heap / SNDL_CHUNK_SIZE + *first) % aligned;
	snd_unclaim_run(&h->claims, *first, unused);
	*first += unused;
	snd_unclaim_run(&h->claims, *first + n, aligned - 1 - unused);
	return true;
}

/* reserve_on is reserve for memory of a node. refused is the errno of a kernel that does not take memory of the node. */
static snd_status reserve_on(struct snd_heap *h, uint32_t node, uint64_t first, uint64_t n, int *refused, const char *op)
{
	struct snd_policy before;
	*refused = snd_prefer_node(node, &before);
	const snd_status s = reserve(h, first, n, op);
	if (*refused == 0)
		*refused = snd_set_policy(&before);
	return s;
}

/* is_on_node reports whether all pages are on a node. refused is that of reserve_on. */
static bool is_on_node(unsigned char *at, uint64_t length, uint64_t step, uint32_t node, int refused, struct lacking *lacks)
{
	int found = (int)node;
	for (uint64_t i = 0; i < length && refused == 0 && found == (int)node; i += step)
		refused = snd_find_node(at + i, &found);
	if (refused != 0)
		LACKS(lacks, "NUMA node %" PRIu32 ": %s", node, snd_errno_text(refused));
	else if (found != (int)node)
		LACKS(lacks, "NUMA node %" PRIu32 ": a page is on node %d, because the node has too little free memory", node, found);
	return refused == 0 && found == (int)node;
}

snd_status snd_alloc_placed(struct snd_heap *h, uint64_t length, uint32_t flags, uint64_t *offset, uint32_t *placement, const char *op)
{
	SND_KEEP_ERRNO;
	const uint32_t node = (flags & SND_NODE_FLAGS) / SND_ON_NODE(0); /* plus one; 0: any */
	*placement = 0;
	if (((flags & SND_HUGE_PAGES) == 0 && node == 0) || length == 0 || length > h->arena->size)
		return snd_alloc(h, length, false, offset, op);
	const uint64_t whole = (length + SND_HUGE_PAGE - 1) / SND_HUGE_PAGE * (SND_HUGE_PAGE / SNDL_CHUNK_SIZE);
	struct lacking lacks = {"", 0};
	uint64_t first = 0, n = whole;
	const bool huge = (flags & SND_HUGE_PAGES) != 0 && search_huge(h, n, &first, &lacks);
	if (!huge && !search(h, n = (length + SNDL_CHUNK_SIZE - 1) / SNDL_CHUNK_SIZE, &first))
		return arena_full(h, length, op);
	int e = 0;
	const snd_status s = node != 0 ? reserve_on(h, node - 1, first, n, &e, op) : reserve(h, first, n, op);
	if (s != SND_SUCCESS)
		return s;
	*offset = begin_run(h, first, n);
	unsigned char *at = h->arena->base + *offset;
	const int collapsed = huge ? snd_collapse(at, n * SNDL_CHUNK_SIZE) : 0;
	if (collapsed != 0)
		LACKS(&lacks, "huge pages: the kernel has given none (madvise(MADV_COLLAPSE): %s)", snd_errno_text(collapsed));
	else if (huge)
		*placement = SND_HUGE_PAGES;
	if (node != 0 && is_on_node(at, n * SNDL_CHUNK_SIZE, *placement != 0 ? SND_HUGE_PAGE : SND_PAGE_SIZE, node - 1, e, &lacks))
		*placement |= flags & SND_NODE_FLAGS;
	if (lacks.length == 0 || (flags & SND_REQUIRE_PLACEMENT) == 0)
		return SND_SUCCESS;
	snd_free(h, *offset);
	return snd_refuse_placement(lacks.text, op);
}

snd_status snd_refuse_placement(const char *lacks, const char *op)
{
	return snd_fail(SND_NOT_SUPPORTED, "%s: %s: leave out SND_REQUIRE_PLACEMENT, or change the machine: ndinfo says what it gives", op, lacks);
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

#include "allocation.h"

#include <string.h>

#include "memory_limit.h"

struct snd_allocation {
	struct snd_fabric *fabric; /* NULL: it has left the arena */
	uint64_t offset;
	const unsigned char *start, *end;
	bool open;      /* its region is not closed */
	uint32_t holds; /* registrations that cover it */
};

/* snd_hold is the allocations that a registration covers. */
struct snd_hold {
	size_t count;
	struct snd_allocation *of[];
};

/* The allocations of all fabrics of the process, sorted by address. Callers hold the lock of a fabric, or none. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct snd_allocation **all;
static size_t count, capacity;

/* first returns the index of the first allocation that ends above an address. */
static size_t first(const unsigned char *at)
{
	size_t low = 0, high = count;
	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		if (all[middle]->end <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void unlist(size_t i)
{
	memmove(&all[i], &all[i + 1], (--count - i) * sizeof(struct snd_allocation *));
	if (count == 0) { /* nothing stays when the library is unloaded */
		free(all);
		all = NULL;
		capacity = 0;
	}
}

static bool insert(struct snd_allocation *a)
{
	if (count == capacity) {
		const size_t larger = capacity == 0 ? 16 : capacity * 2;
		struct snd_allocation **list = realloc(all, larger * sizeof(struct snd_allocation *));
		if (list == NULL)
			return false;
		all = list;
		capacity = larger;
	}
	const size_t i = first(a->start);
	memmove(&all[i + 1], &all[i], (count++ - i) * sizeof(struct snd_allocation *));
	all[i] = a;
	return true;
}

snd_status snd_allocate(struct snd_fabric *f, uint64_t length, struct snd_allocation **allocation, const char *op)
{
	struct snd_allocation *a = malloc(sizeof *a);
	if (a == NULL)
		return snd_no_memory(sizeof *a, "private memory", op);
	uint64_t offset;
	snd_status s = snd_alloc(&f->heap, length, false, &offset, op);
	if (s != SND_SUCCESS) {
		free(a);
		return s;
	}
	*a = (struct snd_allocation){f, offset, f->arena.base + offset, f->arena.base + offset + length, true, 0};
	pthread_mutex_lock(&mutex);
	const bool inserted = insert(a);
	pthread_mutex_unlock(&mutex);
	if (!inserted) {
		snd_free(&f->heap, offset);
		free(a);
		return snd_no_memory(sizeof *a, "private memory", op);
	}
	*allocation = a;
	return SND_SUCCESS;
}

unsigned char *snd_allocated(const struct snd_allocation *a) { return a->fabric->arena.base + a->offset; }

/* free_unused frees memory that nothing keeps in place. The lock of another fabric guards the heap of that one, so that one frees
 * the memory in a call of its own. */
static void free_unused(struct snd_fabric *f, struct snd_allocation *a)
{
	if (a->open || a->holds > 0)
		return;
	if (a->fabric == f) {
		snd_free(&f->heap, a->offset);
		unlist(first(a->start));
		free(a);
	} else if (a->fabric == NULL) {
		free(a);
	} else {
		atomic_fetch_add(&a->fabric->released, 1);
	}
}

void snd_end_allocation(struct snd_fabric *f, struct snd_allocation *a)
{
	pthread_mutex_lock(&mutex);
	a->open = false;
	free_unused(f, a);
	pthread_mutex_unlock(&mutex);
}

static bool is_used(const struct snd_allocation *a) { return a->open || a->holds > 0; }

static snd_status hold(const unsigned char *memory, uint64_t length, uint64_t *held, struct snd_hold **result, const char *op)
{
	const unsigned char *end = memory + length;
	const size_t from = first(memory);
	size_t to = from;
	*held = 0;
	for (; to < count && all[to]->start < end; to++)
		if (is_used(all[to]))
			*held += (uint64_t)((all[to]->end < end ? all[to]->end : end) - (all[to]->start > memory ? all[to]->start : memory));
	if (*held < length)
		return SND_SUCCESS;
	const size_t size = sizeof(struct snd_hold) + (to - from) * sizeof(struct snd_allocation *);
	struct snd_hold *h = malloc(size);
	if (h == NULL)
		return snd_no_memory(size, "private memory", op);
	for (h->count = 0; h->count < to - from; h->count++) {
		h->of[h->count] = all[from + h->count];
		h->of[h->count]->holds++;
	}
	*result = h;
	return SND_SUCCESS;
}

snd_status snd_hold_memory(const unsigned char *memory, uint64_t length, uint64_t *held, struct snd_hold **result, const char *op)
{
	*result = NULL;
	pthread_mutex_lock(&mutex);
	snd_status s = hold(memory, length, held, result, op);
	pthread_mutex_unlock(&mutex);
	return s;
}

void snd_release_hold(struct snd_fabric *f, struct snd_hold *h)
{
	if (h == NULL)
		return;
	pthread_mutex_lock(&mutex);
	for (size_t i = 0; i < h->count; i++) {
		h->of[i]->holds--;
		free_unused(f, h->of[i]);
	}
	pthread_mutex_unlock(&mutex);
	free(h);
}

void snd_free_released(struct snd_fabric *f)
{
	if (snd_relaxed32(&f->released) == 0)
		return;
	pthread_mutex_lock(&mutex);
	snd_set32(&f->released, 0);
	for (size_t i = 0; i < count;) {
		const size_t before = count;
		if (all[i]->fabric == f)
			free_unused(f, all[i]);
		if (count == before)
			i++;
	}
	pthread_mutex_unlock(&mutex);
}

void snd_forget_allocations(struct snd_fabric *f)
{
	pthread_mutex_lock(&mutex);
	for (size_t i = 0; i < count;) {
		struct snd_allocation *a = all[i];
		if (a->fabric != f) {
			i++;
			continue;
		}
		a->fabric = NULL;
		a->open = false;
		unlist(i);
		free_unused(f, a);
	}
	pthread_mutex_unlock(&mutex);
}

/* TWIN endpoint/internal/memory/allocation.go. */
#include "endpoint/mr_allocation.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "linux/fork.h"
#include "linux/memory_limit.h"

struct snd_allocation {
	struct snd_fabric *fabric; /* NULL: it has left the arena, and the memory is private */
	struct snd_mapped *mapped; /* the mapping that contains it */
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

/* snd_mapped is the mapping of an arena, or what is left of it when its fabric is closed. */
struct snd_mapped {
	struct snd_link link;
	unsigned char *start, *end;
	size_t allocations; /* of a closed fabric */
};

/* The mappings of all fabrics of the process, and their allocations, sorted by address. Callers hold the lock of a fabric, or none. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct snd_link mappings = {&mappings, &mappings};
static struct snd_allocation **all;
static size_t count, capacity;

static void reset(void)
{
	pthread_mutex_init(&mutex, NULL);
	snd_list_init(&mappings);
	all = NULL;
	count = capacity = 0;
}
SND_RESET_IN_CHILD(reset)

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

snd_status snd_allocate(struct snd_fabric *f, uint64_t length, uint32_t flags, struct snd_allocation **allocation, uint32_t *placement, const char *op)
{
	struct snd_allocation *a = malloc(sizeof *a);
	if (a == NULL)
		return snd_no_memory(sizeof *a, "private memory", op);
	uint64_t offset;
	snd_status s = snd_alloc_placed(&f->heap, length, flags, &offset, placement, op);
	if (s != SND_SUCCESS) {
		free(a);
		return s;
	}
	*a = (struct snd_allocation){f, f->mapped, offset, f->arena.base + offset, f->arena.base + offset + length, true, 0};
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

snd_status snd_add_mapping(struct snd_fabric *f, const char *op)
{
	struct snd_mapped *m = malloc(sizeof *m);
	if (m == NULL)
		return snd_no_memory(sizeof *m, "private memory", op);
	*m = (struct snd_mapped){.start = f->arena.base, .end = f->arena.base + f->arena.size};
	pthread_mutex_lock(&mutex);
	snd_list_append(&mappings, &m->link);
	pthread_mutex_unlock(&mutex);
	f->mapped = m;
	return SND_SUCCESS;
}

static void forget_mapping(struct snd_mapped *m)
{
	snd_list_remove(&m->link);
	free(m);
}

unsigned char *snd_allocated(const struct snd_allocation *a) { return a->fabric->arena.base + a->offset; }

/* free_unused frees memory that nothing keeps in place. The lock of another fabric guards the heap of that one, so that one frees
 * the memory in a call of its own. */
static void free_unused(struct snd_fabric *f, struct snd_allocation *a)
{
	if (a->open || a->holds > 0 || (a->fabric == f && f->closed)) /* peers may use memory of a closed fabric until they notice that it has left */
		return;
	if (a->fabric == f) {
		snd_free(&f->heap, a->offset);
		unlist(first(a->start));
		free(a);
	} else if (a->fabric == NULL) {
		unlist(first(a->start));
		if (--a->mapped->allocations == 0) {
			munmap(a->mapped->start, (size_t)(a->mapped->end - a->mapped->start));
			forget_mapping(a->mapped);
		}
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

/* meets_mapping reports whether a part of a range is in the arena of a fabric of the process, or in memory of a closed one. */
static bool meets_mapping(const unsigned char *memory, uint64_t length)
{
	for (const struct snd_link *l = mappings.next; l != &mappings; l = l->next) {
		const struct snd_mapped *m = SND_OF(l, struct snd_mapped, link);
		if (memory < m->end && m->start < memory + length)
			return true;
	}
	return false;
}

static snd_status hold(const unsigned char *memory, uint64_t length, struct snd_hold **result, const char *op)
{
	const unsigned char *end = memory + length;
	const size_t from = first(memory);
	size_t to = from;
	uint64_t held = 0;
	for (; to < count && all[to]->start < end; to++)
		if (is_used(all[to]))
			held += (uint64_t)((all[to]->end < end ? all[to]->end : end) - (all[to]->start > memory ? all[to]->start : memory));
	if (held < length && (held > 0 || meets_mapping(memory, length)))
		return snd_fail(SND_ACCESS_VIOLATION, "%s: %" PRIu64 " of %" PRIu64 " bytes at %p are allocated memory of open regions: register a part of a region while it is open", op,
			held, length, (const void *)memory);
	if (held == 0)
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

snd_status snd_hold_memory(const unsigned char *memory, uint64_t length, struct snd_hold **result, const char *op)
{
	*result = NULL;
	pthread_mutex_lock(&mutex);
	snd_status s = hold(memory, length, result, op);
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

/* keep replaces pages of the arena by private ones, with the same content of the allocations that they contain. Then this process
 * does not access the data of the next owner of the pages. Without memory for private ones, an access ends the process. */
static void keep(const struct snd_fabric *f, const struct snd_mapped *m)
{
	const size_t size = (size_t)(m->end - m->start);
	const int fd = snd_memory_file("softnd-closed", 0);
	/* A file takes up only what is touched. Without a descriptor for it, anonymous memory may do. */
	unsigned char *at = MAP_FAILED;
	if (fd < 0 || ftruncate(fd, (off_t)size) == 0)
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd, 0);
	if (fd >= 0)
		close(fd);
	if (at != MAP_FAILED) {
		for (size_t i = first(m->start); i < count && all[i]->start < m->end; i++)
			if (all[i]->fabric == f && all[i]->holds > 0)
				memcpy(at + (all[i]->start - m->start), all[i]->start, (size_t)(all[i]->end - all[i]->start));
		if (snd_own_process_only(at, size) && mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, m->start) != MAP_FAILED)
			return;
		munmap(at, size);
	}
	(void)mmap(m->start, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

void snd_leave_allocations(struct snd_fabric *f)
{
	struct snd_mapped *m = f->mapped;
	if (m == NULL)
		return;
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	f->mapped = NULL;
	pthread_mutex_lock(&mutex);
	const size_t from = first(m->start);
	unsigned char *const end = m->end;
	for (size_t i = from; i < count && all[i]->start < end; i++) {
		if (all[i]->holds == 0)
			continue;
		if (m->allocations++ == 0)
			m->start += ((uintptr_t)all[i]->start / page * page) - (uintptr_t)m->start;
		m->end = m->start + ((uintptr_t)all[i]->end - (uintptr_t)m->start + page - 1) / page * page;
	}
	if (m->allocations > 0)
		keep(f, m);
	for (size_t i = from; i < count && all[i]->start < end;) {
		struct snd_allocation *a = all[i];
		a->fabric = NULL;
		a->open = false;
		if (a->holds > 0) {
			i++;
		} else {
			unlist(i);
			free(a);
		}
	}
	if (m->allocations > 0) {
		f->arena.kept = m->start;
		f->arena.kept_end = m->end;
	} else {
		forget_mapping(m);
	}
	pthread_mutex_unlock(&mutex);
}

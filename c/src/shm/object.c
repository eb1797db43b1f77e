

#include "shm/object.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "linux/fork.h"
#include "linux/memory_limit.h"
#include "shm/fabric.h"

enum { SLAB = 256 << 10, STALE = 1024 /* freed objects of a type whose handles stay invalid */, LARGE = 16 << 10, KEPT = 1024 };
_Static_assert(offsetof(struct snd_fabric, closed) <= KEPT, "late calls use the lock of a fabric");

struct slab {
	struct slab *next;
	size_t size;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs;
/* Objects that were never used, and freed ones, the one that was freed first at the head. Those of fabrics with
 * SND_THREAD_SAFE have lists of their own: a late call on a closed handle then still finds a mutex to lock. */
static struct list {
	struct snd_object *first, *last;
	uint32_t count;
} unused_lists[SND_TYPES][2], free_lists[SND_TYPES][2];
static size_t sizes[SND_TYPES];
static int open_fabrics;
static _Atomic(uint32_t *) alive; /* a page: 1 in the process that made it, 0 in its forked children until they use the library */
static atomic_bool was_reset; /* in a forked child, by the handler of fork: a child of another call has state of its parent */

static void *map(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	if (madvise(at, size, MADV_WIPEONFORK) != 0) {
		munmap(at, size);
		return NULL;
	}
	return at;
}

/* is_wiped reports whether the page was wiped, in a child. */
static bool is_wiped(const uint32_t *page) { return page != NULL && __atomic_load_n(page, __ATOMIC_ACQUIRE) == 0; }

bool snd_forked(void) { return is_wiped(alive); }

/* reset drops the objects of the parent, whose memory reads as zero. It stays mapped, for the handles. */
static void reset(void)
{
	pthread_mutex_init(&mutex, NULL);
	slabs = NULL;
	memset(unused_lists, 0, sizeof unused_lists);
	memset(free_lists, 0, sizeof free_lists);
	open_fabrics = 0;
	was_reset = true;
}
SND_RESET_IN_CHILD(reset)

snd_status snd_start(const char *op)
{
	const bool may_begin = was_reset; /* before the page: another thread that begins at once sets that first */
	if (snd_forked() && !may_begin)
		return snd_fail(SND_DEVICE_REMOVED, "%s: this process is a child of clone(2): call exec, or make it by fork", op);
	if (!snd_fork_prepare())
		return snd_fail(SND_NO_MEMORY, "%s: pthread_atfork: no private memory", op);
	snd_fork_hold(); /* a child has either the page, or no thread that has begun to use the library */
	uint32_t *page = alive;
	if (page == NULL)
		page = map((size_t)sysconf(_SC_PAGESIZE));
	if (is_wiped(page)) {
		__atomic_store_n(page, 1, __ATOMIC_RELEASE); /* before another thread can find the page */
		alive = page;
		was_reset = false;
	}
	const bool ok = page != NULL;
	snd_fork_release();
	return ok ? SND_SUCCESS : snd_no_memory((uint64_t)sysconf(_SC_PAGESIZE), "mmap of a page", op);
}

static void put(struct list *l, struct snd_object *o)
{
	o->next_free = NULL;
	if (l->last != NULL)
		l->last->next_free = o;
	else
		l->first = o;
	l->last = o;
	l->count++;
}

static struct snd_object *take(struct list *l)
{
	struct snd_object *o = l->first;
	if (o != NULL && (l->first = o->next_free) == NULL)
		l->last = NULL;
	l->count -= o != NULL;
	return o;
}

/* shrink gives the pages of a large freed object back, but for its first KEPT bytes, which late calls may use. */
static void shrink(struct snd_object *o)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)o, end = (start + sizes[o->type]) / page * page;
	const uintptr_t first = (start + KEPT + page - 1) / page * page;
	if (sizes[o->type] >= LARGE && first < end)
		(void)madvise((void *)first, end - first, MADV_DONTNEED);
}

static void refill(struct list *l, size_t size)
{
	size = (size + 127) / 128 * 128;
	size_t bytes = size > SLAB / 4 ? size * 4 : SLAB;
	struct slab *s = map(bytes + 128);
	if (s == NULL)
		return;
	s->next = slabs;
	s->size = bytes + 128;
	slabs = s;
	for (size_t at = 128; at + size <= s->size; at += size)
		put(l, (struct snd_object *)(void *)((char *)s + at));
}

void *snd_object_new(enum snd_type type, size_t size, size_t kept, struct snd_fabric *fabric, bool safe)
{
	struct list *unused = &unused_lists[type][safe], *freed = &free_lists[type][safe];
	pthread_mutex_lock(&mutex);
	sizes[type] = size;
	if (unused->first == NULL && freed->count < STALE)
		refill(unused, size);
	struct snd_object *o = take(unused);
	if (o == NULL)
		o = take(freed);
	pthread_mutex_unlock(&mutex);
	if (o == NULL)
		return NULL;
	memset((char *)o + kept, 0, size - kept);
	o->type = (uint16_t)type;
	o->safe = safe;
	o->freed = false;
	if (fabric != NULL)
		snd_object_show(o, fabric);
	return o;
}

void snd_object_show(struct snd_object *o, struct snd_fabric *fabric)
{
	__atomic_store_n(&o->fabric, fabric, __ATOMIC_RELAXED);
	__atomic_store_n(&o->magic, SND_MAGIC_OF(o->type), __ATOMIC_RELEASE);
}

void snd_in_use(int change)
{
	pthread_mutex_lock(&mutex);
	open_fabrics += change;
	pthread_mutex_unlock(&mutex);
}

void snd_object_hide(struct snd_object *o) { __atomic_store_n(&o->magic, 0, __ATOMIC_RELAXED); }

void snd_object_free(struct snd_object *o)
{
	snd_object_hide(o);
	o->freed = true;
	if (o->holds > 0)
		return;
	pthread_mutex_lock(&mutex);
	shrink(o);
	put(&free_lists[o->type][o->safe], o);
	pthread_mutex_unlock(&mutex);
}

void snd_let_go(struct snd_object *o)
{
	if (--o->holds == 0 && o->freed)
		snd_object_free(o);
}

/* When the library is unloaded, nothing of it stays. */
__attribute__((destructor)) static void unload(void)
{
	if (snd_forked() || open_fabrics > 0) /* the list reads as zero, or a thread may use an object */
		return;
	for (struct slab *s = slabs; s != NULL;) {
		struct slab *next = s->next;
		munmap(s, s->size);
		s = next;
	}
	slabs = NULL;
	memset(unused_lists, 0, sizeof unused_lists);
	memset(free_lists, 0, sizeof free_lists);
	if (alive != NULL)
		munmap(alive, (size_t)sysconf(_SC_PAGESIZE));
	alive = NULL;
}

snd_status snd_bad_handle(const char *op, const char *what)
{
	if (snd_forked())
		return snd_fail(SND_DEVICE_REMOVED, "%s: this process is a forked child, and the %s is its parent's: open a fabric here, or call exec", op, what);
	return snd_fail(SND_INVALID_HANDLE, "%s: the %s is NULL, closed or of another type", op, what);
}

snd_status snd_not_drained(snd_status s, int64_t timeout, const char *op)
{
	if (s == SND_CANCELED)
		return snd_fail(s, "%s: the fabric was closed", op);
	return snd_fail(s, "%s: a peer is still copying after %s", op, snd_duration(timeout).text);
}

snd_status snd_closed_meanwhile(const char *op) { return snd_fail(SND_INVALID_HANDLE, "%s: another thread has closed the handle meanwhile", op); }

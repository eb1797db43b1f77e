#include "object.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"

enum { SLAB = 256 << 10 };

struct slab {
	struct slab *next;
	size_t size;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs;
/* Freed objects, the one that was freed first at the head: a stale handle stays invalid for long. */
static struct snd_object *first_free[SND_TYPES], *last_free[SND_TYPES];
static int open_fabrics;
static uint32_t *alive; /* 1 in the process that made it, 0 in its forked children */

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

bool snd_forked(void)
{
	uint32_t *a = alive;
	return a != NULL && *a == 0;
}

snd_status snd_start(const char *op)
{
	if (snd_forked())
		return snd_fail(SND_DEVICE_REMOVED, "%s: this process is a forked child: call exec, or use the library in the parent", op);
	pthread_mutex_lock(&mutex);
	if (alive == NULL && (alive = map((size_t)sysconf(_SC_PAGESIZE))) != NULL)
		*alive = 1;
	bool ok = alive != NULL;
	pthread_mutex_unlock(&mutex);
	return ok ? SND_SUCCESS : snd_fail(SND_NO_MEMORY, "%s: mmap of a page failed", op);
}

static bool refill(enum snd_type type, size_t size)
{
	size = (size + 127) / 128 * 128;
	size_t bytes = size > SLAB / 4 ? size * 4 : SLAB;
	struct slab *s = map(bytes + 128);
	if (s == NULL)
		return false;
	s->next = slabs;
	s->size = bytes + 128;
	slabs = s;
	for (size_t at = 128; at + size <= s->size; at += size) {
		struct snd_object *o = (struct snd_object *)(void *)((char *)s + at);
		o->next_free = NULL;
		if (last_free[type] != NULL)
			last_free[type]->next_free = o;
		else
			first_free[type] = o;
		last_free[type] = o;
	}
	return true;
}

void *snd_object_new(enum snd_type type, size_t size, struct snd_fabric *fabric)
{
	pthread_mutex_lock(&mutex);
	struct snd_object *o = NULL;
	if (first_free[type] != NULL || refill(type, size)) {
		o = first_free[type];
		first_free[type] = o->next_free;
		if (first_free[type] == NULL)
			last_free[type] = NULL;
	}
	pthread_mutex_unlock(&mutex);
	if (o == NULL)
		return NULL;
	memset(o, 0, size);
	o->magic = SND_MAGIC_OF(type);
	o->type = (uint32_t)type;
	o->fabric = fabric;
	return o;
}

void snd_in_use(int change)
{
	pthread_mutex_lock(&mutex);
	open_fabrics += change;
	pthread_mutex_unlock(&mutex);
}

void snd_object_hide(struct snd_object *o) { o->magic = 0; }

void snd_object_free(struct snd_object *o)
{
	o->magic = 0;
	o->next_free = NULL;
	pthread_mutex_lock(&mutex);
	if (last_free[o->type] != NULL)
		last_free[o->type]->next_free = o;
	else
		first_free[o->type] = o;
	last_free[o->type] = o;
	pthread_mutex_unlock(&mutex);
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
	memset(first_free, 0, sizeof first_free);
	memset(last_free, 0, sizeof last_free);
	if (alive != NULL)
		munmap(alive, (size_t)sysconf(_SC_PAGESIZE));
	alive = NULL;
}

snd_status snd_bad_handle(const char *op, const char *what)
{
	if (snd_forked())
		return snd_fail(SND_DEVICE_REMOVED, "%s: this process is a forked child: call exec, or use the library in the parent", op);
	return snd_fail(SND_INVALID_HANDLE, "%s: the %s is NULL, closed or of another type", op, what);
}

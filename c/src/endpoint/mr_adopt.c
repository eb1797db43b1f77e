/* Pages are found by their place in the arena's file, in the mappings of the process as they are at that moment: the program may have unmapped, moved or
 * replaced some. docs/decisions/verbs-memory.md says why each step is safe. */
#include "endpoint/mr_adopt.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "linux/fork.h"
#include "linux/placement.h"
#include "linux/proc.h"
#include "linux/procmaps.h"
#include "linux/write_protect.h"
#include "linux/writers.h"

enum {
	VMA_SHARE = 8,      /* of the mappings that a process may have, this part is in use at most when pages are adopted */
	UNCHECKED_SHARE = 64, /* adopted pages beyond this part of the heap leave KEPT_SHARE of it free */
	KEPT_SHARE = 4,
};

static const char *const too_few_descriptors = "the process has too few free descriptors, or no /proc";

/* snd_adopted is an extent of the heap whose pages the program maps. */
struct snd_adopted {
	struct snd_adopted *next;
	unsigned char *start; /* where the program had them first */
	uint64_t offset, length;
	uint32_t regions; /* that use it. 0: the program maps the pages privately, and the extent is empty */
};

/* The extents of the fabric that adopts. Changed between snd_fork_hold and snd_fork_release, for forked children use them. */
static struct snd_adopted *extents;
static struct snd_identity file; /* the arena's */
static unsigned char *arena;     /* its mapping, in which pages are not the program's; NULL in a forked child */
static uint64_t arena_size;
static uint64_t adopted_bytes;

/* walk is a search for the mappings of an extent, which become private, and its result. */
struct walk {
	struct snd_fabric *f; /* NULL in a forked child */
	const struct snd_adopted *extent; /* NULL = all */
	bool alone, protects;
	uint64_t found, left; /* bytes; left: still mapped from the arena */
	bool shared;          /* some of them still shared */
};

/* map and move_to replace pages of the program, by the kernel's own calls. UCX puts functions in the place of those of the C library, which take the pages
 * for new ones, and move them to another place than the one asked for. */
static bool map(void *at, uint64_t n, int access, int flags, int fd, uint64_t offset)
{
	return syscall(SYS_mmap, at, n, access, flags | MAP_FIXED, fd, offset) == (long)(uintptr_t)at;
}

static bool move_to(void *at, uint64_t n, void *from) { return syscall(SYS_mremap, from, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) == (long)(uintptr_t)at; }

/* copy_aside replaces pages by anonymous ones with the contents of source. */
static bool copy_aside(unsigned char *at, uint64_t n, const unsigned char *source)
{
	void *copy = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return false;
	memcpy(copy, source, n);
	if (move_to(at, n, copy))
		return true;
	munmap(copy, n);
	return false;
}

/* copy_in_place does so while no other thread runs. Unlike those of copy_aside, the pages join the mappings beside them. */
static bool copy_in_place(unsigned char *at, uint64_t n, const struct snd_arena *a, uint64_t offset)
{
	if (!map(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) { /* some kernels have unmapped the pages then */
		if (snd_arena_is_ours(a))
			(void)map(at, n, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, offset);
		return false;
	}
	(void)snd_prefault(at, n, true);
	memcpy(at, a->base + offset, n);
	return true;
}

/* park maps pages of the extent privately, and makes each of them one of the process: so no write of another thread is lost. They still belong to a
 * mapping of the arena's file, and where the program drops pages, the extent shows. */
static bool park(unsigned char *at, uint64_t n, const struct snd_arena *a, uint64_t offset)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	if (!snd_arena_is_ours(a) || !map(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE, a->fd, offset))
		return false;
	for (uint64_t i = 0; i < n; i += page)
		(void)atomic_fetch_or((_Atomic unsigned char *)(at + i), 0);
	return true;
}

/* withhold takes pages from a forked child, as if the parent had called ibv_fork_init for a card. */
static void withhold(unsigned char *at, uint64_t n) { (void)map(at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }

/* protect needs a descriptor. */
static int protect(void *at, uint64_t n, bool shared)
{
	(void)snd_fork_lend_spares();
	return snd_protect(at, n, shared);
}

/* take_back makes a part of a mapping private. */
static void take_back(struct walk *w, unsigned char *at, uint64_t n, uint64_t offset, const struct snd_vma *v)
{
	const int access = (v->readable ? PROT_READ : 0) | (v->writable ? PROT_WRITE : 0);
	const struct snd_arena *a = w->f != NULL ? &w->f->arena : NULL;
	bool anonymous = false, parked = !v->shared;
	w->found += n;
	if (w->alone && v->shared && a != NULL) {
		anonymous = copy_in_place(at, n, a, offset);
	} else if (w->alone) {
		if (v->readable || mprotect(at, n, PROT_READ) == 0)
			anonymous = copy_aside(at, n, at);
	} else if (v->shared && a != NULL) { /* a forked child has one thread */
		const int protection = w->protects ? protect(at, n, true) : -1;
		anonymous = protection >= 0 && copy_aside(at, n, a->base + offset);
		if (protection >= 0)
			snd_unprotect(protection);
		parked = !anonymous && park(at, n, a, offset);
	}
	if (a == NULL && !anonymous)
		withhold(at, n);
	else if (access != (PROT_READ | PROT_WRITE))
		(void)mprotect(at, n, access);
	w->left += anonymous ? 0 : n;
	w->shared |= !anonymous && !parked;
}

static bool is_of_arena(const struct snd_vma *v)
{
	const uint64_t base = (uint64_t)(uintptr_t)arena;
	return v->inode == file.inode && v->device == file.device && (arena == NULL || v->start < base || v->start >= base + arena_size);
}

static bool take_back_vma(void *arg, const struct snd_vma *v)
{
	struct walk *w = arg;
	if (!is_of_arena(v))
		return true;
	for (const struct snd_adopted *e = extents; e != NULL; e = e->next) {
		const uint64_t first = e->offset > v->offset ? e->offset : v->offset;
		const uint64_t end = v->offset + (v->end - v->start), last = e->offset + e->length < end ? e->offset + e->length : end;
		if ((w->extent == NULL || w->extent == e) && first < last)
			take_back(w, (unsigned char *)(uintptr_t)v->start + (first - v->offset), last - first, first, v);
	}
	return true;
}

/* get_ready takes the descriptors that are needed for adopted pages, whatever the program does with its own ones or with its root directory. */
static bool get_ready(void) { return snd_keep_proc(true) && snd_fork_awaits_child(true); }

/* rest frees them if there are no adopted pages. It is called last, since pages may be adopted after others have come back. */
static void rest(void)
{
	if (extents != NULL)
		return;
	(void)snd_fork_awaits_child(false);
	(void)snd_keep_proc(false);
}

static void forget(struct snd_fabric *f, struct snd_adopted *e)
{
	struct snd_adopted **at = &extents;
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	adopted_bytes -= e->length;
	snd_free(&f->heap, e->offset);
	free(e);
}

/* check_vma counts the mappings of the process. A request of the kernel's asynchronous input, or a device, could write to pages that it knows. */
static bool check_vma(void *arg, const struct snd_vma *v)
{
	++*(uint32_t *)arg;
	return strncmp(v->name, "/[aio]", 6) != 0 && strstr(v->name, "[io_uring]") == NULL && strncmp(v->name, "socket:", 7) != 0 && (strncmp(v->name, "/dev/", 5) != 0 || strncmp(v->name, "/dev/shm/", 9) == 0 || strncmp(v->name, "/dev/zero", 9) == 0);
}

/* may_be_pinned counts the mappings of the process, and reports whether something else than its threads could write to its pages. */
static bool may_be_pinned(uint32_t *vmas) { return !snd_each_vma(0, UINT64_MAX, check_vma, vmas) || snd_may_be_pinned(); }

/* end takes the pages of an extent back that no region uses. It keeps the extent as long as the process maps it, and the pages while a device, or input
 * that the program has begun since it registered them, could write there. */
static void end(struct snd_fabric *f, struct snd_adopted *e)
{
	bool locked;
	uint32_t vmas = 0;
	if (may_be_pinned(&vmas))
		return;
	struct walk w = {.f = f, .extent = e, .alone = snd_is_alone(&locked), .protects = f->adopting == SND_ADOPT_ALWAYS};
	const uint64_t start = (uint64_t)(uintptr_t)e->start;
	bool complete = snd_each_vma(start, start + e->length, take_back_vma, &w);
	if (complete && w.found != e->length) /* the program has unmapped or moved a part */
		complete = snd_each_vma(0, UINT64_MAX, take_back_vma, &w);
	if (complete && w.left == 0)
		forget(f, e);
	else if (complete && !w.shared && e->length > UINT64_C(1) << SND_LARGEST_CLASS)
		(void)snd_release_pages(&f->arena, e->offset, e->length);
	else if (complete && !w.shared)
		memset(f->arena.base + e->offset, 0, e->length);
}

/* end_all ends the extents that no region uses. */
static void end_all(struct snd_fabric *f)
{
	for (struct snd_adopted *e = extents, *next; e != NULL; e = next) {
		next = e->next;
		if (e->regions == 0)
			end(f, e);
	}
}

static bool has_parked(void)
{
	const struct snd_adopted *e = extents;
	while (e != NULL && e->regions > 0)
		e = e->next;
	return e != NULL;
}

/* copy_unseen makes pages private that the process can read, without knowing whose they are. */
static void copy_unseen(unsigned char *at, uint64_t n)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), half = n / 2 / page * page;
	if (snd_prefault(at, n, false) == 0) {
		if (!copy_aside(at, n, at))
			withhold(at, n);
	} else if (half > 0) {
		copy_unseen(at, half);
		copy_unseen(at + half, n - half);
	}
}

/* Forked children have no thread of the program but one. Peers never access their memory. */
static void reset(void)
{
	struct walk w = {.alone = true};
	arena = NULL;
	const bool seen = extents == NULL || snd_each_vma(0, UINT64_MAX, take_back_vma, &w);
	for (struct snd_adopted *e; (e = extents) != NULL; free(e)) {
		extents = e->next;
		if (!seen) /* no /proc, or no free descriptor: at least where the program had them first */
			copy_unseen(e->start, e->length);
	}
	adopted_bytes = 0;
	rest();
}
SND_RESET_IN_CHILD(reset)

void snd_adopts(struct snd_fabric *f, enum snd_adopting how)
{
	snd_lock(f);
	f->adopting = how;
	snd_unlock(f);
}

void snd_check_pages(struct snd_fabric *f)
{
	snd_lock(f);
	f->table->checks_pages = true;
	snd_unlock(f);
}

/* pages is what the process has at the addresses of a region. */
struct pages {
	uint64_t at; /* where the next mapping must begin, or contain it */
	bool anonymous;
	bool in_order; /* all are shared pages of one file, as they follow each other there */
	uint32_t vmas;
	struct snd_vma first;
};

static bool check_pages(void *arg, const struct snd_vma *v)
{
	struct pages *p = arg;
	const uint64_t stack = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	if (p->vmas++ == 0)
		p->first = *v;
	p->in_order &= v->start <= p->at && v->shared && v->inode == p->first.inode && v->device == p->first.device && v->offset - p->first.offset == v->start - p->first.start;
	p->anonymous &= v->start <= p->at && v->readable && v->writable && !v->shared && v->inode == 0 && (v->start > stack || v->end <= stack) &&
		(v->name[0] == 0 || strcmp(v->name, "[heap]") == 0 || strncmp(v->name, "[anon", 5) == 0);
	p->at = v->end;
	return true;
}

/* has_few_vmas reports whether the process is far from the number of mappings at which the kernel refuses more. */
static bool has_few_vmas(uint32_t count)
{
	uint32_t most = 65530;
	FILE *f = snd_open_text("/proc/sys/vm/max_map_count");
	if (f == NULL || fscanf(f, "%" SCNu32, &most) != 1)
		most = 65530;
	if (f != NULL)
		fclose(f);
	return count < most / VMA_SHARE;
}

static bool has_room(const struct snd_fabric *f, uint64_t length)
{
	const uint64_t size = f->arena.chunks * SNDL_CHUNK_SIZE;
	return adopted_bytes + length <= size / UNCHECKED_SHARE || snd_heap_free(&f->heap) >= size / KEPT_SHARE + length;
}

/* refusal returns why pages of the program cannot be adopted, NULL if they can. */
static const char *refusal(struct snd_fabric *f, uint64_t length, bool *alone)
{
	bool locked;
	uint32_t vmas = 0;
	*alone = snd_is_alone(&locked);
	if (locked)
		return "the process has locked memory";
	if (!*alone && f->adopting != SND_ADOPT_ALWAYS)
		return "the program has other threads, which may write there";
	if (may_be_pinned(&vmas))
		return "the process uses a device or asynchronous input, which may write there";
	if (!has_few_vmas(vmas))
		return "the process has many mappings";
	if (!snd_arena_is_ours(&f->arena) || !has_room(f, length))
		return "the arena has no room";
	return NULL;
}

/* move makes pages of the program those of an extent. */
static const char *move(struct snd_fabric *f, struct snd_adopted *e, bool alone)
{
	const int protection = alone ? -1 : protect(e->start, e->length, false);
	if (!alone && protection < 0)
		return "the program has other threads, and the kernel does not make them wait";
	(void)snd_prefault(f->arena.base + e->offset, e->length, true);
	memcpy(f->arena.base + e->offset, e->start, e->length);
	const bool moved = map(e->start, e->length, PROT_READ | PROT_WRITE, MAP_SHARED, f->arena.fd, e->offset);
	if (protection >= 0)
		snd_unprotect(protection);
	if (!moved)
		return "the kernel does not map pages of the arena there";
	/* Two mappings that differ: mremap refuses to grow both at once. It would add the next pages of the arena, which are another's. */
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	(void)madvise(e->start + e->length - page, page, MADV_SEQUENTIAL);
	(void)snd_prefault(e->start, e->length, true);
	return NULL;
}

static struct snd_adopted *adopt(struct snd_fabric *f, unsigned char *memory, uint64_t length, const char **reason)
{
	bool alone;
	if ((*reason = refusal(f, length, &alone)) == NULL && !get_ready())
		*reason = too_few_descriptors;
	if (*reason != NULL)
		return NULL;
	struct snd_adopted *e = malloc(sizeof *e);
	uint64_t offset;
	*reason = "the arena has no room";
	if (e == NULL || snd_alloc(&f->heap, length, false, &offset, "adopt") != SND_SUCCESS) {
		free(e);
		return NULL;
	}
	*e = (struct snd_adopted){extents, memory, offset, length, 1};
	if ((*reason = move(f, e, alone)) != NULL) {
		snd_free(&f->heap, offset);
		free(e);
		return NULL;
	}
	extents = e;
	adopted_bytes += length;
	file = f->arena.identity;
	arena = f->arena.base;
	arena_size = f->arena.size;
	return e;
}

/* find returns the extent that has all pages of a region already. */
static struct snd_adopted *find(uint64_t offset, uint64_t length)
{
	struct snd_adopted *e = extents;
	while (e != NULL && (e->regions == 0 || !snd_within(offset, length, e->offset, e->length)))
		e = e->next;
	return e;
}

/* share returns an extent that has the whole pages of a region, or NULL and maybe a reason. */
static struct snd_adopted *share(struct snd_fabric *f, unsigned char *memory, uint64_t length, struct snd_location *place, const char **reason)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = (uint64_t)(uintptr_t)memory, stop = start + length;
	const uint64_t first = (start + page - 1) / page * page, last = stop / page * page;
	struct pages all = {.at = start, .in_order = true}, whole = {.at = first, .anonymous = true};
	struct snd_adopted *e = NULL;
	bool locked;
	if (has_parked() && snd_is_alone(&locked))
		end_all(f); /* the region may be of their pages, or need their room */
	const bool seen = snd_each_vma(start, stop, check_pages, &all);
	const uint64_t offset = all.first.offset + (start - all.first.start);
	*reason = seen ? NULL : too_few_descriptors;
	if (!seen)
		return NULL;
	if (all.in_order && all.at >= stop && is_of_arena(&all.first) && (e = find(offset, length)) != NULL) {
		e->regions++;
		*place = (struct snd_location){.offset = offset};
	} else if (first < last) {
		*reason = "the memory is not private and anonymous";
		if (snd_each_vma(first, last, check_pages, &whole) && whole.anonymous && whole.at >= last && (e = adopt(f, memory + (first - start), last - first, reason)) != NULL)
			*place = (struct snd_location){e->offset, (uint32_t)(first - start), (uint32_t)(stop - last)};
	}
	return e;
}

struct snd_adopted *snd_adopt(struct snd_fabric *f, unsigned char *memory, uint64_t length, struct snd_location *place, const char **reason)
{
	SND_KEEP_ERRNO;
	*reason = NULL;
	if (f->adopting == SND_ADOPT_OFF)
		return NULL;
	snd_fork_hold();
	struct snd_adopted *e = share(f, memory, length, place, reason);
	rest();
	snd_fork_release();
	return e;
}

void snd_return(struct snd_fabric *f, struct snd_adopted *a)
{
	SND_KEEP_ERRNO;
	if (a == NULL || --a->regions > 0)
		return;
	snd_fork_hold();
	end(f, a);
	rest();
	snd_fork_release();
}

bool snd_has_adopted(struct snd_fabric *f)
{
	snd_lock(f);
	snd_fork_hold();
	end_all(f);
	rest();
	snd_fork_release();
	const bool has = f->adopting != SND_ADOPT_OFF && extents != NULL;
	snd_unlock(f);
	return has;
}

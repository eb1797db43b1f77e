/* TWIN shm/arena.go, shm/version.go. */
#include "shm/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"
#include "settings.h"
#include "xxh64.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { MIN_HEAP_CHUNKS = 16 };
#define MAX_SIZE (UINT64_C(1) << 40)
#define RESERVE_STEP (UINT64_C(4) << 20) /* a signal undoes one fallocate, so each is short */

static uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

/* place computes the positions of the tables from the size alone. */
static bool place(struct snd_arena *a, uint64_t size)
{
	if (size % SNDL_CHUNK_SIZE != 0 || size > MAX_SIZE)
		return false;
	uint64_t at = SNDL_HEADER_PAGE;
	a->size = size;
	a->member_table = at;
	at = round_up(at + (uint64_t)SNDL_MEMBERS * SNDL_MEMBER_STRIDE, SNDL_TABLE_ALIGN);
	a->rank_records = at;
	at = round_up(at + (uint64_t)SNDL_RANKS * SNDL_RANK_STRIDE, SNDL_TABLE_ALIGN);
	a->status_pages = at;
	at = round_up(at + (uint64_t)SNDL_STATUS_PAGES * SNDL_STATUS_STRIDE, SNDL_TABLE_ALIGN);
	uint64_t blocks = at;
	at = round_up(at + (uint64_t)SNDL_WINDOW_BLOCKS * 4, SNDL_TABLE_ALIGN);
	a->window_table = at;
	at = round_up(at + (uint64_t)SNDL_WINDOW_ENTRIES * SNDL_WINDOW_ENTRY_SIZE, SNDL_TABLE_ALIGN);
	a->fault_rules = at;
	at = round_up(at + (uint64_t)SNDL_FAULT_RULES * SNDL_FAULT_RULE_SIZE, SNDL_TABLE_ALIGN);
	uint64_t number_blocks = at;
	at = round_up(at + (uint64_t)SNDL_NUMBER_BLOCKS * 4, SNDL_TABLE_ALIGN);
	a->number_table = at;
	at = round_up(at + (uint64_t)SNDL_NUMBER_ENTRIES * SNDL_NUMBER_ENTRY_SIZE, SNDL_TABLE_ALIGN);
	uint64_t chunks = at;
	at = round_up(at + size / SNDL_CHUNK_SIZE * 4, SNDL_TABLE_ALIGN);
	at = round_up(at, SNDL_CHUNK_SIZE);
	a->heap = at;
	if (at + (uint64_t)MIN_HEAP_CHUNKS * SNDL_CHUNK_SIZE > size)
		return false;
	a->chunks = (size - at) / SNDL_CHUNK_SIZE;
	/* Offsets for now; map_all makes pointers of them. */
	a->block_owners = (snd_half *)(uintptr_t)blocks;
	a->number_owners = (snd_half *)(uintptr_t)number_blocks;
	a->chunk_owners = (snd_half *)(uintptr_t)chunks;
	return true;
}

bool snd_own_process_only(void *at, uint64_t size)
{
	/* The kernel would write a page for each hole of the file, too, and allocate it in the arena before. */
	return madvise(at, size, MADV_DONTFORK) == 0 && madvise(at, size, MADV_DONTDUMP) == 0;
}

/* dump includes a range of the arena in core dumps, if SOFTND_DUMP_ARENA asks for that, or excludes it again. The pages of an included
 * range are allocated. If the process has no mapping left for it, the range is not in the dump. */
static void dump(const struct snd_arena *a, uint64_t offset, uint64_t length, bool included)
{
	if (!a->dumped || a->base == NULL || length == 0)
		return;
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = offset / page * page;
	madvise(a->base + first, offset + length - first, included ? MADV_DODUMP : MADV_DONTDUMP); /* it rounds the length up */
}

/* map_all maps the whole file, as a rule at a multiple of SND_HUGE_PAGE, which huge pages need. */
static snd_status map_all(struct snd_arena *a, const char *op)
{
	snd_status s = snd_read_flag("SOFTND_DUMP_ARENA", &a->dumped, op);
	if (s != SND_SUCCESS)
		return s;
	unsigned char *at = mmap(NULL, a->size, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	const size_t unused = (uintptr_t)at % SND_HUGE_PAGE;
	if (at != MAP_FAILED && unused != 0) { /* the addresses below it are free as a rule */
		munmap(at, a->size);
		at = mmap(at - unused, a->size, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	}
	if (at == MAP_FAILED)
		return snd_no_memory(a->size, "mmap of the arena", op);
	if (!snd_own_process_only(at, a->size)) {
		int e = errno;
		munmap(at, a->size);
		return snd_fail(SND_UNSUCCESSFUL, "%s: madvise: %s", op, snd_errno_text(e));
	}
	a->base = at;
	a->block_owners = (snd_half *)(void *)(a->base + (uintptr_t)a->block_owners);
	a->number_owners = (snd_half *)(void *)(a->base + (uintptr_t)a->number_owners);
	a->chunk_owners = (snd_half *)(void *)(a->base + (uintptr_t)a->chunk_owners);
	a->entries = (struct snd_access_entry *)(void *)(a->base + a->window_table);
	dump(a, 0, a->rank_records + (uint64_t)a->ranks * SNDL_RANK_STRIDE, true); /* the tables that the creator has reserved */
	dump(a, (uint64_t)((unsigned char *)a->block_owners - a->base), (uint64_t)SNDL_WINDOW_BLOCKS * 4, true);
	dump(a, (uint64_t)((unsigned char *)a->number_owners - a->base), (uint64_t)SNDL_NUMBER_BLOCKS * 4, true);
	dump(a, (uint64_t)((unsigned char *)a->chunk_owners - a->base), a->chunks * 4, true);
	return SND_SUCCESS;
}

bool snd_arena_is_ours(const struct snd_arena *a) { return snd_is_still(a->fd, &a->identity); }

/* constants are a private copy of the header's fields that do not change. */
struct constants {
	uint64_t magic, layout, size, secret[2], id[2], checksum;
	uint32_t ranks, rules, host;
};

static struct constants constants_of(const struct snd_header *h)
{
	return (struct constants){snd_relaxed(&h->magic), snd_relaxed(&h->layout), snd_relaxed(&h->size),
		{snd_relaxed(&h->secret[0]), snd_relaxed(&h->secret[1])}, {snd_relaxed(&h->id[0]), snd_relaxed(&h->id[1])},
		snd_relaxed(&h->checksum), snd_relaxed32(&h->ranks), snd_relaxed32(&h->rules), snd_relaxed32(&h->host)};
}

static uint64_t checksum_of(const struct constants *c)
{
	uint64_t words[] = {c->magic, c->ranks | (uint64_t)c->rules << 32, c->layout, c->size, c->secret[0], c->secret[1], c->id[0], c->id[1], c->host};
	unsigned char bytes[sizeof words];
	for (size_t i = 0; i < sizeof words; i++)
		bytes[i] = (unsigned char)(words[i / 8] >> (8 * (i % 8)));
	return snd_xxh64(bytes, sizeof bytes);
}

int snd_reopen(int fd)
{
	char path[40];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int held[3];
	snd_occupy_standard(held);
	const int own = snd_above_standard(open(path, O_RDWR | O_CLOEXEC));
	snd_vacate_standard(held);
	return own;
}

snd_status snd_other_version(const char *subject, const char *build, size_t size, const char *why, const char *op)
{
	char name[57] = {0};
	memcpy(name, build, size < sizeof name ? size : sizeof name - 1);
	for (char *p = name; *p != 0; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	return snd_fail(SND_NOT_SUPPORTED, "%s: %s softnd %s, this program contains softnd %s: " SND_OTHER_VERSION " (%s): build all programs with one release of softnd",
		op, subject, name[0] != 0 ? name : "of an unnamed build", SOFTND_BUILD, why);
}

/* check_header waits until the header is complete, checks it, and fills in a. */
static snd_status check_header(struct snd_arena *a, const struct snd_header *h, uint64_t file_size, int64_t deadline, const char *op)
{
	uint32_t version;
	while ((version = snd_acquire32(&h->version)) == 0) { /* ORDER arena-ready: pairs with the store in snd_arena_create */
		uint64_t magic = snd_relaxed(&h->magic);
		if (magic != 0 && magic != SND_MAGIC)
			return snd_fail(SND_INVALID_PARAMETER, "%s: the file is no arena (magic %#" PRIx64 ")", op, magic);
		if (deadline >= 0 && snd_clock() >= deadline)
			return snd_fail(SND_IO_TIMEOUT, "%s: the creator of the arena has not finished", op);
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	struct constants c = constants_of(h);
	if (c.magic != SND_MAGIC)
		return snd_fail(SND_INVALID_PARAMETER, "%s: the file is no arena (magic %#" PRIx64 ")", op, c.magic);
	if (version != SNDL_LAYOUT_VERSION || c.layout != SNDL_LAYOUT_HASH) {
		char why[120];
		if (version != SNDL_LAYOUT_VERSION)
			snprintf(why, sizeof why, "the arena's layout has version %" PRIu32 ", this program's %u", version, SNDL_LAYOUT_VERSION);
		else
			snprintf(why, sizeof why, "the arena's layout has hash %#" PRIx64 ", this program's %#" PRIx64, c.layout, (uint64_t)SNDL_LAYOUT_HASH);
		return snd_other_version("the arena was made by", h->build, sizeof h->build, why, op);
	}
	if (c.checksum != checksum_of(&c) || c.size != file_size || c.ranks > SNDL_RANKS || c.rules > SNDL_FAULT_RULES || c.host > SND_MAX_HOST || !place(a, c.size))
		return snd_fail(SND_INVALID_PARAMETER, "%s: the arena's header is damaged, or its file is truncated (%" PRIu64 " of %" PRIu64 " bytes)",
			op, file_size, c.size);
	a->ranks = c.ranks;
	a->rules = c.rules;
	a->host = c.host;
	memcpy(a->secret, c.secret, sizeof a->secret);
	memcpy(a->id, c.id, sizeof a->id);
	return SND_SUCCESS;
}

snd_status snd_arena_attach(struct snd_arena *a, int fd, int64_t deadline, const char *op)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: descriptor %d: %s", op, fd, snd_errno_text(errno));
	int seals = fcntl(fd, F_GET_SEALS);
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)SNDL_HEADER_PAGE || seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: descriptor %d is no arena: not a file sealed against shrinking", op, fd);
	memset(a, 0, sizeof *a);
	if ((a->fd = snd_reopen(fd)) < 0)
		return snd_fail(SND_UNSUCCESSFUL, "%s: re-open descriptor %d (softnd needs a mounted /proc): %s", op, fd, snd_errno_text(errno));
	snd_status s;
	void *first = mmap(NULL, SNDL_HEADER_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	if (first == MAP_FAILED) {
		s = snd_no_memory(SNDL_HEADER_PAGE, "mmap of the header", op);
	} else {
		s = check_header(a, first, (uint64_t)st.st_size, deadline, op);
		munmap(first, SNDL_HEADER_PAGE);
	}
	if (s == SND_SUCCESS && !snd_identify(a->fd, &a->identity))
		s = snd_fail(SND_UNSUCCESSFUL, "%s: fstat: %s", op, snd_errno_text(errno));
	if (s == SND_SUCCESS)
		s = map_all(a, op);
	if (s != SND_SUCCESS) {
		close(a->fd);
		a->fd = -1;
	}
	return s;
}

/* default_size is the size of the machine's memory within the process's limits. */
static uint64_t default_size(void)
{
	const uint64_t least = UINT64_C(1) << 28, most = UINT64_C(1) << 36;
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t size = pages > 0 ? (uint64_t)pages * (uint64_t)page : most;
	size = size < least ? least : size > most ? most : size;
	size = round_up(size, SNDL_CHUNK_SIZE);
	struct rlimit lim;
	if (getrlimit(RLIMIT_FSIZE, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY && size > lim.rlim_cur)
		size = lim.rlim_cur / SNDL_CHUNK_SIZE * SNDL_CHUNK_SIZE;
	if (getrlimit(RLIMIT_AS, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY && size > lim.rlim_cur / 4)
		size = lim.rlim_cur / 4 / SNDL_CHUNK_SIZE * SNDL_CHUNK_SIZE;
	return size;
}

int snd_memory_file(const char *name, unsigned flags)
{
	int held[3];
	snd_occupy_standard(held);
	int fd = snd_above_standard(memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL | flags));
	if (fd < 0 && errno == EINVAL) /* MFD_NOEXEC_SEAL came with Linux 6.3 */
		fd = snd_above_standard(memfd_create(name, MFD_CLOEXEC | flags));
	snd_vacate_standard(held);
	return fd;
}

snd_status snd_arena_create(struct snd_arena *a, uint32_t ranks, uint32_t host, uint64_t size, const char *op)
{
	memset(a, 0, sizeof *a);
	a->fd = -1;
	if (ranks > SNDL_RANKS)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu32 " ranks, at most %u", op, ranks, SNDL_RANKS);
	if (size > MAX_SIZE)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu64 " bytes, at most %" PRIu64, op, size, MAX_SIZE);
	size = size == 0 ? default_size() : round_up(size, SNDL_CHUNK_SIZE);
	if (!place(a, size))
		return snd_fail(SND_INVALID_PARAMETER, "%s: an arena of %" PRIu64 " bytes is too small: its tables need %" PRIu64 " at least: ask for more, or raise ulimit -v and -f, which limit the default", op, size,
			a->heap + (uint64_t)MIN_HEAP_CHUNKS * SNDL_CHUNK_SIZE);
	struct rlimit files;
	if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY && size > files.rlim_cur) /* the signal of a too long file ends the process */
		return snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: an arena of %" PRIu64 " bytes, but files of this process have at most %" PRIu64 ": raise ulimit -f, or ask for less",
			op, size, (uint64_t)files.rlim_cur);
	a->ranks = ranks;
	a->host = host;
	a->fd = snd_memory_file("softnd-arena", MFD_ALLOW_SEALING);
	if (a->fd < 0)
		return snd_fail(SND_UNSUCCESSFUL, "%s: memfd_create: %s", op, snd_errno_text(errno));
	snd_status s = SND_SUCCESS;
	if (ftruncate(a->fd, (off_t)size) != 0 || fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 || !snd_identify(a->fd, &a->identity))
		s = snd_fail(SND_UNSUCCESSFUL, "%s: prepare a file of %" PRIu64 " bytes: %s", op, size, snd_errno_text(errno));
	uint64_t random[4];
	if (s == SND_SUCCESS && getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
		s = snd_fail(SND_UNSUCCESSFUL, "%s: getrandom: %s", op, snd_errno_text(errno));
	/* The small tables are reserved as a whole, status pages and blocks of entries when a member claims them. */
	const struct { uint64_t at, length; } tables[] = {
		{0, SNDL_HEADER_PAGE},
		{a->member_table, (uint64_t)SNDL_MEMBERS * SNDL_MEMBER_STRIDE},
		{a->rank_records, (uint64_t)ranks * SNDL_RANK_STRIDE},
		{(uint64_t)(uintptr_t)a->block_owners, (uint64_t)SNDL_WINDOW_BLOCKS * 4},
		{(uint64_t)(uintptr_t)a->number_owners, (uint64_t)SNDL_NUMBER_BLOCKS * 4},
		{(uint64_t)(uintptr_t)a->chunk_owners, a->chunks * 4},
	};
	for (size_t i = 0; s == SND_SUCCESS && i < sizeof tables / sizeof tables[0]; i++)
		if (tables[i].length > 0)
			s = snd_reserve(a, tables[i].at, tables[i].length, op);
	if (s == SND_SUCCESS)
		s = map_all(a, op);
	if (s != SND_SUCCESS) {
		close(a->fd);
		a->fd = -1;
		return s;
	}
	struct snd_header *h = snd_header(a);
	memcpy(a->secret, random, sizeof a->secret);
	memcpy(a->id, random + 2, sizeof a->id);
	struct constants c = {SND_MAGIC, SNDL_LAYOUT_HASH, size, {a->secret[0], a->secret[1]}, {a->id[0], a->id[1]}, 0, ranks, 0, host};
	c.checksum = checksum_of(&c);
	snd_set(&h->magic, c.magic);
	snd_set32(&h->ranks, ranks);
	snd_set32(&h->host, host);
	snd_set(&h->layout, c.layout);
	snd_set(&h->size, size);
	for (int i = 0; i < 2; i++) {
		snd_set(&h->secret[i], c.secret[i]);
		snd_set(&h->id[i], c.id[i]);
	}
	snd_set(&h->checksum, c.checksum);
	snprintf(h->build, sizeof h->build, "%s", SOFTND_BUILD);
	snd_release32(&h->version, SNDL_LAYOUT_VERSION); /* ORDER arena-ready: pairs with the load in check_header */
	return SND_SUCCESS;
}

static void unmap(unsigned char *start, unsigned char *end)
{
	if (start < end)
		munmap(start, (size_t)(end - start));
}

void snd_arena_close(struct snd_arena *a)
{
	if (a->kept != NULL) {
		unmap(a->base, a->kept);
		unmap(a->kept_end, a->base + a->size);
	} else if (a->base != NULL) {
		unmap(a->base, a->base + a->size);
	}
	if (a->fd >= 0)
		snd_close_still(a->fd, &a->identity);
	a->base = NULL;
	a->fd = -1;
}

snd_status snd_arena_lost(const struct snd_arena *a, const char *op)
{
	return snd_fail(SND_DEVICE_REMOVED, "%s: descriptor %d is not the arena: the program has closed it: close only descriptors that the program has opened", op, a->fd);
}

snd_status snd_reserve(struct snd_arena *a, uint64_t offset, uint64_t length, const char *op)
{
	if (!snd_arena_is_ours(a))
		return snd_arena_lost(a, op);
	for (uint64_t done = 0; done < length;) {
		uint64_t left = 0;
		if (!snd_can_reserve(length - done, &left))
			return snd_fail(SND_NO_MEMORY, "%s: %" PRIu64 " bytes, but the machine or a memory cgroup has only %" PRIu64 " left: free memory, raise the limit or ask for less",
				op, length, left + done);
		uint64_t step = length - done < RESERVE_STEP ? length - done : RESERVE_STEP;
		if (fallocate(a->fd, 0, (off_t)(offset + done), (off_t)step) == 0) {
			done += step;
		} else if (errno == ENOSPC || errno == ENOMEM) {
			const char *why = snd_errno_text(errno);
			return snd_fail(SND_NO_MEMORY, "%s: reserve %" PRIu64 " bytes: the kernel's limit on shared memory (fallocate: %s), the machine has %" PRIu64 " left: free memory or ask for less", op,
				length, why, snd_memory_available());
		} else if (errno != EINTR) {
			return snd_fail(SND_UNSUCCESSFUL, "%s: reserve %" PRIu64 " bytes: fallocate: %s", op, length, snd_errno_text(errno));
		}
	}
	dump(a, offset, length, true);
	return SND_SUCCESS;
}

bool snd_release_pages(struct snd_arena *a, uint64_t offset, uint64_t length)
{
	if (!snd_arena_is_ours(a))
		return false;
	dump(a, offset, length, false);
	int r;
	do
		r = fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length);
	while (r != 0 && errno == EINTR);
	if (r == 0)
		return true;
	if (snd_reserve(a, offset, length, "release") != SND_SUCCESS)
		return false;
	memset(a->base + offset, 0, length);
	return true;
}

bool snd_owned(const struct snd_arena *a, uint32_t slot, uint64_t offset, uint64_t length)
{
	if (length == 0 || snd_heap_at(a, offset, length) == NULL)
		return false;
	uint64_t first = (offset - a->heap) / SNDL_CHUNK_SIZE, last = (offset - a->heap + length - 1) / SNDL_CHUNK_SIZE;
	for (uint64_t i = first; i <= last; i++)
		if (snd_relaxed32(&a->chunk_owners[i]) != slot + 1) /* the message that named the memory orders this */
			return false;
	return true;
}

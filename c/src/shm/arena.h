/* The arena: a mapping of the shared file, and the positions of its tables. */
#ifndef SND_ARENA_H
#define SND_ARENA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "softnd/softnd.h"

#include "linux/descriptor.h"
#include "shm/structs.h"

enum { SND_HUGE_PAGE = 2 << 20 }; /* bytes of a huge page, if other pages have SND_PAGE_SIZE */

struct snd_arena {
	unsigned char *base;
	uint64_t size;
	uint64_t heap; /* offset */
	struct snd_access_entry *entries;
	snd_half *chunk_owners;
	snd_half *block_owners;
	snd_half *number_owners;
	uint64_t chunks;
	uint64_t member_table, rank_records, status_pages, window_table, fault_rules, number_table;
	uint64_t secret[2], id[2];
	uint32_t ranks, rules; /* fault rules */
	uint32_t host; /* number of the host in the job */
	unsigned char *kept, *kept_end; /* private memory in place of some of its pages, which outlives the mapping; NULL = none */
	int fd; /* with an open file description of its own */
	snd_word slots_seen; /* highest slots of the header so far: a peer that lowers that hides no member that this process has seen */
	bool dumped; /* core dumps contain what is allocated */
	struct snd_identity identity; /* of fd */
};

/* snd_arena_create makes an arena of a host, whose number is 0 unless the job runs on several. */
snd_status snd_arena_create(struct snd_arena *a, uint32_t ranks, uint32_t host, uint64_t size, const char *op);
/* snd_arena_attach re-opens the file of fd, which stays the caller's. It waits until deadline for the creator. */
snd_status snd_arena_attach(struct snd_arena *a, int fd, int64_t deadline, const char *op);
void snd_arena_close(struct snd_arena *a);
int snd_reopen(int fd);
/* snd_memory_file makes a memory file, with flags of memfd_create beside the usual ones, and returns its descriptor, or -1 with errno. */
int snd_memory_file(const char *name, unsigned flags);
/* snd_other_version fails because processes cannot share an arena. subject names the other build's arena or processes with a
 * verb; build is its name of at most size bytes, which may hold anything; why says what differs. */
#define SND_OTHER_VERSION "arena of another version"
snd_status snd_other_version(const char *subject, const char *build, size_t size, const char *why, const char *op);
#define SOFTND_BUILD "libsoftnd " SOFTND_VERSION
/* snd_own_process_only keeps a mapping of the arena out of forked children and core dumps. */
bool snd_own_process_only(void *at, uint64_t size);

/* snd_arena_is_ours reports whether the descriptor still refers to the arena. */
bool snd_arena_is_ours(const struct snd_arena *a);
/* snd_arena_lost fails because it does not. */
snd_status snd_arena_lost(const struct snd_arena *a, const char *op);
/* snd_reserve allocates the pages of a range, so that an access cannot fail. snd_release returns them. */
snd_status snd_reserve(struct snd_arena *a, uint64_t offset, uint64_t length, const char *op);
bool snd_release_pages(struct snd_arena *a, uint64_t offset, uint64_t length);

static inline struct snd_header *snd_header(const struct snd_arena *a) { return (struct snd_header *)(void *)a->base; }
static inline struct snd_member_record *snd_member(const struct snd_arena *a, uint32_t slot)
{
	return (struct snd_member_record *)(void *)(a->base + a->member_table + (uint64_t)slot * SNDL_MEMBER_STRIDE);
}
static inline struct snd_rank_record *snd_rank(const struct snd_arena *a, uint32_t rank)
{
	return (struct snd_rank_record *)(void *)(a->base + a->rank_records + (uint64_t)rank * SNDL_RANK_STRIDE);
}
static inline struct snd_status_page *snd_page(const struct snd_arena *a, uint32_t slot)
{
	return (struct snd_status_page *)(void *)(a->base + a->status_pages + (uint64_t)slot * SNDL_STATUS_STRIDE);
}

/* snd_at returns the object of length bytes at an offset that a peer may have written; NULL if it is
 * out of bounds or not aligned. */
static inline void *snd_at(const struct snd_arena *a, uint64_t offset, uint64_t length, uint64_t align)
{
	if (offset % align != 0 || offset > a->size || length > a->size - offset)
		return NULL;
	return a->base + offset;
}

/* snd_heap_at returns the bytes at an offset, NULL unless all of them are in the heap. */
static inline unsigned char *snd_heap_at(const struct snd_arena *a, uint64_t offset, uint64_t length)
{
	if (offset < a->heap || offset > a->size || length > a->size - offset)
		return NULL;
	return a->base + offset;
}

/* snd_locate returns the offset of private or arena memory; 0 if it is not, or not entirely, in the arena. */
static inline uint64_t snd_locate(const struct snd_arena *a, const void *p, uint64_t length)
{
	uintptr_t at = (uintptr_t)p, base = (uintptr_t)a->base;
	if (at < base || at - base > a->size || length > a->size - (at - base))
		return 0;
	return at - base;
}

/* snd_owned reports whether the bytes are in chunks of a slot's member, so that their pages are reserved. */
bool snd_owned(const struct snd_arena *a, uint32_t slot, uint64_t offset, uint64_t length);

/* snd_within reports whether [at, at+n) is within [base, base+size). No sum overflows. */
static inline bool snd_within(uint64_t at, uint64_t n, uint64_t base, uint64_t size)
{
	return at >= base && n <= size && at - base <= size - n;
}

/* snd_covers is snd_within for n > 0 and a range that is in memory, so that it does not reach around the end of the addresses. */
static inline bool snd_covers(uint64_t base, uint64_t size, uint64_t at, uint64_t n)
{
	uint64_t left;
	return !__builtin_sub_overflow(size, at - base, &left) && n <= left; /* at - base is more than size if at is below base */
}

#endif

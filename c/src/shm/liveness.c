/* Deaths of members: mark, count, acknowledge, reap. See docs/shared-memory.md, "Life cycles".
 * TWIN shm/liveness.go, shm/watch.go, shm/lost_peer.go, shm/member.go. */
#include "shm/liveness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linux/clock.h"
#include "linux/fork.h"
#include "shm/doorbell.h"
#include "shm/member.h"

#define LOST_PEER_HOLD UINT64_C(1000000000)
#define REAP_TIME INT64_C(20000000) /* then the call of the program continues; the next check reaps the rest */
enum { NEIGHBOURS = 2 };

static struct flock lock_of(const struct snd_arena *a, uint32_t slot, short type)
{
	return (struct flock){.l_type = type, .l_whence = SEEK_SET,
		.l_start = (off_t)(a->member_table + (uint64_t)slot * SNDL_MEMBER_STRIDE), .l_len = 1};
}

bool snd_lock_record(int fd, const struct snd_arena *a, uint32_t slot)
{
	struct flock l = lock_of(a, slot, F_WRLCK);
	return fcntl(fd, F_OFD_SETLK, &l) == 0;
}

void snd_unlock_record(int fd, const struct snd_arena *a, uint32_t slot)
{
	struct flock l = lock_of(a, slot, F_UNLCK);
	(void)fcntl(fd, F_OFD_SETLK, &l);
}

/* is_locked reports whether a member holds the lock on a record. Without proof no member counts as dead. */
static bool is_locked(const struct snd_arena *a, uint32_t slot)
{
	struct flock l = lock_of(a, slot, F_WRLCK);
	if (fcntl(a->fd, F_OFD_GETLK, &l) != 0)
		return true;
	return l.l_type != F_UNLCK || !snd_arena_is_ours(a); /* after the query: the lock of another file proves nothing */
}

uint64_t snd_not_counted(uint32_t incarnation) { return UINT64_C(1) << 63 | incarnation; }

uint64_t snd_deaths(const struct snd_fabric *f)
{
	return snd_load(&snd_header(&f->arena)->deaths); /* ORDER death-count: before the records are read; pairs with the addition in snd_count_death */
}

static bool counted(const struct snd_fabric *f, uint64_t epoch) { return epoch != 0 && epoch <= snd_deaths(f); }

bool snd_mark_dead(struct snd_fabric *f, uint32_t slot, uint64_t id)
{
	struct snd_member_record *r = snd_member(&f->arena, slot);
	uint64_t state = snd_load(&r->state);
	return snd_state_status(state) == SNDL_STATUS_LIVE && snd_member_id(slot, snd_state_incarnation(state)) == id &&
		atomic_compare_exchange_strong(&r->state, &state, snd_state_of(SNDL_STATUS_DEAD, snd_state_incarnation(state))); /* ORDER member-dead: pairs with the load in snd_peer_gone */
}

/* snd_count_death counts the death of a dead record, if it is not counted yet. first says that this process
 * marked it: the death then counts whatever death_epoch says. */
bool snd_count_death(struct snd_fabric *f, uint32_t slot, bool first)
{
	struct snd_member_record *r = snd_member(&f->arena, slot);
	uint64_t epoch = snd_load(&r->death_epoch); /* before the state: if the record is still dead, this is not the next owner's epoch */
	if (snd_state_status(snd_load(&r->state)) != SNDL_STATUS_DEAD || (!first && counted(f, epoch)))
		return false;
	snd_use_slot(&f->arena, slot); /* this process may know the member only from a connection */
	uint64_t n = atomic_fetch_add(&snd_header(&f->arena)->deaths, 1) + 1; /* ORDER death-count: after the mark; pairs with the load in snd_deaths */
	atomic_compare_exchange_strong(&r->death_epoch, &epoch, n);           /* ORDER death-epoch: pairs with the load in reap_dead */
	return true;
}

bool snd_has_next_owner(const struct snd_peer *p)
{
	const uint64_t epoch = snd_load(&p->record->death_epoch); /* ORDER next-owner: after the rest; pairs with the store in take */
	const uint64_t state = snd_load(&p->record->state); /* after the epoch, which changes again when the next owner has been live */
	return epoch == snd_not_counted(snd_member_incarnation(p->id) + 1) || snd_member_id(snd_member_slot(p->id), snd_state_incarnation(state)) != p->id;
}

bool snd_process_runs(const struct snd_peer *p)
{
	char path[40], line[512];
	if (!snd_is_own_pid_namespace(snd_load(&p->record->pid_ns)))
		return false;
	snprintf(path, sizeof path, "/proc/%" PRIu32 "/stat", snd_load32(&p->record->pid));
	FILE *f = snd_open_text(path);
	if (f == NULL)
		return false;
	const char *name_end = fgets(line, sizeof line, f) != NULL ? strrchr(line, ')') : NULL;
	fclose(f);
	return name_end != NULL && strlen(name_end) > 2 && name_end[2] != 'Z' && name_end[2] != 'X'; /* ended, and perhaps not awaited yet */
}

void snd_wake_all(struct snd_fabric *f)
{
	const uint32_t slots = snd_used_slots(&f->arena);
	for (uint32_t slot = 0; slot < slots; slot++) {
		struct snd_member_record *r = snd_member(&f->arena, slot);
		if (snd_state_status(snd_load(&r->state)) == SNDL_STATUS_LIVE) {
			snd_wake_doorbell(&r->waiters);
			snd_wake_doorbell(&r->engine);
		}
	}
}

bool snd_is_alive(struct snd_fabric *f, const struct snd_peer *p, bool *died)
{
	if (snd_peer_gone(p))
		return false;
	if (p->id == f->id)
		return true;
	if (is_locked(&f->arena, snd_member_slot(p->id)))
		return !snd_peer_gone(p); /* if gone, the lock is that of the record's next owner */
	if (snd_count_death(f, snd_member_slot(p->id), snd_mark_dead(f, snd_member_slot(p->id), p->id)))
		*died = true;
	return false;
}

bool snd_check_alive(struct snd_fabric *f, const struct snd_peer *p)
{
	bool died = false;
	const bool alive = snd_is_alive(f, p, &died);
	if (died)
		snd_wake_all(f);
	return alive;
}

void snd_request_liveness_checks(struct snd_fabric *f)
{
	int n = 0;
	const uint32_t slots = snd_used_slots(&f->arena);
	for (uint32_t i = 1; i < slots && n < NEIGHBOURS; i++) {
		struct snd_peer p;
		if (!snd_peer_in_slot(f, (f->slot + slots - i) % slots, &p))
			continue;
		atomic_fetch_add(&p.record->liveness_requests, 1); /* ORDER liveness-request: before the ring; pairs with the load in snd_housekeep */
		snd_ring_peer(f, &p);
		n++;
	}
}

uint32_t snd_check_neighbours(struct snd_fabric *f, uint64_t *neighbours, bool *died)
{
	uint32_t n = 0;
	struct snd_peer p;
	const uint32_t slots = snd_used_slots(&f->arena);
	for (uint32_t i = 1; i < slots && n < NEIGHBOURS; i++)
		if (snd_peer_in_slot(f, (f->slot + i) % slots, &p) && snd_is_alive(f, &p, died))
			neighbours[n++] = p.id;
	for (uint32_t i = 0; i < slots; i++) {
		f->last_checked = (f->last_checked + 1) % slots;
		if (snd_peer_in_slot(f, f->last_checked, &p) && p.id != f->id) {
			snd_is_alive(f, &p, died);
			break;
		}
	}
	return n;
}

/* repair stores a valid dead state if a peer has overwritten this member's own: the others then handle it like any death. */
static void repair(struct snd_fabric *f)
{
	struct snd_peer self = {.id = f->id, .record = f->record};
	uint32_t incarnation = snd_member_incarnation(f->id);
	uint64_t dead = snd_state_of(SNDL_STATUS_DEAD, incarnation);
	if (!snd_peer_gone(&self))
		return;
	f->marked_dead = true;
	if (snd_load(&f->record->state) != dead) {
		snd_set(&f->record->death_epoch, snd_not_counted(incarnation));
		snd_store_full(&f->record->state, dead); /* ORDER member-dead: pairs with the load in snd_peer_gone */
	}
}

/* free_words frees the words of a table of owners that name a dead member. */
static void free_words(snd_half *words, uint64_t count, uint32_t self)
{
	for (uint64_t i = 0; i < count; i++) {
		uint32_t owner = self;
		if (snd_load32(&words[i]) == owner)
			atomic_compare_exchange_strong(&words[i], &owner, 0); /* ORDER owned: pairs with the swap in claim */
	}
}

/* reap reclaims what a dead member owned, and frees its record. */
static void reap(struct snd_fabric *f, uint32_t slot, uint64_t state)
{
	struct snd_arena *a = &f->arena;
	/* A description of its own: a lock of this process must exclude its other fabrics as well. */
	snd_fork_hold(); /* a child would keep the lock */
	int fd = snd_reopen(a->fd);
	if (fd < 0) {
		snd_fork_release();
		return;
	}
	struct snd_member_record *r = snd_member(a, slot);
	if (snd_arena_is_ours(a) && snd_lock_record(fd, a, slot)) {
		bool clean = true;
		if (snd_load(&r->state) == state) {
			for (uint64_t i = 0; i < a->chunks;) {
				uint64_t run = 0;
				while (i + run < a->chunks && snd_load32(&a->chunk_owners[i + run]) == slot + 1)
					run++;
				if (run > 0 && !snd_release_pages(a, a->heap + i * SNDL_CHUNK_SIZE, run * SNDL_CHUNK_SIZE)) {
					clean = false;
				} else {
					for (uint64_t k = i; k < i + run; k++) {
						uint32_t owner = slot + 1;
						atomic_compare_exchange_strong(&a->chunk_owners[k], &owner, 0); /* ORDER owned: pairs with the swap in claim */
					}
				}
				i += run + 1;
			}
			free_words(a->block_owners, SNDL_WINDOW_BLOCKS, slot + 1);
			free_words(a->number_owners, SNDL_NUMBER_BLOCKS, slot + 1);
			if (clean)
				atomic_compare_exchange_strong(&r->state, &state, snd_state_of(SNDL_STATUS_FREE, snd_state_incarnation(state)));
		}
		snd_unlock_record(fd, a, slot);
	}
	(void)close(fd);
	snd_fork_release();
}

static void reap_dead(struct snd_fabric *f)
{
	const int64_t end = snd_clock() + REAP_TIME;
	uint64_t seen = UINT64_MAX;
	const uint32_t slots = snd_used_slots(&f->arena);
	for (uint32_t slot = 0; slot < slots; slot++) {
		struct snd_member_record *r = snd_member(&f->arena, slot);
		if (snd_state_status(snd_load(&r->state)) == SNDL_STATUS_LIVE) {
			uint64_t n = snd_load(&r->deaths_seen); /* ORDER death-seen: pairs with the swap in acknowledge */
			seen = n < seen ? n : seen;
		}
	}
	for (uint32_t slot = 0; slot < slots; slot++) {
		struct snd_member_record *r = snd_member(&f->arena, slot);
		uint64_t state = snd_load(&r->state), epoch = snd_load(&r->death_epoch); /* ORDER death-epoch: pairs with the swap in snd_count_death */
		if (snd_state_status(state) != SNDL_STATUS_DEAD || !counted(f, epoch) || epoch > seen)
			continue;
		reap(f, slot, state);
		if (snd_clock() > end)
			return;
	}
}

void snd_acknowledge_deaths(struct snd_fabric *f, void (*release)(struct snd_fabric *, uint64_t id))
{
	bool died = false;
	repair(f);
	uint32_t slots = snd_used_slots(&f->arena);
	for (uint32_t slot = 0; slot < slots; slot++)
		died = snd_count_death(f, slot, false) || died;
	if (died)
		snd_wake_all(f);
	uint64_t seen = snd_deaths(f);
	slots = snd_used_slots(&f->arena); /* behind the number of deaths: a member may have joined and died since the first walk */
	for (uint32_t slot = 0; slot < slots; slot++) {
		uint64_t state = snd_load(&snd_member(&f->arena, slot)->state);
		if (snd_state_status(state) == SNDL_STATUS_DEAD)
			release(f, snd_member_id(slot, snd_state_incarnation(state)));
	}
	/* A death that was counted during this loop has a higher number than seen. */
	uint64_t noted = snd_load(&f->record->deaths_seen);
	while (noted < seen && !atomic_compare_exchange_strong(&f->record->deaths_seen, &noted, seen)) { /* ORDER death-seen: pairs with the load in reap_dead */
	}
	reap_dead(f);
}

void snd_record_lost_peer(struct snd_fabric *f, uint64_t peer)
{
	if (f->rank < 0 || (uint32_t)f->rank >= f->arena.ranks)
		return;
	struct snd_rank_record *r = snd_rank(&f->arena, (uint32_t)f->rank);
	uint64_t now = (uint64_t)(snd_clock() - f->clock_ahead), last = snd_load(&r->lost_peer_at);
	if (now - last < LOST_PEER_HOLD || !atomic_compare_exchange_strong(&r->lost_peer_at, &last, now))
		return;
	snd_set(&r->lost_peer, peer); /* readers wait for the end of this process */
}

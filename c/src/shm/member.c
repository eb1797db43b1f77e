/* TWIN shm/member.go, shm/lock_page_unsafe.go. */
#include "shm/member.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "linux/fork.h"
#include "linux/memory_limit.h"
#include "shm/doorbell.h"
#include "shm/liveness.h"

uint64_t snd_pid_namespace(void)
{
	struct stat st;
	return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

bool snd_is_own_pid_namespace(uint64_t ns) { return ns != 0 && ns == snd_pid_namespace(); }

/* map_lock_page maps one page through the description that has the lock. The lock lasts as long as the
 * mapping, which neither a close by mistake nor a forked child can touch. */
static void *map_lock_page(int fd)
{
	void *at = mmap(NULL, SNDL_HEADER_PAGE, PROT_NONE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return NULL;
	if (madvise(at, SNDL_HEADER_PAGE, MADV_DONTFORK) != 0) {
		munmap(at, SNDL_HEADER_PAGE);
		return NULL;
	}
	return at;
}

void snd_use_slot(struct snd_arena *a, uint32_t slot)
{
	const uint64_t want = (uint64_t)slot + 1;
	snd_word *slots = &snd_header(a)->slots;
	uint64_t seen = snd_load(&a->slots_seen), used = snd_load(slots);
	while (seen < want && !atomic_compare_exchange_strong(&a->slots_seen, &seen, want)) {
	}
	/* Members only raise it; a peer that lowers it all the time must not hold this process. */
	for (uint32_t i = 0; i < SNDL_MEMBERS && used < want; i++)
		if (atomic_compare_exchange_strong(slots, &used, want)) /* ORDER member-slots: before the load of deaths in take; pairs with the load in snd_used_slots */
			return;
}

uint32_t snd_used_slots(struct snd_arena *a)
{
	uint64_t used = snd_load(&snd_header(a)->slots), seen = snd_load(&a->slots_seen); /* ORDER member-slots: pairs with the exchange in snd_use_slot */
	used = used < SNDL_MEMBERS ? used : SNDL_MEMBERS;
	used = used > a->ranks ? used : a->ranks;
	if (used < seen) {
		snd_use_slot(a, (uint32_t)seen - 1);
		return (uint32_t)seen;
	}
	if (used > seen)
		(void)atomic_compare_exchange_strong(&a->slots_seen, &seen, used); /* another thread may have stored as much */
	return (uint32_t)used;
}

/* take tries to take the record of a slot. Only the holder of the lock on a record may make it live. */
static snd_status take(struct snd_fabric *f, int fd, uint32_t slot, void (*prepare)(struct snd_fabric *), bool *taken, const char *op)
{
	struct snd_arena *a = &f->arena;
	struct snd_member_record *r = snd_member(a, slot);
	*taken = false;
	if (snd_state_status(snd_load(&r->state)) != SNDL_STATUS_FREE || !snd_lock_record(fd, a, slot))
		return SND_SUCCESS;
	uint64_t state = snd_load(&r->state);
	if (snd_state_status(state) != SNDL_STATUS_FREE) {
		snd_unlock_record(fd, a, slot);
		return SND_SUCCESS;
	}
	snd_status s = snd_reserve(a, a->status_pages + (uint64_t)slot * SNDL_STATUS_STRIDE, SNDL_STATUS_STRIDE, op);
	if (s == SND_SUCCESS && (f->lock_page = map_lock_page(fd)) == NULL)
		s = snd_no_memory(SNDL_HEADER_PAGE, "mmap of the page that holds the member's lock", op);
	if (s != SND_SUCCESS) {
		snd_unlock_record(fd, a, slot);
		return s;
	}
	uint32_t incarnation = snd_state_incarnation(state) + 1;
	f->slot = slot;
	f->id = snd_member_id(slot, incarnation);
	f->record = r;
	f->page = snd_page(a, slot);
	f->last_checked = slot;
	f->traffic = (struct snd_traffic){snd_relaxed(&r->bytes), snd_relaxed(&r->requests)};
	/* First: if this process dies before the record is live, the record shows that the other words are not the last owner's. */
	snd_store_full(&r->death_epoch, snd_not_counted(incarnation)); /* ORDER next-owner: before the rest; pairs with the load in snd_has_next_owner */
	prepare(f);
	snd_set32(&r->pid, (uint32_t)getpid());
	snd_set(&r->pid_ns, snd_pid_namespace());
	snd_set32(&r->rank, (uint32_t)(f->rank + 1));
	snd_set(&r->inbox, 0);
	snd_set(&r->names, 0);
	snd_set32(&r->waiters.armed, 0);
	snd_set32(&r->engine.armed, 0);
	snd_use_slot(a, slot);
	snd_set(&r->deaths_seen, snd_load(&snd_header(a)->deaths)); /* before the record is live: this member must acknowledge later deaths */
	snd_store_full(&r->state, snd_state_of(SNDL_STATUS_LIVE, incarnation)); /* ORDER member-live: pairs with the load in snd_peer_gone */
	*taken = true;
	return SND_SUCCESS;
}

snd_status snd_join(struct snd_fabric *f, int32_t rank, void (*prepare)(struct snd_fabric *), const char *op)
{
	struct snd_arena *a = &f->arena;
	if (rank < -1 || (rank >= 0 && (uint32_t)rank >= (a->ranks > 0 ? a->ranks : 1)))
		return snd_fail(SND_INVALID_PARAMETER, "%s: rank %" PRId32 " of a group of size %" PRIu32 ": pass 0 to %" PRId64 ", or -1 for none", op, rank, a->ranks, (int64_t)a->ranks - 1);
	snd_membarrier_register();
	f->rank = rank;
	if (getrandom(&f->mark, sizeof f->mark, 0) != (ssize_t)sizeof f->mark)
		f->mark = (uint32_t)getpid();
	f->mark |= 2; /* neither unarmed nor armed */
	snd_fork_hold(); /* until the lock depends on the page alone */
	int fd = snd_reopen(a->fd);
	if (fd < 0) {
		snd_fork_release();
		return snd_fail(SND_UNSUCCESSFUL, "%s: re-open the arena: %s", op, snd_errno_text(errno));
	}
	uint32_t start = rank >= 0 ? (uint32_t)rank : a->ranks; /* leave the slots below to the ranks */
	bool taken = false;
	snd_status s = SND_SUCCESS;
	for (uint32_t i = 0; i < SNDL_MEMBERS && s == SND_SUCCESS && !taken; i++)
		s = take(f, fd, (start + i) % SNDL_MEMBERS, prepare, &taken, op);
	close(fd);
	snd_fork_release();
	if (s != SND_SUCCESS)
		return s;
	if (!taken)
		return snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: all %u member records are taken", op, SNDL_MEMBERS);
	if (!snd_heap_init(&f->heap, a, f->slot)) {
		snd_leave(f);
		return snd_no_memory(a->chunks * sizeof *f->heap.chunks, "private memory", op);
	}
	snd_request_liveness_checks(f);
	return SND_SUCCESS;
}

void snd_mark_rank(struct snd_fabric *f, uint64_t bit)
{
	if (f->rank < 0 || (uint32_t)f->rank >= f->arena.ranks)
		return;
	struct snd_rank_record *r = snd_rank(&f->arena, (uint32_t)f->rank);
	uint64_t word = snd_load(&r->member);
	while ((word & SND_RANK_MEMBER) == f->id)
		if (atomic_compare_exchange_strong(&r->member, &word, word | bit)) /* ORDER rank-left: pairs with the second load in holder_died */
			return;
}

void snd_leave(struct snd_fabric *f)
{
	if (f->lock_page == NULL)
		return;
	snd_mark_rank(f, SND_RANK_LEFT); /* before another process can mark the record dead */
	munmap(f->lock_page, SNDL_HEADER_PAGE); /* before the mark: no process reaps a record whose lock is held */
	f->lock_page = NULL;
	if (snd_count_death(f, f->slot, snd_mark_dead(f, f->slot, f->id))) {
		const uint32_t slots = snd_used_slots(&f->arena);
		for (uint32_t slot = 0; slot < slots; slot++) {
			struct snd_member_record *r = snd_member(&f->arena, slot);
			if (snd_state_status(snd_load(&r->state)) == SNDL_STATUS_LIVE)
				snd_ring(f, &r->waiters);
		}
		snd_request_liveness_checks(f);
	}
	snd_heap_end(&f->heap);
}

static struct snd_peer new_peer(uint64_t id, struct snd_member_record *r)
{
	struct snd_peer p = {id, r, snd_load32(&r->rank), snd_load32(&r->pid), snd_load(&r->pid_ns)};
	const uint64_t state = snd_load(&r->state); /* after what the next owner changes */
	if (snd_state_status(state) == SNDL_STATUS_FREE || snd_state_incarnation(state) != snd_member_incarnation(id))
		p = (struct snd_peer){.id = id, .record = r};
	return p;
}

bool snd_peer_of(const struct snd_fabric *f, uint64_t id, struct snd_peer *p)
{
	uint32_t slot = snd_member_slot(id), incarnation = snd_member_incarnation(id);
	if (slot >= SNDL_MEMBERS || id >> 48 != 0)
		return false;
	struct snd_member_record *r = snd_member(&f->arena, slot);
	if (incarnation == 0 || incarnation > snd_state_incarnation(snd_load(&r->state)))
		return false;
	*p = new_peer(id, r);
	return true;
}

bool snd_peer_in_slot(const struct snd_fabric *f, uint32_t slot, struct snd_peer *p)
{
	if (slot >= SNDL_MEMBERS)
		return false;
	struct snd_member_record *r = snd_member(&f->arena, slot);
	uint64_t state = snd_load(&r->state);
	if (snd_state_status(state) != SNDL_STATUS_LIVE)
		return false;
	*p = new_peer(snd_member_id(slot, snd_state_incarnation(state)), r);
	return true;
}

bool snd_peer_owns(const struct snd_fabric *f, const struct snd_peer *p, uint64_t offset, uint64_t length)
{
	return snd_owned(&f->arena, snd_member_slot(p->id), offset, length);
}

void snd_peer_name(const struct snd_peer *p, char *text, size_t size)
{
	if (p->rank_word != 0)
		snprintf(text, size, "rank %" PRIu32 " (pid %" PRIu32 ")", p->rank_word - 1, p->pid);
	else if (p->pid != 0)
		snprintf(text, size, "member %" PRIu32 ".%" PRIu32 " (pid %" PRIu32 ")", snd_member_slot(p->id), snd_member_incarnation(p->id), p->pid);
	else
		snprintf(text, size, "member %" PRIu32 ".%" PRIu32, snd_member_slot(p->id), snd_member_incarnation(p->id));
}

int32_t snd_rank_of(const struct snd_fabric *f, uint64_t member)
{
	struct snd_peer p;
	if (!snd_peer_of(f, member, &p))
		return -1;
	return p.rank_word >= 1 && p.rank_word <= SNDL_RANKS ? (int32_t)p.rank_word - 1 : -1;
}

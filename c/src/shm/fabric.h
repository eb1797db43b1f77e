/* A fabric: this process's membership in an arena, and everything that belongs to it. One lock guards it
 * all: a call of the program holds it from its check of the handle to its return, except while it waits. */
#ifndef SND_FABRIC_H
#define SND_FABRIC_H

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "error.h"
#include "linux/membarrier.h"
#include "list.h"
#include "shm/arena.h"
#include "shm/heap.h"
#include "shm/object.h"
#include "window/table.h"

/* snd_peer refers to a member of the arena. It stays valid after the member's death. */
struct snd_peer {
	uint64_t id;
	struct snd_member_record *record;
};

/* snd_work is cleanup that waits for an event elsewhere. run is called until it returns true. */
struct snd_work {
	struct snd_link link;
	bool (*run)(struct snd_work *);
};

/* snd_joiner is a connection of a process that joins a named fabric. */
struct snd_joiner {
	int socket; /* -1 = none */
	int64_t deadline;
};
enum { SND_JOINERS = 8, SND_REQUEST_LISTS = 1024, SND_STAGING = 16 << 10 };

/* snd_call is a call that waits. Observers see it. */
struct snd_call {
	struct snd_link link; /* of the fabric, while the call sleeps */
	const char *op;
	const char *object; /* of the call, for messages; NULL = none */
	uint64_t peer;      /* the member that the call waits for; 0 = no particular one */
	uint64_t queue;     /* number of the completion queue at which the call waits; 0 = none */
	uint64_t round;     /* number of the ranks' barrier; 0 = the call is no barrier */
	int64_t since;
};

/* snd_spin is waiter.Spin: it adapts the spins of waits to the outcome of the earlier ones. All 0 begins with the full number of rounds. */
struct snd_spin {
	uint32_t halvings, rest, doublings;
};

struct snd_fabric {
	struct snd_object object;
	/* These outlive the fabric: a call that comes too late may still lock the mutex, and then finds its handle closed. */
	enum { SND_LOCK_NONE, SND_LOCK_BIASED, SND_LOCK_MUTEX, SND_LOCK_WATCHED } lock;
	snd_half user;         /* SND_LOCK_WATCHED: the thread of the program that holds the mutex, or is in a wait; 0 = none */
	bool crossed;          /* SND_LOCK_WATCHED: calls of two threads have met, and that is reported */
	bool has_mutex;
	pthread_mutex_t mutex;

	snd_half inside; /* of a biased lock: the program is in a call, or about to look at wanted */
	snd_half wanted; /* the engine holds the lock, or waits for the program */
	bool slow;       /* the program holds the mutex instead */
	bool closed;       /* no call may begin, and waits end */
	bool of_job;       /* snd_job_close closes it */
	bool marked_dead;  /* a peer has marked this live member dead */
	bool target;       /* the responder copies */
	bool check_payloads; /* of all endpoints */
	int64_t receive_timeout;
	int64_t disconnect_timeout;
	struct snd_arena arena;

	/* Membership. */
	uint64_t id;
	uint32_t slot;
	int32_t rank; /* -1: none */
	struct snd_member_record *record;
	struct snd_status_page *page;
	void *lock_page; /* keeps the lock on the record */
	uint32_t mark;   /* of this process, in doorbells that it rings */

	/* Waits. */
	uint32_t sleepers; /* threads that sleep on the wait doorbell, or are about to */
	uint32_t calls;    /* threads in a wait */
	uint32_t drains;   /* of these, for the end of a peer's copy, which no ring announces */

	/* Housekeeping. */
	uint64_t deaths;        /* arena's number at the last liveness check */
	uint32_t liveness_seen; /* requests at the last liveness check */
	uint32_t last_checked;  /* slot */
	int64_t last_housekeeping;
	uint32_t processes; /* that share the cores */
	uint32_t cores;
	uint32_t spin_budget; /* of the options */
	struct snd_spin spin; /* of the waits */
	uint64_t progress_made;

	/* The status page. Its times, and those of rank records, are of the host's clock, which may be another than snd_clock. */
	int64_t clock_ahead;
	struct snd_link waiting; /* calls that sleep */
	uint64_t progress_mark;  /* see mark_of */
	int64_t progress_at;
	int64_t published_at; /* 0: there was progress since, or a call has begun */
	int64_t status_at;    /* of the last update */

	struct snd_heap heap;
	struct snd_mapped *mapped; /* the mapping of the arena, see mr_allocation.c */
	snd_half released; /* number of allocations that the fabric has to free, see mr_allocation.c */
	struct snd_table table;

	struct snd_link adapters, endpoints, closing, connections, listeners, connectors, queues, closing_queues, shared_queues, regions, windows;
	struct snd_link work;
	struct snd_link requests[SND_REQUEST_LISTS]; /* connections that peers have requested, by the place of the record */
	uint32_t adapters_opened;
	uint64_t endpoints_created, queues_created, invalidatables_created;
	const uint32_t *addresses; /* of the ranks of a job over several hosts, for messages; NULL = none, or not known yet */
	uint32_t addressed;        /* their number */
	unsigned char *ports; /* a bit for each port in use */
	uint16_t next_port;

	struct snd_faults *faults; /* rules of the fault plan about this member; NULL = none */

	const struct snd_limits *limits; /* of its adapters */

	/* A weak order, see weak.h. */
	bool weak_order;
	uint64_t weak_seed;          /* of the job, and from snd_weak_begin on of this member */
	uint64_t weak_events;        /* calls of snd_weak_delay_event */
	uint64_t weak_engine_rounds; /* how often the engine has driven an endpoint: if it has, the time has a part in the order */

	/* Of a named fabric. */
	int socket; /* that listens; -1 = none */
	struct snd_identity socket_identity;
	struct snd_joiner joiners[SND_JOINERS];
	uint32_t next_joiner; /* its place is the oldest one's */

	/* The engine: a thread that makes progress when the program does not. */
	bool has_engine, engine_runs;
	struct snd_watch *watch; /* the thread that looks for ended processes; NULL without an engine */
	bool engine_armed; /* its doorbell is armed */
	snd_half event_fds; /* completion queues whose program may sleep in poll or epoll */
	snd_half quit;
	snd_word activity; /* changes when the program polls or waits */
	pthread_t engine;

	unsigned char staging[SND_STAGING]; /* see integrity.c; last, so that the members above are near each other */
};

enum { SND_LINE = 64 };
/* snd_alloc_lines returns private memory that begins a cache line, and is not zeroed; free frees it. So not chance decides how many
 * lines a small request touches. */
static inline void *snd_alloc_lines(size_t size) { return aligned_alloc(SND_LINE, (size + SND_LINE - 1) / SND_LINE * SND_LINE); }

/* progress_engine.c */
snd_status snd_engine_start(struct snd_fabric *f, const char *op);
void snd_engine_stop(struct snd_fabric *f);
void snd_lock_contended(struct snd_fabric *f);
/* snd_wake_progress makes a wait, or else the engine, drive the endpoints: work has come up that no peer announces. */
void snd_wake_progress(struct snd_fabric *f);

/* snd_lock_watched locks the mutex of a fabric that has no SND_THREAD_SAFE, and reports if another thread is in a call. */
void snd_lock_watched(struct snd_fabric *f);
void snd_unlock_watched(struct snd_fabric *f);
static inline void snd_lock_mutex(struct snd_fabric *f)
{
	if (f->lock == SND_LOCK_WATCHED)
		snd_lock_watched(f);
	else
		pthread_mutex_lock(&f->mutex);
}

/* snd_lock is what each call of the program begins with. Without an engine and with calls of one thread at a time
 * there is nothing to exclude. With an engine, the program is the frequent side of a biased lock. */
static inline void snd_lock(struct snd_fabric *f)
{
	if (snd_likely(f->lock == SND_LOCK_NONE))
		return;
	if (f->lock >= SND_LOCK_MUTEX) {
		snd_lock_mutex(f);
		return;
	}
	snd_set32(&f->inside, 1);
	snd_light(); /* ORDER engine: between the store of inside and the load of wanted; pairs with snd_heavy in engine_lock */
	if (snd_unlikely(snd_acquire32(&f->wanted) != 0))
		snd_lock_contended(f);
}
static inline void snd_unlock(struct snd_fabric *f)
{
	if (snd_likely(f->lock == SND_LOCK_NONE))
		return;
	if (f->lock >= SND_LOCK_MUTEX || snd_unlikely(f->slow)) {
		f->slow = false;
		if (f->lock == SND_LOCK_WATCHED)
			snd_unlock_watched(f);
		pthread_mutex_unlock(&f->mutex);
		return;
	}
	snd_release32(&f->inside, 0);
}

/* snd_enter begins a call on a handle: it locks the fabric of an open object. While a thread waits for the mutex, another
 * one may close the handle, or the fabric. */
SND_FAST bool snd_enter(const struct snd_object *o, enum snd_type type)
{
	if (snd_unlikely(o == NULL || __atomic_load_n(&o->magic, __ATOMIC_RELAXED) != SND_MAGIC_OF(type)))
		return false;
	struct snd_fabric *f = snd_fabric_of(o);
	snd_lock(f);
	if (snd_likely(f->lock != SND_LOCK_MUTEX || (snd_has_magic(o, type) && snd_fabric_of(o) == f && !f->closed)))
		return true;
	snd_unlock(f);
	return false;
}

#define SND_OBJECT(h) ((struct snd_object *)(void *)(h))
/* SND_ENTER returns from a call whose handle is bad. Otherwise the call has the lock. */
#define SND_ENTER(h, type, op) \
	do { \
		if (snd_unlikely(!snd_enter(SND_OBJECT(h), type))) \
			return snd_bad_handle(op, #h); \
	} while (0)
/* SND_GET is the body of a call that returns a value of an object, and other if the handle is bad. */
#define SND_GET(h, type, op, value_type, value, other) \
	do { \
		if (snd_unlikely(!snd_enter(SND_OBJECT(h), type))) { \
			(void)snd_bad_handle(op, #h); \
			return (other); \
		} \
		value_type got = (value); \
		snd_unlock((h)->object.fabric); \
		return got; \
	} while (0)
/* SND_CHECK is the first statement of a call that checks its other arguments before it enters. */
#define SND_CHECK(h, type, op) \
	do { \
		if (snd_unlikely((h) == NULL || !snd_has_magic(SND_OBJECT(h), type))) \
			return snd_bad_handle(op, #h); \
	} while (0)

/* SND_CHECK_TIMEOUT refuses a negative time limit other than SND_FOREVER. Each call that has a time limit begins with it. */
#define SND_CHECK_TIMEOUT(timeout, op) \
	do { \
		if (snd_unlikely((timeout) < SND_FOREVER)) \
			return snd_fail(SND_INVALID_PARAMETER, "%s: timeout %" PRId64 ": pass nanoseconds, 0 or SND_FOREVER", op, timeout); \
	} while (0)

static inline snd_status snd_leave_with(struct snd_fabric *f, snd_status s)
{
	snd_unlock(f);
	return s;
}

/* snd_belongs reports whether another handle of a call is open and of the same fabric, whose lock the caller has. */
static inline bool snd_belongs(struct snd_fabric *f, const void *handle, enum snd_type type)
{
	const struct snd_object *o = handle;
	return o != NULL && snd_has_magic(o, type) && snd_fabric_of(o) == f;
}

/* snd_new makes an object of the fabric. The caller has the lock. */
static inline void *snd_new(struct snd_fabric *f, enum snd_type type, size_t size)
{
	return snd_object_new(type, size, sizeof(struct snd_object), f, f->object.safe);
}

/* provider.c */
/* snd_fabric_begin makes a fabric that has no arena, and stores NULL into the program's handle. */
snd_status snd_fabric_begin(const snd_fabric_options *options, snd_fabric **handle, struct snd_fabric **fabric, const char *op);
void snd_close_fabric(struct snd_fabric *f);
snd_status snd_fabric_finish(struct snd_fabric *f, snd_status s, int32_t rank, snd_fabric **fabric, const char *op);

/* member.c */
snd_status snd_join(struct snd_fabric *f, int32_t rank, const char *op);
void snd_leave(struct snd_fabric *f);
/* snd_mark_rank sets a bit in the word of the fabric's rank, unless another member has taken the rank. */
void snd_mark_rank(struct snd_fabric *f, uint64_t bit);
/* snd_pid_namespace returns the inode of this process's PID namespace, 0 if /proc does not show it. */
uint64_t snd_pid_namespace(void);
/* snd_peer_of returns the peer of an identity that a peer may have written; false if no member can have it. */
bool snd_peer_of(const struct snd_fabric *f, uint64_t id, struct snd_peer *p);
bool snd_peer_in_slot(const struct snd_fabric *f, uint32_t slot, struct snd_peer *p);
bool snd_peer_owns(const struct snd_fabric *f, const struct snd_peer *p, uint64_t offset, uint64_t length);
void snd_peer_name(const struct snd_peer *p, char *text, size_t size);
static inline bool snd_peer_gone(const struct snd_peer *p)
{
	uint64_t s = snd_load(&p->record->state); /* ORDER member-live, member-dead: pairs with the stores in take, snd_mark_dead and repair */
	return snd_unlikely(snd_state_status(s) != SNDL_STATUS_LIVE ||
		snd_member_id(snd_member_slot(p->id), snd_state_incarnation(s)) != p->id);
}

/* liveness.c */
bool snd_lock_record(int fd, const struct snd_arena *a, uint32_t slot);
void snd_unlock_record(int fd, const struct snd_arena *a, uint32_t slot);
/* snd_check_alive reports whether the peer's process still runs, and marks the peer dead if it does not. */
bool snd_check_alive(struct snd_fabric *f, const struct snd_peer *p);
/* snd_is_alive is that for a caller that checks several members. It sets died instead of waking all members, which the caller
 * does once: a hostile process can make thousands of records look alive. */
bool snd_is_alive(struct snd_fabric *f, const struct snd_peer *p, bool *died);
bool snd_mark_dead(struct snd_fabric *f, uint32_t slot, uint64_t id);
/* snd_process_runs reports whether the process that has or had a member's record still runs, whether it is a member or not. */
bool snd_process_runs(const struct snd_peer *p);
bool snd_count_death(struct snd_fabric *f, uint32_t slot, bool first);
void snd_request_liveness_checks(struct snd_fabric *f);
void snd_check_liveness(struct snd_fabric *f);
/* snd_housekeep does the periodic work if it is due. */
void snd_housekeep(struct snd_fabric *f, int64_t now);
/* snd_idle_time is how long a thread may sleep while nothing is under way. */
int64_t snd_idle_time(const struct snd_fabric *f);
uint64_t snd_not_counted(uint32_t incarnation);
void snd_record_lost_peer(struct snd_fabric *f, uint64_t peer);

/* doorbell.c */
void snd_ring_peer_slow(struct snd_fabric *f, struct snd_member_record *r);
bool snd_ring(struct snd_fabric *f, struct snd_doorbell *d);
void snd_wake_doorbell(struct snd_doorbell *d);
uint32_t snd_arm(struct snd_doorbell *d);
void snd_disarm(struct snd_doorbell *d);
void snd_sleep(struct snd_doorbell *d, uint32_t ticket, int64_t timeout);
/* snd_ring_peer wakes the peer's waiting calls, or its engine if none sleeps. The caller has stored the work
 * before, with a full barrier unless the peer issues it. */
static inline void snd_ring_peer(struct snd_fabric *f, const struct snd_peer *p)
{
	/* ORDER doorbell-armed: pairs with the store in snd_arm */
	if (snd_unlikely(snd_load32(&p->record->waiters.armed) != 0 || snd_load32(&p->record->engine.armed) != 0))
		snd_ring_peer_slow(f, p->record);
}

/* fabric_name.c */
/* snd_fabric_join is snd_fabric_open with the number of the host, and with a deadline; a negative one is none. */
snd_status snd_fabric_join(const char *name, uint32_t ranks, uint32_t host, uint64_t size, int32_t rank, const snd_fabric_options *options, int64_t deadline,
	snd_fabric **fabric, const char *op);
/* snd_serve_joiners answers processes that join the fabric, and reports whether some have connected. Any member may
 * answer. It never blocks. */
bool snd_serve_joiners(struct snd_fabric *f, int64_t now);
void snd_stop_serving(struct snd_fabric *f);

/* inbox.c */
void snd_send_mail(struct snd_fabric *f, const struct snd_peer *p, uint64_t offset, snd_word *link);
bool snd_read_inbox(struct snd_fabric *f);

/* progress.c */
bool snd_progress_all(struct snd_fabric *f);
/* snd_progress_unpolled is what the engine does with a weak order, instead. */
bool snd_progress_unpolled(struct snd_fabric *f);
void snd_run_deferred(struct snd_fabric *f);
/* snd_run_or_defer runs work now; if it is not done, it runs again later. */
void snd_run_or_defer(struct snd_fabric *f, struct snd_work *w);
void snd_defer(struct snd_fabric *f, struct snd_work *w);
/* snd_wake makes sleeping waits of this process check their conditions again. */
static inline void snd_wake(struct snd_fabric *f)
{
	if (snd_unlikely(f->sleepers != 0))
		snd_ring(f, &f->record->waiters);
}

/* progress_wait.c */
/* snd_spin_rounds returns how many rounds a wait spins, at most most. The caller calls snd_spin_ended after the spin unless it is 0. */
uint32_t snd_spin_rounds(struct snd_spin *s, uint32_t most);
/* snd_spin_ended stores whether a spin has found its event. */
void snd_spin_ended(struct snd_spin *s, bool found);
/* snd_wait blocks until ready returns true: SND_SUCCESS, SND_IO_TIMEOUT, or SND_CANCELED if the fabric is
 * closed. It makes progress on everything meanwhile. drive, if not NULL, is called more often than the rest is
 * driven. Observers see call while it sleeps, or spins for long. The caller holds the lock. */
snd_status snd_wait(struct snd_fabric *f, int64_t timeout, bool (*ready)(void *), void (*drive)(void *), void *arg, struct snd_call *call);
/* snd_wait_drained waits until peers have ended their copies. */
snd_status snd_wait_drained(struct snd_fabric *f, int64_t timeout, bool (*drained)(void *), void *arg, struct snd_call *call);

/* progress_statuspage.c */
/* snd_begin_call shows a call to observers until snd_end_call. The caller holds the lock. */
void snd_begin_call(struct snd_fabric *f, struct snd_call *c);
void snd_end_call(struct snd_fabric *f, struct snd_call *c, bool progress);

/* cm_ports.c */
snd_status snd_bind_port(struct snd_fabric *f, snd_address wanted, snd_address *bound, const char *op);
void snd_release_port(struct snd_fabric *f, uint16_t port);
/* snd_host_of returns the address of a member of the arena. */
uint32_t snd_host_of(const struct snd_fabric *f, uint32_t slot);
/* snd_number_of_host returns the number of the host of an address that a process of a job can have. */
uint32_t snd_number_of_host(uint32_t address);
bool snd_is_of_other_host(const struct snd_fabric *f, uint32_t host);
/* snd_is_address_of reports whether a process of the host with a number can have the address. */
bool snd_is_address_of(uint32_t address, uint32_t host);
/* snd_peer_at finds the process that receives requests for an address. It is the one that has the address, or the relay if
 * the address is of another host. known says whether a process of the job can have the address. */
bool snd_peer_at(const struct snd_fabric *f, uint32_t host, struct snd_peer *p, bool *known);
bool snd_find_relay(const struct snd_fabric *f, struct snd_peer *p);
/* snd_has_relay reports whether a member has become the relay; it may have ended since. It is a hint, and orders nothing. */
bool snd_has_relay(const struct snd_fabric *f);

#endif

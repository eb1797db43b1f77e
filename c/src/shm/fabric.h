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
#include "shm/heap.h"
#include "shm/object.h"

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

struct snd_limits;
struct snd_table;

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
	int64_t receive_timeout, default_receive_timeout;
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
	struct snd_table *table; /* of its tokens */

	struct snd_link adapters, endpoints, closing, connections, listeners, connectors, queues, closing_queues, shared_queues, regions, windows;
	struct snd_link work;
	struct snd_link requests[SND_REQUEST_LISTS]; /* connections that peers have requested, by the place of the record */
	uint32_t adapters_opened;
	uint64_t endpoints_created, queues_created, invalidatables_created;
	const uint32_t *addresses; /* of the ranks of a job over several hosts, for messages; NULL = none, or not known yet */
	uint32_t addressed;        /* their number */
	unsigned char *ports; /* a bit for each port in use */
	uint16_t next_port;

	const struct snd_limits *limits; /* of its adapters */

	/* The modes. Only they use what follows the hook. */
	bool stepwise; /* each call that drives an endpoint is a step, and time has no part in its order: weak order */
	const struct snd_call_hook *call_hook; /* NULL = no mode */
	struct snd_faults *faults; /* rules of the fault plan about this member; NULL = none */
	uint64_t weak_seed;   /* of the job, and from snd_weak_begin on of this member */
	uint64_t weak_events; /* calls of snd_weak_delay_event */

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

/* lock.c */
void snd_lock_contended(struct snd_fabric *f);

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

/* snd_try_enter is snd_enter for the fast path of a call: it calls no function, so that the compiler keeps everything in registers. If it
 * returns false, the call begins again with snd_enter. */
SND_FAST bool snd_try_enter(const struct snd_object *o, enum snd_type type)
{
	if (snd_unlikely(o == NULL || __atomic_load_n(&o->magic, __ATOMIC_RELAXED) != SND_MAGIC_OF(type)))
		return false;
	struct snd_fabric *f = snd_fabric_of(o);
	if (snd_likely(f->lock == SND_LOCK_NONE))
		return true;
	if (f->lock != SND_LOCK_BIASED)
		return false;
	snd_set32(&f->inside, 1);
	snd_light(); /* ORDER engine: as in snd_lock */
	if (snd_likely(snd_acquire32(&f->wanted) == 0))
		return true;
	snd_release32(&f->inside, 0);
	return false;
}

/* snd_try_leave ends a call that snd_try_enter has let in. */
SND_FAST void snd_try_leave(struct snd_fabric *f)
{
	if (snd_unlikely(f->lock != SND_LOCK_NONE))
		snd_release32(&f->inside, 0);
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

/* SND_CHECK_POINTER refuses an argument that is NULL. */
#define SND_CHECK_POINTER(p, op) \
	do { \
		if (snd_unlikely((p) == NULL)) \
			return snd_fail(SND_INVALID_PARAMETER, "%s: %s is NULL", op, #p); \
	} while (0)

/* SND_ENTER_TO is SND_ENTER for a call that stores its result in *to. */
#define SND_ENTER_TO(h, type, to, op) \
	do { \
		SND_CHECK(h, type, op); \
		SND_CHECK_POINTER(to, op); \
		SND_ENTER(h, type, op); \
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

#endif

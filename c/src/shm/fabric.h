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
	uint32_t rank_word, pid; /* these three as in the record, which may have another owner later; 0 if it has one already */
	uint64_t pid_ns;
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
struct snd_numbers;
struct snd_table;

/* snd_bias is the bias of a lock toward one thread. That thread may write inside even after the bias is revoked, until it finds out.
 * So each thread has a bias of its own, and no other thread ever gets it. */
struct snd_bias {
	_Atomic uintptr_t thread; /* see snd_thread; 0: no thread has it yet */
	snd_half inside;          /* 1: the thread holds the lock, or is about to find that the bias is revoked */
};
enum { SND_BIASES = 32 }; /* threads that can have the bias of a lock; the lock is a mutex to all others */

struct snd_fabric {
	struct snd_object object;
	/* The lock. It outlives the fabric: a call that comes too late may still lock it, and then finds its handle closed. */
	enum snd_locking { SND_LOCK_NONE, SND_LOCK_BIASED, SND_LOCK_WATCHED } lock;
	bool slow;      /* the lock is held through the mutex; guarded by the lock, as those below */
	bool revoked;   /* by the engine, which holds the lock */
	bool crossed;   /* SND_LOCK_WATCHED: calls of two threads have met, and that is reported */
	bool has_mutex;
	_Atomic(struct snd_bias *) bias; /* the present one; NULL = none. Changes with the mutex held */
	struct snd_bias *latest;         /* the present one, or the one that was revoked last */
	uintptr_t last;                  /* the thread that last locked through the mutex */
	uint32_t streak;                 /* consecutive locks through the mutex that were last's */
	snd_half user;  /* SND_LOCK_WATCHED: the thread of the program that holds the mutex, or is in a wait; 0 = none */
	pthread_mutex_t mutex;
	struct snd_bias biases[SND_BIASES];

	bool closed;       /* no call may begin, and waits end */
	bool of_job;       /* snd_job_close closes it */
	bool marked_dead;  /* a peer has marked this live member dead */
	bool target;       /* the responder copies */
	bool check_payloads; /* of all endpoints */
	bool counts_operations; /* by type */
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
	uint32_t drains;   /* of these, for what no ring announces: the end of a peer's copy, or a poll that frees a slot */

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

	struct snd_traffic { uint64_t bytes, requests; } traffic; /* of endpoints with a number that have ended, and of the members before this one */

	struct snd_heap heap;
	struct snd_mapped *mapped; /* the mapping of the arena, see mr_allocation.c */
	snd_half released; /* number of allocations that the fabric has to free, see mr_allocation.c */
	struct snd_table *table; /* of its tokens */
	struct snd_numbers *numbers; /* of its endpoints, see number.h; NULL = none */
	struct snd_link matching; /* endpoints with a number that wait for their peers */

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
	enum snd_adopting { SND_ADOPT_OFF, SND_ADOPT_AUTO, SND_ADOPT_ALWAYS } adopting; /* whether registered memory becomes the arena's, see mr_adopt.c */

	/* The modes. Only they use what follows the hook. */
	bool stepwise; /* each call that drives an endpoint is a step, and time has no part in its order: weak order */
	const struct snd_call_hook *call_hook; /* NULL = no mode */
	struct snd_faults *faults; /* rules of the fault plan about this member; NULL = none */
	uint64_t weak_seed;   /* of the job, and from snd_weak_begin on of this member */
	uint64_t weak_events; /* calls of snd_weak_delay_event */

	struct snd_events *events; /* NULL = the program has set no handler */

	/* Of a named fabric. */
	int socket; /* that listens; -1 = none */
	struct snd_identity socket_identity;
	struct snd_joiner joiners[SND_JOINERS];
	uint32_t next_joiner; /* its place is the oldest one's */

	struct snd_name_entry *names; /* that this member has published; NULL = none yet */
	uint16_t name_number;         /* of the last use of an entry */

	/* The engine: a thread that makes progress when the program does not. */
	bool has_engine, engine_runs;
	struct snd_watch *watch; /* the thread that looks for ended processes; NULL without an engine */
	bool engine_armed; /* its doorbell is armed */
	int64_t engine_spin; /* nanoseconds for which the engine polls on after traffic, if a core is idle; 0 = it sleeps at once */
	snd_half polls_on;   /* 1: the engine reads rings without the lock. It begins to with the lock */
	snd_half stop_polls; /* 1: it is asked to end that */
	snd_half serves_memory; /* 1: peers name private memory, and the program may not poll while they wait for it */
	snd_half event_fds; /* descriptors of events with which the program may sleep in poll or epoll */
	int event_fd;       /* of connections; -1 = none */
	snd_half quit;
	snd_word activity; /* changes when the program polls or waits */
	pthread_t engine;

	unsigned char staging[SND_STAGING]; /* see integrity.c; last, so that the members above are near each other */
};

enum { SND_LINE = 64 };
/* snd_alloc_lines returns private memory that begins a cache line, and is not zeroed; free frees it. So not chance decides how many
 * lines a small request touches. */
static inline void *snd_alloc_lines(size_t size) { return aligned_alloc(SND_LINE, (size + SND_LINE - 1) / SND_LINE * SND_LINE); }

/* snd_is_of reports whether a handle is still open and of an open fabric. Before a thread has the lock, another may close the handle, or the
 * fabric. */
SND_FAST bool snd_is_of(const struct snd_object *o, enum snd_type type, const struct snd_fabric *f)
{
	return snd_has_magic(o, type) && snd_fabric_of(o) == f && !f->closed;
}

/* lock.c */
bool snd_enter_slow(const struct snd_object *o, enum snd_type type);
void snd_lock_slow(struct snd_fabric *f);
void snd_unlock_slow(struct snd_fabric *f);
/* snd_lock_aside and snd_unlock_aside are for the engine: the thread that has the bias has it again afterwards. */
void snd_lock_aside(struct snd_fabric *f);
/* snd_is_inside reports whether the thread that has the bias is in a call. */
static inline bool snd_is_inside(const struct snd_fabric *f)
{
	const struct snd_bias *b = atomic_load_explicit(&f->bias, memory_order_acquire);
	return b != NULL && snd_relaxed32(&b->inside) != 0;
}
void snd_unlock_aside(struct snd_fabric *f);

/* snd_thread identifies the calling thread by the place of its thread-local storage. When it has ended, another may get that place. */
SND_FAST uintptr_t snd_thread(void)
{
#if defined(__x86_64__)
	uintptr_t place;
	__asm__("mov %%fs:0, %0" : "=r"(place));
	return place;
#else
	return (uintptr_t)__builtin_thread_pointer();
#endif
}

/* snd_light_of_bias is snd_light where a bias exists, and so membarrier works. */
SND_FAST void snd_light_of_bias(void)
{
#if defined(__SANITIZE_THREAD__)
	atomic_thread_fence(memory_order_seq_cst);
#else
	atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* snd_lock_by_bias locks a fabric whose bias is toward this thread, with plain loads and stores, and returns the bias. Otherwise it returns
 * NULL, and has changed nothing. TWIN internal/asym/stack_unsafe.go. */
SND_FAST struct snd_bias *snd_lock_by_bias(struct snd_fabric *f)
{
	struct snd_bias *b = atomic_load_explicit(&f->bias, memory_order_relaxed);
	if (snd_unlikely(b == NULL || atomic_load_explicit(&b->thread, memory_order_relaxed) != snd_thread()))
		return NULL;
	snd_set32(&b->inside, 1);
	snd_light_of_bias(); /* ORDER bias: between the store of inside and the load of bias; pairs with snd_heavy in revoke_bias */
	if (snd_likely(atomic_load_explicit(&f->bias, memory_order_acquire) == b))
		return b;
	snd_release32(&b->inside, 0);
	return NULL;
}

/* snd_lock is what each call of the program begins with. Without an engine and with calls of one thread at a time there is nothing to
 * exclude. Otherwise the lock is biased toward the thread that has made 64 calls with no other thread in between. */
static inline void snd_lock(struct snd_fabric *f)
{
	if (f->lock != SND_LOCK_NONE && snd_lock_by_bias(f) == NULL)
		snd_lock_slow(f);
}
static inline void snd_unlock(struct snd_fabric *f)
{
	if (f->lock == SND_LOCK_NONE)
		return;
	if (snd_likely(!f->slow))
		snd_release32(&f->latest->inside, 0);
	else
		snd_unlock_slow(f);
}

/* snd_try_enter is snd_enter for the fast path of a call: it calls no function, so that the compiler keeps everything in registers. It stores
 * the bias for snd_try_leave. If it returns false, the call begins again with snd_enter. */
SND_FAST bool snd_try_enter(const struct snd_object *o, enum snd_type type, struct snd_bias **bias)
{
	if (snd_unlikely(o == NULL || __atomic_load_n(&o->magic, __ATOMIC_RELAXED) != SND_MAGIC_OF(type)))
		return false;
	struct snd_fabric *f = snd_fabric_of(o);
	*bias = NULL;
	if (f->lock == SND_LOCK_NONE)
		return true;
	if (snd_unlikely((*bias = snd_lock_by_bias(f)) == NULL))
		return false;
	if (snd_likely(snd_is_of(o, type, f)))
		return true;
	snd_release32(&(*bias)->inside, 0);
	return false;
}

/* snd_try_leave ends a call that snd_try_enter has let in. */
SND_FAST void snd_try_leave(struct snd_bias *bias)
{
	if (bias != NULL)
		snd_release32(&bias->inside, 0);
}

/* snd_enter begins a call on a handle: it locks the fabric of an open object. */
SND_FAST bool snd_enter(const struct snd_object *o, enum snd_type type)
{
	struct snd_bias *bias;
	return snd_likely(snd_try_enter(o, type, &bias)) || snd_enter_slow(o, type);
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

/* Completion queues, and the completion of requests on the fast path. Queues are local to the process, and guarded by the fabric's lock.
 * TWIN endpoint/cq.go, endpoint/req_fast.go. */
#ifndef SND_CQ_H
#define SND_CQ_H

#include <time.h>

#include "endpoint/endpoint.h"
#include "shm/doorbell.h"

/* snd_completion is a queued result. It is written and read in the same whole words: a load that spans several
 * earlier stores would stall until they reach the cache. */
struct snd_completion {
	snd_word words[4]; /* of a snd_result */
	struct snd_slots *slots; /* its freed count goes up when the result is taken */
};

_Static_assert(sizeof(snd_result) == 4 * sizeof(snd_word) && offsetof(snd_result, type) == 3 * sizeof(snd_word), "a result is four words");

/* snd_set_result stores a result in whole words. */
static inline void snd_set_result(snd_word *to, snd_status status, uint64_t bytes, uint64_t endpoint, uint64_t request, uint32_t type, uint32_t token)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	snd_set(&to[0], status | bytes << 32);
	snd_set(&to[3], type | (uint64_t)token << 32);
#else
	snd_set(&to[0], (uint64_t)status << 32 | bytes);
	snd_set(&to[3], (uint64_t)type << 32 | token);
#endif
	snd_set(&to[1], endpoint);
	snd_set(&to[2], request);
}

enum {
	SND_CQ_ENDED = 1,   /* the queue is closed or has overrun: it takes no further result */
	SND_CQ_WATCHED = 2, /* a call of notify waits, there is an event descriptor, the hook is armed, or events are delayed */
};

struct snd_cq {
	struct snd_object object;
	struct snd_adapter *adapter;
	struct snd_completion *entries;
	uint64_t mask, head, tail;
	struct snd_endpoint **endpoints;
	uint32_t users, capacity; /* of endpoints */
	uint32_t next;            /* endpoint to scan first: the one after the latest that had a result */
	uint32_t depth;
	uint64_t number; /* among the queues of the process, from 1 */
	uint64_t polls, last_message_poll;
	uint64_t next_look, last_thorough; /* polls */
	int64_t tick;			   /* ns of the coarse clock, at the last look */
	uint64_t reported_polls; /* at the last update of the status page */
	int64_t polled_at;       /* time of an update that found polls; 0 = none did */
	uint32_t references; /* of endpoints that are not freed */
	bool overrun, closed;
	bool shared; /* endpoints of all adapters of the fabric may use it */
	bool has_beside; /* an endpoint whose peer is of this process */
	uint32_t cancels; /* how often its waits were cancelled */
	uint8_t slow; /* bits: why a result needs more than a place */

	/* Events. A result is named by its number plus one, counted from the first of the queue. */
	uint64_t base;                       /* number of the result in place 0 */
	uint64_t last_error, last_solicited; /* the latest such results */
	uint64_t last_released;              /* the latest result that ended a notify */
	struct snd_link notifications;       /* calls that wait, oldest first */
	int fd;                              /* event descriptor; -1 = none */
	bool signaled;                       /* written, and the queue was not empty since */
	/* A hook instead of the descriptor, see snd_cq_set_hook. */
	void (*hook)(void *arg, bool overrun);
	void *hook_arg;
	bool armed, has_events; /* has_events: it was armed, or has a descriptor, and counts in event_fds of the fabric */
	uint32_t armed_type;
	uint64_t armed_after; /* the latest result then */
	/* Moderation delays events, so that one covers many results. */
	bool moderated, has_timer;  /* has_timer: the timer is in the deferred work */
	int32_t event_count;        /* negative: only the interval ends a delay */
	int64_t event_interval;     /* negative: only the count ends a delay */
	int64_t due;                /* when the oldest delayed result is as old as the interval */
	uint64_t announced, announced_solicited; /* the latest results that can end a notify */
	struct snd_work timer;
	struct snd_slots nobody; /* of results whose endpoint is closed */
	snd_operation_stats operations; /* with SND_SLOW_COUNTS */
	struct snd_link link;
};

bool snd_cq_attach(struct snd_cq *q, struct snd_endpoint *ep);
void snd_cq_detach(struct snd_cq *q, struct snd_endpoint *ep);
/* snd_cq_has reports whether results of an endpoint are in q. */
bool snd_cq_has(const struct snd_cq *q, const struct snd_endpoint *ep);
/* snd_cq_drop takes the results of an endpoint out of q. */
void snd_cq_drop(struct snd_cq *q, const struct snd_endpoint *ep);
/* snd_cq_release frees a closed queue that nothing refers to. */
void snd_cq_release(struct snd_cq *q);
void snd_cq_overrun(struct snd_cq *q);
/* snd_cq_drives_beside makes polls of q drive the peers of its endpoints, too, if they are of this process. */
void snd_cq_drives_beside(struct snd_cq *q);

/* snd_cq_wait_status is the status of a call that has waited for a result in vain. late says what did
 * not come within timeout. */
snd_status snd_cq_wait_status(const struct snd_cq *q, snd_status s, const char *op, const char *late, int64_t timeout);

/* snd_cq_signal makes the event descriptor readable if it is not. */
void snd_cq_signal(struct snd_cq *q);
/* snd_cq_event ends calls of notify that the latest result satisfies, and makes the event descriptor readable. */
void snd_cq_event(struct snd_cq *q, bool failed, bool solicited);

/* snd_cq_set_hook is for a new queue of verbs, which endpoints of all adapters may use. Its hook is called with the fabric's lock held: once for
 * each snd_cq_arm, at the next result of the type, and when the queue overruns. Without the hook it needs no descriptor. */
snd_status snd_cq_set_hook(snd_cq *cq, void (*hook)(void *arg, bool overrun), void *arg);
snd_status snd_cq_arm(snd_cq *cq, uint32_t type);

/* snd_cq_limit makes q overrun if a result of the endpoint comes next and q is full: on a stepwise fabric, q holds exactly its depth. */
static inline void snd_cq_limit(struct snd_cq *q, const struct snd_endpoint *ep)
{
	if (snd_unlikely(ep->object.fabric->stepwise) && q->tail - q->head >= q->depth)
		snd_cq_overrun(q);
}

/* snd_cq_takes reports whether q has room for a result, and takes any. */
static inline bool snd_cq_takes(const struct snd_cq *q) { return q->tail - q->head <= q->mask && (q->slow & SND_CQ_ENDED) == 0; }

/* snd_count_result counts a result by type, before it is added to q; NULL: a success without a result. */
void snd_count_result(struct snd_endpoint *ep, struct snd_cq *q, snd_status status, uint32_t type, uint64_t bytes);
/* snd_show_traffic stores what the endpoints with a number have transferred into the member's record. snd_keep_traffic keeps that of one that ends. */
void snd_show_traffic(struct snd_fabric *f);
void snd_keep_traffic(const struct snd_endpoint *ep);

enum { SND_CQ_REUSED = 16 }; /* places that a queue uses as long as it is usually empty */

/* snd_cq_put adds a result to a queue that has room. */
SND_FAST void snd_cq_put(struct snd_cq *q, struct snd_slots *slots, snd_status status, uint32_t type, uint64_t context, uint64_t bytes, uint32_t token)
{
	struct snd_completion *e = &q->entries[q->tail++ & q->mask];
	e->slots = slots;
	snd_set_result(e->words, status, bytes, slots->context, context, type, token);
}

/* snd_cq_push adds a result of the endpoint that slots belongs to. */
SND_FAST void snd_cq_push(struct snd_cq *q, struct snd_slots *slots, snd_status status, uint32_t type, uint64_t context,
	uint64_t bytes, uint32_t token, bool solicited)
{
	if (snd_unlikely(!snd_cq_takes(q))) {
		snd_cq_overrun(q);
		return;
	}
	snd_cq_put(q, slots, status, type, context, bytes, token);
	if (snd_unlikely((q->slow & SND_CQ_WATCHED) != 0 || solicited || status != SND_SUCCESS))
		snd_cq_event(q, status != SND_SUCCESS, solicited);
	snd_wake(q->object.fabric);
}

/* snd_cq_is_quiet reports whether a successful result of an endpoint of f needs no more than snd_cq_put. */
static inline bool snd_cq_is_quiet(const struct snd_cq *q, const struct snd_fabric *f)
{
	return q->tail - q->head <= q->mask && q->slow == 0 && f->sleepers == 0;
}

static inline bool snd_has_queue_slots(const struct snd_endpoint *ep, uint32_t count)
{
	return ep->posted + ep->adjustment - ep->initiator_slots.freed + count <= ep->initiator_depth;
}
static inline bool snd_has_queue_slot(const struct snd_endpoint *ep) { return snd_has_queue_slots(ep, 1); }

/* snd_is_free reports whether all earlier requests are complete, and the queue has room. */
static inline bool snd_is_free(const struct snd_endpoint *ep) { return ep->completed == ep->posted && snd_has_queue_slot(ep); }

/* snd_can_run_fast reports whether a request may run now, within its post. */
static inline bool snd_can_run_fast(const struct snd_endpoint *ep) { return ep->state == SND_QP_CONNECTED && ep->slow == 0 && snd_is_free(ep); }

/* snd_complete_silently completes a request with success and without a result. before is the number of earlier requests, without those of the
 * fast path. */
static inline void snd_complete_silently(struct snd_endpoint *ep, uint64_t before)
{
	if (!ep->numbered) {
		ep->adjustment--;
		ep->counters.silent++;
		return;
	}
	ep->results_before[ep->silent_end++ & ep->request_mask] = before + ep->adjustment - ep->silent;
	ep->silent++;
}

/* snd_complete_fast completes a request of the fast path with success. */
static inline void snd_complete_fast(struct snd_endpoint *ep, uint32_t kind, uint64_t context, uint64_t n, uint32_t flags)
{
	ep->bytes += n;
	if ((flags & SND_SILENT_SUCCESS) != 0) {
		snd_complete_silently(ep, ep->posted);
		ep->adjustment++;
		return;
	}
	ep->adjustment++;
	snd_cq_push(ep->initiator_cq, &ep->initiator_slots, SND_SUCCESS, kind, context, n, 0, false);
}

#endif

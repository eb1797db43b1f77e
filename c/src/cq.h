/* Completion queues. They are local to the process, and guarded by the fabric's lock. */
#ifndef SND_CQ_H
#define SND_CQ_H

#include "endpoint.h"

struct snd_completion {
	snd_result result;
	struct snd_slots *slots; /* its freed count goes up when the result is taken */
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
	uint64_t polls, last_message_poll;
	uint32_t waits;      /* calls that wait */
	uint32_t references; /* of endpoints that are not freed */
	bool overrun, closed;
	struct snd_slots nobody; /* of results whose endpoint is closed */
	struct snd_link link;
};

bool snd_cq_attach(struct snd_cq *q, struct snd_endpoint *ep);
void snd_cq_detach(struct snd_cq *q, struct snd_endpoint *ep);
/* snd_cq_release frees a closed queue that nothing refers to. */
void snd_cq_release(struct snd_cq *q);
void snd_cq_overrun(struct snd_cq *q);

/* snd_cq_push adds a result of the endpoint that slots belongs to. */
static inline void snd_cq_push(struct snd_cq *q, struct snd_slots *slots, snd_status status, uint32_t type, uint64_t context,
	uint64_t bytes, uint32_t token)
{
	if (q->head == q->tail)
		q->head = q->tail = 0; /* a queue that is usually empty touches few cache lines */
	if (snd_unlikely(q->tail - q->head > q->mask || q->closed)) {
		snd_cq_overrun(q);
		return;
	}
	struct snd_completion *e = &q->entries[q->tail++ & q->mask];
	e->slots = slots;
	e->result = (snd_result){status, (uint32_t)bytes, slots->context, context, type, token};
	snd_wake(q->object.fabric);
}

static inline bool snd_has_queue_slot(const struct snd_endpoint *ep)
{
	return ep->posted + ep->adjustment - ep->initiator_slots.freed < ep->initiator_depth;
}

/* snd_can_run_fast reports whether a request may run now, within its post. */
static inline bool snd_can_run_fast(const struct snd_endpoint *ep)
{
	return ep->state == SND_QP_CONNECTED && !ep->overrun && ep->completed == ep->posted && snd_has_queue_slot(ep);
}

/* snd_complete_fast completes a request of the fast path with success. */
static inline void snd_complete_fast(struct snd_endpoint *ep, uint32_t kind, uint64_t context, uint64_t n)
{
	ep->adjustment++;
	snd_cq_push(ep->initiator_cq, &ep->initiator_slots, SND_SUCCESS, kind, context, n, 0);
}

#endif

/* Counters of endpoints and completion queues. TWIN endpoint/stats.go. */
#include <stdio.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cq.h"
#include "structure.h"

/* count_of returns the count of a type, NULL for an unknown one. */
static snd_operation_count *count_of(snd_operation_stats *s, uint32_t type)
{
	switch (type) {
	case SND_REQUEST_SEND: return &s->send;
	case SND_REQUEST_WRITE: return &s->write;
	case SND_REQUEST_READ: return &s->read;
	case SND_REQUEST_BIND: return &s->bind;
	case SND_REQUEST_INVALIDATE: return &s->invalidate;
	case SND_REQUEST_FAST_REGISTER: return &s->fast_register;
	case SND_REQUEST_FETCH_AND_ADD:
	case SND_REQUEST_COMPARE_AND_SWAP:
	case SND_REQUEST_SWAP: return &s->atomic;
	case SND_REQUEST_RECEIVE:
	case SND_REQUEST_RECEIVE_AND_INVALIDATE:
	case SND_REQUEST_RECEIVE_IMMEDIATE:
	case SND_REQUEST_RECEIVE_WRITE_IMMEDIATE: return &s->receive;
	default: return NULL;
	}
}

static void count(snd_operation_stats *s, snd_status status, uint32_t type, uint64_t bytes)
{
	snd_operation_count *c = count_of(s, type);
	if (c == NULL)
		return;
	c->succeeded += status == SND_SUCCESS;
	c->failed += status != SND_SUCCESS;
	c->bytes += status == SND_SUCCESS ? bytes : 0;
}

void snd_count_result(struct snd_endpoint *ep, struct snd_cq *q, snd_status status, uint32_t type, uint64_t bytes)
{
	count(&ep->counters.operations, status, type, bytes);
	if (q != NULL && snd_cq_takes(q))
		count(&q->operations, status, type, bytes);
}

static void add_traffic(const struct snd_endpoint *ep, struct snd_traffic *t)
{
	if (!ep->numbered)
		return;
	t->bytes += ep->bytes;
	t->requests += ep->completed + ep->adjustment + ep->counters.silent;
}

void snd_keep_traffic(const struct snd_endpoint *ep) { add_traffic(ep, &ep->object.fabric->traffic); }

void snd_show_traffic(struct snd_fabric *f)
{
	struct snd_traffic t = f->traffic;
	for (const struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next)
		add_traffic(SND_OF(l, struct snd_endpoint, link), &t);
	for (const struct snd_link *l = f->closing.next; l != &f->closing; l = l->next)
		add_traffic(SND_OF(l, struct snd_endpoint, link), &t);
	snd_set(&f->record->bytes, t.bytes);
	snd_set(&f->record->requests, t.requests);
}

snd_status snd_endpoint_get_stats(size_t stats_size, snd_endpoint *endpoint, snd_endpoint_stats *stats)
{
	const char *op = "get statistics";
	SND_CHECK(endpoint, SND_TYPE_ENDPOINT, op);
	SND_CHECK_STORED(snd_endpoint_stats, stats, stats_size, op);
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, op);
	const struct snd_counters *k = &endpoint->counters;
	const uint64_t immediate = endpoint->adjustment + k->silent; /* requests of the fast path, which posted omits */
	snd_endpoint_stats s = {.number = endpoint->number, .requests_posted = endpoint->posted + immediate, .requests_completed = endpoint->completed + immediate,
		.requests_immediate = immediate, .receives_posted = endpoint->rposted, .receives_completed = endpoint->rcompleted, .posts_refused = k->posts_refused,
		.accesses_refused = k->accesses_refused, .fragments = k->fragments, .retries = k->retries, .stalls_receive = k->stalls[SND_STALL_RECEIVE],
		.stalls_shared_receive = k->shared_stalls, .stalls_queue = k->stalls[SND_STALL_QUEUE], .stalls_order = k->stalls[SND_STALL_ORDER],
		.stalls_drain = k->stalls[SND_STALL_DRAIN], .operations = k->operations};
	snprintf(s.state, sizeof s.state, "%s", snd_qp_states.text[endpoint->state]);
	if (endpoint->conn != NULL)
		snd_name_peer(endpoint->conn, s.peer, sizeof s.peer);
	snd_store_known(stats, stats_size, &s, sizeof s);
	return snd_leave_with(endpoint->object.fabric, SND_SUCCESS);
}

snd_status snd_cq_get_stats(size_t stats_size, snd_cq *cq, snd_cq_stats *stats)
{
	const char *op = "get statistics";
	SND_CHECK(cq, SND_TYPE_CQ, op);
	SND_CHECK_STORED(snd_cq_stats, stats, stats_size, op);
	SND_ENTER(cq, SND_TYPE_CQ, op);
	const snd_cq_stats s = {.number = cq->number, .depth = cq->depth, .queued = cq->tail - cq->head, .results = cq->base + cq->tail, .polls = cq->polls,
		.overrun = cq->overrun, .operations = cq->operations};
	snd_store_known(stats, stats_size, &s, sizeof s);
	return snd_leave_with(cq->object.fabric, SND_SUCCESS);
}

/* TWIN endpoint/qp.go, endpoint/qp_create.go, endpoint/qp_close.go. */
#include "endpoint/qp.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cm_connector.h"
#include "endpoint/cm_event.h"
#include "endpoint/cm_number.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/event.h"
#include "endpoint/hook.h"
#include "endpoint/progress.h"
#include "endpoint/progress_engine.h"
#include "endpoint/progress_wait.h"
#include "endpoint/req_execute.h"
#include "endpoint/srq.h"
#include "linux/memory_limit.h"
#include "shm/work.h"
#include "structure.h"
#include "window/invalidatable.h"
#include "window/region.h"

static struct snd_own_entry no_entry; /* never valid */

enum { WRITE_HEADER = SNDL_KIND_WRITE_IN_ENTRY | SND_PLAIN_WRITE << SNDL_ENTRY_FLAGS_SHIFT };

static uint64_t power_of_two(uint64_t n)
{
	uint64_t p = 1;
	while (p < n)
		p *= 2;
	return p;
}

struct snd_entry snd_entry_at(const struct snd_entry *entries, uint32_t count, uint64_t at)
{
	for (uint32_t i = 0; i < count; i++) {
		if (at < entries[i].length)
			return (struct snd_entry){entries[i].address + at, entries[i].length - (uint32_t)at, entries[i].token};
		at -= entries[i].length;
	}
	return (struct snd_entry){0, 0, 0};
}

void snd_change_state(struct snd_endpoint *ep, enum snd_conn_event e)
{
	const enum snd_qp_state s = snd_next_state(&snd_qp_states, ep->state, e);
	ep->was_connected = ep->was_connected || s == SND_QP_CONNECTED;
	if (s == SND_QP_CONNECTED && ep->state != SND_QP_CONNECTED)
		snd_event_connected(ep);
	if (ep->state == SND_QP_PEER_DISCONNECTED) {
		ep->cause = SND_SUCCESS; /* it advises this side to disconnect, too */
		snd_set_cause(ep, SND_CONNECTION_DISCONNECTED, "%s", s == SND_QP_DISCONNECTING ? "both sides have disconnected"
			: "the peer has disconnected, and the connection ended before this side did: connect a new endpoint");
	}
	ep->state = s;
	snd_wake(ep->object.fabric);
	if ((s == SND_QP_PEER_DISCONNECTED || s == SND_QP_FAILED) && ep->object.fabric->event_fd >= 0)
		snd_raise_event(ep->object.fabric);
}

/* allocate_queues allocates the private queues, so that posting never allocates. */
static bool allocate_queues(struct snd_endpoint *ep, bool checks)
{
	size_t requests = (size_t)power_of_two(ep->initiator_depth), receives = (size_t)power_of_two(ep->receive_depth);
	ep->request_mask = requests - 1;
	ep->receive_mask = receives - 1;
	ep->requests = calloc(requests, sizeof *ep->requests);
	ep->request_entries = calloc(requests * ep->max_initiator_sge, sizeof *ep->request_entries);
	ep->inline_memory = malloc(requests * ep->inline_size + 1);
	ep->results_before = malloc(requests * sizeof *ep->results_before);
	ep->receives = calloc(receives, sizeof *ep->receives);
	ep->receive_entries = calloc(receives * ep->max_receive_sge, sizeof *ep->receive_entries);
	if (!snd_add_modes(ep, requests, checks))
		return false;
	if (ep->requests == NULL || ep->request_entries == NULL || ep->inline_memory == NULL || ep->results_before == NULL || ep->receives == NULL || ep->receive_entries == NULL)
		return false;
	for (size_t i = 0; i < requests; i++) {
		ep->requests[i].entries = ep->request_entries + i * ep->max_initiator_sge;
		ep->requests[i].inline_data = ep->inline_memory + i * ep->inline_size;
	}
	for (size_t i = 0; i < receives; i++)
		ep->receives[i].list = ep->receive_entries + i * ep->max_receive_sge;
	return true;
}

static uint64_t queue_bytes(const struct snd_endpoint *ep)
{
	const uint64_t requests = ep->request_mask + 1, receives = ep->receive_mask + 1;
	return requests * (sizeof *ep->requests + ep->max_initiator_sge * sizeof *ep->request_entries + ep->inline_size + sizeof *ep->results_before) +
		receives * (sizeof *ep->receives + ep->max_receive_sge * sizeof *ep->receive_entries);
}

static void free_queues(struct snd_endpoint *ep)
{
	free(ep->requests);
	free(ep->request_entries);
	free(ep->inline_memory);
	free(ep->results_before);
	free(ep->receives);
	free(ep->receive_entries);
	snd_free_modes(ep);
}

/* make_shared_qp allocates the shared queue-pair state, followed by the outbound ring and the receive descriptors. */
static snd_status make_shared_qp(struct snd_endpoint *ep, const char *op)
{
	struct snd_fabric *f = ep->object.fabric;
	uint64_t slots = ep->initiator_depth < 64 ? 64 : ep->initiator_depth > 256 ? 256 : ep->initiator_depth;
	slots = power_of_two(slots);
	uint64_t count = ep->srq != NULL ? 0 : ep->receive_mask + 1, stride = (16 + (uint64_t)ep->max_receive_sge * 16 + 63) / 64 * 64;
	snd_status s = snd_alloc(&f->heap, SNDL_SIZEOF_SHARED_QP + slots * SNDL_SIZEOF_SLOT + count * stride, true, &ep->local_qp_offset, op);
	if (s != SND_SUCCESS)
		return s;
	struct snd_shared_qp *h = ep->local_qp = (struct snd_shared_qp *)(void *)(f->arena.base + ep->local_qp_offset);
	ep->guard.hazard = &h->hazard;
	uint64_t ring = ep->local_qp_offset + SNDL_SIZEOF_SHARED_QP, receives = ring + slots * SNDL_SIZEOF_SLOT;
	snd_set(&h->ring, ring);
	snd_set(&h->ring_slots, slots);
	snd_set(&h->receives, receives);
	snd_set(&h->receive_count, count);
	snd_set(&h->receive_stride, stride);
	snd_set(&h->endpoint, ep->number);
	snd_set(&h->membarrier, snd_has_heavy_global());
	snd_set(&h->shared_receive, ep->srq != NULL);
	snd_set(&h->extended, 1);
	ep->stride = stride / 8;
	ep->descriptors = (uint64_t *)(void *)(f->arena.base + receives);
	ep->conn = NULL;
	return SND_SUCCESS;
}

/* limit applies the default and the maximum of a value of the configuration. */
static snd_status limit(uint32_t *value, uint32_t otherwise, uint32_t most, const char *name, const char *op)
{
	if (*value > most)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s %" PRIu32 ", at most %" PRIu32, op, name, *value, most);
	if (*value == 0)
		*value = otherwise;
	return SND_SUCCESS;
}

/* check_config checks a configuration and fills in its defaults. */
static snd_status check_config(struct snd_adapter *a, snd_endpoint_config *c, const char *op)
{
	struct snd_fabric *f = a->object.fabric;
	const struct snd_limits *most = f->limits;
	snd_cq *const queues[] = {c->receive_cq, c->initiator_cq};
	for (int i = 0; i < 2; i++)
		if (!snd_belongs(f, queues[i], SND_TYPE_CQ) || (queues[i]->adapter != a && !queues[i]->shared))
			return snd_fail(SND_INVALID_PARAMETER, "%s: %s of the configuration is NULL, closed or of another adapter: pass an open completion queue", op, i == 0 ? "receive_cq" : "initiator_cq");
	if (c->srq != NULL) {
		if (!snd_belongs(f, c->srq, SND_TYPE_SRQ) || c->srq->adapter != a)
			return snd_fail(SND_INVALID_PARAMETER, "%s: no open shared receive queue of this adapter", op);
		c->receive_depth = 1; /* for the one that a message has taken */
		c->max_receive_sge = c->srq->max_sge;
	}
	snd_status s = snd_check_switch(c->check_payloads, "check_payloads", op);
	if (s == SND_SUCCESS)
		s = limit(&c->receive_depth, SND_DEFAULT_QUEUE_DEPTH, most->queue_depth, "receive_depth", op);
	if (s == SND_SUCCESS)
		s = limit(&c->initiator_depth, SND_DEFAULT_QUEUE_DEPTH, most->queue_depth, "initiator_depth", op);
	if (s == SND_SUCCESS)
		s = limit(&c->max_receive_sge, most->least_sge, most->sge, "max_receive_sge", op);
	if (s == SND_SUCCESS)
		s = limit(&c->max_initiator_sge, most->least_sge, most->sge, "max_initiator_sge", op);
	if (s == SND_SUCCESS)
		s = limit(&c->inline_size, 0, most->inline_size, "inline_size", op);
	return s;
}

snd_status snd_endpoint_create(size_t config_size, snd_adapter *adapter, const snd_endpoint_config *config, snd_endpoint **endpoint)
{
	SND_KEEP_ERRNO;
	const char *op = "create endpoint";
	SND_CHECK(adapter, SND_TYPE_ADAPTER, op);
	if (config == NULL || endpoint == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s is NULL", op, config == NULL ? "config" : "endpoint");
	*endpoint = NULL;
	SND_KNOWN(snd_endpoint_config, config, config_size, op);
	snd_endpoint_config c = *config;
	SND_ENTER(adapter, SND_TYPE_ADAPTER, op);
	struct snd_fabric *f = adapter->object.fabric;
	snd_status s = check_config(adapter, &c, op);
	const uint64_t number = s == SND_SUCCESS ? ++f->endpoints_created : 0; /* before the hook is asked: another thread may call meanwhile */
	if (s == SND_SUCCESS && f->call_hook != NULL) {
		s = snd_before_call(&adapter->object, op, 0, number, NULL);
		if (s == SND_SUCCESS)
			s = check_config(adapter, &c, op); /* another thread may have closed a queue meanwhile */
	}
	struct snd_endpoint *ep = NULL;
	if (s == SND_SUCCESS && (ep = snd_new(f, SND_TYPE_ENDPOINT, sizeof *ep)) == NULL)
		s = snd_no_memory(sizeof *ep, "private memory", op);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	ep->adapter = adapter;
	ep->adapter_number = adapter->number;
	ep->number = number;
	ep->requester_copies = !f->target;
	ep->slow = f->counts_operations ? SND_SLOW_COUNTS : 0;
	ep->initiator_cq = c.initiator_cq;
	ep->receive_cq = c.receive_cq;
	ep->initiator_depth = c.initiator_depth;
	ep->receive_depth = c.receive_depth;
	ep->initiator_slots.context = ep->receive_slots.context = c.context;
	ep->max_receive_sge = c.max_receive_sge < f->limits->least_sge ? f->limits->least_sge : c.max_receive_sge;
	ep->max_initiator_sge = c.max_initiator_sge < f->limits->least_sge ? f->limits->least_sge : c.max_initiator_sge;
	ep->inline_size = c.inline_size;
	ep->guard = (struct snd_guard){.last_entry = &no_entry, .arena = &f->arena, .table = f->table, .adapter = adapter->number};
	ep->cause = SND_SUCCESS;
	ep->end_cause = SNDL_END_LOCAL;
	ep->write_header = WRITE_HEADER;
	ep->srq = c.srq;
	snd_list_init(&ep->srq_link);
	snd_list_init(&ep->bound);
	snd_list_init(&ep->match.link);
	snd_list_init(&ep->teardown_work.link);
	snd_list_init(&ep->free_work.link);
	s = allocate_queues(ep, f->check_payloads || c.check_payloads != 0) ? make_shared_qp(ep, op) : snd_no_memory(queue_bytes(ep), "private memory", op);
	if (s == SND_SUCCESS && (!snd_cq_attach(c.receive_cq, ep) || !snd_cq_attach(c.initiator_cq, ep))) {
		snd_cq_detach(c.receive_cq, ep);
		snd_free(&f->heap, ep->local_qp_offset);
		s = snd_no_memory(sizeof(void *) * (c.receive_cq->users + 1), "private memory", op);
	}
	if (s == SND_SUCCESS) {
		snd_list_append(&f->endpoints, &ep->link);
		if (ep->srq != NULL)
			ep->srq->references++;
		c.receive_cq->references++;
		c.initiator_cq->references++;
		adapter->objects++;
		*endpoint = ep;
	} else {
		free_queues(ep);
		snd_object_free(&ep->object);
	}
	return snd_leave_with(f, s);
}

void snd_set_access(struct snd_endpoint *ep, uint32_t rights)
{
	const uint32_t denied = ~rights & (SNDL_RIGHT_READ | SNDL_RIGHT_WRITE | SNDL_RIGHT_ATOMIC);
	ep->takes_back = ep->conn != NULL && (ep->takes_back || (denied & ~ep->guard.denied) != 0);
	ep->guard.denied = denied;
	ep->write_header = (denied & SNDL_RIGHT_WRITE) == 0 ? WRITE_HEADER : 0;
	snd_store_full(&ep->local_qp->access, rights | (uint64_t)ep->takes_back << 32);
}

void snd_part(struct snd_endpoint *ep)
{
	if (ep->beside != NULL)
		ep->beside->beside = NULL;
	ep->beside = NULL;
}

/* free_endpoint frees the memory after the peer has stopped using it. */
static bool free_endpoint(struct snd_work *work)
{
	struct snd_endpoint *ep = SND_OF(work, struct snd_endpoint, free_work);
	struct snd_fabric *f = ep->object.fabric;
	if ((ep->conn != NULL && !ep->conn->released) || ep->completed != ep->posted || ep->teardown_pending || ep->pending_drains > 0)
		return false;
	if (ep->bounce_offset != 0) {
		snd_revoke_all(&ep->bounce.i);
		if (!snd_end_invalidation(&ep->bounce.i))
			return false;
		snd_region_end(&ep->bounce);
		snd_free(&f->heap, ep->bounce_offset);
		ep->bounce_offset = 0;
	}
	snd_engine_leaves_rings(f);
	snd_free(&f->heap, ep->local_qp_offset);
	snd_forget_endpoint(ep);
	return true;
}

/* snd_forget_endpoint frees what is private to the process. */
void snd_forget_endpoint(struct snd_endpoint *ep)
{
	snd_part(ep);
	snd_keep_traffic(ep);
	snd_list_remove(&ep->link);
	snd_list_remove(&ep->match.link);
	snd_list_remove(&ep->free_work.link);
	snd_list_remove(&ep->teardown_work.link);
	snd_cq_detach(ep->receive_cq, ep);
	snd_cq_detach(ep->initiator_cq, ep);
	snd_remove_waiter(ep);
	if (ep->srq != NULL) {
		ep->srq->references--;
		snd_srq_release(ep->srq);
	}
	ep->receive_cq->references--;
	ep->initiator_cq->references--;
	snd_cq_release(ep->receive_cq);
	if (ep->initiator_cq != ep->receive_cq)
		snd_cq_release(ep->initiator_cq);
	if (ep->connector != NULL)
		snd_endpoint_closed(ep->connector);
	if (ep->conn != NULL) {
		ep->conn->endpoint = NULL;
		snd_unuse(ep->conn);
	}
	for (; ep->completed != ep->posted; ep->completed++) /* when the fabric is closed before the endpoint was flushed */
		snd_drop_request(ep, snd_request_at(ep, ep->completed));
	if (ep->invalidating != NULL)
		snd_unreference(ep->invalidating);
	free_queues(ep);
	ep->adapter->objects--;
	snd_object_free(&ep->object);
}

void snd_drop_results(struct snd_endpoint *ep)
{
	if (!ep->ends_silently)
		return;
	snd_cq_drop(ep->receive_cq, ep);
	snd_cq_drop(ep->initiator_cq, ep);
}

void snd_close_endpoint(struct snd_endpoint *ep)
{
	struct snd_fabric *f = ep->object.fabric;
	snd_end_by_close(ep, SND_CANCELED, "the endpoint was closed");
	snd_number_forget(ep);
	snd_change_state(ep, SND_EVENT_CLOSES);
	snd_part(ep);
	snd_drop_results(ep);
	snd_cq_detach(ep->receive_cq, ep);
	snd_cq_detach(ep->initiator_cq, ep);
	snd_list_remove(&ep->link);
	snd_list_append(&f->closing, &ep->link);
	snd_object_hide(&ep->object);
	ep->free_work.run = free_endpoint;
	snd_run_or_defer(f, &ep->free_work);
}

snd_status snd_endpoint_close(snd_endpoint *endpoint)
{
	SND_KEEP_ERRNO;
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "close endpoint");
	struct snd_fabric *f = endpoint->object.fabric;
	snd_close_endpoint(endpoint);
	return snd_leave_with(f, SND_SUCCESS);
}

snd_status snd_endpoint_error(snd_endpoint *endpoint)
{
	SND_KEEP_ERRNO;
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "error of endpoint");
	if (snd_has_overrun(endpoint))
		snd_progress(endpoint);
	snd_status s = SND_SUCCESS;
	if (endpoint->state != SND_QP_CONNECTED && endpoint->cause != SND_SUCCESS)
		s = snd_fail(endpoint->cause, "%s", endpoint->cause_text);
	return snd_leave_with(endpoint->object.fabric, s);
}

static bool is_flushed(void *arg)
{
	struct snd_endpoint *ep = arg;
	return snd_is_closed(&ep->object) || ep->teardown == SND_FLUSHED;
}

snd_status snd_endpoint_flush(snd_endpoint *endpoint, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "flush";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, op);
	struct snd_fabric *f = endpoint->object.fabric;
	endpoint->end_cause = SNDL_END_CLOSED;
	if (endpoint->state != SND_QP_DISCONNECTING) /* otherwise a graceful disconnect flushes it already */
		snd_terminate(endpoint, SND_CANCELED, "flush: the endpoint was flushed");
	snd_hold(&endpoint->object);
	snd_status s = snd_wait(f, timeout, is_flushed, NULL, endpoint, &(struct snd_call){.op = op, .object = "endpoint"});
	if (snd_is_closed(&endpoint->object))
		s = snd_fail(SND_CANCELED, "%s: the endpoint was closed", op);
	else if (s != SND_SUCCESS)
		s = snd_fail(s, "%s: a peer is still copying", op);
	snd_let_go(&endpoint->object);
	return snd_leave_with(f, s);
}

/* Posting receives, and their results. TWIN endpoint/qp_receive.go. */
#include "endpoint/qp_receive.h"

#include <inttypes.h>

#include "endpoint/cm_teardown.h"
#include "endpoint/cq.h"
#include "endpoint/hook.h"
#include "endpoint/mr_mapping.h"
#include "endpoint/qp.h"

void snd_complete_receive(struct snd_endpoint *ep, struct snd_receive *r, snd_status s, uint64_t bytes, uint32_t invalidated)
{
	if (snd_unlikely(ep->hook != NULL))
		ep->hook->served(ep, r, s, bytes);
	const struct snd_ring_entry *e = &ep->in_entry;
	uint32_t type = invalidated != 0 ? SND_REQUEST_RECEIVE_AND_INVALIDATE : SND_REQUEST_RECEIVE, number = invalidated;
	if (snd_unlikely((e->flags & SNDL_FLAG_IMMEDIATE) != 0) && s == SND_SUCCESS) {
		type = snd_entry_is_write(e) ? SND_REQUEST_RECEIVE_WRITE_IMMEDIATE : SND_REQUEST_RECEIVE_IMMEDIATE;
		number = e->immediate;
	}
	ep->rcompleted++;
	ep->message_received = 0;
	snd_cq_limit(ep->receive_cq, ep);
	if (snd_unlikely((ep->slow & SND_SLOW_COUNTS) != 0))
		snd_count_result(ep, ep->receive_cq, s, type, bytes);
	snd_cq_push(ep->receive_cq, &ep->receive_slots, s, type, r->context, s == SND_SUCCESS ? bytes : 0, number, (e->flags & SNDL_FLAG_SOLICITED) != 0);
}

/* publish_small_receive announces that the receive posted last may be too small for a message of more than room bytes. */
static void publish_small_receive(struct snd_endpoint *ep, uint64_t room)
{
	if ((int64_t)(ep->small_end - ep->rcompleted) > 0 && ep->small_bytes < room) /* an earlier small receive is not complete */
		room = ep->small_bytes;
	ep->small_end = ep->rposted;
	ep->small_bytes = room;
	snd_release(&ep->local_qp->small_receive_bytes, room);         /* ORDER receive-room: before the limit; pairs with the load in snd_has_receive */
	snd_release(&ep->local_qp->small_receives_end, ep->small_end); /* ORDER receive-limit: before posted; pairs with the load in snd_has_receive */
}

/* publish_posted publishes the receive posted last to the peer. It can certainly hold a message of room bytes. */
static void publish_posted(struct snd_endpoint *ep, uint64_t room)
{
	struct snd_connection *c = ep->conn;
	if (room < SNDL_MAX_SEND_IN_ENTRY)
		publish_small_receive(ep, room);
	if (c == NULL || !c->attached) {
		snd_store_full(&ep->local_qp->posted, ep->rposted); /* ORDER receive-posted: pairs with the load in snd_has_receive */
		return;
	}
	if (snd_likely(c->out.relaxed)) {
		snd_release(&ep->local_qp->posted, ep->rposted); /* ORDER receive-posted: pairs with the load in snd_has_receive */
		atomic_signal_fence(memory_order_seq_cst);
	} else {
		snd_store_full(&ep->local_qp->posted, ep->rposted); /* ORDER receive-posted: pairs with the load in snd_has_receive */
	}
	if (snd_load32(&c->peer_qp->need_wakeup) != 0) /* ORDER need-wakeup: after posted; pairs with the store and the barrier in snd_request_wakeup */
		snd_ring_peer(ep->object.fabric, &c->peer);
}

/* publish_receive describes the receive posted last in shared memory. The peer reads a descriptor only after posted. */
static void publish_receive(struct snd_endpoint *ep, struct snd_receive *r)
{
	uint64_t *d = ep->descriptors + ((ep->rposted - 1) & ep->receive_mask) * ep->stride;
	struct snd_entry *entries = r->count == 1 ? &r->single : r->list;
	uint64_t room = r->capacity < SNDL_MAX_SEND_IN_ENTRY ? r->capacity : SNDL_MAX_SEND_IN_ENTRY;
	/* Stores that would not change the descriptor are skipped: the previous receive in it often had the same size. */
	if (d[0] != r->capacity)
		d[0] = r->capacity;
	if (d[1] != r->count)
		d[1] = r->count;
	for (uint32_t i = 0; i < r->count; i++) {
		struct snd_entry *e = &entries[i];
		if (snd_allowed(&ep->guard, e->token, SNDL_RIGHT_LOCAL | SNDL_RIGHT_WRITE, e->address, e->length) == NULL && !snd_resolve(ep->adapter, e->address, e->length, &e->token))
			room = 0;
		d[2 + 2 * i] = e->address;
		d[3 + 2 * i] = e->length | (uint64_t)e->token << 32;
	}
	publish_posted(ep, room);
}

snd_status snd_set_receive(struct snd_receive *r, uint64_t context, const snd_sge *sge, uint32_t count, uint32_t most, const char *op)
{
	if (snd_unlikely(count > 0 && sge == NULL))
		return snd_fail(SND_INVALID_PARAMETER, "%s: sge is NULL", op);
	if (snd_unlikely(count > most))
		return snd_fail(SND_DATA_OVERRUN, "%s: %" PRIu32 " scatter/gather entries, granted %" PRIu32 ": raise the limit or post fewer entries", op, count, most);
	uint64_t total = 0;
	uint32_t n = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (sge[i].length > 0 && sge[i].buffer == NULL)
			return snd_fail(SND_INVALID_PARAMETER, "%s: buffer of entry %" PRIu32 " is NULL", op, i);
		if (sge[i].length > 0)
			r->list[n++] = (struct snd_entry){(uint64_t)(uintptr_t)sge[i].buffer, sge[i].length, sge[i].token};
		total += sge[i].length;
	}
	if (snd_unlikely(total > SND_MAX_TRANSFER))
		return snd_fail(SND_BUFFER_OVERFLOW, "%s: %" PRIu64 " bytes, at most %" PRIu64, op, total, SND_MAX_TRANSFER);
	r->context = context;
	r->capacity = total;
	r->count = n;
	if (n == 1)
		r->single = r->list[0];
	return SND_SUCCESS;
}

snd_status snd_post_receive(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint32_t count)
{
	const char *op = "receive";
	if (snd_unlikely(ep->srq != NULL))
		return snd_fail(SND_INVALID_DEVICE_REQUEST, "%s: the endpoint takes its receives from a shared receive queue: post to that queue", op);
	if (snd_unlikely(ep->slow != 0) && snd_has_overrun(ep))
		return snd_fail(SND_INTERNAL_ERROR, "%s: a completion queue of the endpoint overran and lost results", op);
	struct snd_receive *r = snd_receive_at(ep, ep->rposted);
	if (snd_unlikely(ep->rposted - ep->receive_slots.freed >= ep->receive_depth)) {
		struct snd_entry scratch[SNDL_MAX_SGE]; /* an error of the arguments takes precedence */
		snd_status s = snd_set_receive(&(struct snd_receive){.list = scratch}, context, sge, count, ep->max_receive_sge, op);
		ep->counters.posts_refused += s == SND_SUCCESS;
		return s != SND_SUCCESS ? s
			: snd_fail(SND_NO_MORE_ENTRIES, "%s: all %" PRIu64 " receives of receive_depth are outstanding: poll for results, then retry", op, ep->receive_depth);
	}
	if (snd_likely(count == 1 && sge != NULL && sge->length - 1 < SND_MAX_TRANSFER)) {
		r->context = context;
		r->capacity = sge->length;
		r->count = 1;
		r->single = (struct snd_entry){(uint64_t)(uintptr_t)sge->buffer, sge->length, sge->token};
	} else {
		snd_status s = snd_set_receive(r, context, sge, count, ep->max_receive_sge, op);
		if (s != SND_SUCCESS)
			return s;
	}
	if (snd_unlikely(ep->hook != NULL)) {
		snd_status s = ep->hook->post_receive(ep, r);
		if (s != SND_SUCCESS)
			return s;
	}
	ep->rposted++;
	switch (ep->state) {
	case SND_QP_FAILED:
	case SND_QP_DISCONNECTING:
	case SND_QP_CLOSED:
		if (ep->teardown != SND_USES_PEER_STATE && !ep->lost) /* else leave_peer_state cancels it after the receives before it */
			snd_cancel_receives(ep);
		break;
	default:
		publish_receive(ep, r);
	}
	return SND_SUCCESS;
}

snd_status snd_endpoint_receive(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "receive");
	return snd_leave_with(endpoint->object.fabric, snd_post_receive(endpoint, context, sge, count));
}

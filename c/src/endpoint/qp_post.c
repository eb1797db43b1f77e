/* Posting requests. The fast path runs a request within its post and handles no errors: it returns false, and
 * the slow path posts the request again and reports the reason.
 * TWIN endpoint/qp_post.go, endpoint/req_fast.go, endpoint/req_submit.go. */
#include "endpoint/qp_post.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cq.h"
#include "endpoint/hook.h"
#include "endpoint/mr_fastreg.h"
#include "endpoint/mr_mapping.h"
#include "endpoint/qp.h"
#include "endpoint/qp_receive.h"
#include "endpoint/req_atomic.h"
#include "endpoint/req_execute.h"
#include "endpoint/req_send.h"
#include "shm/work.h"
#include "window/invalidatable.h"

static bool can_post(const struct snd_endpoint *ep)
{
	return snd_takes_requests(ep) || ep->state == SND_QP_PEER_DISCONNECTED || ep->state == SND_QP_FAILED;
}

/* has_slots reports whether the queue has room. If it seems full, it frees the slots of silent requests before the latest one whose result was taken. */
static bool has_slots(struct snd_endpoint *ep, uint32_t count)
{
	if (snd_has_queue_slots(ep, count))
		return true;
	for (; ep->silent > 0 && (int64_t)(ep->initiator_slots.freed - ep->results_before[(ep->silent_end - ep->silent) & ep->request_mask]) > 0; ep->silent--) {
		ep->adjustment--;
		ep->counters.silent++;
	}
	return snd_has_queue_slots(ep, count);
}

static snd_status refuse_full(struct snd_endpoint *ep, const char *op)
{
	ep->counters.posts_refused++;
	return snd_fail(SND_NO_MORE_ENTRIES, "%s: all %" PRIu64 " requests of initiator_depth are outstanding: poll for results, then retry", op, ep->initiator_depth);
}

snd_status snd_new_request(struct snd_endpoint *ep, const char *op, uint32_t kind, uint32_t flags, uint64_t context, struct snd_send_request **request)
{
	if (!can_post(ep))
		return snd_fail(SND_CONNECTION_INVALID, "%s: the endpoint is not connected%s", op,
			ep->was_connected ? " any more: connect a new endpoint" : " yet: post when snd_connector_complete or snd_connector_accept has returned");
	if (snd_has_overrun(ep))
		return snd_fail(SND_INTERNAL_ERROR, "%s: a completion queue of the endpoint overran and lost results: create a deeper queue, and connect a new endpoint", op);
	if (!has_slots(ep, 1))
		return refuse_full(ep, op);
	struct snd_send_request *r = snd_request_at(ep, ep->posted);
	*r = (struct snd_send_request){.number = ep->posted, .kind = kind, .flags = flags, .context = context, .entries = r->entries, .inline_data = r->inline_data,
		.bounce_index = -1, .posted_after_end = !snd_takes_requests(ep)};
	*request = r;
	return SND_SUCCESS;
}

void snd_submit(struct snd_endpoint *ep)
{
	if (ep->submitted == ep->posted)
		return;
	bool waiting = ep->next != ep->submitted;
	ep->submitted = ep->posted;
	if (waiting && ep->state == SND_QP_CONNECTED)
		return; /* polls run them in turn */
	if (snd_request_at(ep, ep->posted - 1)->total > SND_SMALL_BYTES && ep->state == SND_QP_CONNECTED) {
		snd_wake_progress(ep->object.fabric);
		return;
	}
	uint64_t budget = SND_QUANTUM;
	snd_run_requests(ep, &budget);
	if (ep->next != ep->posted)
		snd_wake_progress(ep->object.fabric); /* the next request waits, perhaps for a time-out that no ring announces */
}

snd_status snd_enqueue(struct snd_endpoint *ep, struct snd_send_request *r)
{
	snd_status s;
	if (snd_unlikely(ep->hook != NULL) && (s = ep->hook->post(ep, r)) != SND_SUCCESS)
		return s;
	ep->posted++;
	if ((r->flags & SND_DEFER) == 0 || ep->state != SND_QP_CONNECTED)
		snd_submit(ep);
	return SND_SUCCESS;
}

static uint32_t allowed_flags(uint32_t kind)
{
	const uint32_t every = SND_SILENT_SUCCESS | SND_READ_FENCE | SND_DEFER;
	switch (kind) {
	case SND_REQUEST_SEND: return every | SND_SOLICIT_EVENT | SND_INLINE;
	case SND_REQUEST_WRITE: return every | SND_INLINE;
	case SND_REQUEST_READ: return every | SND_READ_LOCAL_INVALIDATE;
	case SND_REQUEST_BIND: return every | SND_ALLOW_READ | SND_ALLOW_WRITE | SND_ALLOW_ATOMIC | SND_THIS_ENDPOINT_ONLY;
	case SND_REQUEST_INVALIDATE:
	case SND_REQUEST_FAST_REGISTER:
	case SND_REQUEST_FETCH_AND_ADD:
	case SND_REQUEST_COMPARE_AND_SWAP:
	case SND_REQUEST_SWAP: return every;
	default: return 0;
	}
}

static snd_status check_flags(const char *op, uint32_t flags, uint32_t allowed)
{
	if ((flags & ~allowed) != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: invalid flags %#" PRIx32 ": pass only flags that the call documents", op, flags & ~allowed);
	return SND_SUCCESS;
}

snd_status snd_check_flags(const char *op, uint32_t kind, uint32_t flags) { return check_flags(op, flags, allowed_flags(kind)); }

snd_status snd_check_extended(const struct snd_endpoint *ep, const struct snd_send_request *r, const char *op)
{
	char peer[64];
	if (r->posted_after_end || ep->numbered || ep->conn->peer_extended)
		return SND_SUCCESS;
	snd_name_peer(ep->conn, peer, sizeof peer);
	return snd_fail(SND_NOT_SUPPORTED, "%s: the peer (%s) has no atomics and no immediate data: see the flags of snd_adapter_info", op, peer);
}

/* transfer is what distinguishes the calls of post_transfer. */
struct transfer {
	const char *op; /* names the call in errors */
	uint32_t kind;
	bool invalidate, has_immediate;
	uint32_t token, immediate;
	uint64_t address;
};

/* post_transfer posts a Send, Write or Read on the slow path. The caller holds the lock. */
static snd_status post_transfer(struct snd_endpoint *ep, struct transfer t, uint64_t context, const snd_sge *sge, uint32_t count, uint32_t flags)
{
	const char *op = t.op;
	snd_status s = check_flags(op, flags, allowed_flags(t.kind) | (t.has_immediate ? SND_SOLICIT_EVENT : 0));
	if (s != SND_SUCCESS)
		return s;
	if (count > 0 && sge == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: sge is NULL", op);
	const bool in_line = (flags & SND_INLINE) != 0;
	if (!in_line && count > ep->max_initiator_sge)
		return snd_fail(SND_DATA_OVERRUN, "%s: %" PRIu32 " scatter/gather entries, granted %" PRIu32 ": raise max_initiator_sge or split the request", op, count, ep->max_initiator_sge);
	uint64_t total = 0;
	for (uint32_t i = 0; i < count; i++) {
		total += sge[i].length;
		if (sge[i].length > 0 && sge[i].buffer == NULL && (in_line || !ep->numbered)) /* address 0 may be that of a region */
			return snd_fail(SND_INVALID_PARAMETER, "%s: buffer of entry %" PRIu32 " is NULL", op, i);
		if (in_line && total > ep->inline_size)
			return snd_fail(SND_BUFFER_OVERFLOW, "%s: %" PRIu64 " bytes with SND_INLINE, but inline_size of the endpoint is %" PRIu32 ": raise it in snd_endpoint_config, or post without SND_INLINE", op, total, ep->inline_size);
	}
	if (total > SND_MAX_TRANSFER)
		return snd_fail(SND_BUFFER_OVERFLOW, "%s: %" PRIu64 " bytes, at most %" PRIu64 ": split the request", op, total, SND_MAX_TRANSFER);
	struct snd_send_request *r;
	if ((s = snd_new_request(ep, op, t.kind, flags, context, &r)) != SND_SUCCESS || (t.has_immediate && (s = snd_check_extended(ep, r, op)) != SND_SUCCESS))
		return s;
	if (in_line) {
		/* The request then has one entry, whose address is an index into inline_data. */
		for (uint32_t i = 0; i < count; i++) {
			if (sge[i].length > 0)
				memcpy(r->inline_data + r->total, sge[i].buffer, sge[i].length);
			r->total += sge[i].length;
		}
		if (r->total > 0)
			r->entries[r->count++] = (struct snd_entry){0, (uint32_t)r->total, 0};
	} else {
		for (uint32_t i = 0; i < count; i++)
			if (sge[i].length > 0) {
				struct snd_entry *e = &r->entries[r->count++];
				*e = (struct snd_entry){(uint64_t)(uintptr_t)sge[i].buffer, sge[i].length, sge[i].token};
				snd_resolve(ep->adapter, e->address, e->length, &e->token);
			}
		r->total = total;
	}
	r->remote_address = t.address;
	r->remote_token = t.token;
	r->invalidate = t.invalidate;
	r->has_immediate = t.has_immediate;
	r->immediate = t.immediate;
	return snd_enqueue(ep, r);
}

snd_status snd_submit_on_error(struct snd_endpoint *ep, snd_status s)
{
	if (s != SND_SUCCESS)
		snd_submit(ep);
	return s;
}

/* is_small reports whether the fast path may take a request: one with no flags but those in allowed. The posts allow SND_READ_FENCE, too, because the
 * fast path runs only behind completed requests. try_words allows none. */
static inline bool is_small(const snd_sge *sge, uint32_t count, uint32_t flags, uint32_t allowed, uint32_t most)
{
	return (flags & ~allowed) == 0 && count == 1 && sge != NULL && sge->length - 1 < most;
}

/* is_readable is ENTRY-CHECK of the entry that a Send or Write of the fast path reads. Inline data need no token. */
SND_FAST bool is_readable(struct snd_endpoint *ep, const snd_sge *sge, uint32_t flags)
{
	if ((flags & SND_INLINE) != 0)
		return sge->length <= ep->inline_size && sge->buffer != NULL;
	return snd_allowed(&ep->guard, sge->token, SNDL_RIGHT_LOCAL | SNDL_RIGHT_READ, (uint64_t)(uintptr_t)sge->buffer, sge->length) != NULL;
}

/* send_fast sends a small message in a ring entry. */
SND_FAST bool send_fast(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint32_t flags)
{
	struct snd_connection *c = ep->conn;
	const uint32_t n = sge->length;
	/* The credit guarantees that the peer has posted a receive that can hold fast_max_length bytes. */
	if (!snd_can_run_fast(ep))
		return false;
	if (c->out.next >= c->credit.fast_limit &&
		(c->peer_has_srq || !snd_has_receive(c) || !snd_credit_extend(&c->credit, c->out.next, snd_free_slots(&c->out))))
		return false;
	if (n > c->credit.fast_max_length || !is_readable(ep, sge, flags))
		return false;
	struct snd_slot *slot = snd_next_slot(&c->out);
	snd_set(&slot->words[0], snd_entry_header(SNDL_KIND_SEND_IN_ENTRY, SND_PLAIN_SEND, n, 0));
	memcpy((void *)&slot->words[1], sge->buffer, n); /* COPY: the lock keeps the token valid, see snd_allowed */
	snd_publish(&c->out);
	snd_ring_peer(ep->object.fabric, &c->peer);
	snd_cancel_wakeup(ep);
	if (snd_likely(snd_is_open(&c->far))) /* ORDER conn-state: after the push; see snd_complete_if_open */
		snd_complete_fast(ep, SND_REQUEST_SEND, context, n, flags);
	else /* the connection is ending: only the peer knows whether it has received the message */
		snd_enqueue_pushed(ep, SND_REQUEST_SEND, context, flags)->total = n;
	return true;
}

/* push_write_fast sends a small Write whose data the peer copies. */
static bool push_write_fast(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint64_t address, uint32_t token, uint32_t flags)
{
	struct snd_connection *c = ep->conn;
	const uint32_t n = sge->length;
	if (n > SNDL_MAX_WRITE_IN_ENTRY || snd_free_slots(&c->out) == 0 || !snd_is_open(&c->far) || !is_readable(ep, sge, flags))
		return false;
	struct snd_slot *slot = snd_next_slot(&c->out);
	snd_set(&slot->words[0], snd_entry_header(SNDL_KIND_WRITE_IN_ENTRY, SND_PLAIN_WRITE, n, token));
	snd_set(&slot->words[1], address);
	memcpy((void *)&slot->words[2], sge->buffer, n); /* COPY, as in send_fast */
	snd_publish(&c->out);
	snd_credit_count_entry(&c->credit, c->out.next - 1, false);
	snd_ring_peer(ep->object.fabric, &c->peer);
	snd_cancel_wakeup(ep);
	struct snd_send_request *r = snd_enqueue_pushed(ep, SND_REQUEST_WRITE, context, flags);
	r->total = n;
	r->remote_address = address;
	r->remote_token = token;
	return true;
}

SND_FAST bool write_fast(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint64_t address, uint32_t token, uint32_t flags)
{
	if (!snd_can_run_fast(ep) || snd_copy_would_overtake(ep->conn))
		return false;
	if (snd_unlikely(!ep->requester_copies || (token != 0 && ep->guard.unreachable == token)))
		return push_write_fast(ep, context, sge, address, token, flags);
	const uint32_t local = (flags & SND_INLINE) != 0 ? 0 : sge->token;
	if (!is_readable(ep, sge, flags) || !snd_copy_fast(&ep->guard, token, SNDL_RIGHT_REMOTE | SNDL_RIGHT_WRITE, address, local, sge->buffer, sge->length))
		return false;
	snd_complete_fast(ep, SND_REQUEST_WRITE, context, sge->length, flags);
	return true;
}

/* transfer_words is write_fast or read_fast for some words whose tokens the endpoint knows already. It calls no function. */
SND_FAST bool transfer_words(struct snd_endpoint *ep, uint32_t kind, uint64_t context, const snd_sge *sge, uint64_t address, uint32_t token)
{
	const uint32_t n = sge->length;
	/* The first three conditions are neighbours in memory, and one comparison, because each is with a constant. */
	if (snd_unlikely(ep->state != SND_QP_CONNECTED || ep->slow != 0 || ep->requester_copies != 1 || !snd_is_free(ep) || ep->conn->overtaken != ep->conn->out.next ||
		!snd_cq_is_quiet(ep->initiator_cq, ep->object.fabric)) ||
		(kind == SND_REQUEST_READ && snd_unlikely(ep->read_limit == 0)) ||
		!snd_copy_words(&ep->guard, &ep->conn->far, kind == SND_REQUEST_WRITE, address, token, sge))
		return false;
	ep->adjustment++;
	ep->bytes += n;
	snd_cq_put(ep->initiator_cq, &ep->initiator_slots, SND_SUCCESS, kind, context, n, 0);
	return true;
}

SND_FAST bool read_fast(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint64_t address, uint32_t token, uint32_t flags)
{
	if (!ep->requester_copies || !snd_can_run_fast(ep) || snd_copy_would_overtake(ep->conn) || ep->read_limit == 0 ||
		snd_allowed(&ep->guard, sge->token, SNDL_RIGHT_LOCAL | SNDL_RIGHT_WRITE, (uint64_t)(uintptr_t)sge->buffer, sge->length) == NULL ||
		!snd_copy_fast(&ep->guard, token, SNDL_RIGHT_REMOTE | SNDL_RIGHT_READ, address, sge->token, sge->buffer, sge->length))
		return false;
	snd_complete_fast(ep, SND_REQUEST_READ, context, sge->length, flags);
	return true;
}

SND_FAST snd_status post_send(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint32_t count, uint32_t flags)
{
	if (is_small(sge, count, flags, SND_SILENT_SUCCESS | SND_READ_FENCE | SND_INLINE, SNDL_MAX_SEND_IN_ENTRY) && send_fast(ep, context, sge, flags))
		return SND_SUCCESS;
	return snd_submit_on_error(ep, post_transfer(ep, (struct transfer){.op = "send", .kind = SND_REQUEST_SEND}, context, sge, count, flags));
}

SND_FAST snd_status post_write(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token, uint32_t flags)
{
	if (is_small(sge, count, flags, SND_SILENT_SUCCESS | SND_READ_FENCE | SND_INLINE, SND_SMALL_BYTES) && write_fast(ep, context, sge, address, token, flags))
		return SND_SUCCESS;
	return snd_submit_on_error(ep, post_transfer(ep, (struct transfer){.op = "write", .kind = SND_REQUEST_WRITE, .address = address, .token = token}, context, sge, count, flags));
}

SND_FAST snd_status post_read(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token, uint32_t flags)
{
	if (is_small(sge, count, flags, SND_SILENT_SUCCESS | SND_READ_FENCE, SND_SMALL_BYTES) && read_fast(ep, context, sge, address, token, flags))
		return SND_SUCCESS;
	return snd_submit_on_error(ep, post_transfer(ep, (struct transfer){.op = "read", .kind = SND_REQUEST_READ, .address = address, .token = token}, context, sge, count, flags));
}

snd_status snd_endpoint_send(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "send");
	return snd_leave_with(endpoint->object.fabric, post_send(endpoint, context, sge, count, flags));
}

static struct transfer send_and_invalidate(uint32_t token)
{
	return (struct transfer){.op = "send and invalidate", .kind = SND_REQUEST_SEND, .invalidate = true, .token = token};
}

static struct transfer send_immediate(uint32_t immediate)
{
	return (struct transfer){.op = "send immediate", .kind = SND_REQUEST_SEND, .has_immediate = true, .immediate = immediate};
}

static struct transfer write_immediate(uint64_t address, uint32_t token, uint32_t immediate)
{
	return (struct transfer){.op = "write immediate", .kind = SND_REQUEST_WRITE, .has_immediate = true, .immediate = immediate, .address = address, .token = token};
}

snd_status snd_endpoint_send_and_invalidate(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint32_t token, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "send and invalidate");
	return snd_leave_with(endpoint->object.fabric, snd_submit_on_error(endpoint, post_transfer(endpoint, send_and_invalidate(token), context, sge, count, flags)));
}

snd_status snd_endpoint_send_immediate(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint32_t immediate, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "send immediate");
	return snd_leave_with(endpoint->object.fabric, snd_submit_on_error(endpoint, post_transfer(endpoint, send_immediate(immediate), context, sge, count, flags)));
}

snd_status snd_endpoint_write_immediate(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token,
	uint32_t immediate, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "write immediate");
	return snd_leave_with(endpoint->object.fabric, snd_submit_on_error(endpoint, post_transfer(endpoint, write_immediate(address, token, immediate), context, sge, count, flags)));
}

static __attribute__((noinline)) snd_status write_any(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address,
	uint32_t token, uint32_t flags)
{
	SND_ENTER(ep, SND_TYPE_ENDPOINT, "write");
	return snd_leave_with(ep->object.fabric, post_write(ep, context, sge, count, address, token, flags));
}

static __attribute__((noinline)) snd_status read_any(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address,
	uint32_t token, uint32_t flags)
{
	SND_ENTER(ep, SND_TYPE_ENDPOINT, "read");
	return snd_leave_with(ep->object.fabric, post_read(ep, context, sge, count, address, token, flags));
}

/* try_words runs a request by transfer_words if it can. */
SND_FAST bool try_words(snd_endpoint *endpoint, uint32_t kind, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token, uint32_t flags)
{
	struct snd_bias *bias;
	if (snd_unlikely(!is_small(sge, count, flags, 0, SND_WORDS_BYTES) || !snd_try_enter(SND_OBJECT(endpoint), SND_TYPE_ENDPOINT, &bias)))
		return false;
	const bool done = transfer_words(endpoint, kind, context, sge, address, token);
	snd_try_leave(bias);
	return done;
}

snd_status snd_endpoint_write(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token, uint32_t flags)
{
	return snd_likely(try_words(endpoint, SND_REQUEST_WRITE, context, sge, count, address, token, flags)) ? SND_SUCCESS
		: write_any(endpoint, context, sge, count, address, token, flags);
}

snd_status snd_endpoint_read(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token, uint32_t flags)
{
	return snd_likely(try_words(endpoint, SND_REQUEST_READ, context, sge, count, address, token, flags)) ? SND_SUCCESS
		: read_any(endpoint, context, sge, count, address, token, flags);
}

snd_status snd_post_about(struct snd_endpoint *ep, struct snd_send_request *r, struct snd_invalidatable *object)
{
	r->object = object;
	object->references++;
	snd_status s = snd_enqueue(ep, r);
	if (s != SND_SUCCESS)
		snd_unreference(object);
	return s;
}

static snd_status post_bind(struct snd_endpoint *ep, uint64_t context, snd_mr *mr, snd_window *window, void *buffer, uint64_t length, uint32_t flags)
{
	const char *op = "bind";
	if (!snd_belongs(ep->object.fabric, mr, SND_TYPE_MR) || !snd_belongs(ep->object.fabric, window, SND_TYPE_WINDOW))
		return snd_bad_handle(op, "mr or the window");
	if (mr->region.i.adapter != ep->adapter || window->i.adapter != ep->adapter)
		return snd_fail(SND_INVALID_PARAMETER, "%s: the region or the window is of another adapter", op);
	struct snd_send_request *r = NULL;
	snd_status s = snd_check_flags(op, SND_REQUEST_BIND, flags);
	if (s == SND_SUCCESS)
		s = snd_new_request(ep, op, SND_REQUEST_BIND, flags, context, &r);
	const uint32_t rights = snd_bind_rights(flags);
	if (s == SND_SUCCESS && (flags & (SND_ALLOW_WRITE | SND_ALLOW_ATOMIC)) != 0 && (mr->region.flags & SND_ALLOW_LOCAL_WRITE) == 0)
		s = snd_fail(SND_ACCESS_VIOLATION, "%s: %s, but the region has no SND_ALLOW_LOCAL_WRITE: make the region with this flag", op,
			(flags & SND_ALLOW_WRITE) != 0 ? "SND_ALLOW_WRITE" : "SND_ALLOW_ATOMIC");
	const struct snd_bind_wish wish = {.memory = buffer, .length = length, .rights = rights, .endpoint = ep->number, .only = (flags & SND_THIS_ENDPOINT_ONLY) != 0};
	if (s == SND_SUCCESS && !snd_prepare(window, &mr->region, &wish, &r->binding))
		s = snd_fail(SND_ACCESS_VIOLATION, "%s: %" PRIu64 " bytes at %p: pass at least 1 byte within the %" PRIu64 " of the region at %p", op, length, buffer, mr->region.length, (void *)mr->region.memory);
	if (s == SND_SUCCESS)
		s = snd_post_about(ep, r, &window->i);
	return snd_submit_on_error(ep, s);
}

static snd_status post_fast_register(struct snd_endpoint *ep, uint64_t context, snd_mr *mr, const snd_fast_registration *registration, uint32_t flags)
{
	SND_KEEP_ERRNO;
	const char *op = "fast register";
	SND_CHECK_POINTER(registration, op);
	if (!snd_belongs(ep->object.fabric, mr, SND_TYPE_MR))
		return snd_bad_handle(op, "mr");
	if (mr->region.i.adapter != ep->adapter)
		return snd_fail(SND_INVALID_PARAMETER, "%s: the region is of another adapter", op);
	struct snd_send_request *r = NULL;
	snd_status s = snd_check_flags(op, SND_REQUEST_FAST_REGISTER, flags);
	if (s == SND_SUCCESS && (s = snd_new_request(ep, op, SND_REQUEST_FAST_REGISTER, flags, context, &r)) == SND_SUCCESS)
		s = snd_prepare_registration(ep, mr, registration, &r->registration, op);
	if (s == SND_SUCCESS)
		s = snd_post_about(ep, r, &mr->region.i);
	return snd_submit_on_error(ep, s);
}

static snd_status post_invalidation(struct snd_endpoint *ep, const char *op, uint64_t context, struct snd_invalidatable *object, uint32_t flags)
{
	if (object->adapter != ep->adapter)
		return snd_fail(SND_INVALID_PARAMETER, "%s: the object is of another adapter", op);
	struct snd_send_request *r = NULL;
	snd_status s = snd_check_flags(op, SND_REQUEST_INVALIDATE, flags);
	if (s == SND_SUCCESS && (s = snd_new_request(ep, op, SND_REQUEST_INVALIDATE, flags, context, &r)) == SND_SUCCESS)
		s = snd_post_about(ep, r, object);
	return snd_submit_on_error(ep, s);
}

static snd_status post_invalidate(struct snd_endpoint *ep, uint64_t context, snd_window *window, uint32_t flags)
{
	const char *op = "invalidate";
	return snd_belongs(ep->object.fabric, window, SND_TYPE_WINDOW) ? post_invalidation(ep, op, context, &window->i, flags) : snd_bad_handle(op, "window");
}

static snd_status post_invalidate_mr(struct snd_endpoint *ep, uint64_t context, snd_mr *mr, uint32_t flags)
{
	const char *op = "invalidate region";
	if (!snd_belongs(ep->object.fabric, mr, SND_TYPE_MR))
		return snd_bad_handle(op, "mr");
	if (mr->fast_pages == 0)
		return snd_fail(SND_INVALID_DEVICE_REQUEST, "%s: the region is not for fast registration: call snd_mr_close", op);
	return post_invalidation(ep, op, context, &mr->region.i, flags);
}

snd_status snd_endpoint_bind(snd_endpoint *endpoint, uint64_t context, snd_mr *mr, snd_window *window, void *buffer, uint64_t length, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "bind");
	return snd_leave_with(endpoint->object.fabric, post_bind(endpoint, context, mr, window, buffer, length, flags));
}

snd_status snd_endpoint_fast_register(snd_endpoint *endpoint, uint64_t context, snd_mr *mr, const snd_fast_registration *registration, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "fast register");
	return snd_leave_with(endpoint->object.fabric, post_fast_register(endpoint, context, mr, registration, flags));
}

snd_status snd_endpoint_invalidate(snd_endpoint *endpoint, uint64_t context, snd_window *window, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "invalidate");
	return snd_leave_with(endpoint->object.fabric, post_invalidate(endpoint, context, window, flags));
}

snd_status snd_endpoint_invalidate_mr(snd_endpoint *endpoint, uint64_t context, snd_mr *mr, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "invalidate region");
	return snd_leave_with(endpoint->object.fabric, post_invalidate_mr(endpoint, context, mr, flags));
}

/* post_with_immediate posts a Send or Write of a list that has immediate data. */
static snd_status post_with_immediate(struct snd_endpoint *ep, const snd_request *r)
{
	const bool is_write = r->type == SND_REQUEST_WRITE;
	if (r->has_immediate != 1 || (!is_write && r->token != 0))
		return snd_fail(SND_INVALID_PARAMETER, "%s immediate: %s", is_write ? "write" : "send",
			r->has_immediate != 1 ? "has_immediate: pass 0 or 1" : "token: a Send with immediate data cannot invalidate: pass 0");
	return snd_submit_on_error(ep, post_transfer(ep, is_write ? write_immediate(r->address, r->token, r->immediate) : send_immediate(r->immediate),
		r->context, r->sge, r->count, r->flags));
}

static snd_status post_one(struct snd_endpoint *ep, const snd_request *r)
{
	switch (r->type) {
	case SND_REQUEST_RECEIVE:
		return r->flags != 0 ? snd_fail(SND_INVALID_PARAMETER, "receive: flags %#" PRIx32 ": a receive takes none", r->flags) : snd_post_receive(ep, r->context, r->sge, r->count);
	case SND_REQUEST_SEND:
		if (snd_unlikely(r->has_immediate != 0))
			return post_with_immediate(ep, r);
		return r->token == 0 ? post_send(ep, r->context, r->sge, r->count, r->flags)
			: post_transfer(ep, send_and_invalidate(r->token), r->context, r->sge, r->count, r->flags);
	case SND_REQUEST_WRITE:
		if (snd_unlikely(r->has_immediate != 0))
			return post_with_immediate(ep, r);
		return post_write(ep, r->context, r->sge, r->count, r->address, r->token, r->flags);
	case SND_REQUEST_READ: return post_read(ep, r->context, r->sge, r->count, r->address, r->token, r->flags);
	case SND_REQUEST_FETCH_AND_ADD:
	case SND_REQUEST_COMPARE_AND_SWAP:
	case SND_REQUEST_SWAP: return snd_post_atomic(ep, r->type, r->context, r->sge, r->count, r->address, r->token, r->operand, r->swap, r->flags);
	case SND_REQUEST_BIND:
		return ep->numbered ? snd_post_key_bind(ep, r) : post_bind(ep, r->context, r->mr, r->window, (void *)(uintptr_t)r->address, r->length, r->flags);
	case SND_REQUEST_INVALIDATE:
		if (ep->numbered)
			return snd_post_key_invalidate(ep, r);
		return r->window == NULL && r->mr != NULL ? post_invalidate_mr(ep, r->context, r->mr, r->flags) : post_invalidate(ep, r->context, r->window, r->flags);
	case SND_REQUEST_FAST_REGISTER: return post_fast_register(ep, r->context, r->mr, r->registration, r->flags);
	default: return snd_fail(SND_INVALID_PARAMETER, "unknown type %" PRIu32 ": pass a type of initiator requests, or SND_REQUEST_RECEIVE", r->type);
	}
}

snd_status snd_refuse_list(snd_status s, uint32_t i, uint32_t count)
{
	char text[400];
	snprintf(text, sizeof text, "%s", snd_last_error());
	return snd_fail(s, "post: request %" PRIu32 " of %" PRIu32 ": %s", i + 1, count, text);
}

/* post_list posts requests until one is refused, and stores how many it has posted. */
static snd_status post_list(struct snd_endpoint *ep, const snd_request *requests, uint32_t count, uint32_t *posted)
{
	snd_status s = SND_SUCCESS;
	uint32_t i = 0;
	while (i < count && (s = post_one(ep, &requests[i])) == SND_SUCCESS)
		i++;
	if (s != SND_SUCCESS) {
		snd_submit(ep);
		s = snd_refuse_list(s, i, count);
	}
	*posted = i;
	return s;
}

snd_status snd_endpoint_post(snd_endpoint *endpoint, const snd_request *requests, uint32_t count, uint32_t *posted)
{
	const char *op = "post";
	uint32_t n = 0;
	if (posted != NULL)
		*posted = 0;
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, op);
	struct snd_fabric *f = endpoint->object.fabric;
	if (count > 0 && requests == NULL)
		return snd_leave_with(f, snd_fail(SND_INVALID_PARAMETER, "%s: requests is NULL", op));
	const snd_status s = post_list(endpoint, requests, count, &n);
	if (posted != NULL)
		*posted = n;
	return snd_leave_with(f, s);
}

snd_status snd_endpoint_post_all(snd_endpoint *endpoint, const snd_request *requests, uint32_t count)
{
	uint32_t posted;
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "post");
	if (!has_slots(endpoint, count))
		return snd_leave_with(endpoint->object.fabric, refuse_full(endpoint, "post"));
	return snd_leave_with(endpoint->object.fabric, post_list(endpoint, requests, count, &posted));
}

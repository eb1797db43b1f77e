/* Atomics: their posts, and how they run. TWIN endpoint/req_atomic.go. */
#include "endpoint/req_atomic.h"

#include <inttypes.h>

#include "endpoint/cq.h"
#include "endpoint/mr_mapping.h"
#include "endpoint/qp.h"
#include "endpoint/qp_post.h"
#include "endpoint/req_execute.h"
#include "shm/doorbell.h"

enum { SIZE = 8 };

/* store_result stores the old value in the local entry. */
static enum snd_fault store_result(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t old)
{
	struct snd_operand sink, source = {.memory = (unsigned char *)&old};
	enum snd_fault sink_fault, source_fault;
	snd_set_operand(r, &sink, &r->entries[0], SNDL_RIGHT_WRITE);
	snd_copy(&ep->guard, &sink, &source, SIZE, &sink_fault, &source_fault);
	return sink_fault;
}

/* send_atomic sends an atomic to the peer, which changes its memory. */
static enum snd_outcome send_atomic(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_connection *c = ep->conn;
	r->needs_ack = true;
	if (c->atomics_sent - c->atomics_taken == SNDL_RESULTS)
		snd_take_results(ep);
	if (snd_has_reads_in_flight(c, ep->read_limit) || c->atomics_sent - c->atomics_taken == SNDL_RESULTS)
		return snd_stall(ep, r, SND_STALL_ORDER);
	if (!snd_has_free_entry(ep))
		return snd_stall(ep, r, SND_STALL_QUEUE);
	r->result_index = c->atomics_sent++ % SNDL_RESULTS;
	uint64_t words[7] = {snd_entry_header(SNDL_KIND_ATOMIC, SND_PLAIN_WRITE, 0, r->remote_token), r->remote_address, r->change.operand, r->change.swap,
		r->change.operation, r->result_index};
	snd_push_entry(ep, r, words, false);
	ep->counters.fragments++;
	snd_count_read(c, r->end_entry);
	snd_ring_peer(ep->object.fabric, &c->peer);
	return SND_EXECUTED;
}

enum snd_outcome snd_execute_atomic(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_operand sink;
	uint64_t old;
	snd_set_operand(r, &sink, &r->entries[0], SNDL_RIGHT_WRITE);
	enum snd_fault f = snd_check_operand(&ep->guard, &sink, SIZE);
	if (f != SND_NO_FAULT) /* before the peer's memory changes */
		return snd_reject_local(ep, r, &r->entries[0], f);
	r->responder_copies = r->responder_copies || snd_peer_must_copy(ep) || snd_copy_would_overtake(ep->conn);
	if (r->responder_copies)
		return send_atomic(ep, r);
	const struct snd_operand remote = {.token = r->remote_token, .rights = SNDL_RIGHT_REMOTE | SNDL_RIGHT_ATOMIC, .peers = true, .bind = &r->remote_bind,
		.address = r->remote_address};
	f = snd_change_word(&ep->guard, &remote, r->change, &old);
	switch (f) {
	case SND_NO_FAULT: break;
	case SND_FAULT_DISCONNECTED: return SND_BLOCKED; /* the next check of the connection notices the end too */
	case SND_FAULT_UNREACHABLE: r->responder_copies = true; return send_atomic(ep, r);
	default: return snd_reject_remote(ep, r, f);
	}
	(void)store_result(ep, r, old); /* the fabric's lock keeps the token valid */
	snd_finish(r, SND_SUCCESS);
	return SND_EXECUTED;
}

void snd_take_result(struct snd_endpoint *ep, struct snd_send_request *r)
{
	snd_finish(r, SND_SUCCESS);
	const uint64_t old = snd_load(&ep->conn->peer_qp->results[r->result_index]); /* ORDER result-stored: after the release of the entry; pairs with the store in serve_atomic */
	ep->conn->atomics_taken++;
	const enum snd_fault f = store_result(ep, r, old);
	if (f != SND_NO_FAULT && ep->state != SND_QP_CONNECTED && ep->state != SND_QP_PEER_DISCONNECTED)
		snd_cancel_request(r); /* snd_tear_down has revoked the token */
	else if (f != SND_NO_FAULT)
		snd_reject_local(ep, r, &r->entries[0], f);
}

void snd_take_results(struct snd_endpoint *ep)
{
	struct snd_connection *c = ep->conn;
	if (c == NULL || !c->attached || ep->teardown != SND_USES_PEER_STATE)
		return;
	const uint64_t released = snd_load_released(&c->out); /* once: those that are taken must be the oldest, since their places go to the next atomics */
	for (uint64_t i = ep->completed; i != ep->next && c->atomics_sent != c->atomics_taken; i++) {
		struct snd_send_request *r = snd_request_at(ep, i);
		if (snd_is_atomic(r) && r->state == SND_REQ_SENT && (int64_t)(released - r->end_entry) >= 0)
			snd_take_result(ep, r);
	}
}

/* change_fast runs an atomic within its post. It stores in *bind which bind of the remote token it has used: if that was revoked meanwhile,
 * the request fails on the slow path. */
static bool change_fast(struct snd_endpoint *ep, uint32_t kind, uint64_t context, const snd_sge *sge, uint64_t address, uint32_t token, struct snd_change change,
	uint64_t *bind, uint32_t flags)
{
	const struct snd_operand remote = {.token = token, .rights = SNDL_RIGHT_REMOTE | SNDL_RIGHT_ATOMIC, .peers = true, .bind = bind, .address = address};
	uint64_t old;
	if (!ep->requester_copies || !snd_can_run_fast(ep) || !ep->conn->peer_extended || snd_copy_would_overtake(ep->conn) || ep->read_limit == 0 ||
		snd_allowed(&ep->guard, sge->token, SNDL_RIGHT_LOCAL | SNDL_RIGHT_WRITE, (uint64_t)(uintptr_t)sge->buffer, SIZE) == NULL ||
		snd_change_word(&ep->guard, &remote, change, &old) != SND_NO_FAULT)
		return false;
	snd_move(sge->buffer, (const unsigned char *)&old, SIZE); /* COPY: the lock keeps the local token valid, see snd_allowed */
	snd_complete_fast(ep, kind, context, SIZE, flags);
	return true;
}

/* check checks the arguments of an atomic. With a card, the completion reports an address that is not aligned, and 8 bytes of a longer entry are used. */
static snd_status check(const struct snd_endpoint *ep, const char *op, uint32_t kind, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t flags)
{
	const snd_status s = snd_check_flags(op, kind, flags);
	if (s != SND_SUCCESS)
		return s;
	if (count != 1)
		return snd_fail(SND_DATA_OVERRUN, "%s: %" PRIu32 " scatter/gather entries, want 1: pass one entry of 8 bytes for the old value", op, count);
	if (sge == NULL || (sge->buffer == NULL && !ep->numbered)) /* address 0 may be that of a region */
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s is NULL", op, sge == NULL ? "sge" : "the buffer of the entry");
	if (ep->numbered ? sge->length < SIZE : sge->length != SIZE)
		return snd_fail(SND_INVALID_BUFFER_SIZE, "%s: an entry of %" PRIu32 " bytes, want 8: pass an entry of 8 bytes for the old value", op, sge->length);
	if (address % SIZE != 0 && !ep->numbered)
		return snd_fail(SND_INVALID_PARAMETER, "%s: address %#" PRIx64 " is not a multiple of 8: align the numbers that atomics change", op, address);
	return SND_SUCCESS;
}

static const char *op_of(uint32_t kind)
{
	return kind == SND_REQUEST_FETCH_AND_ADD ? "fetch and add" : kind == SND_REQUEST_SWAP ? "swap" : "compare and swap";
}

snd_status snd_post_atomic(struct snd_endpoint *ep, uint32_t kind, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token,
	uint64_t operand, uint64_t swap, uint32_t flags)
{
	const char *op = op_of(kind);
	const struct snd_change change = {SNDL_OPERATION_FETCH_AND_ADD + (kind - SND_REQUEST_FETCH_AND_ADD), operand, swap};
	uint64_t bind = 0;
	struct snd_send_request *r;
	snd_status s = check(ep, op, kind, sge, count, address, flags);
	if (s == SND_SUCCESS && (flags & SND_DEFER) == 0 && change_fast(ep, kind, context, sge, address, token, change, &bind, flags))
		return SND_SUCCESS;
	if (s == SND_SUCCESS && (s = snd_new_request(ep, op, kind, flags, context, &r)) == SND_SUCCESS && (s = snd_check_extended(ep, r, op)) == SND_SUCCESS) {
		struct snd_entry *e = &r->entries[r->count++];
		*e = (struct snd_entry){(uint64_t)(uintptr_t)sge->buffer, SIZE, sge->token};
		snd_resolve(ep->adapter, e->address, e->length, &e->token);
		r->total = SIZE;
		r->remote_address = address;
		r->remote_token = token;
		r->remote_bind = bind;
		r->change = change;
		s = snd_enqueue(ep, r);
	}
	return snd_submit_on_error(ep, s);
}

snd_status snd_endpoint_fetch_and_add(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token, uint64_t add,
	uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "fetch and add");
	return snd_leave_with(endpoint->object.fabric, snd_post_atomic(endpoint, SND_REQUEST_FETCH_AND_ADD, context, sge, count, address, token, add, 0, flags));
}

snd_status snd_endpoint_compare_and_swap(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token, uint64_t compare,
	uint64_t swap, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "compare and swap");
	return snd_leave_with(endpoint->object.fabric, snd_post_atomic(endpoint, SND_REQUEST_COMPARE_AND_SWAP, context, sge, count, address, token, compare, swap, flags));
}

snd_status snd_endpoint_swap(snd_endpoint *endpoint, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token, uint64_t value, uint32_t flags)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "swap");
	return snd_leave_with(endpoint->object.fabric, snd_post_atomic(endpoint, SND_REQUEST_SWAP, context, sge, count, address, token, value, 0, flags));
}

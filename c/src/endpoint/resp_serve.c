/* Serving the peer's ring entries, in order. Every word of an entry is loaded once, and the copy is checked.
 * TWIN endpoint/resp_serve.go, endpoint/resp_fast.go, endpoint/resp_entry.go. */
#include "endpoint/resp_serve.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "endpoint/cm_teardown.h"
#include "endpoint/cq.h"
#include "endpoint/describe.h"
#include "endpoint/hook.h"
#include "endpoint/qp.h"
#include "endpoint/qp_receive.h"
#include "endpoint/req_atomic.h"
#include "endpoint/srq.h"
#include "shm/doorbell.h"
#include "shm/liveness.h"
#include "shm/work.h"
#include "window/invalidatable.h"

#define LENGTH_BITS (SNDL_ENTRY_LENGTH_MASK << SNDL_ENTRY_LENGTH_SHIFT)

/* snd_serve_sends_fast receives consecutive Sends whose data is in the entry, stores the results, and returns
 * their number. It stops at the first that needs the slow path. The caller releases the entries. */
uint32_t snd_serve_sends_fast(struct snd_endpoint *ep, snd_result *results, uint32_t room)
{
	struct snd_consumer *in = &ep->conn->in;
	uint32_t n = 0;
	while (n < room && ep->rcompleted != ep->rposted && ep->srq == NULL) {
		struct snd_slot *slot = snd_front(in);
		if (slot == NULL)
			break;
		const uint64_t word = snd_relaxed(&slot->words[0]); /* loaded once: the peer can overwrite it */
		const uint64_t size = word >> SNDL_ENTRY_LENGTH_SHIFT & SNDL_ENTRY_LENGTH_MASK;
		struct snd_receive *r = snd_receive_at(ep, ep->rcompleted);
		if ((word & ~LENGTH_BITS) != snd_entry_header(SNDL_KIND_SEND_IN_ENTRY, SND_PLAIN_SEND, 0, 0) || size - 1 >= SNDL_MAX_SEND_IN_ENTRY || r->count != 1 || size > r->single.length ||
			snd_allowed(&ep->guard, r->single.token, SNDL_RIGHT_LOCAL | SNDL_RIGHT_WRITE, r->single.address, size) == NULL)
			break;
		snd_move((unsigned char *)(uintptr_t)r->single.address, (const unsigned char *)&slot->words[1], size); /* COPY: the lock keeps the token valid, see snd_allowed */
		ep->rcompleted++;
		in->next++;
		snd_set_result((snd_word *)(void *)&results[n++], SND_SUCCESS, size, ep->receive_slots.context, r->context, SND_REQUEST_RECEIVE, 0);
	}
	return n;
}

static bool serve_send_fast(struct snd_endpoint *ep)
{
	snd_result r;
	if (snd_serve_sends_fast(ep, &r, 1) == 0)
		return false;
	snd_cq_push(ep->receive_cq, &ep->receive_slots, SND_SUCCESS, SND_REQUEST_RECEIVE, r.request_context, r.bytes, 0, false);
	if (snd_unreleased(&ep->conn->in) >= (ep->conn->in.mask + 1) / 4)
		snd_release_entries(ep, false);
	return true;
}

/* serve_write_fast runs a small Write without flags whose data is in the entry. */
static bool serve_write_fast(struct snd_endpoint *ep, struct snd_slot *slot)
{
	struct snd_connection *c = ep->conn;
	const uint64_t word = snd_relaxed(&slot->words[0]), address = snd_relaxed(&slot->words[1]);
	const uint64_t n = word >> SNDL_ENTRY_LENGTH_SHIFT & SNDL_ENTRY_LENGTH_MASK;
	if ((word & 0xffff) != ep->write_header || n - 1 >= SNDL_MAX_WRITE_IN_ENTRY || !snd_is_open(&c->far))
		return false;
	struct snd_own_entry *e = snd_allowed(&ep->guard, (uint32_t)(word >> SNDL_ENTRY_TOKEN_SHIFT), SNDL_RIGHT_REMOTE | SNDL_RIGHT_WRITE, address, n);
	if (e == NULL || (e->scope != 0 && e->scope != ep->number))
		return false;
	snd_move(e->memory + (address - e->base), (const unsigned char *)&slot->words[2], n); /* COPY, as in snd_serve_sends_fast */
	c->in.next++;
	snd_release_entries(ep, true);
	return true;
}

/* snd_release_entries returns the slots of finished entries to the peer. It rings if always_ring is set, or if the
 * peer asked to be woken when slots are free. */
void snd_release_entries(struct snd_endpoint *ep, bool always_ring)
{
	struct snd_connection *c = ep->conn;
	if (snd_likely(c->out.relaxed))
		snd_release_slots(&c->in);
	else
		snd_release_slots_fenced(&c->in);
	if (always_ring || snd_load32(&c->peer_qp->need_wakeup) != 0) /* ORDER need-wakeup: after the release; pairs with the store and the barrier in snd_request_wakeup */
		snd_ring_peer(ep->object.fabric, &c->peer);
}

/* snd_decode_entry decodes a slot into ep->in_entry. It returns false if no correct peer writes such an entry. */
bool snd_decode_entry(struct snd_endpoint *ep, const struct snd_slot *slot)
{
	uint64_t w[7];
	for (int i = 0; i < 7; i++)
		w[i] = snd_relaxed(&slot->words[i]);
	const bool known = snd_entry_decode(&ep->in_entry, w);
	if (snd_unlikely((ep->in_entry.flags & SNDL_FLAG_HASHED) != 0))
		snd_add_payload_checks(ep);
	ep->in_copied = 0;
	ep->remote_bind = 0;
	if (ep->in_entry.flags & SNDL_FLAG_FIRST)
		ep->local_bind = 0;
	return known;
}

static enum snd_outcome protocol_error(struct snd_endpoint *ep, const char *what)
{
	snd_record_lost_peer(ep->object.fabric, ep->conn->peer.id);
	ep->end_cause = SNDL_END_FAULT;
	snd_terminate(ep, SND_CONNECTION_ABORTED, "serve: the peer sent %s (kind %" PRIu32 ", flags %#" PRIx32 ", length %" PRIu32 "): its memory is damaged, or it does not run softnd",
		what, ep->in_entry.kind, ep->in_entry.flags, ep->in_entry.payload_length);
	return SND_EXECUTED;
}

void snd_fail_serving(struct snd_endpoint *ep, snd_status status, snd_status cause, const char *format, ...)
{
	char why[SND_REASON];
	va_list args;
	va_start(args, format);
	vsnprintf(why, sizeof why, format, args);
	va_end(args);
	struct snd_consumer *in = &ep->conn->in;
	snd_release_slots(in);
	ep->counters.accesses_refused++;
	snd_set32(&ep->local_qp->fault_status, status);
	snd_release(&ep->local_qp->fault, in->next + 1); /* ORDER fault: before the abort, whose reader loads it */
	in->next++; /* not released: else the peer would complete the request with success */
	ep->conn->inbound_failed = true;
	ep->fault = status;
	ep->end_cause = SNDL_END_FAULT;
	snd_record_lost_peer(ep->object.fabric, ep->conn->peer.id);
	snd_terminate(ep, cause, "%s", why);
}

void snd_fail_receive(struct snd_endpoint *ep, const struct snd_entry *e, enum snd_fault f)
{
	const struct snd_operand o = {.address = e->address, .token = e->token, .rights = SNDL_RIGHT_LOCAL};
	char range[SND_REASON];
	snd_describe_range(ep, &o, e->length, range, sizeof range);
	snd_fail_serving(ep, SND_REMOTE_ERROR, SND_ACCESS_VIOLATION, "receive: an entry of %s: %s", range, snd_fault_text(f));
}

/* snd_fill_receive copies n bytes from source into the entries of r, from byte at on, and advances source. It returns
 * false if the copy has failed. */
bool snd_fill_receive(struct snd_endpoint *ep, struct snd_receive *r, uint64_t at, struct snd_operand *source, uint64_t n)
{
	while (n > 0) {
		struct snd_entry e = snd_entry_at(snd_entries_of(r), r->count, at);
		uint64_t part = e.length < n ? e.length : n;
		if (part == 0)
			return false; /* the caller has checked the capacity */
		struct snd_operand sink = {.address = e.address, .token = e.token, .rights = SNDL_RIGHT_LOCAL | SNDL_RIGHT_WRITE, .bind = &ep->local_bind};
		enum snd_fault local, remote;
		snd_copy(&ep->guard, &sink, source, part, &local, &remote);
		if (local != SND_NO_FAULT) {
			snd_complete_receive(ep, r, SND_ACCESS_VIOLATION, 0, 0);
			snd_fail_receive(ep, &e, local);
			return false;
		}
		if (remote == SND_FAULT_DISCONNECTED)
			return false; /* the next check of the connection notices the end too */
		if (remote != SND_NO_FAULT) {
			char range[SND_REASON];
			snd_describe_range(ep, source, part, range, sizeof range);
			snd_fail_serving(ep, snd_by_number(ep, SND_INVALID_ADDRESS, SND_ACCESS_VIOLATION), SND_REMOTE_ERROR, "receive: the sender's memory, %s: %s", range, snd_fault_text(remote));
			return false;
		}
		if (source->memory != NULL)
			source->memory += part;
		else
			source->address += part;
		at += part;
		n -= part;
	}
	return true;
}

static enum snd_outcome fail_invalidate(struct snd_endpoint *ep, struct snd_receive *r)
{
	snd_complete_receive(ep, r, SND_INVALID_DEVICE_REQUEST, 0, 0);
	snd_fail_serving(ep, snd_by_number(ep, SND_CONNECTION_ABORTED, SND_REMOTE_ERROR), SND_INVALID_DEVICE_REQUEST, "receive: the peer asked to invalidate token(...%02x), which names no bound window or registered region of this endpoint",
		ep->in_entry.token & 0xff);
	return SND_EXECUTED;
}

/* finish_send invalidates the window or region that the message names, if any, and completes the receive. When the program
 * takes the result, no copy uses the token. */
static enum snd_outcome finish_send(struct snd_endpoint *ep, struct snd_receive *r, uint64_t total)
{
	if (snd_unlikely(ep->hook != NULL) && ep->invalidating == NULL && !ep->hook->received(ep, r, total))
		return SND_EXECUTED;
	if ((ep->in_entry.flags & SNDL_FLAG_INVALIDATE) == 0) {
		snd_complete_receive(ep, r, SND_SUCCESS, total, 0);
		return SND_EXECUTED;
	}
	if (ep->invalidating == NULL) {
		struct snd_invalidatable *i = snd_find_bound(ep->object.fabric->table, ep->adapter_number, ep->number, ep->in_entry.token, SNDL_RIGHT_REMOTE);
		if (i == NULL)
			return fail_invalidate(ep, r); /* a local Invalidate came first */
		snd_take_results(ep);
		snd_settle_arrived(ep); /* a wrong one fails the connection when it completes */
		snd_begin_invalidation(i, ep->number, false);
		i->references++;
		ep->invalidating = i;
		if (!snd_end_invalidation(i))
			snd_wake_progress(ep->object.fabric); /* no ring announces the end of a drain */
	}
	if (!snd_end_invalidation(ep->invalidating))
		return SND_BLOCKED;
	snd_unreference(ep->invalidating);
	ep->invalidating = NULL;
	snd_complete_receive(ep, r, SND_SUCCESS, total, ep->in_entry.token);
	return SND_EXECUTED;
}

/* refuses_message checks the message that the entry begins, before any of its data is copied. If r cannot receive it, it fails
 * the receive and the connection, and returns true. */
static bool refuses_message(struct snd_endpoint *ep, struct snd_receive *r)
{
	uint64_t total = ep->in_entry.request_length;
	if (ep->invalidating != NULL)
		return false; /* the data is copied */
	if (ep->in_entry.kind == SNDL_KIND_SEND_IN_ENTRY)
		total = ep->in_entry.payload_length;
	else if (ep->in_entry.kind != SNDL_KIND_SEND_FRAGMENT || (ep->in_entry.flags & SNDL_FLAG_FIRST) == 0 || ep->in_copied != 0)
		return false;
	if ((ep->in_entry.flags & SNDL_FLAG_INVALIDATE) != 0 && snd_find_bound(ep->object.fabric->table, ep->adapter_number, ep->number, ep->in_entry.token, SNDL_RIGHT_REMOTE) == NULL) {
		fail_invalidate(ep, r);
		return true;
	}
	if (total <= r->capacity)
		return false;
	const uint64_t capacity = r->capacity; /* the completion may free r */
	snd_complete_receive(ep, r, SND_BUFFER_OVERFLOW, 0, 0);
	snd_fail_serving(ep, snd_by_number(ep, SND_INVALID_DEVICE_REQUEST, SND_REMOTE_ERROR), SND_BUFFER_OVERFLOW, "receive: a message of %" PRIu64 " bytes for a receive of %" PRIu64 ": post larger receives",
		total, capacity);
	return true;
}

static enum snd_outcome serve_send_in_entry(struct snd_endpoint *ep, struct snd_receive *r)
{
	uint64_t n = ep->in_entry.payload_length;
	if (ep->invalidating == NULL) {
		struct snd_operand source = {.memory = ep->in_entry.payload};
		if (!snd_fill_receive(ep, r, 0, &source, n))
			return SND_EXECUTED;
	}
	return finish_send(ep, r, n);
}

static enum snd_outcome serve_send_fragment(struct snd_endpoint *ep, struct snd_receive *r, uint64_t *budget)
{
	const uint64_t length = ep->in_entry.fragment_length;
	if ((ep->in_entry.flags & SNDL_FLAG_FIRST) != 0 && ep->in_copied == 0 && ep->invalidating == NULL)
		ep->message_received = 0;
	const uint64_t number = ep->conn->in.next;
	if ((ep->in_entry.flags & SNDL_FLAG_FIRST) == 0 && number != ep->next_fragment)
		return protocol_error(ep, "a fragment that continues no message"); /* another message may have taken the receive */
	uint64_t received = ep->message_received < r->capacity ? ep->message_received : r->capacity;
	if (length > r->capacity - received + ep->in_copied)
		return protocol_error(ep, "more bytes of a message than announced");
	while (ep->in_copied < length) {
		if (*budget == 0)
			return SND_PARTIAL;
		uint64_t n = length - ep->in_copied < *budget ? length - ep->in_copied : *budget;
		struct snd_operand source = {.token = ep->in_entry.sender_token, .rights = SNDL_RIGHT_LOCAL | SNDL_RIGHT_READ,
			.address = ep->in_entry.sender_address + ep->in_copied, .peers = true, .bind = &ep->remote_bind};
		if (!snd_fill_receive(ep, r, ep->message_received, &source, n))
			return ep->state == SND_QP_FAILED ? SND_EXECUTED : SND_BLOCKED;
		ep->message_received += n;
		ep->in_copied += n;
		*budget -= n;
	}
	if ((ep->in_entry.flags & SNDL_FLAG_LAST) == 0) {
		ep->next_fragment = number + 1;
		return SND_EXECUTED;
	}
	return finish_send(ep, r, ep->message_received);
}

void snd_refuse_access(struct snd_endpoint *ep, const struct snd_operand *o, uint64_t n, enum snd_fault f)
{
	char range[SND_REASON];
	snd_describe_range(ep, o, n, range, sizeof range);
	const snd_status s = o->peers ? SND_INVALID_ADDRESS : f == SND_FAULT_UNALIGNED ? SND_INVALID_DEVICE_REQUEST : SND_ACCESS_VIOLATION;
	snd_fail_serving(ep, snd_by_number(ep, s, SND_ACCESS_VIOLATION), SND_CONNECTION_ABORTED, "serve: the peer was refused a %s of %s%s: %s",
		ep->in_entry.kind == SNDL_KIND_READ_FRAGMENT ? "read" : ep->in_entry.kind == SNDL_KIND_ATOMIC ? "change" : "write", o->peers ? "its own memory, " : "", range, snd_fault_text(f));
}

/* serve_fragment runs a fragment of the peer's Read or Write on local memory. */
static enum snd_outcome serve_fragment(struct snd_endpoint *ep, uint64_t *budget)
{
	const bool read = ep->in_entry.kind == SNDL_KIND_READ_FRAGMENT;
	const uint64_t length = ep->in_entry.fragment_length;
	struct snd_operand local = {.token = ep->in_entry.token, .rights = SNDL_RIGHT_REMOTE | (read ? SNDL_RIGHT_READ : SNDL_RIGHT_WRITE),
		.address = ep->in_entry.receiver_address, .endpoint = ep->number, .bind = &ep->local_bind};
	/* The whole range of the request is checked before its first byte is copied. */
	uint64_t whole = length;
	if ((ep->in_entry.flags & SNDL_FLAG_FIRST) != 0 && ep->in_entry.request_length > whole)
		whole = ep->in_entry.request_length;
	if (ep->in_copied == 0 && (whole > (length < *budget ? length : *budget) || ep->hook != NULL)) {
		enum snd_fault f = snd_check_operand(&ep->guard, &local, whole);
		if (f != SND_NO_FAULT) {
			snd_refuse_access(ep, &local, whole, f);
			return SND_EXECUTED;
		}
	}
	while (ep->in_copied < length) {
		if (*budget == 0)
			return SND_PARTIAL;
		uint64_t at = ep->in_copied, n = length - at < *budget ? length - at : *budget;
		if (snd_unlikely(ep->hook != NULL) && (at = ep->hook->served_bytes(ep, &n), n == 0))
			return SND_BLOCKED;
		local.address = ep->in_entry.receiver_address + at;
		struct snd_operand remote = {.token = ep->in_entry.sender_token, .rights = SNDL_RIGHT_LOCAL | (read ? SNDL_RIGHT_WRITE : SNDL_RIGHT_READ),
			.address = ep->in_entry.sender_address + at, .peers = true, .bind = &ep->remote_bind};
		enum snd_fault here, there;
		const struct snd_operand *sink = read ? &remote : &local, *source = read ? &local : &remote;
		enum snd_fault *sink_fault = read ? &there : &here, *source_fault = read ? &here : &there;
		bool matches = true;
		if (snd_unlikely(ep->hook != NULL) && (ep->in_entry.flags & SNDL_FLAG_HASHED) != 0) /* an entry with a hash has brought the hook with it */
			matches = ep->hook->copy_served(ep, sink, source, n, sink_fault, source_fault);
		else
			snd_copy(&ep->guard, sink, source, n, sink_fault, source_fault);
		if (there == SND_FAULT_DISCONNECTED)
			return SND_BLOCKED;
		if (here != SND_NO_FAULT || there != SND_NO_FAULT) {
			snd_refuse_access(ep, here != SND_NO_FAULT ? &local : &remote, length, here != SND_NO_FAULT ? here : there);
			return SND_EXECUTED;
		}
		if (!matches)
			return SND_EXECUTED;
		ep->in_copied += n;
		if (snd_unlikely(ep->hook != NULL))
			ep->hook->copied_served(ep, n);
		*budget -= n;
	}
	return SND_EXECUTED;
}

static enum snd_outcome serve_write_in_entry(struct snd_endpoint *ep)
{
	struct snd_operand source = {.memory = ep->in_entry.payload}, sink = {.token = ep->in_entry.token,
		.rights = SNDL_RIGHT_REMOTE | SNDL_RIGHT_WRITE, .address = ep->in_entry.receiver_address, .endpoint = ep->number};
	enum snd_fault sink_fault, source_fault;
	enum snd_outcome out;
	if (ep->in_entry.payload_length == 0)
		return SND_EXECUTED; /* it brings a number only, and names no memory */
	if (snd_unlikely(ep->hook != NULL) && ep->hook->before_write(ep, &out))
		return out;
	if (!snd_copy(&ep->guard, &sink, &source, ep->in_entry.payload_length, &sink_fault, &source_fault))
		snd_refuse_access(ep, &sink, ep->in_entry.payload_length, sink_fault); /* the payload is in the entry, so only the sink can fail */
	return SND_EXECUTED;
}

/* serve_send_failed completes a receive that the sender could not fill. */
static enum snd_outcome serve_send_failed(struct snd_endpoint *ep, struct snd_receive *r)
{
	snd_status s = snd_entry_receive_status(&ep->in_entry);
	ep->counters.accesses_refused++;
	snd_complete_receive(ep, r, s, 0, 0);
	ep->conn->in.next++;
	ep->fault = s == SND_BUFFER_OVERFLOW ? SND_INVALID_DEVICE_REQUEST : SND_REMOTE_ERROR;
	ep->end_cause = SNDL_END_FAULT;
	snd_terminate(ep, s, "receive: the peer could not deliver a message of %" PRIu64 " bytes for a receive of %" PRIu64 ": post receives that are large enough, with valid tokens",
		ep->in_entry.request_length, r->capacity);
	return SND_EXECUTED;
}

/* announce_wait tells a peer with a number that the entry waits for a receive of the shared queue. It takes the place of an RNR NAK. */
static void announce_wait(struct snd_endpoint *ep)
{
	const uint64_t n = ep->conn->in.next + 1;
	if (snd_relaxed(&ep->local_qp->posted) == n)
		return;
	snd_release(&ep->local_qp->posted, n); /* ORDER receive-waits: pairs with the load in snd_receive_is_late */
	snd_ring_peer(ep->object.fabric, &ep->conn->peer);
}

/* withdraw_wait ends what announce_wait has told: the entry has its receive, however long its message takes from here on. */
static void withdraw_wait(struct snd_endpoint *ep)
{
	if (snd_relaxed(&ep->local_qp->posted) != 0)
		snd_release(&ep->local_qp->posted, 0); /* ORDER receive-waits: before the release of the entry; pairs with the load in snd_receive_is_late */
}

/* find_receive finds the receive for the entry. If there is none, it returns NULL, and the outcome of serving the entry. */
static struct snd_receive *find_receive(struct snd_endpoint *ep, enum snd_outcome *out)
{
	*out = SND_EXECUTED;
	if (ep->srq != NULL && (ep->in_entry.kind == SNDL_KIND_SEND_PLACED || ep->in_entry.kind == SNDL_KIND_SEND_FAILED || (ep->in_entry.flags & SNDL_FLAG_ACK_REQUEST) == 0)) {
		protocol_error(ep, "an entry that a shared receive queue does not take");
		return NULL;
	}
	if (ep->rcompleted == ep->rposted) { /* else the endpoint's own receive, or one that an earlier fragment has taken */
		if (ep->srq == NULL) {
			protocol_error(ep, "a message without a posted receive");
			return NULL;
		}
		*out = SND_BLOCKED;
		if (ep->state == SND_QP_PEER_DISCONNECTED) /* it has canceled its requests */
			return NULL;
		if (!snd_assign_receive(ep)) {
			if (ep->numbered)
				announce_wait(ep);
			return NULL;
		}
		if (ep->numbered)
			withdraw_wait(ep);
	}
	return snd_receive_at(ep, ep->rcompleted);
}

/* serve_write runs a part of a Write of the peer, or all of it. If the Write has immediate data, its last part completes the oldest receive. */
static enum snd_outcome serve_write(struct snd_endpoint *ep, uint64_t *budget)
{
	struct snd_receive *r = NULL;
	enum snd_outcome out;
	if (snd_entry_ends_write(&ep->in_entry) && (r = find_receive(ep, &out)) == NULL)
		return out;
	if (ep->in_entry.kind != SNDL_KIND_WRITE_PLACED) {
		out = ep->in_entry.kind == SNDL_KIND_WRITE_IN_ENTRY ? serve_write_in_entry(ep) : serve_fragment(ep, budget);
		if (out != SND_EXECUTED || ep->state == SND_QP_FAILED)
			return out;
	}
	if (r != NULL)
		snd_complete_receive(ep, r, SND_SUCCESS, snd_length_of_write(&ep->in_entry), 0);
	return SND_EXECUTED;
}

/* serve_atomic runs an atomic of the peer on local memory. */
static enum snd_outcome serve_atomic(struct snd_endpoint *ep)
{
	const struct snd_ring_entry *e = &ep->in_entry;
	const struct snd_operand local = {.token = e->token, .rights = SNDL_RIGHT_REMOTE | SNDL_RIGHT_ATOMIC, .address = e->receiver_address, .endpoint = ep->number};
	uint64_t old;
	const enum snd_fault f = snd_change_word(&ep->guard, &local, (struct snd_change){e->operation, e->operand, e->swap}, &old);
	if (f != SND_NO_FAULT)
		snd_refuse_access(ep, &local, sizeof old, f);
	else
		snd_release(&ep->local_qp->results[e->result_index], old); /* ORDER result-stored: before the release of the entry; pairs with the load in snd_take_result */
	return SND_EXECUTED;
}

static enum snd_outcome serve_entry(struct snd_endpoint *ep, uint64_t *budget)
{
	switch (ep->in_entry.kind) {
	case SNDL_KIND_READ_FRAGMENT: return serve_fragment(ep, budget);
	case SNDL_KIND_WRITE_FRAGMENT:
	case SNDL_KIND_WRITE_IN_ENTRY:
	case SNDL_KIND_WRITE_PLACED: return serve_write(ep, budget);
	case SNDL_KIND_ATOMIC: return serve_atomic(ep);
	}
	enum snd_outcome out;
	struct snd_receive *r = find_receive(ep, &out);
	if (r == NULL)
		return out;
	if (refuses_message(ep, r))
		return SND_EXECUTED;
	/* After the refusal: no rule applies to a message that is not received. */
	if (snd_unlikely(ep->hook != NULL) && ep->hook->before_receive(ep, r, &out))
		return out;
	switch (ep->in_entry.kind) {
	case SNDL_KIND_SEND_PLACED:
		snd_complete_receive(ep, r, SND_SUCCESS, ep->in_entry.request_length < r->capacity ? ep->in_entry.request_length : r->capacity, 0);
		return SND_EXECUTED;
	case SNDL_KIND_SEND_FAILED: return serve_send_failed(ep, r);
	case SNDL_KIND_SEND_FRAGMENT: return serve_send_fragment(ep, r, budget);
	}
	return serve_send_in_entry(ep, r);
}

/* finish_entry advances past an entry that has been served. */
static void finish_entry(struct snd_endpoint *ep)
{
	struct snd_consumer *in = &ep->conn->in;
	in->next++;
	ep->serving = false;
	bool acknowledge = (ep->in_entry.flags & SNDL_FLAG_ACK_REQUEST) != 0;
	if (acknowledge || snd_unreleased(in) >= (in->mask + 1) / 4)
		snd_release_entries(ep, acknowledge);
}

static void spend(uint64_t *budget) { *budget -= *budget < SNDL_SIZEOF_SLOT ? *budget : SNDL_SIZEOF_SLOT; }

bool snd_serve_ring(struct snd_endpoint *ep, uint64_t *budget)
{
	struct snd_consumer *in = &ep->conn->in;
	bool progressed = false;
	while (*budget > 0) {
		if (!ep->serving) {
			struct snd_slot *slot = snd_front(in); /* loaded once: a faulty peer may withdraw the entry */
			if (slot == NULL)
				break;
			if (snd_likely(ep->slow == 0) && (serve_send_fast(ep) || serve_write_fast(ep, slot))) {
				progressed = true;
				spend(budget);
				continue;
			}
			if (!snd_decode_entry(ep, slot)) {
				protocol_error(ep, "a malformed ring entry");
				return true;
			}
		}
		ep->serving = true; /* from here on the slot is not read again */
		uint64_t before = ep->in_copied;
		enum snd_outcome out;
		if (snd_likely(ep->hook == NULL) || !ep->hook->before_serving(ep, &out))
			out = serve_entry(ep, budget);
		switch (out) {
		case SND_BLOCKED: return progressed || ep->in_copied != before;
		case SND_PARTIAL: return true;
		case SND_EXECUTED: break;
		}
		progressed = true;
		if (ep->state == SND_QP_FAILED)
			return true;
		finish_entry(ep);
		spend(budget); /* also for entries without data: the peer may never stop sending */
	}
	if (progressed && snd_unreleased(in) > 0)
		snd_release_slots(in); /* without a ring: later requests of the peer may wait for this, but its process polls meanwhile */
	return progressed;
}

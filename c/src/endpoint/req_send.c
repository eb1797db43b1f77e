/* Sends that the fast path has not taken. TWIN endpoint/req_send.go. */
#include "endpoint/req_send.h"

#include <inttypes.h>
#include <stdio.h>

#include "endpoint/describe.h"
#include "endpoint/hook.h"
#include "endpoint/qp.h"
#include "endpoint/req_execute.h"
#include "linux/clock.h"
#include "shm/doorbell.h"

bool snd_has_receive(struct snd_connection *c)
{
	uint64_t pushed = c->out.next;
	if (!snd_credit_is_spent(&c->credit, pushed))
		return true;
	uint64_t posted = snd_load(&c->peer_qp->posted);             /* ORDER receive-posted: pairs with the stores in publish_posted */
	uint64_t end = snd_load(&c->peer_qp->small_receives_end);    /* ORDER receive-limit: after posted; pairs with the store in publish_small_receive */
	uint64_t bytes = snd_load(&c->peer_qp->small_receive_bytes); /* ORDER receive-room: after the limit; pairs with the store in publish_small_receive */
	return snd_credit_refresh(&c->credit, pushed, posted, c->receive_count, end, bytes);
}

/* next_receive copies the peer's oldest receive that no message has taken. */
static void next_receive(struct snd_endpoint *ep)
{
	struct snd_connection *c = ep->conn;
	const uint64_t *words = c->descriptors + (snd_credit_taken(&c->credit, c->out.next) & (c->receive_count - 1)) * c->stride;
	const snd_word *d = (const snd_word *)(const void *)words; /* the peer wrote these words before posted */
	uint64_t n = snd_relaxed(d + 1);
	n = n < SNDL_MAX_SGE ? n : SNDL_MAX_SGE;
	n = n < (c->stride - 2) / 2 ? n : (c->stride - 2) / 2;
	ep->remote_capacity = snd_relaxed(d);
	ep->remote_count = (uint32_t)n;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t address = snd_relaxed(d + 2 + 2 * i), rest = snd_relaxed(d + 3 + 2 * i);
		ep->remote_entries[i] = (struct snd_entry){address, (uint32_t)rest, (uint32_t)(rest >> 32)};
	}
}

/* reject_receive tells the peer that its receive has failed with status s, and rejects the Send. */
static enum snd_outcome reject_receive(struct snd_endpoint *ep, struct snd_send_request *r, snd_status s, const char *why)
{
	uint64_t words[7] = {snd_entry_header(SNDL_KIND_SEND_FAILED, SNDL_FLAG_FIRST | SNDL_FLAG_LAST, 0, 0), s, r->total};
	if (!snd_push_entry(ep, r, words, true))
		return snd_stall(ep, r, SND_STALL_QUEUE);
	ep->counters.accesses_refused++;
	snd_release32(&ep->local_qp->receive_status, s); /* ORDER reason: before the swap in move_record; pairs with the load in set_cause_from_peer */
	return snd_reject(ep, r, s == SND_BUFFER_OVERFLOW ? snd_by_number(ep, SND_INVALID_DEVICE_REQUEST, SND_REMOTE_ERROR) : SND_REMOTE_ERROR,
		"a message of %" PRIu64 " bytes for a receive of %" PRIu64 ": %s", r->total, ep->remote_capacity, why);
}

/* check_local finds the first entry of r that must not be read. */
static bool check_local(struct snd_endpoint *ep, struct snd_send_request *r)
{
	for (uint32_t i = 0; i < r->count; i++) {
		struct snd_operand o;
		snd_set_operand(r, &o, &r->entries[i], SNDL_RIGHT_READ);
		enum snd_fault f = snd_check_operand(&ep->guard, &o, r->entries[i].length);
		if (f != SND_NO_FAULT) {
			snd_reject_local(ep, r, &r->entries[i], f);
			return false;
		}
	}
	return true;
}

/* only_peer_copies reports whether only the peer can fill an entry of its receive, or a part of it. */
static bool only_peer_copies(struct snd_endpoint *ep, const struct snd_entry *e)
{
	struct snd_operand o = {.address = e->address, .token = e->token, .rights = SNDL_RIGHT_LOCAL | SNDL_RIGHT_WRITE, .peers = true};
	return snd_check_operand(&ep->guard, &o, e->length) == SND_FAULT_UNREACHABLE;
}

/* needs_peer_copy reports whether only the peer can fill an entry of its receive after the first. The copy itself detects that for the
 * first entry. With a hook the copy may begin with another one. */
static bool needs_peer_copy(struct snd_endpoint *ep)
{
	for (uint32_t i = ep->hook == NULL; i < ep->remote_count; i++)
		if (only_peer_copies(ep, &ep->remote_entries[i]))
			return true;
	return false;
}

enum { NO_RNR_LIMIT = 7, MAX_RNR_TIMER = 655360000 }; /* as on a card */

int64_t snd_receive_limit(const struct snd_endpoint *ep)
{
	if (!ep->numbered)
		return ep->object.fabric->receive_timeout;
	if (ep->match.rnr_retry >= NO_RNR_LIMIT)
		return SND_FOREVER;
	const uint64_t timer = snd_relaxed(&ep->conn->peer_qp->rnr_timer); /* plain: it has its value before the connection is established, and may change at any time */
	return (int64_t)((ep->match.rnr_retry + 1) * (timer < MAX_RNR_TIMER ? timer : MAX_RNR_TIMER));
}

/* await_receive lets r wait for a receive of the peer, until the limit. */
static enum snd_outcome await_receive(struct snd_endpoint *ep, struct snd_send_request *r)
{
	const int64_t limit = snd_receive_limit(ep);
	if (limit == SND_FOREVER)
		return snd_stall(ep, r, SND_STALL_RECEIVE);
	if (r->waits_since != 0 && ++r->stalls % 16 != 0)
		return snd_stall(ep, r, SND_STALL_RECEIVE); /* the clock costs more than the rest of a poll */
	int64_t now = snd_clock();
	if (r->waits_since == 0)
		r->waits_since = now;
	if (now - r->waits_since < limit)
		return snd_stall(ep, r, SND_STALL_RECEIVE);
	return snd_reject(ep, r, SND_IO_TIMEOUT, "the peer has posted no receive for %" PRId64 " %s: post receives before the peer sends, or raise %s",
		ep->numbered ? limit / 1000 : limit / 1000000, ep->numbered ? "us" : "ms", ep->numbered ? "rnr_retry or the peer's min_rnr_timer" : "the limit with snd_fabric_set_timeouts");
}

bool snd_may_be_late(const struct snd_endpoint *ep, const struct snd_send_request *r)
{
	return ep->numbered && ep->conn->peer_has_srq && snd_takes_receive(r) && snd_receive_limit(ep) != SND_FOREVER;
}

bool snd_receive_is_late(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (!snd_may_be_late(ep, r) || ep->state != SND_QP_CONNECTED)
		return false;
	const uint64_t waiting = snd_load(&ep->conn->peer_qp->posted) - 1; /* ORDER receive-waits: pairs with the stores in announce_wait and withdraw_wait */
	if (waiting - r->first_entry < r->end_entry - r->first_entry)
		(void)await_receive(ep, r);
	return r->state == SND_REQ_FINISHED;
}

enum snd_outcome snd_take_receive(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_connection *c = ep->conn;
	if (c->peer_has_srq) {
		r->needs_ack = true; /* only the peer knows whether its shared queue has a receive. The entry waits in the ring for one */
	} else {
		if (!snd_has_receive(c)) {
			snd_request_wakeup(ep);
			if (!snd_has_receive(c))
				return await_receive(ep, r);
		}
		snd_cancel_wakeup(ep);
	}
	r->has_receive = true; /* it is for r, because such requests are executed in order */
	return SND_EXECUTED;
}

/* A side that ends a connection first changes its state, and then reads the ring once more. */
void snd_complete_if_open(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (snd_is_open(&ep->conn->far)) { /* ORDER conn-state: after the push; pairs with the change of state before leave_peer_state reads the ring */
		snd_finish(r, SND_SUCCESS);
		return;
	}
	r->needs_ack = true;
	ep->conn->credit.ack_request_end = r->end_entry;
}

static enum snd_outcome push_send_in_entry(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_connection *c = ep->conn;
	uint64_t words[7] = {0};
	if (!snd_has_free_entry(ep))
		return snd_stall(ep, r, SND_STALL_QUEUE);
	if (!snd_gather_payload(ep, r, words + 1))
		return SND_EXECUTED;
	uint32_t flags = SNDL_FLAG_FIRST | SNDL_FLAG_LAST | snd_entry_flags(r);
	/* Unless the next receive can certainly hold the message, only the peer knows whether it did. */
	if (r->invalidate || r->hashed || r->needs_ack || !snd_credit_fits(&c->credit, c->out.next, r->total)) {
		r->needs_ack = true;
		flags |= SNDL_FLAG_ACK_REQUEST;
	}
	words[0] = snd_entry_header(SNDL_KIND_SEND_IN_ENTRY, flags, r->total, r->remote_token);
	if (r->hashed)
		words[SNDL_HASH_WORD] = r->hash;
	snd_push_entry(ep, r, words, true);
	c->credit.payload_end_before_run = r->end_entry;
	snd_ring_peer(ep->object.fabric, &c->peer);
	if (!r->needs_ack)
		snd_complete_if_open(ep, r);
	return SND_EXECUTED;
}

/* copy_to_receive copies a message into the peer's posted receive, and then tells the peer. */
static enum snd_outcome copy_to_receive(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget)
{
	struct snd_connection *c = ep->conn;
	while (r->transferred < r->total) {
		if (*budget == 0)
			return SND_PARTIAL;
		enum snd_outcome out;
		uint64_t n = *budget;
		const uint64_t at = snd_next_bytes(ep, r, &n, &out);
		if (n == 0)
			return out;
		struct snd_entry from = snd_entry_at(r->entries, r->count, at);
		struct snd_entry to = snd_entry_at(ep->remote_entries, ep->remote_count, at);
		n = n < from.length ? n : from.length;
		n = n < to.length ? n : to.length;
		if (n == 0)
			return reject_receive(ep, r, SND_ACCESS_VIOLATION, "its entries hold less");
		struct snd_operand source, sink = {.address = to.address, .token = to.token, .rights = SNDL_RIGHT_LOCAL | SNDL_RIGHT_WRITE,
			.peers = true, .bind = &r->remote_bind};
		enum snd_fault remote_fault = SND_NO_FAULT, local_fault = SND_NO_FAULT;
		if (r->transferred == 0 && n < r->total && only_peer_copies(ep, &ep->remote_entries[0])) /* perhaps the end of it */
			remote_fault = SND_FAULT_UNREACHABLE;
		snd_set_operand(r, &source, &from, SNDL_RIGHT_READ);
		if (remote_fault == SND_NO_FAULT)
			snd_copy(&ep->guard, &sink, &source, n, &remote_fault, &local_fault);
		if (remote_fault == SND_FAULT_DISCONNECTED)
			return SND_BLOCKED;
		if (remote_fault == SND_FAULT_UNREACHABLE && r->transferred == 0) {
			r->responder_copies = true;
			return snd_send_fragments(ep, r, budget);
		}
		if (remote_fault != SND_NO_FAULT) {
			char range[SND_REASON], why[SND_REASON];
			snd_describe_range(ep, &sink, to.length, range, sizeof range);
			snprintf(why, sizeof why, "its entry of %.300s: %s", range, snd_fault_text(remote_fault));
			return reject_receive(ep, r, SND_ACCESS_VIOLATION, why);
		}
		if (local_fault != SND_NO_FAULT)
			return snd_reject_local(ep, r, &from, local_fault);
		snd_count_copied(ep, r, n);
		*budget -= n;
	}
	uint64_t words[7] = {snd_entry_header(SNDL_KIND_SEND_PLACED, SNDL_FLAG_FIRST | SNDL_FLAG_LAST | snd_entry_flags(r), 0, 0), r->total};
	if (!snd_push_entry(ep, r, words, true))
		return snd_stall(ep, r, SND_STALL_QUEUE);
	snd_ring_peer(ep->object.fabric, &c->peer);
	snd_complete_if_open(ep, r);
	return SND_EXECUTED;
}

enum snd_outcome snd_execute_send(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget)
{
	struct snd_connection *c = ep->conn;
	if (!r->has_receive) {
		const enum snd_outcome out = snd_take_receive(ep, r);
		if (!r->has_receive)
			return out;
		/* The message must not overtake entries that the peer has yet to copy. A later message could change the
		 * bytes of a hashed one before the peer has checked them. */
		r->responder_copies = c->peer_has_srq || r->invalidate || r->hashed || snd_peer_must_copy(ep) || snd_copy_would_overtake(c);
		if (r->total > SNDL_MAX_SEND_IN_ENTRY && !r->responder_copies) {
			next_receive(ep);
			if (r->total > ep->remote_capacity) {
				r->has_receive = false; /* if the ring has no room for the report, execution starts over */
				if (!check_local(ep, r))
					return SND_EXECUTED; /* an error of this side's own entries takes precedence */
				return reject_receive(ep, r, SND_BUFFER_OVERFLOW, "it is too long");
			}
			r->responder_copies = needs_peer_copy(ep);
		}
	}
	if (r->total <= snd_room(r))
		return push_send_in_entry(ep, r);
	if (r->responder_copies)
		return snd_send_fragments(ep, r, budget);
	return copy_to_receive(ep, r, budget);
}

/* The end of a connection, see docs/model/teardown.pml.
 * TWIN endpoint/cm_teardown.go, endpoint/cm_disconnect.go, endpoint/qp_close.go, endpoint/cm_deaths.go. */
#include "endpoint/cm_teardown.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cm_number.h"
#include "endpoint/describe.h"
#include "endpoint/event.h"
#include "endpoint/hook.h"
#include "endpoint/progress.h"
#include "endpoint/qp.h"
#include "endpoint/qp_receive.h"
#include "endpoint/req_aside.h"
#include "endpoint/req_atomic.h"
#include "endpoint/req_bind.h"
#include "endpoint/req_execute.h"
#include "endpoint/resp_serve.h"
#include "endpoint/srq.h"
#include "linux/clock.h"
#include "shm/liveness.h"
#include "shm/work.h"
#include "window/invalidatable.h"

void snd_set_cause(struct snd_endpoint *ep, snd_status s, const char *format, ...)
{
	if (ep->cause != SND_SUCCESS)
		return; /* the first cause is kept */
	ep->cause = s;
	va_list args;
	va_start(args, format);
	vsnprintf(ep->cause_text, sizeof ep->cause_text, format, args);
	va_end(args);
}

#define MOST_REPEATED INT64_C(500000000) /* of requests to a peer that has ended */

/* publish_reason stores the reason for which this side is about to end the connection, for the peer's error. */
static void publish_reason(struct snd_endpoint *ep, const char *reason)
{
	size_t n = strlen(reason);
	memcpy(ep->local_qp->reason, reason, n);
	snd_release32(&ep->local_qp->reason_length, (uint32_t)n); /* ORDER reason: before the swap in move_record; pairs with the load in read_reason */
}

static void tell_failure(struct snd_endpoint *ep)
{
	if (ep->failed != NULL)
		ep->failed(ep->failed_arg, ep->fault);
}

/* end_loss breaks an endpoint that has lost its peer, if it has. */
static void end_loss(struct snd_endpoint *ep)
{
	if (!ep->lost)
		return;
	ep->lost = false;
	tell_failure(ep);
}

void snd_terminate(struct snd_endpoint *ep, snd_status cause, const char *format, ...)
{
	if (ep->lost) {
		end_loss(ep);
		snd_fail_lost(ep);
		if (ep->teardown != SND_USES_PEER_STATE) /* else leave_peer_state cancels them */
			snd_cancel_receives(ep);
	}
	if (ep->state == SND_QP_FAILED || ep->state == SND_QP_CLOSED)
		return;
	char text[SND_REASON];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	snd_set_cause(ep, cause, "%s", text);
	const enum snd_qp_state was = ep->state;
	const bool disconnected = was == SND_QP_PEER_DISCONNECTED || was == SND_QP_DISCONNECTING; /* that is its first cause */
	snd_change_state(ep, SND_EVENT_ABORTS);
	tell_failure(ep);
	snd_event_own_end(ep, was, disconnected ? cause : ep->cause, disconnected ? text : ep->cause_text);
	if (ep->numbered)
		snd_number_ended(ep);
	struct snd_connection *c = ep->conn;
	if (c != NULL && c->attached) {
		snd_set32(&ep->local_qp->end_cause, ep->end_cause); /* before the reason, in whose order it is */
		publish_reason(ep, disconnected ? text : ep->cause_text);
		if (c->side == SND_PASSIVE || !snd_transition(c, SND_EVENT_WITHDRAWS))
			snd_transition(c, SND_EVENT_ABORTS);
	}
	snd_tear_down(ep);
}

/* snd_end_by_close ends the connection because the program closes what the text names. The peer's text and log say whether
 * requests were outstanding. */
void snd_end_by_close(struct snd_endpoint *ep, snd_status cause, const char *what)
{
	if (ep->completed != ep->posted)
		snd_progress(ep); /* they may be complete */
	const uint64_t n = ep->posted - ep->completed;
	ep->end_cause = SNDL_END_CLOSED;
	if (n == 0)
		snd_terminate(ep, cause, "close: %s", what);
	else
		snd_terminate(ep, cause, "close: requests were outstanding (%" PRIu64 ") when %s", n, what);
}

/* is_fault reports whether a correct peer stores the status of a fault. */
static bool is_fault(const struct snd_connection *c, snd_status s)
{
	switch (s) {
	case SND_REMOTE_ERROR:
	case SND_ACCESS_VIOLATION:
	case SND_DATA_CHECKSUM_ERROR: return true;
	case SND_IO_TIMEOUT:
	case SND_NOT_SUPPORTED: return c->peer_copies; /* a relay copies, and stores these */
	case SND_INVALID_ADDRESS:
	case SND_INVALID_DEVICE_REQUEST:
	case SND_CONNECTION_ABORTED: return c->endpoint->numbered;
	default: return false;
	}
}

/* read_fault loads the peer's fault once, so that the failed request, its status and the cause agree. */
static void read_fault(struct snd_connection *c)
{
	if (c->fault.read)
		return;
	c->fault.read = true;
	c->fault.entry = snd_acquire(&c->peer_qp->fault); /* ORDER fault: after the abort, before which it was stored */
	c->fault.status = snd_relaxed32(&c->peer_qp->fault_status);
	if (!is_fault(c, c->fault.status))
		c->fault.status = SND_INTERNAL_ERROR;
}

static bool blames(const struct snd_connection *c, const struct snd_send_request *r)
{
	return c->fault.entry != 0 && r->end_entry != 0 && c->fault.entry - 1 - r->first_entry < r->end_entry - r->first_entry;
}

/* link_failed is the beginning of the reason for which a relay ends the connections of a link that has failed. */
static const char link_failed[] = "relay: the link to host ";

/* read_reason copies the reason for which the peer has ended the connection, and returns its length. */
static uint32_t read_reason(const struct snd_connection *c, char why[SND_REASON + 1])
{
	uint32_t n = snd_acquire32(&c->peer_qp->reason_length); /* ORDER reason: after the load of the state; pairs with the store in publish_reason */
	n = n < SND_REASON ? n : SND_REASON;
	memcpy(why, c->peer_qp->reason, n);
	for (uint32_t i = 0; i < n; i++)
		if (why[i] < ' ' || why[i] > '~')
			why[i] = '?';
	why[n] = 0;
	return n;
}

static void set_cause_from_peer(struct snd_endpoint *ep)
{
	struct snd_connection *c = ep->conn;
	char peer[64], why[SND_REASON + 1];
	snd_name_peer(c, peer, sizeof peer);
	const uint32_t n = read_reason(c, why);
	snd_status failed = snd_acquire32(&c->peer_qp->receive_status); /* ORDER reason: as reason_length */
	for (uint64_t i = ep->completed; i != ep->posted; i++) {
		struct snd_send_request *r = snd_request_at(ep, i);
		if (r->state != SND_REQ_FINISHED && blames(c, r)) {
			ep->cause = SND_SUCCESS; /* it would be of a later request, which failed at this side */
			char asked[SND_REASON];
			snd_describe_request(ep, r, asked, sizeof asked);
			snd_set_cause(ep, c->fault.status, "%s: %s: refused by %s: %s", snd_request_name(r), asked, peer, why);
			return;
		}
	}
	if (ep->object.fabric->marked_dead)
		snd_set_cause(ep, SND_CONNECTION_ABORTED, "this live process is marked dead in the arena: a process of the job writes outside its memory");
	else if (failed == SND_BUFFER_OVERFLOW || failed == SND_ACCESS_VIOLATION)
		snd_set_cause(ep, failed, "receive: %s could not deliver a message: %s", peer, why);
	else if (n == 0 && snd_is_peer_gone(c)) {
		snd_say_lost(c, why, sizeof why);
		snd_set_cause(ep, SND_CONNECTION_ABORTED, "%s", why);
	} else if (c->remote != 0 && strncmp(why, link_failed, strlen(link_failed)) == 0)
		snd_set_cause(ep, SND_CONNECTION_ABORTED, "%s ended the connection: %s: start the job again: hosts that have lost each other are not connected again", peer, why);
	else
		snd_set_cause(ep, SND_CONNECTION_ABORTED, "%s ended the connection: %s", peer, why);
}

/* closed_in_order reports whether the peer says that it has ended the connection by closing the endpoint or its connector, with no request
 * outstanding. A relay passes the text on within its own. */
static bool closed_in_order(const struct snd_connection *c)
{
	char why[SND_REASON + 1];
	(void)read_reason(c, why);
	return strstr(why, "close: the endpoint was closed") != NULL || strstr(why, "close: the connector was closed") != NULL;
}

/* awaits_peer reports whether a request is outstanding whose completion the peer has not confirmed. */
static bool awaits_peer(struct snd_endpoint *ep)
{
	for (uint64_t i = ep->completed; i != ep->posted; i++) {
		const struct snd_send_request *r = snd_request_at(ep, i);
		if (r->state != SND_REQ_FINISHED && ((int64_t)(i - ep->next) >= 0 || (int64_t)(snd_load_released(&ep->conn->out) - r->end_entry) < 0))
			return true;
	}
	return false;
}

/* lose_peer decides what the end of the connection by the peer, or its death, means to an endpoint with a number: unless it is at fault, it seems
 * to work until its next request fails. */
static void lose_peer(struct snd_endpoint *ep)
{
	const struct snd_connection *c = ep->conn;
	ep->lost = snd_acquire32(&c->peer_qp->end_cause) != SNDL_END_FAULT; /* ORDER reason: as reason_length */
	ep->match.looked_at = 0;
	if (!ep->lost && c->fault.entry == 0)
		ep->fault = snd_relaxed32(&c->peer_qp->fault_status);
}

/* snd_peer_aborted ends the connection because the other side has ended it or is dead. */
void snd_peer_aborted(struct snd_endpoint *ep)
{
	struct snd_connection *c = ep->conn;
	const enum snd_qp_state was = ep->state;
	const bool in_order = ep->object.fabric->events != NULL && closed_in_order(c) && !awaits_peer(ep);
	snd_change_state(ep, SND_EVENT_ABORTS);
	read_fault(c);
	if (snd_is_peer_gone(c) || c->fault.entry == 0) /* otherwise a request of this side was the cause */
		snd_record_lost_peer(ep->object.fabric, c->peer.id);
	set_cause_from_peer(ep);
	if (ep->numbered)
		lose_peer(ep);
	if (!ep->lost)
		tell_failure(ep);
	snd_event_peer_end(ep, was, in_order);
	snd_tear_down(ep);
}

void snd_blame_peer(struct snd_endpoint *ep, const struct snd_send_request *r)
{
	const bool is_local = r->kind == SND_REQUEST_BIND || r->kind == SND_REQUEST_INVALIDATE || r->kind == SND_REQUEST_FAST_REGISTER;
	if (r->status != SND_ACCESS_VIOLATION && r->status != SND_REMOTE_ERROR && (r->status != SND_INVALID_DEVICE_REQUEST || is_local))
		return;
	ep->end_cause = SNDL_END_FAULT;
	snd_set32(&ep->local_qp->fault_status, r->status); /* before the reason, in whose order it is */
}

/* settle finishes a request at which the peer's fault shows the outcome, and reports whether it is finished. */
static bool settle(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_connection *c = ep->conn;
	const bool executed = ep->completed != ep->next && r->state != SND_REQ_ASIDE, begun = executed || (r->needs_ack && r->end_entry != 0);
	if (r->state == SND_REQ_FINISHED || !begun)
		return r->state == SND_REQ_FINISHED;
	if (executed && (int64_t)(snd_load_released(&c->out) - r->end_entry) >= 0)
		snd_finish_released(ep, r);
	else if (blames(c, r)) {
		snd_finish(r, c->fault.status);
		ep->counters.accesses_refused++;
	}
	return r->state == SND_REQ_FINISHED;
}

/* complete_blamed completes the request that failed at the peer with its status, after those before it. It does nothing after a failure
 * at this side, because no success follows one. */
static void complete_blamed(struct snd_endpoint *ep)
{
	if (ep->request_failed)
		return;
	read_fault(ep->conn);
	while (ep->completed != ep->posted) {
		struct snd_send_request *r = snd_request_at(ep, ep->completed);
		if (!settle(ep, r))
			return;
		snd_complete_request(ep, r);
		snd_status s = r->status;
		ep->completed++;
		if ((int64_t)(ep->completed - ep->next) > 0)
			ep->next = ep->completed;
		if (s != SND_SUCCESS) {
			end_loss(ep);
			return;
		}
	}
}

/* deliver_remaining delivers messages in the ring that their sender has completed already. */
static void deliver_remaining(struct snd_endpoint *ep)
{
	if (ep->srq != NULL)
		return; /* every entry asks for an acknowledgement */
	struct snd_connection *c = ep->conn;
	while (!c->inbound_failed && ep->rcompleted != ep->rposted) {
		struct snd_slot *slot = snd_front(&c->in);
		if (slot == NULL || !snd_decode_entry(ep, slot))
			return;
		struct snd_receive *r = snd_receive_at(ep, ep->rcompleted);
		uint64_t n = ep->in_entry.payload_length;
		if (ep->in_entry.kind == SNDL_KIND_SEND_PLACED) {
			snd_complete_receive(ep, r, SND_SUCCESS, ep->in_entry.request_length < r->capacity ? ep->in_entry.request_length : r->capacity, 0);
		} else if (ep->in_entry.kind == SNDL_KIND_WRITE_PLACED && (ep->in_entry.flags & SNDL_FLAG_ACK_REQUEST) == 0) {
			snd_complete_receive(ep, r, SND_SUCCESS, snd_length_of_write(&ep->in_entry), 0);
		} else if (ep->in_entry.kind == SNDL_KIND_SEND_FAILED) {
			snd_complete_receive(ep, r, snd_entry_receive_status(&ep->in_entry), 0, 0);
		} else if (ep->in_entry.kind == SNDL_KIND_SEND_IN_ENTRY && (ep->in_entry.flags & SNDL_FLAG_ACK_REQUEST) == 0 && n <= r->capacity) {
			struct snd_operand source = {.memory = ep->in_entry.payload};
			if (!snd_fill_receive(ep, r, 0, &source, n))
				return;
			snd_complete_receive(ep, r, SND_SUCCESS, n, 0);
		} else {
			return;
		}
		c->in.next++;
	}
}

void snd_cancel_receives(struct snd_endpoint *ep)
{
	while (ep->rcompleted != ep->rposted)
		snd_complete_receive(ep, snd_receive_at(ep, ep->rcompleted), SND_CANCELED, 0, 0);
}

/* leave_peer_state reads the peer's shared state for the last time and acts on it. It returns false if the peer is
 * in the middle of a copy. */
static bool leave_peer_state(struct snd_endpoint *ep)
{
	struct snd_connection *c = ep->conn;
	if (ep->teardown != SND_USES_PEER_STATE)
		return true;
	/* Also before an accept has returned: the active side may be connected already. If it never was, its endpoint may be in use for another
	 * connection by now, with the same ring. */
	if (c != NULL && c->attached && (c->side == SND_ACTIVE || snd_was_established(c))) {
		/* ORDER hazard, hazard-clear: after the change of state; pairs with snd_publish_hazard and then snd_is_open, and with snd_clear_hazard */
		if (!snd_is_peer_gone(c) && snd_load(&c->peer_qp->hazard) != 0)
			return false;
		snd_heavy_global(); /* ORDER conn-state: after the change of state; a Send that counted as delivered is in the ring by now */
		if (!ep->numbered || ep->state != SND_QP_CLOSED) /* else the program has its buffers back */
			deliver_remaining(ep);
		if (ep->state == SND_QP_FAILED)
			complete_blamed(ep);
	}
	ep->teardown = SND_LEFT_PEER_STATE;
	if (!ep->lost)
		snd_cancel_receives(ep);
	if (ep->invalidating != NULL) {
		snd_end_invalidation_when_drained(ep->invalidating, &ep->pending_drains);
		ep->invalidating = NULL;
	}
	return true;
}

/* repeats_requests reports whether the requests of an endpoint that has lost its peer do not fail yet. A card repeats them for the time that the
 * program has chosen, and programs rely on it: they end when they have the completions that they count, with requests under way. */
static bool repeats_requests(struct snd_endpoint *ep)
{
	const int64_t chosen = ep->match.retry_deadline;
	if (snd_requests_waited(ep) >= (chosen == 0 || chosen > MOST_REPEATED ? MOST_REPEATED : chosen))
		return false;
	for (uint64_t i = ep->completed; i != ep->posted; i++)
		if (snd_request_at(ep, i)->state == SND_REQ_DRAINING)
			return false;
	return true;
}

/* hold_requests takes from the requests all that refers to the connection. Their results follow later. */
static void hold_requests(struct snd_endpoint *ep)
{
	for (uint64_t i = ep->completed; i != ep->posted; i++)
		snd_cancel_request(snd_request_at(ep, i));
	ep->next = ep->submitted = ep->posted;
	ep->has_failed = false;
	snd_drop_reads_aside(ep);
}

/* flush_requests cancels the initiator queue. An Invalidate that has revoked its token must succeed, when the token is
 * drained; later requests wait for that. If the peer is lost, the oldest request fails, and with it the endpoint. */
static bool flush_requests(struct snd_endpoint *ep)
{
	if (ep->lost && ep->completed != ep->posted && repeats_requests(ep)) {
		hold_requests(ep);
		return true;
	}
	const bool was_lost = ep->lost;
	while (ep->completed != ep->posted) {
		struct snd_send_request *r = snd_request_at(ep, ep->completed);
		if (r->state != SND_REQ_DRAINING) {
			snd_cancel_request(r);
			if (ep->lost)
				r->status = SND_CONNECTION_ABORTED;
			end_loss(ep);
		} else if (!snd_end_invalidation(r->object))
			return false;
		else
			snd_complete_invalidate(r);
		ep->completed++;
		snd_complete_request(ep, r);
	}
	ep->next = ep->submitted = ep->posted;
	ep->has_failed = false;
	snd_drop_reads_aside(ep);
	if (was_lost && !ep->lost)
		snd_cancel_receives(ep);
	return true;
}

bool snd_fail_lost(struct snd_endpoint *ep)
{
	if (ep->teardown != SND_FLUSHED || ep->completed == ep->posted)
		return false;
	flush_requests(ep); /* none has revoked a token */
	return !ep->lost;
}

static void detach_if_done(struct snd_endpoint *ep)
{
	if (ep->conn != NULL && ep->conn->attached && ep->teardown == SND_FLUSHED && ep->state != SND_QP_DISCONNECTING)
		snd_detach(ep->conn);
}

static bool finish_teardown(struct snd_endpoint *ep)
{
	if (ep->teardown == SND_FLUSHED) { /* a graceful disconnect that now ends by force */
		detach_if_done(ep);
		return true;
	}
	const bool done = leave_peer_state(ep) && flush_requests(ep);
	if (ep->state == SND_QP_CLOSED)
		snd_drop_results(ep); /* before the fabric's lock is given up: the program may use its number again */
	if (!done)
		return false;
	ep->teardown = SND_FLUSHED;
	detach_if_done(ep);
	return true;
}

static bool run_teardown(struct snd_work *work)
{
	struct snd_endpoint *ep = SND_OF(work, struct snd_endpoint, teardown_work);
	if (!finish_teardown(ep))
		return false;
	ep->teardown_pending = false;
	ep->pending_drains--;
	snd_wake(ep->object.fabric);
	return true;
}

/* snd_tear_down revokes what was bound on the endpoint and cancels what is outstanding. The state has
 * changed before, and both sides see that, so no other copy can begin. */
void snd_tear_down(struct snd_endpoint *ep)
{
	snd_remove_waiter(ep);
	snd_take_results(ep);
	snd_settle_arrived(ep); /* complete_blamed completes those that have arrived */
	while (!snd_list_is_empty(&ep->bound)) { /* ORDER end-revoke: after the change of state; pairs with refused */
		struct snd_invalidatable *i = SND_OF(ep->bound.next, struct snd_invalidatable, bound_link);
		snd_begin_invalidation(i, ep->number, true); /* leaves the list */
		i->references++;
		snd_end_invalidation_when_drained(i, &ep->pending_drains);
	}
	if (finish_teardown(ep) || ep->teardown_pending)
		return;
	ep->teardown_pending = true;
	ep->pending_drains++;
	ep->teardown_work.run = run_teardown;
	snd_defer(ep->object.fabric, &ep->teardown_work);
}

bool snd_has_no_more_results(struct snd_endpoint *ep)
{
	if (ep->state < SND_QP_PEER_DISCONNECTED)
		return false;
	if (ep->state == SND_QP_PEER_DISCONNECTED && snd_progress(ep)) {
		snd_wake(ep->object.fabric); /* the caller checks again instead of sleeping */
		return false;
	}
	if (ep->state != SND_QP_PEER_DISCONNECTED)
		return ep->teardown == SND_FLUSHED && !ep->lost;
	if (ep->serving && ep->rcompleted != ep->rposted) /* a message */
		return false;
	return ep->next == ep->submitted || snd_request_at(ep, ep->next)->state != SND_REQ_DRAINING;
}

/* snd_peer_died acts on the peer's death before its memory is reused. */
void snd_peer_died(struct snd_connection *c)
{
	c->peer_dead = true;
	c->hazard.word = NULL;
	struct snd_endpoint *ep = c->endpoint;
	if (ep == NULL)
		return;
	switch (ep->state) {
	case SND_QP_CONNECTING:
	case SND_QP_ACCEPTED:
		if (ep->numbered) {
			if (!snd_number_step(ep))
				return;
		} else if (c->attached && c->side == SND_PASSIVE && snd_was_established(c))
			snd_change_state(ep, SND_EVENT_COMPLETES); /* accept has not returned yet, and the record may be read for the last time; snd_progress ends the connection */
		else if (c->attached)
			snd_peer_aborted(ep);
		break;
	case SND_QP_FAILED:
	case SND_QP_DISCONNECTING:
	case SND_QP_CLOSED:
		finish_teardown(ep);
		break;
	default:
		break;
	}
	if (!snd_is_closed(&ep->object))
		snd_progress(ep); /* ends a connected one: snd_peer_aborted */
}

static void complete_disconnect(struct snd_endpoint *ep)
{
	ep->both_disconnected = true;
	snd_change_state(ep, SND_EVENT_BOTH_DISCONNECT);
	detach_if_done(ep);
}

bool snd_handle_peer_disconnect(struct snd_endpoint *ep)
{
	if (ep->state == SND_QP_CONNECTED) {
		snd_set_cause(ep, SND_CONNECTION_DISCONNECTED, "the peer has disconnected: call snd_connector_disconnect too");
		snd_record_lost_peer(ep->object.fabric, ep->conn->peer.id);
		snd_change_state(ep, SND_EVENT_PEER_DISCONNECTS);
		snd_event_disconnected(ep, true);
		snd_remove_waiter(ep);
		return true;
	}
	if (ep->state == SND_QP_DISCONNECTING) {
		complete_disconnect(ep);
		return true;
	}
	return false;
}

/* snd_begin_disconnect starts a graceful disconnect. It returns false if the connection has failed. */
bool snd_begin_disconnect(struct snd_endpoint *ep)
{
	snd_progress(ep);
	struct snd_connection *c = ep->conn;
	if (ep->state != SND_QP_CONNECTED && ep->state != SND_QP_PEER_DISCONNECTED)
		return false;
	snd_set_cause(ep, SND_CONNECTION_DISCONNECTED, "disconnect: the connection was disconnected gracefully");
	bool peer_was_first = ep->state == SND_QP_PEER_DISCONNECTED;
	snd_change_state(ep, SND_EVENT_DISCONNECTS);
	if (!peer_was_first)
		snd_event_disconnected(ep, false);
	const int64_t timeout = ep->object.fabric->disconnect_timeout;
	ep->disconnect_deadline = timeout == SND_FOREVER ? INT64_MAX : snd_deadline(timeout);
	if (!c->peer_dead && !c->released)
		snd_store_full32(&c->record->disconnected[c->side], 1); /* ORDER disconnected: pairs with the load in snd_progress; ORDER hazard: then the load in leave_peer_state */
	snd_ring_peer(ep->object.fabric, &c->peer);
	snd_wake_progress(ep->object.fabric); /* no ring announces that the time is over */
	snd_tear_down(ep);
	if (peer_was_first && ep->state == SND_QP_DISCONNECTING)
		complete_disconnect(ep);
	return ep->state != SND_QP_FAILED;
}

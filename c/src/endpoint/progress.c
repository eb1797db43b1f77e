/* Progress of endpoints. TWIN endpoint/progress_endpoint.go, endpoint/progress_wait.go. */
#include "endpoint/progress.h"

#include "endpoint/cm_event.h"
#include "endpoint/cm_connection.h"
#include "endpoint/cm_number.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/hook.h"
#include "endpoint/qp.h"
#include "endpoint/req_execute.h"
#include "endpoint/req_send.h"
#include "endpoint/resp_serve.h"
#include "linux/clock.h"
#include "shm/inbox.h"
#include "shm/work.h"

/* snd_progress runs the requests and serves the ring entries that can proceed. */
bool snd_progress(struct snd_endpoint *ep)
{
	bool progressed = false;
	if (snd_unlikely(ep->hook != NULL))
		ep->hook->step(ep);
	if (snd_has_overrun(ep) && ep->state != SND_QP_FAILED && ep->state != SND_QP_CLOSED) {
		snd_terminate(ep, SND_INTERNAL_ERROR, "a completion queue of the endpoint overran and lost results: create a deeper queue, and connect a new endpoint");
		return true;
	}
	struct snd_connection *c = ep->conn;
	if (c == NULL || !c->attached) {
		if (!ep->numbered || !snd_number_progress(ep))
			return false;
		c = ep->conn;
		progressed = true;
	}
	switch (ep->state) {
	case SND_QP_CONNECTING:
		if (ep->numbered) {
			if (!snd_number_progress(ep))
				return false;
			c = ep->conn;
		} else if (c->side == SND_ACTIVE || snd_connection_state(c) != SNDL_CONN_ESTABLISHED) {
			return false;
		} else {
			snd_change_state(ep, SND_EVENT_COMPLETES); /* accept may not have returned yet */
		}
		progressed = true;
		break;
	case SND_QP_CONNECTED:
	case SND_QP_PEER_DISCONNECTED:
	case SND_QP_DISCONNECTING: break;
	default: return ep->lost && snd_fail_lost(ep);
	}
	if (snd_unlikely(snd_load32(c->far.disconnected) != 0)) /* ORDER disconnected: pairs with the store in snd_begin_disconnect */
		progressed = snd_handle_peer_disconnect(ep) || progressed;
	if (snd_unlikely(ep->state == SND_QP_DISCONNECTING && snd_clock() > ep->disconnect_deadline)) {
		ep->disconnect_timed_out = true;
		snd_terminate(ep, SND_IO_TIMEOUT, "disconnect: the peer did not disconnect within %s (snd_fabric_set_timeouts): both sides must call snd_connector_disconnect",
			snd_duration(ep->object.fabric->disconnect_timeout).text);
		return true;
	}
	if (snd_unlikely(ep->state != SND_QP_CLOSED && (snd_is_peer_gone(c) || snd_connection_state(c) != SNDL_CONN_ESTABLISHED))) {
		snd_peer_aborted(ep);
		return true;
	}
	uint64_t in = SND_QUANTUM, out = SND_QUANTUM; /* one each, so that neither direction delays the other */
	if (ep->state == SND_QP_CONNECTED || ep->state == SND_QP_PEER_DISCONNECTED) {
		progressed = snd_serve_ring(ep, &in) || progressed;
		if (ep->completed != ep->posted)
			progressed = snd_run_requests(ep, &out) || progressed;
	}
	if (snd_unlikely(in == 0 || out == 0))
		snd_wake_progress(ep->object.fabric); /* the rest must not wait for the next call of the program */
	if (progressed)
		ep->object.fabric->progress_made++;
	return progressed;
}

uint32_t snd_progress_into(struct snd_endpoint *ep, struct snd_cq *q, snd_result *results, uint32_t room)
{
	/* Results of messages bypass the queue if nothing else is to be done before them. */
	if (snd_likely(q == ep->receive_cq && ep->state == SND_QP_CONNECTED && ep->completed == ep->posted && !ep->serving && ep->slow == 0 &&
		q->head == q->tail && snd_is_open(&ep->conn->far))) {
		struct snd_consumer *in = &ep->conn->in;
		uint64_t most = (in->mask + 1) / 4;
		if (q->polls - q->last_message_poll > 1)
			most = 1; /* the previous poll was empty: the message is an answer, and a check for a second one would delay the program */
		uint32_t n = snd_serve_sends_fast(ep, results, room < most ? room : (uint32_t)most);
		if (n > 0) {
			q->last_message_poll = q->polls;
			ep->receive_slots.freed += n;
			snd_release_entries(ep, false); /* later requests of the peer may wait for this */
			ep->object.fabric->progress_made++;
			return n;
		}
	}
	snd_progress(ep);
	return 0;
}

bool snd_progress_all(struct snd_fabric *f)
{
	bool progressed = snd_read_inbox(f, snd_handle_request);
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next)
		progressed = snd_progress(SND_OF(l, struct snd_endpoint, link)) || progressed;
	if (snd_unlikely(f->event_fd >= 0))
		snd_announce_steps(f);
	return progressed;
}

bool snd_progress_by_engine(struct snd_fabric *f)
{
	if (!f->stepwise)
		return snd_progress_all(f);
	bool progressed = snd_read_inbox(f, snd_handle_request);
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next) {
		struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		if (ep->hook->engine_turn(ep) || snd_has_overrun(ep))
			progressed = snd_progress(ep) || progressed;
	}
	if (f->event_fd >= 0)
		snd_announce_steps(f);
	return progressed;
}

/* snd_settle_deliveries receives the messages that have arrived at an adapter's endpoints, before memory of their
 * receives is freed. */
void snd_settle_deliveries(struct snd_fabric *f, struct snd_adapter *a)
{
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next) {
		struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		if (ep->adapter == a)
			snd_progress(ep);
	}
}

/* Each sleep is a step, and requests wait for many. */
int64_t snd_poll_interval(const struct snd_fabric *f) { return f->stepwise ? 100000 : 1000000; }

/* snd_needs_polling reports whether there is work that no doorbell announces: a time-out or a drain. */
bool snd_needs_polling(struct snd_fabric *f)
{
	if (f->drains > 0 || !snd_list_is_empty(&f->work))
		return true;
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next) {
		struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		if (ep->state == SND_QP_DISCONNECTING || ep->invalidating != NULL || ((ep->state == SND_QP_CONNECTING || ep->lost) && ep->completed != ep->posted))
			return true;
		if ((ep->state == SND_QP_CONNECTED || ep->state == SND_QP_PEER_DISCONNECTED) && ep->hook != NULL && ep->hook->waits(ep))
			return true;
		if ((ep->state == SND_QP_CONNECTED || ep->state == SND_QP_PEER_DISCONNECTED) && ep->next != ep->submitted) {
			struct snd_send_request *r = snd_request_at(ep, ep->next);
			if (snd_takes_receive(r) && !r->has_receive && snd_receive_limit(ep) == SND_FOREVER)
				continue;
			if (r->state == SND_REQ_DRAINING || !r->needs_ack || snd_may_be_late(ep, r))
				return true;
		}
		if (ep->numbered && ep->state == SND_QP_CONNECTED && ep->completed != ep->next && snd_may_be_late(ep, snd_request_at(ep, ep->completed)))
			return true;
	}
	return false;
}

/* Connecting by number. docs/model/number.pml has the steps of both sides, and docs/shared-memory.md the words. The side with the higher number
 * is the active one. The passive one accepts without its program. */
#include "endpoint/cm_number.h"

#include <inttypes.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cm_ports.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/progress.h"
#include "endpoint/qp.h"
#include "endpoint/req_execute.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"
#include "shm/doorbell.h"
#include "shm/inbox.h"
#include "shm/number.h"
#include "shm/work.h"

#define BY_NUMBER (UINT32_C(1) << SNDL_RECORD_BY_NUMBER_SHIFT)
#define MOST_BETWEEN INT64_C(50000000) /* of the time between two looks counts, see snd_requests_waited */
#define RIGHTS (SNDL_RIGHT_READ | SNDL_RIGHT_WRITE | SNDL_RIGHT_ATOMIC)

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* number_of returns the number of an endpoint, NULL if it has left it. */
static struct snd_own_number *number_of(const struct snd_endpoint *ep)
{
	struct snd_own_number *n = snd_find_own_number(ep->object.fabric, ep->match.own);
	return n != NULL && n->endpoint == ep ? n : NULL;
}

/* fill_in stores the endpoint into a record, as one side of it. */
static void fill_in(const struct snd_endpoint *ep, struct snd_connection_record *r, int side)
{
	snd_set(&r->adapter[side], ep->adapter->number);
	snd_set(&r->qp[side], ep->local_qp_offset);
	snd_set32(&r->read_in[side], ep->match.inbound_reads);
}

/* forget_attempt ends an attempt to connect. */
static void forget_attempt(struct snd_endpoint *ep)
{
	struct snd_connection *c = ep->conn;
	ep->conn = NULL;
	c->endpoint = NULL;
	ep->guard.far = NULL;
	snd_list_remove(&c->hazard.link); /* the peer has never used a token */
	snd_detach(c);
	snd_unuse(c);
}

/* new_record makes a connection record for the endpoint and its peer. It returns NULL if there is no memory; the next step tries again. */
static struct snd_connection_record *new_record(struct snd_endpoint *ep, const struct snd_seen_number *seen)
{
	struct snd_fabric *f = ep->object.fabric;
	uint64_t offset;
	if (snd_alloc(&f->heap, sizeof(struct snd_connection_record), true, &offset, "connect by number") != SND_SUCCESS)
		return NULL;
	struct snd_connection_record *r = (struct snd_connection_record *)(void *)(f->arena.base + offset);
	struct snd_connection *c = snd_connection_new(f, r, offset, SND_ACTIVE, seen->peer);
	if (c == NULL) {
		snd_free(&f->heap, offset);
		return NULL;
	}
	ep->conn = c;
	c->users++;
	c->endpoint = ep;
	ep->match.offered_to = seen->use;
	snd_set(&r->member[SND_ACTIVE], f->id);
	snd_set(&r->member[SND_PASSIVE], seen->peer.id);
	snd_set32(&r->port[SND_ACTIVE], BY_NUMBER | ep->match.own);
	snd_set32(&r->port[SND_PASSIVE], BY_NUMBER | ep->match.dest);
	snd_set32(&r->address[SND_ACTIVE], snd_host_of(f, f->slot));
	snd_set32(&r->address[SND_PASSIVE], snd_host_of(f, snd_member_slot(seen->peer.id)));
	fill_in(ep, r, SND_ACTIVE);
	return r;
}

/* offer sends a connection record to the peer. */
static void offer(struct snd_endpoint *ep, const struct snd_seen_number *seen)
{
	struct snd_connection_record *r = new_record(ep, seen);
	if (r == NULL)
		return;
	snd_release32(&r->state, SNDL_CONN_REQUESTED);
	snd_send_mail(ep->object.fabric, &seen->peer, ep->conn->offset, &r->link);
}

/* connect_to_itself connects an endpoint that names its own number. It is both sides: it serves the entries of its own ring. */
static void connect_to_itself(struct snd_endpoint *ep, const struct snd_seen_number *seen)
{
	struct snd_connection_record *r = new_record(ep, seen);
	if (r == NULL)
		return;
	fill_in(ep, r, SND_PASSIVE);
	snd_set32(&r->detached[SND_PASSIVE], SNDL_DETACHED_RECORD); /* no other connection uses the record */
	snd_release32(&r->state, SNDL_CONN_ACCEPTED);
}

/* fail completes the oldest request with a failure, which ends the endpoint. */
static void fail(struct snd_endpoint *ep, const char *why)
{
	uint64_t budget = SND_QUANTUM;
	(void)snd_reject(ep, snd_request_at(ep, ep->next), SND_CONNECTION_ABORTED, "endpoint %#" PRIx32 " has no connection: %s", ep->match.dest, why);
	ep->next++;
	ep->has_failed = true;
	snd_run_requests(ep, &budget);
}

int64_t snd_requests_waited(struct snd_endpoint *ep)
{
	const int64_t now = snd_clock(), gap = now - ep->match.looked_at;
	ep->match.waited = ep->match.looked_at == 0 ? 0 : ep->match.waited + (gap < MOST_BETWEEN ? gap : MOST_BETWEEN);
	ep->match.looked_at = now;
	return ep->match.waited;
}

/* check_wait fails the requests of an endpoint whose peer will not come, for the reason gone, or does not come in time. */
static void check_wait(struct snd_endpoint *ep, const char *gone)
{
	if (ep->completed == ep->posted) {
		ep->match.looked_at = 0;
		return;
	}
	const int64_t waited = snd_requests_waited(ep);
	if (gone != NULL)
		fail(ep, gone);
	else if (ep->match.retry_deadline != 0 && waited >= ep->match.retry_deadline)
		fail(ep, "the peer does not name this endpoint");
}

/* match looks for the peer of an endpoint that waits. The deadline of its requests does not run while the peer waits, too, even if that is stopped: a
 * card would answer. It runs if one side has refused the connection, or this one has no memory for it. */
static void match(struct snd_endpoint *ep)
{
	struct snd_seen_number seen;
	const bool found = snd_find_number(ep->object.fabric, ep->match.dest, &seen);
	const bool is_ready = found && seen.state == SNDL_NUMBER_READY && seen.dest == ep->match.own && seen.use != ep->match.refused_by;
	if (is_ready && ep->match.own >= ep->match.dest)
		(ep->match.own == ep->match.dest ? connect_to_itself : offer)(ep, &seen);
	if (is_ready && (ep->match.own < ep->match.dest || ep->conn != NULL))
		ep->match.looked_at = 0;
	else
		check_wait(ep, !found ? "no endpoint of this fabric has the number: it has ended, or is in another fabric" : seen.state == SNDL_NUMBER_ENDED ? "the peer has ended" : NULL);
}

/* become_ready shows that the endpoint waits. If the peer does, too, and is the active side, it is rung. */
static void become_ready(struct snd_endpoint *ep, struct snd_own_number *n)
{
	struct snd_fabric *f = ep->object.fabric;
	struct snd_seen_number seen;
	snd_show_ready(f, n, ep->match.dest);
	if (ep->match.own < ep->match.dest && snd_find_number(f, ep->match.dest, &seen) && seen.state == SNDL_NUMBER_READY)
		snd_ring_peer(f, &seen.peer);
}

/* complete establishes a connection that the passive side has accepted. It returns false if the passive side has given up. */
static bool complete(struct snd_endpoint *ep)
{
	struct snd_connection *c = ep->conn;
	if (!snd_attach(c, ep)) {
		snd_transition(c, SND_EVENT_WITHDRAWS);
		return false;
	}
	if (!snd_transition(c, SND_EVENT_COMPLETES))
		return false;
	ep->match.peer_reads = least(snd_relaxed32(&c->record->read_in[SND_PASSIVE]), ep->object.fabric->limits->reads);
	snd_show_number(ep->object.fabric, number_of(ep), SNDL_NUMBER_CONNECTED);
	return true;
}

static void enter(struct snd_endpoint *ep)
{
	ep->read_limit = least(ep->match.outbound_reads, ep->match.peer_reads);
	snd_list_remove(&ep->match.link);
	snd_change_state(ep, SND_EVENT_COMPLETES);
}

/* await_answer is a step of an endpoint whose record the peer has not answered yet. */
static void await_answer(struct snd_endpoint *ep)
{
	struct snd_seen_number seen;
	const bool stays = snd_find_number(ep->object.fabric, ep->match.dest, &seen) && seen.use == ep->match.offered_to;
	if (stays && (seen.state == SNDL_NUMBER_READY || seen.state == SNDL_NUMBER_CONNECTED)) /* it is connected before it accepts */
		ep->match.looked_at = 0;
	else
		check_wait(ep, NULL);
}

/* step_active is a step of an endpoint whose record is with the peer. */
static void step_active(struct snd_endpoint *ep)
{
	struct snd_connection *c = ep->conn;
	const uint32_t state = snd_connection_state(c);
	if (!snd_is_peer_gone(c) && state == SNDL_CONN_REQUESTED) {
		await_answer(ep);
		return;
	}
	if (!snd_is_peer_gone(c) && state == SNDL_CONN_ACCEPTED && complete(ep)) {
		enter(ep);
		return;
	}
	ep->match.refused_by = ep->match.offered_to;
	forget_attempt(ep);
	match(ep);
}

/* step_passive is a step of an endpoint that has accepted a record. Its peer waits as long as the record is neither complete nor withdrawn. */
static void step_passive(struct snd_endpoint *ep)
{
	const bool is_gone = snd_is_peer_gone(ep->conn); /* before the state: a process that lives changes it */
	const uint32_t state = snd_connection_state(ep->conn);
	if (state == SNDL_CONN_ESTABLISHED || state == SNDL_CONN_ABORTED) { /* the active side may have ended it since */
		enter(ep);
	} else if (is_gone || state != SNDL_CONN_ACCEPTED) {
		ep->match.refused_by = ep->match.offered_to;
		forget_attempt(ep);
		become_ready(ep, number_of(ep));
		match(ep);
	}
}

bool snd_number_step(struct snd_endpoint *ep)
{
	if (ep->conn == NULL)
		match(ep);
	else if (ep->conn->side == SND_ACTIVE)
		step_active(ep);
	else
		step_passive(ep);
	return ep->state == SND_QP_CONNECTED;
}

bool snd_number_progress(struct snd_endpoint *ep)
{
	if (ep->state != SND_QP_CONNECTING)
		return false;
	struct snd_own_number *peer = snd_find_own_number(ep->object.fabric, ep->match.dest);
	snd_read_inbox(ep->object.fabric, snd_handle_request);
	if (peer != NULL && peer->endpoint != NULL && peer->endpoint->state == SND_QP_CONNECTING)
		snd_number_step(peer->endpoint); /* it is of this process, which may poll only for this one */
	return ep->state == SND_QP_CONNECTED || (ep->state == SND_QP_CONNECTING && snd_number_step(ep));
}

void snd_number_progress_all(struct snd_fabric *f)
{
	uint32_t left = 0;
	for (const struct snd_link *l = f->matching.next; l != &f->matching; l = l->next)
		left++;
	for (; left > 0 && !snd_list_is_empty(&f->matching); left--) { /* each step can remove any of them */
		struct snd_link *l = f->matching.next;
		snd_list_remove(l);
		snd_list_append(&f->matching, l);
		snd_progress(SND_OF(l, struct snd_endpoint, match.link));
	}
}

bool snd_is_by_number(const struct snd_connection *c) { return (snd_relaxed32(&c->record->port[SND_PASSIVE]) & BY_NUMBER) != 0; }

/* accept_record takes a record for an endpoint that waits. */
static bool accept_record(struct snd_endpoint *ep, struct snd_own_number *n, struct snd_connection *c)
{
	struct snd_connection_record *r = c->record;
	if (!snd_attach(c, ep))
		return false;
	ep->conn = c;
	c->users++;
	c->endpoint = ep;
	ep->match.peer_reads = least(snd_relaxed32(&r->read_in[SND_ACTIVE]), ep->object.fabric->limits->reads);
	fill_in(ep, r, SND_PASSIVE);
	snd_show_number(ep->object.fabric, n, SNDL_NUMBER_CONNECTED);
	if (snd_transition(c, SND_EVENT_ACCEPTS))
		return true;
	forget_attempt(ep);
	become_ready(ep, n);
	return true;
}

/* accept_or_refuse answers a record for an endpoint that waits. The active side sends no other one if it is refused. */
static void accept_or_refuse(struct snd_endpoint *ep, struct snd_own_number *n, struct snd_connection *c)
{
	struct snd_seen_number seen;
	ep->match.offered_to = snd_find_number(ep->object.fabric, ep->match.dest, &seen) ? seen.use : 0;
	if (!snd_has_overrun(ep) && accept_record(ep, n, c))
		return;
	ep->match.refused_by = ep->match.offered_to;
	snd_refuse(c);
}

void snd_number_request(struct snd_fabric *f, struct snd_connection *c)
{
	const uint32_t number = snd_relaxed32(&c->record->port[SND_PASSIVE]) & ~BY_NUMBER, from = snd_relaxed32(&c->record->port[SND_ACTIVE]) & ~BY_NUMBER;
	struct snd_own_number *n = snd_find_own_number(f, number);
	struct snd_endpoint *ep = n == NULL ? NULL : n->endpoint;
	if (ep == NULL || ep->state != SND_QP_CONNECTING || ep->conn != NULL || ep->match.dest != from || from < number)
		snd_refuse(c);
	else
		accept_or_refuse(ep, n, c);
}

void snd_number_ended(struct snd_endpoint *ep)
{
	struct snd_own_number *n = number_of(ep);
	snd_list_remove(&ep->match.link);
	if (n != NULL)
		snd_show_number(ep->object.fabric, n, SNDL_NUMBER_ENDED);
	if (ep->conn != NULL && !ep->conn->attached) {
		snd_transition(ep->conn, SND_EVENT_WITHDRAWS);
		forget_attempt(ep);
	}
}

void snd_number_forget(struct snd_endpoint *ep)
{
	struct snd_own_number *n = number_of(ep);
	if (n == NULL)
		return;
	snd_show_number(ep->object.fabric, n, SNDL_NUMBER_RESET);
	n->endpoint = NULL;
}

snd_status snd_number_claim(snd_adapter *adapter, uint32_t *number)
{
	SND_KEEP_ERRNO;
	const char *op = "claim number";
	SND_ENTER_TO(adapter, SND_TYPE_ADAPTER, number, op);
	return snd_leave_with(adapter->object.fabric, snd_take_number(adapter->object.fabric, number, op));
}

snd_status snd_number_free(snd_adapter *adapter, uint32_t number)
{
	const char *op = "free number";
	SND_ENTER(adapter, SND_TYPE_ADAPTER, op);
	struct snd_fabric *f = adapter->object.fabric;
	struct snd_own_number *n = snd_find_own_number(f, number);
	if (n == NULL || n->endpoint != NULL)
		return snd_leave_with(f, snd_fail(SND_INVALID_PARAMETER, "%s: %#" PRIx32 " is not a number of this process, or an endpoint has it: call snd_number_leave first", op, number));
	snd_give_number(f, n);
	return snd_leave_with(f, SND_SUCCESS);
}

/* set_params takes the parameters that both calls have. */
static void set_params(struct snd_endpoint *ep, const snd_number_params *p)
{
	ep->match.outbound_reads = least(p->outbound_reads, ep->object.fabric->limits->reads);
	ep->match.rnr_retry = p->rnr_retry;
	ep->match.retry_deadline = p->retry_deadline;
	snd_set_access(ep, p->access & RIGHTS);
	snd_set(&ep->local_qp->rnr_timer, p->rnr_timer);
}

snd_status snd_endpoint_connect_number(snd_endpoint *endpoint, const snd_number_params *params)
{
	SND_KEEP_ERRNO;
	const char *op = "connect by number";
	SND_CHECK(endpoint, SND_TYPE_ENDPOINT, op);
	SND_CHECK_POINTER(params, op);
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, op);
	struct snd_endpoint *ep = endpoint;
	struct snd_fabric *f = ep->object.fabric;
	struct snd_own_number *n = snd_find_own_number(f, params->number);
	snd_status s = SND_SUCCESS;
	if (n == NULL || n->endpoint != NULL)
		s = snd_fail(SND_INVALID_PARAMETER, "%s: %#" PRIx32 " is not a number of this process, or another endpoint has it", op, params->number);
	else if (ep->state != SND_QP_IDLE)
		s = snd_fail(SND_CONNECTION_ACTIVE, "%s: the endpoint is not idle: connect an idle endpoint", op);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	ep->numbered = true;
	snd_set32(&f->serves_memory, 1);
	ep->match.own = params->number;
	ep->match.dest = params->dest;
	ep->match.inbound_reads = least(params->inbound_reads, f->limits->reads);
	set_params(ep, params);
	snd_set(&ep->local_qp->number, params->number);
	n->endpoint = ep;
	n->use++;
	snd_list_append(&f->matching, &ep->match.link);
	snd_change_state(ep, SND_EVENT_REQUESTS);
	become_ready(ep, n);
	match(ep);
	if (ep->conn != NULL)
		snd_number_step(ep); /* a connection to itself is accepted already */
	return snd_leave_with(f, SND_SUCCESS);
}

snd_status snd_number_update(snd_endpoint *endpoint, const snd_number_params *params)
{
	const char *op = "update connection";
	SND_CHECK_POINTER(params, op);
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, op);
	snd_status s = SND_SUCCESS;
	if (!endpoint->numbered) {
		s = snd_fail(SND_CONNECTION_INVALID, "%s: the endpoint has no number: call snd_endpoint_connect_number first", op);
	} else {
		set_params(endpoint, params);
		if (endpoint->was_connected)
			endpoint->read_limit = least(endpoint->match.outbound_reads, endpoint->match.peer_reads);
	}
	return snd_leave_with(endpoint->object.fabric, s);
}

snd_status snd_number_leave(snd_endpoint *endpoint)
{
	SND_KEEP_ERRNO;
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "leave number");
	snd_number_forget(endpoint);
	if (endpoint->state == SND_QP_CONNECTING)
		snd_terminate(endpoint, SND_CANCELED, "the endpoint has left its number");
	return snd_leave_with(endpoint->object.fabric, SND_SUCCESS);
}

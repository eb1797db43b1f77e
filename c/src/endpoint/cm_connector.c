/* Connectors: they make and end one connection.
 * TWIN endpoint/cm_connector.go, endpoint/cm_connect.go, endpoint/cm_accept.go, endpoint/cm_disconnect.go. */
#include "endpoint/cm_connector.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cm_ports.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/hook.h"
#include "endpoint/progress.h"
#include "endpoint/progress_housekeeper.h"
#include "endpoint/progress_wait.h"
#include "endpoint/qp.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"
#include "shm/inbox.h"
#include "shm/work.h"
#include "structure.h"

enum { WHY = 256 };

/* why_ended says why the other side does not go on with a connection. */
static void why_ended(const struct snd_connection *conn, char why[WHY])
{
	char peer[64];
	snd_name_peer(conn, peer, sizeof peer);
	if (snd_is_peer_gone(conn))
		snd_say_lost(conn, why, WHY);
	else
		snprintf(why, WHY, "%s has %s", peer, conn->remote == 0 ? "rejected or closed the connection" : "left or has ended the connection, or there is no link to its host");
}

void snd_change_phase(struct snd_connector *c, enum snd_conn_event e) { c->phase = snd_next_state(&snd_phases, c->phase, e); }

void snd_release_address(struct snd_connector *c)
{
	if (c->owns_port)
		snd_release_port(c->object.fabric, c->local.port);
	c->owns_port = false;
}

static void set_connection(struct snd_connector *c, struct snd_connection *conn)
{
	if (conn != NULL)
		conn->users++;
	if (c->conn != NULL)
		snd_unuse(c->conn);
	c->conn = conn;
}

static void set_endpoint(struct snd_connector *c, struct snd_endpoint *ep)
{
	c->ep = ep;
	if (ep != NULL)
		ep->connector = c;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t clamp_reads(const struct snd_fabric *f, uint32_t n) { return least(n, f->limits->reads); }

static void copy_private_data(struct snd_connector *c, int side)
{
	uint32_t n = least(snd_relaxed32(&c->conn->record->data_len[side]), SND_MAX_PRIVATE_DATA);
	memcpy(c->private_data, c->conn->record->data[side], n);
	c->private_length = n;
	c->has_private_data = true;
}

static snd_status check_params(struct snd_connector *c, struct snd_endpoint *ep, const snd_connect_params *params, const char *op)
{
	if (!snd_belongs(c->object.fabric, ep, SND_TYPE_ENDPOINT))
		return snd_bad_handle(op, "endpoint");
	if (ep->adapter != c->adapter)
		return snd_fail(SND_INVALID_PARAMETER, "%s: the endpoint is of another adapter", op);
	if (params != NULL && params->private_data_length > c->object.fabric->limits->private_data)
		return snd_fail(SND_INVALID_BUFFER_SIZE, "%s: %" PRIu32 " bytes of private data, at most %" PRIu32, op, params->private_data_length, c->object.fabric->limits->private_data);
	if (params != NULL && params->private_data_length > 0 && params->private_data == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: private_data is NULL", op);
	return params == NULL ? SND_SUCCESS : snd_check_reserved(params, op);
}

/* fill_record fills in this side's part of the record. */
static void fill_record(struct snd_connection *conn, struct snd_endpoint *ep, const snd_connect_params *p)
{
	struct snd_connection_record *r = conn->record;
	const int i = conn->side;
	snd_set(&r->adapter[i], ep->adapter->number);
	snd_set(&r->qp[i], ep->local_qp_offset);
	snd_set32(&r->read_in[i], clamp_reads(ep->object.fabric, p == NULL ? 0 : p->inbound_reads));
	snd_set32(&r->read_out[i], clamp_reads(ep->object.fabric, p == NULL ? 0 : p->outbound_reads));
	uint32_t n = p == NULL ? 0 : p->private_data_length;
	if (n > 0)
		memcpy(r->data[i], p->private_data, n);
	snd_set32(&r->data_len[i], n);
}

static bool begin_connecting(struct snd_endpoint *ep, struct snd_connection *c, struct snd_connector *by)
{
	if (ep->state != SND_QP_IDLE || snd_has_overrun(ep))
		return false;
	ep->conn = c;
	c->users++;
	c->endpoint = ep;
	set_endpoint(by, ep);
	snd_change_state(ep, SND_EVENT_REQUESTS);
	return true;
}

struct snd_connector *snd_connector_new(struct snd_adapter *a)
{
	struct snd_fabric *f = a->object.fabric;
	struct snd_connector *c = snd_new(f, SND_TYPE_CONNECTOR, sizeof *c);
	if (c == NULL)
		return NULL;
	c->adapter = a;
	a->objects++;
	snd_list_append(&f->connectors, &c->link);
	return c;
}

snd_status snd_connector_create(snd_adapter *adapter, snd_connector **connector)
{
	SND_KEEP_ERRNO;
	const char *op = "create connector";
	SND_ENTER_TO(adapter, SND_TYPE_ADAPTER, connector, op);
	*connector = NULL;
	struct snd_connector *c = *connector = snd_connector_new(adapter);
	return snd_leave_with(adapter->object.fabric, c != NULL ? SND_SUCCESS : snd_no_memory(sizeof *c, "private memory", op));
}

snd_status snd_connector_bind(snd_connector *connector, snd_address address)
{
	SND_KEEP_ERRNO;
	const char *op = "bind";
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	struct snd_fabric *f = connector->object.fabric;
	snd_status s;
	snd_address bound;
	if (connector->phase != SND_PHASE_NEW) {
		s = snd_fail(SND_ADDRESS_ALREADY_ASSOCIATED, "%s: the connector is connecting or connected", op);
	} else if (connector->owns_port && address.port == connector->local.port && (address.host == connector->local.host || address.host == 0) && address.reserved == 0) {
		s = SND_SUCCESS; /* bind may be repeated after a failed connect */
	} else if ((s = snd_bind_port(f, address, &bound, op)) == SND_SUCCESS) {
		snd_release_address(connector);
		connector->local = bound;
		connector->owns_port = true;
	}
	return snd_leave_with(f, s);
}

/* undo_connect resets the connector and the endpoint after a failed Connect, so that the program can try again. */
static void undo_connect(struct snd_connector *c)
{
	struct snd_endpoint *ep = c->ep;
	struct snd_connection *conn = c->conn;
	if (ep != NULL && ep->conn == conn && (ep->state == SND_QP_CONNECTING || ep->state == SND_QP_ACCEPTED)) {
		ep->conn = NULL;
		ep->connector = NULL;
		conn->endpoint = NULL;
		snd_change_state(ep, SND_EVENT_UNDOES);
		snd_detach(conn);
		snd_unuse(conn);
	} else {
		snd_detach(conn);
		if (ep != NULL)
			ep->connector = NULL; /* it is closing, and may outlive the connector */
	}
	set_connection(c, NULL);
	c->ep = NULL;
	snd_change_phase(c, SND_EVENT_UNDOES);
	if (c->closed) {
		snd_change_phase(c, SND_EVENT_ENDS);
		snd_release_address(c);
	}
}

/* start_connect checks the arguments and sends the connection request. */
static snd_status start_connect(struct snd_connector *c, struct snd_endpoint *ep, snd_address address, const snd_connect_params *params, const char *op)
{
	struct snd_fabric *f = c->object.fabric;
	struct snd_peer peer;
	bool known;
	snd_status s = check_params(c, ep, params, op);
	if (s == SND_SUCCESS)
		s = snd_check_reserved(&address, op);
	if (s != SND_SUCCESS)
		return s;
	if (address.host == 0)
		return snd_fail(SND_BAD_NETWORK_NAME, "%s: the address is unspecified: connect to a listener's address", op);
	if (c->phase != SND_PHASE_NEW)
		return snd_fail(SND_CONNECTION_ACTIVE, "%s: the connector is connecting or connected, or was: create another", op);
	if (!snd_peer_at(f, address.host, &peer, &known)) {
		snd_release_address(c); /* as after every failure that allows another attempt */
		if (!known)
			return snd_fail(SND_NETWORK_UNREACHABLE, "%s: %#" PRIx32 " is not an address of this job: pass what snd_listener_address has stored", op, address.host);
		if (snd_is_of_other_host(f, address.host))
			return snd_fail(SND_HOST_UNREACHABLE, "%s: %#" PRIx32 " is an address of another host, and this arena has no relay to other hosts", op, address.host);
		return snd_fail(SND_HOST_UNREACHABLE, "%s: no process has the address %#" PRIx32 ": retry when the peer has started", op, address.host);
	}
	if (ep->state != SND_QP_IDLE)
		return snd_fail(SND_CONNECTION_ACTIVE, "%s: the endpoint is not idle: connect an idle endpoint", op);
	if (snd_has_overrun(ep))
		return snd_fail(SND_INTERNAL_ERROR, "%s: a completion queue of the endpoint overran and lost results: create a deeper queue and another endpoint", op);
	bool bound_here = false;
	if (!c->owns_port) {
		if ((s = snd_bind_port(f, (snd_address){0, 0, 0}, &c->local, op)) != SND_SUCCESS)
			return s;
		c->owns_port = bound_here = true;
	}
	uint64_t offset;
	struct snd_connection *conn = NULL;
	s = snd_alloc(&f->heap, sizeof(struct snd_connection_record), true, &offset, op);
	if (s == SND_SUCCESS) {
		struct snd_connection_record *r = (struct snd_connection_record *)(void *)(f->arena.base + offset);
		conn = snd_connection_new(f, r, offset, SND_ACTIVE, peer);
		if (conn == NULL) {
			snd_free(&f->heap, offset);
			s = snd_no_memory(sizeof *conn, "private memory", op);
		}
	}
	if (s != SND_SUCCESS) {
		if (bound_here)
			snd_release_address(c);
		return s;
	}
	struct snd_connection_record *r = conn->record;
	set_connection(c, conn);
	begin_connecting(ep, conn, c);
	snd_set(&r->member[SND_ACTIVE], f->id);
	snd_set(&r->member[SND_PASSIVE], peer.id);
	snd_set32(&r->port[SND_ACTIVE], c->local.port);
	snd_set32(&r->port[SND_PASSIVE], address.port);
	snd_set32(&r->address[SND_ACTIVE], c->local.host);
	snd_set32(&r->address[SND_PASSIVE], address.host);
	fill_record(conn, ep, params);
	snd_release32(&r->state, SNDL_CONN_REQUESTED);
	snd_change_phase(c, SND_EVENT_REQUESTS);
	c->remote = address;
	if (snd_is_of_other_host(f, address.host))
		conn->remote = address.host;
	c->has_private_data = false;
	snd_send_mail(f, &peer, offset, &r->link);
	return SND_SUCCESS;
}

/* connector_wait is a wait that snd_connector_cancel ends. */
struct connector_wait {
	struct snd_connector *c;
	bool (*ready)(struct snd_connector *);
	uint32_t cancels; /* when it began */
};

static bool is_over(void *arg)
{
	struct connector_wait *w = arg;
	return w->c->cancels != w->cancels || w->ready(w->c);
}

static void drive(void *arg)
{
	struct snd_connector *c = ((struct connector_wait *)arg)->c;
	if (c->ep != NULL)
		snd_progress(c->ep);
}

static snd_status wait_for(struct snd_connector *c, int64_t timeout, bool (*ready)(struct snd_connector *), const char *op)
{
	struct connector_wait w = {c, ready, c->cancels};
	c->waits++;
	snd_status s = snd_wait(c->object.fabric, timeout, is_over, drive, &w, &(struct snd_call){.op = op, .object = "connector", .peer = c->conn != NULL ? c->conn->peer.id : 0});
	return s == SND_SUCCESS && !ready(c) ? SND_CANCELED : s;
}

static bool is_answered(struct snd_connector *c)
{
	return snd_connection_state(c->conn) != SNDL_CONN_REQUESTED || snd_is_peer_gone(c->conn);
}

/* handle_accepted takes note that the passive side has accepted. */
static snd_status handle_accepted(struct snd_connector *c, const char *op)
{
	struct snd_connection *conn = c->conn;
	struct snd_endpoint *ep = c->ep;
	if (ep == NULL || ep->conn != conn || ep->state != SND_QP_CONNECTING) {
		snd_transition(conn, SND_EVENT_WITHDRAWS);
		undo_connect(c);
		return snd_fail(SND_CANCELED, "%s: the endpoint was flushed or closed during the call", op);
	}
	if (!snd_attach(conn, ep)) {
		snd_transition(conn, SND_EVENT_WITHDRAWS);
		undo_connect(c);
		snd_change_phase(c, SND_EVENT_ENDS);
		return snd_fail(SND_CONNECTION_ABORTED, "%s: the peer's shared queue-pair state is damaged", op);
	}
	snd_change_state(ep, SND_EVENT_ACCEPTS);
	const struct snd_connection_record *r = conn->record;
	copy_private_data(c, SND_PASSIVE);
	c->inbound_reads = clamp_reads(c->object.fabric, least(snd_relaxed32(&r->read_in[SND_ACTIVE]), snd_relaxed32(&r->read_out[SND_PASSIVE])));
	c->outbound_reads = clamp_reads(c->object.fabric, least(snd_relaxed32(&r->read_out[SND_ACTIVE]), snd_relaxed32(&r->read_in[SND_PASSIVE])));
	snd_change_phase(c, SND_EVENT_ACCEPTS);
	return SND_SUCCESS;
}

/* end_wait ends a call that has waited; the last one frees a closed connector. */
static void end_wait(struct snd_connector *c)
{
	if (--c->waits == 0 && c->closed)
		snd_forget_connector(c);
}

/* begin_connect is start_connect with what the fault plan has to say. */
static snd_status begin_connect(struct snd_connector *c, struct snd_endpoint *ep, snd_address address, const snd_connect_params *params, int64_t *timeout, const char *op)
{
	const snd_status s = snd_before_connect(c, op, ep, address, timeout);
	return s == SND_SUCCESS ? start_connect(c, ep, address, params, op) : s;
}

/* finish_connect ends a connect that was answered, or whose wait has ended with another status. */
static snd_status finish_connect(struct snd_connector *c, snd_status waited, int64_t timeout, const char *op)
{
	struct snd_connection *conn = c->conn;
	const unsigned port = c->remote.port;
	if (waited != SND_SUCCESS)
		snd_transition(conn, SND_EVENT_WITHDRAWS);
	uint32_t state = snd_connection_state(conn);
	if (state == SNDL_CONN_ACCEPTED && !snd_is_peer_gone(conn))
		return handle_accepted(c, op);
	if (state == SNDL_CONN_REFUSED) {
		copy_private_data(c, SND_PASSIVE);
		undo_connect(c);
		snd_release_address(c);
		return snd_fail(SND_CONNECTION_REFUSED, "%s: no listener at port %u, its backlog is full, or it rejected the request", op, port);
	}
	if (state == SNDL_CONN_WITHDRAWN) {
		undo_connect(c);
		if (waited != SND_IO_TIMEOUT)
			return snd_fail(SND_CANCELED, "%s: the call was cancelled, or the connector or the fabric was closed", op);
		snd_release_address(c);
		return snd_fail(waited, "%s: no answer from port %u within %s", op, port, snd_duration(timeout).text);
	}
	char why[WHY];
	why_ended(conn, why);
	undo_connect(c);
	snd_release_address(c);
	return snd_fail(SND_HOST_UNREACHABLE, "%s: %s", op, why);
}

snd_status snd_connector_connect(size_t params_size, snd_connector *connector, snd_endpoint *endpoint, snd_address address, const snd_connect_params *params,
	int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "connect";
	SND_KNOWN(snd_connect_params, params, params_size, op);
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	struct snd_connector *c = connector;
	struct snd_fabric *f = c->object.fabric;
	snd_status s = begin_connect(c, endpoint, address, params, &timeout, op);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	s = finish_connect(c, wait_for(c, timeout, is_answered, op), timeout, op);
	end_wait(c);
	return snd_leave_with(f, s);
}

snd_status snd_connector_complete(snd_connector *connector)
{
	SND_KEEP_ERRNO;
	const char *op = "complete connect";
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	struct snd_fabric *f = connector->object.fabric;
	snd_status s = snd_before_phase_call(connector, op, SND_PHASE_ACCEPTED, connector->ep, NULL);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	struct snd_endpoint *ep = connector->ep;
	if (connector->phase != SND_PHASE_ACCEPTED) {
		s = snd_fail(SND_CONNECTION_INVALID, "%s: no Connect has been accepted: call snd_connector_connect first", op);
	} else if (ep == NULL || ep->state != SND_QP_ACCEPTED || snd_is_peer_gone(connector->conn) ||
		!snd_transition(connector->conn, SND_EVENT_COMPLETES)) {
		snd_change_phase(connector, SND_EVENT_ENDS);
		/* Of the peer's acts, only its death ends the state SND_QP_ACCEPTED. */
		const bool own = ep == NULL || (ep->state != SND_QP_ACCEPTED && !snd_is_peer_gone(connector->conn));
		char why[WHY];
		why_ended(connector->conn, why);
		if (!own)
			snd_terminate(ep, SND_CONNECTION_ABORTED, "%s: %s", op, why);
		s = own ? snd_fail(SND_CONNECTION_ABORTED, "%s: this side's endpoint was flushed or closed, or its completion queue overran: connect again with a new connector and endpoint", op)
			: snd_fail(SND_CONNECTION_ABORTED, "%s: %s%s", op, why, connector->conn->remote != 0 && snd_is_peer_gone(connector->conn) ? "" : ": connect again with a new connector and endpoint");
	} else {
		ep->read_limit = connector->outbound_reads;
		snd_change_phase(connector, SND_EVENT_COMPLETES);
		snd_change_state(ep, SND_EVENT_COMPLETES);
	}
	return snd_leave_with(f, s);
}

/* source_of returns the address that has requested a connection: that of the process that sent the request. The relay names
 * another one, because it acts for processes of other hosts. */
static snd_address source_of(const struct snd_connection *conn)
{
	const struct snd_fabric *f = conn->fabric;
	const uint32_t named = snd_relaxed32(&conn->record->address[SND_ACTIVE]);
	struct snd_peer relay;
	const bool is_named = snd_find_relay(f, &relay) && relay.id == conn->peer.id && snd_is_of_other_host(f, named);
	return (snd_address){is_named ? named : snd_host_of(f, snd_member_slot(conn->peer.id)), (uint16_t)snd_relaxed32(&conn->record->port[SND_ACTIVE]), 0};
}

/* snd_take_request puts a connection request into a new connector. It takes over one use of the connection. */
void snd_take_request(struct snd_connector *c, struct snd_connection *conn, snd_address local)
{
	c->conn = conn;
	snd_change_phase(c, SND_EVENT_TAKES);
	c->local = local;
	c->remote = source_of(conn);
	if (snd_is_of_other_host(c->object.fabric, c->remote.host))
		conn->remote = c->remote.host;
	copy_private_data(c, SND_ACTIVE);
	c->inbound_reads = clamp_reads(c->object.fabric, snd_relaxed32(&conn->record->read_out[SND_ACTIVE]));
	c->outbound_reads = clamp_reads(c->object.fabric, snd_relaxed32(&conn->record->read_in[SND_ACTIVE]));
}

static bool is_completed(struct snd_connector *c)
{
	return snd_connection_state(c->conn) != SNDL_CONN_ACCEPTED || snd_is_peer_gone(c->conn);
}

static snd_status start_accept(struct snd_connector *c, struct snd_endpoint *ep, const snd_connect_params *params, const char *op)
{
	snd_status s = check_params(c, ep, params, op);
	if (s != SND_SUCCESS)
		return s;
	if (c->phase != SND_PHASE_REQUESTED)
		return snd_fail(c->phase == SND_PHASE_NEW || c->phase == SND_PHASE_ENDED ? SND_CONNECTION_INVALID : SND_CONNECTION_ACTIVE,
			"%s: the connector holds no connection request", op);
	struct snd_connection *conn = c->conn;
	if (snd_is_peer_gone(conn) || snd_connection_state(conn) != SNDL_CONN_REQUESTED) {
		snd_change_phase(c, SND_EVENT_ENDS);
		char why[WHY];
		why_ended(conn, why);
		snd_detach(conn);
		return snd_fail(SND_CONNECTION_ABORTED, "%s: %s", op, why);
	}
	if (!begin_connecting(ep, conn, c))
		return snd_fail(SND_CONNECTION_ACTIVE, "%s: the endpoint is not idle: accept with an idle endpoint", op);
	if (snd_attach(conn, ep)) {
		fill_record(conn, ep, params);
		snd_set32(&conn->record->data_len[SND_ACTIVE], 0); /* the request has been copied; from now on there is only the data of a Reject */
		c->inbound_reads = least(clamp_reads(c->object.fabric, params == NULL ? 0 : params->inbound_reads), c->inbound_reads);
		c->outbound_reads = least(clamp_reads(c->object.fabric, params == NULL ? 0 : params->outbound_reads), c->outbound_reads);
		ep->read_limit = c->outbound_reads;
		if (snd_transition(conn, SND_EVENT_ACCEPTS)) {
			snd_change_phase(c, SND_EVENT_ACCEPTS);
			return SND_SUCCESS;
		}
	}
	snd_change_phase(c, SND_EVENT_ENDS);
	char why[WHY];
	why_ended(conn, why);
	snd_terminate(ep, SND_CONNECTION_ABORTED, "%s: %s, or its memory is damaged", op, why);
	snd_refuse(conn); /* if the active side still waits */
	return snd_fail(SND_CONNECTION_ABORTED, "%s: %s, or its memory is damaged", op, why);
}

static snd_status begin_accept(struct snd_connector *c, struct snd_endpoint *ep, const snd_connect_params *params, int64_t *timeout, const char *op)
{
	snd_status s = check_params(c, ep, params, op);
	if (s == SND_SUCCESS)
		s = snd_before_phase_call(c, op, SND_PHASE_REQUESTED, ep, timeout);
	return s == SND_SUCCESS ? start_accept(c, ep, params, op) : s; /* it checks again: during a delay another thread may have closed the endpoint */
}

/* finish_accept ends an accept that the active side has completed or given up, or whose wait has ended with another status. */
static snd_status finish_accept(struct snd_connector *c, snd_status waited, int64_t timeout, const char *op)
{
	struct snd_connection *conn = c->conn;
	if (waited != SND_SUCCESS)
		snd_transition(conn, SND_EVENT_ABANDONS);
	struct snd_endpoint *ep = c->ep;
	uint32_t state = snd_connection_state(conn);
	if (ep != NULL && !c->closed && ep->state == SND_QP_CONNECTING && snd_was_established(conn)) { /* the active side may have ended the connection since */
		snd_change_state(ep, SND_EVENT_COMPLETES);
		snd_progress(ep);
	}
	if (ep == NULL || c->closed) {
		snd_change_phase(c, SND_EVENT_ENDS);
		if (ep != NULL)
			snd_terminate(ep, SND_CONNECTION_ABORTED, "%s: the connector was closed", op);
		return snd_fail(SND_CANCELED, "%s: the connector or the endpoint was closed", op);
	}
	if (ep->was_connected) {
		snd_change_phase(c, SND_EVENT_COMPLETES);
		return SND_SUCCESS;
	}
	snd_change_phase(c, SND_EVENT_ENDS);
	c->private_length = 0; /* the data of the request stays only if the peer has withdrawn it */
	if (state == SNDL_CONN_WITHDRAWN)
		copy_private_data(c, SND_ACTIVE);
	char why[WHY];
	why_ended(conn, why);
	snd_terminate(ep, SND_CONNECTION_ABORTED, "%s: %s", op, why);
	if (state != SNDL_CONN_WITHDRAWN && waited != SND_SUCCESS)
		return snd_fail(waited, "%s: the active side has not completed the connection within %s", op, snd_duration(timeout).text);
	if (state == SNDL_CONN_WITHDRAWN || snd_is_peer_gone(conn)) /* a dead peer has not completed, as far as this process can know */
		return snd_fail(SND_CONNECTION_REFUSED, "%s: %s", op, why);
	return snd_fail(SND_CONNECTION_ABORTED, "%s: %s, or the endpoint was flushed", op, why);
}

snd_status snd_connector_accept(size_t params_size, snd_connector *connector, snd_endpoint *endpoint, const snd_connect_params *params, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "accept";
	SND_KNOWN(snd_connect_params, params, params_size, op);
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	struct snd_connector *c = connector;
	struct snd_fabric *f = c->object.fabric;
	snd_status s = begin_accept(c, endpoint, params, &timeout, op);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	s = finish_accept(c, wait_for(c, timeout, is_completed, op), timeout, op);
	end_wait(c);
	return snd_leave_with(f, s);
}

bool snd_withdraw(struct snd_connector *c, const void *data, uint32_t length)
{
	struct snd_connection *conn = c->conn;
	snd_change_phase(c, SND_EVENT_ENDS);
	if (!conn->peer_dead && !conn->released && data != NULL) {
		memcpy(conn->record->data[SND_ACTIVE], data, length);
		snd_set32(&conn->record->data_len[SND_ACTIVE], length);
	}
	bool ok = snd_transition(conn, SND_EVENT_WITHDRAWS);
	if (c->ep != NULL)
		snd_terminate(c->ep, SND_CANCELED, "reject: the connection was rejected");
	return ok;
}

snd_status snd_connector_reject(snd_connector *connector, const void *private_data, uint32_t length)
{
	SND_KEEP_ERRNO;
	const char *op = "reject";
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	struct snd_fabric *f = connector->object.fabric;
	if (length > f->limits->private_data)
		return snd_leave_with(f, snd_fail(SND_INVALID_BUFFER_SIZE, "%s: %" PRIu32 " bytes of private data, at most %" PRIu32, op, length, f->limits->private_data));
	if (length > 0 && private_data == NULL)
		return snd_leave_with(f, snd_fail(SND_INVALID_PARAMETER, "%s: private_data is NULL", op));
	struct snd_connection *conn = connector->conn;
	snd_status s = SND_SUCCESS;
	char why[WHY] = ""; /* before the connection may be freed */
	bool ok;
	switch (connector->phase) {
	case SND_PHASE_REQUESTED:
		why_ended(conn, why);
		if (!conn->peer_dead && !conn->released) {
			if (length > 0)
				memcpy(conn->record->data[SND_PASSIVE], private_data, length);
			snd_set32(&conn->record->data_len[SND_PASSIVE], length);
		}
		snd_change_phase(connector, SND_EVENT_ENDS);
		ok = snd_transition(conn, SND_EVENT_REFUSES) && !snd_is_peer_gone(conn);
		snd_detach(conn);
		break;
	case SND_PHASE_ACCEPTED:
		why_ended(conn, why);
		ok = snd_withdraw(connector, private_data == NULL ? "" : private_data, length) && !snd_is_peer_gone(conn);
		break;
	default:
		ok = true;
		s = snd_fail(SND_CONNECTION_INVALID, "%s: the connector holds no request and no accepted Connect", op);
	}
	if (!ok)
		s = snd_fail(SND_CONNECTION_ABORTED, "%s: %s", op, why);
	return snd_leave_with(f, s);
}

static bool is_up(const struct snd_connector *c)
{
	return c->phase == SND_PHASE_REQUESTED || c->phase == SND_PHASE_ACCEPTED || c->phase == SND_PHASE_ACCEPTING || c->phase == SND_PHASE_CONNECTED;
}

bool snd_is_requested(const struct snd_connector *c)
{
	return c->phase == SND_PHASE_REQUESTED && !snd_is_peer_gone(c->conn) && snd_connection_state(c->conn) == SNDL_CONN_REQUESTED;
}

snd_status snd_connector_private_data(snd_connector *connector, void *buffer, uint32_t capacity, uint32_t *length)
{
	const char *op = "get private data";
	SND_CHECK(connector, SND_TYPE_CONNECTOR, op);
	if ((buffer == NULL && capacity > 0) || length == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: buffer or length is NULL", op);
	*length = 0;
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	snd_status s = SND_SUCCESS;
	if (connector->phase == SND_PHASE_REQUESTED && !snd_is_requested(connector)) {
		char why[WHY];
		why_ended(connector->conn, why);
		s = snd_fail(SND_CONNECTION_ABORTED, "%s: %s", op, why);
	} else if (!is_up(connector) && !connector->has_private_data) {
		s = snd_fail(SND_CONNECTION_INVALID, "%s: not connecting or connected", op);
	} else {
		uint32_t n = connector->private_length;
		*length = n;
		if (least(n, capacity) > 0)
			memcpy(buffer, connector->private_data, least(n, capacity));
		if (n > capacity)
			s = snd_fail(SND_BUFFER_OVERFLOW, "%s: a buffer of %" PRIu32 " bytes for %" PRIu32 " bytes", op, capacity, n);
	}
	return snd_leave_with(connector->object.fabric, s);
}

snd_status snd_connector_read_limits(snd_connector *connector, uint32_t *inbound, uint32_t *outbound)
{
	const char *op = "get read limits";
	SND_CHECK(connector, SND_TYPE_CONNECTOR, op);
	if (inbound == NULL || outbound == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: inbound or outbound is NULL", op);
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	*inbound = connector->inbound_reads;
	*outbound = connector->outbound_reads;
	return snd_leave_with(connector->object.fabric, is_up(connector) ? SND_SUCCESS : snd_fail(SND_CONNECTION_INVALID, "%s: not connecting or connected", op));
}

snd_status snd_connector_local_address(snd_connector *connector, snd_address *address)
{
	const char *op = "get local address";
	SND_ENTER_TO(connector, SND_TYPE_CONNECTOR, address, op);
	bool known = connector->phase == SND_PHASE_NEW ? connector->owns_port : connector->phase != SND_PHASE_ENDED;
	*address = connector->local;
	return snd_leave_with(connector->object.fabric, known ? SND_SUCCESS : snd_fail(SND_CONNECTION_INVALID, "%s: not connecting or connected", op));
}

snd_status snd_connector_peer_address(snd_connector *connector, snd_address *address)
{
	const char *op = "get peer address";
	SND_ENTER_TO(connector, SND_TYPE_CONNECTOR, address, op);
	*address = connector->remote;
	return snd_leave_with(connector->object.fabric, is_up(connector) ? SND_SUCCESS : snd_fail(SND_CONNECTION_INVALID, "%s: not connected", op));
}

static bool has_ended(struct snd_connector *c)
{
	return c->closed || c->ep == NULL || c->ep->state == SND_QP_PEER_DISCONNECTED || c->ep->state == SND_QP_FAILED || c->ep->state == SND_QP_CLOSED;
}

snd_status snd_connector_wait_disconnect(snd_connector *connector, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "wait for disconnect";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	struct snd_fabric *f = connector->object.fabric;
	if (connector->phase != SND_PHASE_CONNECTED)
		return snd_leave_with(f, snd_fail(SND_CONNECTION_INVALID, "%s: the connector was never connected", op));
	snd_status s = wait_for(connector, timeout, has_ended, "notify disconnect");
	if (connector->closed || f->closed)
		s = snd_fail(SND_CANCELED, "%s: the connector or the fabric was closed", op);
	else if (s != SND_SUCCESS)
		s = snd_fail(s, "%s: the connection has not ended within %s", op, snd_duration(timeout).text);
	end_wait(connector);
	return snd_leave_with(f, s);
}

static bool has_disconnected(struct snd_connector *c)
{
	return c->closed || c->ep == NULL || (c->ep->state != SND_QP_DISCONNECTING && c->ep->pending_drains == 0);
}

static snd_status begin_disconnect(struct snd_connector *c, int64_t *timeout, const char *op)
{
	const snd_status s = snd_before_phase_call(c, op, SND_PHASE_CONNECTED, c->ep, timeout);
	if (s != SND_SUCCESS)
		return s;
	if (c->ep != NULL && c->ep->conn != NULL)
		snd_name_peer(c->ep->conn, c->peer, sizeof c->peer);
	if (c->phase != SND_PHASE_CONNECTED || c->disconnect_called)
		return snd_fail(SND_CONNECTION_INVALID, "%s: not connected", op);
	c->disconnect_called = true;
	if (c->ep == NULL || !snd_begin_disconnect(c->ep))
		return snd_fail(SND_CONNECTION_ABORTED, "%s: the connection has already failed: close the connector and the endpoint; snd_endpoint_error returns the cause", op);
	return SND_SUCCESS;
}

/* note_disconnection keeps what the endpoint knows of the end of the connection beyond the end of the endpoint. */
static void note_disconnection(struct snd_connector *c)
{
	if (c->ep == NULL)
		return;
	c->both_disconnected = c->ep->both_disconnected;
	c->disconnect_timed_out = c->ep->disconnect_timed_out;
}

/* finish_disconnect ends a disconnect whose connection has ended, or whose wait has ended with another status. */
static snd_status finish_disconnect(struct snd_connector *c, snd_status waited, int64_t timeout, const char *op)
{
	const struct snd_fabric *f = c->object.fabric;
	note_disconnection(c);
	if (waited == SND_SUCCESS && c->both_disconnected && (c->ep == NULL || c->ep->pending_drains == 0)) /* even if the connector was closed since */
		return SND_SUCCESS;
	if (c->closed || f->closed)
		return snd_fail(SND_CANCELED, "%s: the connector or the fabric was closed", op);
	if (waited != SND_SUCCESS)
		return snd_fail(waited, "%s: %s has not disconnected within %s", op, c->peer, snd_duration(timeout).text);
	if (c->disconnect_timed_out)
		return snd_fail(SND_IO_TIMEOUT, "%s: %s did not disconnect within %s (snd_fabric_set_timeouts): both sides must call it", op, c->peer, snd_duration(f->disconnect_timeout).text);
	return snd_fail(SND_CONNECTION_ABORTED, "%s: %s has died or left, or has aborted the connection", op, c->peer);
}

snd_status snd_connector_disconnect(snd_connector *connector, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "disconnect";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	struct snd_connector *c = connector;
	struct snd_fabric *f = c->object.fabric;
	snd_status s = begin_disconnect(c, &timeout, op);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	/* Until the drains end, a transfer of the peer may still access this process's memory. */
	s = finish_disconnect(c, wait_for(c, timeout, has_disconnected, op), timeout, op);
	end_wait(c);
	return snd_leave_with(f, s);
}

/* The calls that a program starts, and finishes when they need not wait. */
static const struct step {
	const char *op;
	bool (*ready)(struct snd_connector *c);
	snd_status (*finish)(struct snd_connector *c, snd_status waited, int64_t timeout, const char *op);
} connect_step = {"connect", is_answered, finish_connect}, accept_step = {"accept", is_completed, finish_accept}, disconnect_step = {"disconnect", has_disconnected, finish_disconnect};

/* started notes a step that has begun, unless s is a failure. */
static snd_status started(struct snd_connector *c, const struct step *step, snd_status s)
{
	if (s == SND_SUCCESS) {
		c->step = step;
		c->announced = false;
	}
	return snd_leave_with(c->object.fabric, s);
}

snd_status snd_connector_start_connect(size_t params_size, snd_connector *connector, snd_endpoint *endpoint, snd_address address, const snd_connect_params *params)
{
	SND_KEEP_ERRNO;
	int64_t timeout = SND_FOREVER;
	SND_KNOWN(snd_connect_params, params, params_size, connect_step.op);
	SND_ENTER(connector, SND_TYPE_CONNECTOR, connect_step.op);
	return started(connector, &connect_step, begin_connect(connector, endpoint, address, params, &timeout, connect_step.op));
}

snd_status snd_connector_start_accept(size_t params_size, snd_connector *connector, snd_endpoint *endpoint, const snd_connect_params *params)
{
	SND_KEEP_ERRNO;
	int64_t timeout = SND_FOREVER;
	SND_KNOWN(snd_connect_params, params, params_size, accept_step.op);
	SND_ENTER(connector, SND_TYPE_CONNECTOR, accept_step.op);
	return started(connector, &accept_step, begin_accept(connector, endpoint, params, &timeout, accept_step.op));
}

snd_status snd_connector_start_disconnect(snd_connector *connector)
{
	SND_KEEP_ERRNO;
	int64_t timeout = SND_FOREVER;
	SND_ENTER(connector, SND_TYPE_CONNECTOR, disconnect_step.op);
	return started(connector, &disconnect_step, begin_disconnect(connector, &timeout, disconnect_step.op));
}

static snd_status finish(struct snd_connector *c, snd_status waited)
{
	const struct step *step = c->step;
	c->step = NULL;
	return step->finish(c, waited, 0, step->op);
}

snd_status snd_connector_finish(snd_connector *connector)
{
	SND_KEEP_ERRNO;
	const char *op = "finish";
	SND_ENTER(connector, SND_TYPE_CONNECTOR, op);
	struct snd_connector *c = connector;
	struct snd_fabric *f = c->object.fabric;
	if (c->step == NULL)
		return snd_leave_with(f, snd_fail(SND_CONNECTION_INVALID, "%s: nothing is in progress: call snd_connector_start_connect, _accept or _disconnect first", op));
	if (c->ep != NULL)
		snd_progress(c->ep);
	if (!snd_list_is_empty(&f->work))
		snd_run_deferred(f); /* the end of a peer's copies, for which a disconnect waits */
	if (!c->step->ready(c))
		snd_housekeep(f, snd_clock()); /* the peer may have died */
	if (!c->step->ready(c))
		return snd_leave_with(f, snd_fail(SND_DEVICE_BUSY, "%s: %s is in progress: wait for the descriptor of snd_fabric_event_fd, and call again", op, c->step->op));
	return snd_leave_with(f, finish(c, SND_SUCCESS));
}

void snd_give_up(struct snd_connector *c)
{
	if (c->step != NULL)
		(void)finish(c, SND_CANCELED);
}

bool snd_has_news(struct snd_connector *c)
{
	if (c->step == NULL || c->announced || !c->step->ready(c))
		return false;
	c->announced = true;
	return true;
}

/* snd_endpoint_closed is called when the endpoint's memory is freed. */
void snd_endpoint_closed(struct snd_connector *c)
{
	note_disconnection(c);
	c->ep = NULL;
	if (c->phase == SND_PHASE_CONNECTED || c->phase == SND_PHASE_ENDED)
		snd_release_address(c);
	if (c->owned && c->waits == 0)
		snd_forget_connector(c);
}

void snd_give_to_endpoint(struct snd_connector *c)
{
	c->owned = true;
	snd_object_hide(&c->object);
}

/* snd_forget_connector frees a closed connector. */
void snd_forget_connector(struct snd_connector *c)
{
	snd_list_remove(&c->link);
	if (c->ep != NULL)
		c->ep->connector = NULL;
	set_connection(c, NULL);
	c->adapter->objects--;
	snd_object_free(&c->object);
}

snd_status snd_connector_cancel(snd_connector *connector)
{
	SND_KEEP_ERRNO;
	SND_ENTER(connector, SND_TYPE_CONNECTOR, "cancel");
	connector->cancels++;
	snd_wake(connector->object.fabric);
	return snd_leave_with(connector->object.fabric, SND_SUCCESS);
}

snd_status snd_connector_close(snd_connector *connector)
{
	SND_KEEP_ERRNO;
	SND_ENTER(connector, SND_TYPE_CONNECTOR, "close connector");
	struct snd_connector *c = connector;
	struct snd_fabric *f = c->object.fabric;
	c->closed = true;
	snd_object_hide(&c->object);
	snd_give_up(c);
	switch (c->phase) {
	case SND_PHASE_CONNECTING: /* the call in progress cleans up */
		snd_transition(c->conn, SND_EVENT_WITHDRAWS);
		break;
	case SND_PHASE_ACCEPTED:
		snd_withdraw(c, NULL, 0);
		break;
	case SND_PHASE_REQUESTED:
		snd_refuse(c->conn);
		break;
	case SND_PHASE_ACCEPTING:
		snd_transition(c->conn, SND_EVENT_ABANDONS);
		break;
	case SND_PHASE_CONNECTED:
		if (c->ep != NULL)
			snd_end_by_close(c->ep, SND_CONNECTION_ABORTED, "the connector was closed");
		break;
	default:
		break;
	}
	snd_wake(f);
	if (c->phase != SND_PHASE_CONNECTING && c->phase != SND_PHASE_ACCEPTING) {
		snd_release_address(c);
		snd_change_phase(c, SND_EVENT_ENDS);
	}
	if (c->waits == 0)
		snd_forget_connector(c);
	return snd_leave_with(f, SND_SUCCESS);
}

/* Connections: their messages, and the states of their queue pairs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "cm.h"
#include "linux/descriptor.h"
#include "window/window.h"

void close_connection(struct id *id)
{
	int *const sockets[] = {&id->connection, &id->timer};
	for (int i = 0; i < 2; i++) {
		if (*sockets[i] < 0)
			continue;
		unwatch(id, *sockets[i]);
		(void)close(*sockets[i]);
		*sockets[i] = -1;
	}
}

static bool send_message(struct id *id, struct message *m, enum kind kind)
{
	m->magic = MESSAGE_MAGIC;
	m->kind = kind;
	return send(id->connection, m, sizeof *m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *m;
}

static bool send_signal(struct id *id, enum kind kind)
{
	struct message m = {0};
	return send_message(id, &m, kind);
}

/* limit_of stores how many Reads and atomics the program asks for. RDMA_MAX_RESP_RES, which is RDMA_MAX_INIT_DEPTH, too, stands for the most. */
static bool limit_of(uint8_t asked, uint8_t *limit)
{
	*limit = asked == RDMA_MAX_RESP_RES ? SND_MAX_READS : asked;
	return *limit <= SND_MAX_READS;
}

/* fill_message takes over what the program says of its side, or what it gets if it says nothing. It returns an errno. */
static int fill_message(struct id *id, struct message *m, const struct rdma_conn_param *p, uint8_t limit)
{
	if (p == NULL && id->public.qp == NULL)
		return EINVAL;
	*m = (struct message){.responder_resources = SND_MAX_READS, .initiator_depth = SND_MAX_READS, .retry_count = 7, .rnr_retry_count = 7};
	if (p != NULL) {
		if (!limit_of(p->responder_resources, &m->responder_resources) || !limit_of(p->initiator_depth, &m->initiator_depth))
			return EINVAL;
		if (p->private_data != NULL && p->private_data_len > limit)
			return EINVAL;
		if (p->private_data != NULL && p->private_data_len > 0) {
			memcpy(m->private_data, p->private_data, p->private_data_len);
			m->private_length = p->private_data_len;
		}
		m->flow_control = p->flow_control;
		m->retry_count = p->retry_count & 7;
		m->rnr_retry_count = p->rnr_retry_count & 7;
		m->srq = p->srq;
		m->qp_num = p->qp_num;
	}
	if (id->public.qp != NULL) {
		m->qp_num = id->public.qp->qp_num;
		m->srq = id->public.qp->srq != NULL;
	}
	return 0;
}

/* change_qp moves the identifier's own queue pair to a state, with the attributes of the connection. */
static bool change_qp(struct id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask = IBV_QP_STATE;
	if (id->public.qp == NULL || id->has_no_qp)
		return true;
	if (state != IBV_QPS_ERR && rdma_init_qp_attr(&id->public, &attr, &mask) != 0)
		return false;
	const int error = ibv_modify_qp(id->public.qp, &attr, mask);
	errno = error;
	return error == 0;
}

/* make_ready makes the queue pair send and receive: from now on, the limits of the connection are known. */
static bool make_ready(struct id *id)
{
	return change_qp(id, IBV_QPS_INIT) && change_qp(id, IBV_QPS_RTR) && change_qp(id, IBV_QPS_RTS);
}

static void end(struct id *id, enum state state)
{
	close_connection(id);
	id->state = state;
}

/* fail_attempt ends an attempt to connect. The receives that the program has posted fail, as with a card. */
static void fail_attempt(struct id *id, enum state state, enum rdma_cm_event_type event, int status, const struct message *m)
{
	end(id, state);
	(void)change_qp(id, IBV_QPS_ERR);
	(void)queue_event(id, event, status, m);
}

/* least is at most what the peer offers. */
static uint8_t least(uint8_t a, uint8_t b) { return a < b ? a : b; }

static void on_request(struct id *id, const struct message *m)
{
	id->peer_qp = m->qp_num;
	/* What one side sends at once, the other one holds. */
	id->responder_resources = m->initiator_depth;
	id->initiator_depth = m->responder_resources;
	id->retry_count = m->retry_count;
	id->rnr_retry_count = m->rnr_retry_count;
	id->state = REQUESTED;
	struct message seen = *m;
	seen.responder_resources = m->initiator_depth;
	seen.initiator_depth = m->responder_resources;
	const bool taken = take_request(id, m) && queue_event(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &seen);
	id->listener = NULL;
	if (!taken) {
		struct message no = {.reason = BY_PROGRAM};
		(void)send_message(id, &no, REJECTION);
		free_id(id);
	}
}

static void on_response(struct id *id, const struct message *m)
{
	id->peer_qp = m->qp_num;
	id->rnr_retry_count = m->rnr_retry_count; /* each side says how often the other one repeats */
	id->responder_resources = least(id->responder_resources, m->initiator_depth);
	id->initiator_depth = least(id->initiator_depth, m->responder_resources);
	struct message seen = *m;
	seen.responder_resources = m->initiator_depth;
	seen.initiator_depth = m->responder_resources;
	if (id->public.qp == NULL) {
		id->state = RESPONDED;
		(void)queue_event(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &seen);
	} else if (make_ready(id) && send_signal(id, CONFIRMATION)) {
		id->state = CONNECTED;
		(void)queue_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, &seen);
	} else {
		fail_attempt(id, ROUTED, RDMA_CM_EVENT_CONNECT_ERROR, -errno, NULL);
	}
}

/* A server that opens another listener for each client, as those of perftest do, may be about to. A program may be about to poll the last completions:
 * libfabric destroys the queue pair when the peer disconnects, and with it those. Over a network, a request and an end come later. */
enum { TRIES = 40, TRY_NS = 5000000, END_SECONDS = 4 };

static bool begin_timer(struct id *id, struct itimerspec when)
{
	id->tries = 0;
	id->timer = snd_above_standard(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	return id->timer >= 0 && timerfd_settime(id->timer, 0, &when, NULL) == 0 && watch(id, id->timer);
}

static bool begin_tries(struct id *id) { return begin_timer(id, (struct itimerspec){.it_interval.tv_nsec = TRY_NS, .it_value.tv_nsec = TRY_NS}); }

static void end_tries(struct id *id)
{
	unwatch(id, id->timer);
	(void)close(id->timer);
	id->timer = -1;
}

static bool has_completions(const struct id *id) { return id->public.qp != NULL && !id->has_no_qp && softnd_has_completions(id->public.qp); }

/* disconnected ends the connection, and tells the program if it has no completions to poll, or does not poll them. */
static void disconnected(struct id *id)
{
	const bool by_peer = id->state == CONNECTED;
	end(id, DISCONNECTED);
	if (by_peer && has_completions(id) && begin_tries(id))
		return;
	(void)queue_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
}

static void try_end(struct id *id)
{
	if (has_completions(id) && ++id->tries < TRIES)
		return;
	end_tries(id);
	(void)queue_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
}

static void on_end(struct id *id)
{
	(void)send_signal(id, END_SEEN);
	disconnected(id);
}

/* on_loss handles the end of the socket: the peer has destroyed its identifier, or is dead. */
static void on_loss(struct id *id)
{
	switch (id->state) {
	case INCOMING:
		free_id(id);
		return;
	case REQUESTING:
	case RESPONDED:
	case REQUESTED:
	case ACCEPTING:
		fail_attempt(id, id->state == REQUESTING ? ROUTED : DISCONNECTED, RDMA_CM_EVENT_REJECTED, BY_PROGRAM, NULL);
		return;
	case CONNECTED:
	case DISCONNECTING:
		disconnected(id);
		return;
	default:
		close_connection(id);
	}
}

static void on_message(struct id *id, const struct message *m)
{
	switch (m->kind) {
	case REQUEST:
		if (id->state == INCOMING)
			on_request(id, m);
		return;
	case RESPONSE:
		if (id->state == REQUESTING)
			on_response(id, m);
		return;
	case CONFIRMATION:
		if (id->state == ACCEPTING) {
			id->state = CONNECTED;
			(void)queue_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, m);
		}
		return;
	case REJECTION:
		if (id->state == REQUESTING || id->state == ACCEPTING)
			fail_attempt(id, id->state == REQUESTING ? ROUTED : DISCONNECTED, RDMA_CM_EVENT_REJECTED, m->reason, m);
		return;
	case END:
		if (id->state == CONNECTED || id->state == ACCEPTING || id->state == RESPONDED || id->state == DISCONNECTING)
			on_end(id);
		return;
	case END_SEEN:
		if (id->state == DISCONNECTING)
			disconnected(id);
		return;
	}
}

static void on_peer(struct id *listener)
{
	const int fd = take_peer(listener->port);
	if (fd < 0)
		return;
	struct id *id = new_id(listener->public.ps, listener->public.qp_type, listener->public.context);
	if (id == NULL) {
		(void)close(fd);
		return;
	}
	id->state = INCOMING;
	id->listener = listener;
	id->channel = listener->channel;
	id->public.channel = listener->public.channel;
	id->connection = fd;
	if (!watch(id, fd))
		free_id(id);
	else
		on_socket(id); /* the request is usually there */
}

static bool has_addresses(const struct message *m)
{
	return address_size((const struct sockaddr *)&m->source) != 0 && address_size((const struct sockaddr *)&m->destination) != 0;
}

/* try_request sends the request. It returns an errno. */
static int try_request(struct id *id)
{
	const int fd = reach(&id->public.route.addr.dst_addr);
	if (fd < 0)
		return errno;
	id->connection = fd;
	if (watch(id, fd) && send_message(id, id->request, REQUEST))
		return 0;
	const int error = errno;
	unwatch(id, fd);
	(void)close(fd);
	id->connection = -1;
	return error == EPIPE || error == ECONNRESET ? ECONNREFUSED : error;
}

static bool has_ticked(const struct id *id)
{
	uint64_t ticks;
	return id->timer >= 0 && read(id->timer, &ticks, sizeof ticks) == (ssize_t)sizeof ticks;
}

static void on_timer(struct id *id)
{
	if (!has_ticked(id))
		return;
	if (id->state == DISCONNECTED) {
		try_end(id);
		return;
	}
	const int error = try_request(id);
	if (error == ECONNREFUSED && ++id->tries < TRIES)
		return;
	if (error == 0) {
		end_tries(id);
		return;
	}
	fail_attempt(id, ROUTED, error == ECONNREFUSED ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE, error == ECONNREFUSED ? NO_LISTENER : -error, NULL);
}

void on_socket(struct id *id)
{
	if (id->state == LISTENING) {
		on_peer(id);
		return;
	}
	if (id->connection < 0) {
		on_timer(id);
		return;
	}
	if (id->state == DISCONNECTING && has_ticked(id)) { /* the peer's program takes no events */
		disconnected(id);
		return;
	}
	struct message m;
	ssize_t n = recv(id->connection, &m, sizeof m, MSG_DONTWAIT);
	if (n < 0 && errno == ECONNRESET) /* the peer has left messages unread; its messages are still there */
		n = recv(id->connection, &m, sizeof m, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != (ssize_t)sizeof m || m.magic != MESSAGE_MAGIC || (m.kind == REQUEST && !has_addresses(&m)))
		on_loss(id); /* or the peer has another version of the library */
	else
		on_message(id, &m);
}

/* begin_request sends the request, or waits for a listener. It returns an errno. */
static int begin_request(struct id *id, const struct rdma_conn_param *param)
{
	if (id->state != ROUTED)
		return EINVAL;
	if (id->request == NULL && (id->request = malloc(sizeof *id->request)) == NULL)
		return ENOMEM;
	struct message *m = id->request;
	int error = fill_message(id, m, param, PRIVATE_DATA_OF_REQUEST);
	if (error != 0)
		return error;
	m->source = id->public.route.addr.src_storage;
	m->destination = id->public.route.addr.dst_storage;
	id->responder_resources = m->responder_resources;
	id->initiator_depth = m->initiator_depth;
	id->retry_count = m->retry_count;
	error = try_request(id);
	if (error == EAGAIN)
		return queue_event(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL) ? 0 : ENOMEM;
	if (error == ECONNREFUSED && !begin_tries(id)) {
		close_connection(id);
		return ENOMEM;
	}
	if (error == 0 || error == ECONNREFUSED)
		id->state = REQUESTING;
	return error == ECONNREFUSED ? 0 : error;
}

int rdma_connect(struct rdma_cm_id *public, struct rdma_conn_param *param)
{
	if (public == NULL)
		return fail(EINVAL);
	lock();
	const int error = begin_request(id_of(public), param);
	unlock();
	return complete(id_of(public), result(error));
}

static int begin_acceptance(struct id *id, const struct rdma_conn_param *param)
{
	struct message m;
	if (id->state != REQUESTED)
		return EINVAL;
	const int error = fill_message(id, &m, param, PRIVATE_DATA_OF_RESPONSE);
	if (error != 0)
		return error;
	if (param == NULL) {
		m.responder_resources = id->responder_resources;
		m.initiator_depth = id->initiator_depth;
	}
	id->responder_resources = least(id->responder_resources, m.responder_resources);
	id->initiator_depth = least(id->initiator_depth, m.initiator_depth);
	if (!make_ready(id) || !send_message(id, &m, RESPONSE)) {
		const int failure = errno == EPIPE ? ECONNRESET : errno;
		(void)change_qp(id, IBV_QPS_ERR);
		return failure;
	}
	id->state = ACCEPTING;
	return 0;
}

int rdma_accept(struct rdma_cm_id *public, struct rdma_conn_param *param)
{
	if (public == NULL)
		return fail(EINVAL);
	lock();
	const int error = begin_acceptance(id_of(public), param);
	unlock();
	return complete(id_of(public), result(error));
}

int rdma_reject(struct rdma_cm_id *public, const void *private_data, uint8_t length)
{
	if (private_data == NULL)
		length = 0;
	if (public == NULL || length > PRIVATE_DATA_OF_REJECTION)
		return fail(EINVAL);
	struct id *id = id_of(public);
	struct message m = {.reason = BY_PROGRAM, .private_length = length};
	if (length > 0)
		memcpy(m.private_data, private_data, length);
	lock();
	const int error = id->state != REQUESTED && id->state != RESPONDED ? EINVAL : 0;
	if (error == 0) {
		(void)send_message(id, &m, REJECTION); /* a peer that is gone needs none */
		end(id, DISCONNECTED);
	}
	unlock();
	return result(error);
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t length) { return rdma_reject(id, private_data, length); }

int rdma_disconnect(struct rdma_cm_id *public)
{
	if (public == NULL)
		return fail(EINVAL);
	struct id *id = id_of(public);
	lock();
	int error = 0;
	bool begun = false;
	switch (id->state) {
	case CONNECTED:
	case ACCEPTING:
	case RESPONDED:
		error = change_qp(id, IBV_QPS_ERR) ? 0 : errno;
		begun = error == 0;
		if (begun) {
			id->state = DISCONNECTING;
			(void)send_signal(id, END); /* a peer that is gone ends the socket */
			(void)begin_timer(id, (struct itimerspec){.it_value.tv_sec = END_SECONDS});
		}
		break;
	case ROUTED:
		if (id->request == NULL) { /* it has never asked for a connection */
			error = EINVAL;
			break;
		}
		/* fall through */
	case REQUESTING:
	case REQUESTED:
	case DISCONNECTING:
	case DISCONNECTED:
		error = change_qp(id, IBV_QPS_ERR) ? 0 : errno;
		break;
	default:
		error = EINVAL;
	}
	unlock();
	if (error != 0)
		return fail(error);
	return begun ? complete(id_of(public), 0) : 0;
}

/* rdma_establish confirms a connection whose queue pair the program has made ready. */
int rdma_establish(struct rdma_cm_id *public)
{
	if (public == NULL)
		return fail(EINVAL);
	struct id *id = id_of(public);
	lock();
	int error = public->qp != NULL || id->state != RESPONDED ? EINVAL : 0;
	if (error == 0 && !send_signal(id, CONFIRMATION))
		error = errno;
	if (error == 0)
		id->state = CONNECTED;
	unlock();
	return result(error);
}

/* rdma_notify reports that the queue pair has received data: then the connection is established. */
int rdma_notify(struct rdma_cm_id *public, enum ibv_event_type event)
{
	if (public == NULL || event != IBV_EVENT_COMM_EST)
		return fail(EINVAL);
	struct id *id = id_of(public);
	lock();
	if (id->state == ACCEPTING && queue_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL))
		id->state = CONNECTED;
	unlock();
	return 0;
}

/* Options of cards for a connection: there are none. */
int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	return id == NULL || ece == NULL ? fail(EINVAL) : 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (id == NULL || ece == NULL)
		return fail(EINVAL);
	*ece = (struct ibv_ece){0};
	return 0;
}

/* rdma_init_qp_attr fills the attributes for attr->qp_state, and the mask of those that it has filled. */
int rdma_init_qp_attr(struct rdma_cm_id *public, struct ibv_qp_attr *attr, int *mask)
{
	if (public == NULL || attr == NULL || mask == NULL)
		return fail(EINVAL);
	const struct id *id = id_of(public);
	const enum ibv_qp_state state = attr->qp_state;
	struct ibv_port_attr port;
	*attr = (struct ibv_qp_attr){.qp_state = state, .port_num = public->port_num};
	switch (state) {
	case IBV_QPS_INIT:
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (id->responder_resources > 0)
			attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		return 0;
	case IBV_QPS_RTR:
		if (ibv_query_port(public->verbs, public->port_num, &port) != 0)
			return -1;
		attr->ah_attr.dlid = port.lid;
		if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
			attr->ah_attr.is_global = 1;
			attr->ah_attr.grh = (struct ibv_global_route){.dgid = public->route.addr.addr.ibaddr.dgid, .hop_limit = 0xff};
		}
		attr->ah_attr.port_num = public->port_num;
		attr->path_mtu = port.active_mtu;
		attr->dest_qp_num = id->peer_qp;
		attr->max_dest_rd_atomic = id->responder_resources;
		*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		return 0;
	case IBV_QPS_RTS:
		attr->timeout = id->ack_timeout;
		attr->retry_cnt = id->retry_count;
		attr->rnr_retry = id->rnr_retry_count;
		attr->max_rd_atomic = id->initiator_depth;
		*mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
		return 0;
	default:
		return fail(EINVAL);
	}
}

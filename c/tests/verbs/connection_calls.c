/* The synchronous calls of the connection manager, which make the queue pairs, too. */
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>

#include "sides.h"

enum { WATCHDOG = 500 };

static void *accept_one(void *listener)
{
	struct rdma_cm_id *id;
	CHECK(rdma_get_request(listener, &id) == 0 && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST && id->event->param.conn.private_data_len == 2);
	CHECK(rdma_reject(id, NULL, 0) == 0);
	rdma_destroy_ep(id);
	return NULL;
}

static void synchronous(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *info;
	struct rdma_cm_id *listener, *id;
	CHECK(rdma_getaddrinfo("no such name.invalid", "1", &hints, &info) != 0);
	CHECK(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &info) == 0 && info->ai_qp_type == IBV_QPT_RC && info->ai_src_len == sizeof(struct sockaddr_in));
	CHECK(rdma_create_ep(&listener, info, NULL, NULL) == 0 && rdma_listen(listener, 1) == 0);
	rdma_freeaddrinfo(info);
	char port[8];
	snprintf(port, sizeof port, "%u", ntohs(rdma_get_src_port(listener)));
	hints.ai_flags = 0;
	CHECK(rdma_getaddrinfo("127.0.0.1", port, &hints, &info) == 0);
	CHECK(rdma_create_ep(&id, info, NULL, NULL) == 0);
	rdma_freeaddrinfo(info);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, accept_one, listener) == 0);
	struct rdma_conn_param p = {.private_data = "hi", .private_data_len = 2};
	CHECK(rdma_connect(id, &p) != 0 && errno == ECONNREFUSED && id->event->event == RDMA_CM_EVENT_REJECTED);
	CHECK(pthread_join(thread, NULL) == 0);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static void *accept_plainly(void *listener)
{
	struct rdma_cm_id *id;
	CHECK(rdma_get_request(listener, &id) == 0 && rdma_accept(id, NULL) == 0);
	return id;
}

/* check_limits checks the attributes of a queue pair. */
static void check_limits(const struct rdma_cm_id *id, uint8_t reads, uint8_t retry_cnt, uint8_t rnr_retry)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_RTS && attr.max_rd_atomic == reads && attr.max_dest_rd_atomic == reads);
	CHECK(attr.retry_cnt == retry_cnt && attr.rnr_retry == rnr_retry);
}

enum way { POLLS, WAITS, DESTROYS };

/* end_after_message ends the connection after a message. The other side hears of the end when it has polled the completion, or does not poll it, or
 * has destroyed its queue pair, as rping does. */
static void end_after_message(struct rdma_cm_id *from, struct rdma_cm_id *to, enum way way)
{
	struct rdma_cm_event *e;
	struct ibv_wc wc;
	CHECK(rdma_post_recvv(to, NULL, NULL, 0) == 0 && rdma_post_sendv(from, NULL, NULL, 0, IBV_SEND_SIGNALED) == 0 && rdma_get_send_comp(from, &wc) == 1);
	rdma_destroy_ep(from);
	CHECK(fcntl(to->channel->fd, F_SETFL, O_NONBLOCK) == 0 && rdma_get_cm_event(to->channel, &e) != 0 && errno == EAGAIN);
	CHECK(fcntl(to->channel->fd, F_SETFL, 0) == 0 && (way != POLLS || (ibv_poll_cq(to->recv_cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)));
	CHECK(way != DESTROYS || ibv_destroy_qp(to->qp) == 0);
	CHECK(rdma_get_cm_event(to->channel, &e) == 0 && e->event == RDMA_CM_EVENT_DISCONNECTED && e->id == to && e->status == 0 && rdma_ack_cm_event(e) == 0);
	CHECK(way != WAITS || ibv_poll_cq(to->recv_cq, 1, &wc) == 1);
	if (way == DESTROYS) {
		to->qp = NULL;
		rdma_destroy_qp(to); /* the queues that came with it */
	}
	rdma_destroy_ep(to);
}

/* Programs without parameters get the most that the device can, and so do those that ask for it. */
static void defaults(void)
{
	char port[8];
	struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 0}};
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *info;
	struct rdma_cm_id *listener, *id;
	struct ibv_device_attr device;
	struct rdma_conn_param most = {.responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH, .retry_count = 1, .rnr_retry_count = 2};
	CHECK(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &info) == 0 && rdma_create_ep(&listener, info, NULL, &attr) == 0 && rdma_listen(listener, 1) == 0);
	rdma_freeaddrinfo(info);
	CHECK(ibv_query_device(listener->verbs, &device) == 0);
	snprintf(port, sizeof port, "%u", ntohs(rdma_get_src_port(listener)));
	hints.ai_flags = 0;
	for (int i = 0; i < 3; i++) {
		struct rdma_conn_param *p = i == 0 ? NULL : &most, too_many = {.initiator_depth = (uint8_t)(device.max_qp_rd_atom + 1)};
		CHECK(rdma_getaddrinfo("127.0.0.1", port, &hints, &info) == 0 && rdma_create_ep(&id, info, NULL, &attr) == 0);
		rdma_freeaddrinfo(info);
		pthread_t thread;
		void *server;
		CHECK(rdma_connect(id, &too_many) != 0 && errno == EINVAL);
		CHECK(pthread_create(&thread, NULL, accept_plainly, listener) == 0 && rdma_connect(id, p) == 0 && pthread_join(thread, &server) == 0);
		check_limits(id, (uint8_t)device.max_qp_rd_atom, i == 0 ? 7 : 1, 7);
		check_limits(server, (uint8_t)device.max_qp_rd_atom, i == 0 ? 7 : 1, i == 0 ? 7 : 2);
		end_after_message(i == 0 ? server : id, i == 0 ? id : server, (enum way)i);
	}
	rdma_destroy_ep(listener);
}

int main(void)
{
	alarm(WATCHDOG);
	name_fabric("cm-calls");
	const int before = descriptors();
	synchronous();
	CHECK(descriptors() <= before + 1); /* the device's */
	defaults();
	return 0;
}

/* The connection manager: addresses, requests and their ends, from both sides, without queue pairs. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../check.h"

enum { WATCHDOG = 500 };

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* expect takes the next event, which must be of a type and of an identifier; NULL: of any. */
static struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type, const struct rdma_cm_id *id)
{
	struct rdma_cm_event *e;
	CHECK(rdma_get_cm_event(channel, &e) == 0);
	if (e->event != type)
		fprintf(stderr, "%s, status %d, want %s\n", rdma_event_str(e->event), e->status, rdma_event_str(type));
	CHECK(e->event == type && (id == NULL || e->id == id));
	return e;
}

static void see(struct rdma_event_channel *channel, enum rdma_cm_event_type type, const struct rdma_cm_id *id, int status)
{
	struct rdma_cm_event *e = expect(channel, type, id);
	CHECK(e->status == status && rdma_ack_cm_event(e) == 0);
}

static void no_event(struct rdma_event_channel *channel)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	CHECK(poll(&p, 1, 0) == 0);
}

struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
};

static struct side new_side(void)
{
	struct side s = {.channel = rdma_create_event_channel()};
	CHECK(s.channel != NULL && rdma_create_id(s.channel, &s.id, &s, RDMA_PS_TCP) == 0);
	return s;
}

static void end_side(struct side *s)
{
	CHECK(rdma_destroy_id(s->id) == 0);
	rdma_destroy_event_channel(s->channel);
}

static struct side new_listener(void)
{
	struct side s = new_side();
	struct sockaddr_in any = loopback(0);
	CHECK(rdma_bind_addr(s.id, (struct sockaddr *)&any) == 0 && rdma_get_src_port(s.id) != 0 && s.id->verbs != NULL && s.id->pd != NULL);
	CHECK(rdma_listen(s.id, 4) == 0);
	return s;
}

/* new_client returns a side that knows the way to a port. */
static struct side new_client(uint16_t port)
{
	struct side s = new_side();
	struct sockaddr_in to = loopback(port);
	CHECK(rdma_connect(s.id, NULL) != 0 && errno == EINVAL);
	CHECK(rdma_resolve_addr(s.id, NULL, (struct sockaddr *)&to, 1000) == 0);
	see(s.channel, RDMA_CM_EVENT_ADDR_RESOLVED, s.id, 0);
	CHECK(s.id->verbs != NULL && rdma_get_dst_port(s.id) == htons(port) && rdma_get_src_port(s.id) != 0);
	CHECK(rdma_resolve_route(s.id, 1000) == 0);
	see(s.channel, RDMA_CM_EVENT_ROUTE_RESOLVED, s.id, 0);
	CHECK(s.id->route.num_paths == 1 && s.id->route.path_rec->pkey == 0xffff);
	no_event(s.channel);
	return s;
}

static void ask(struct side *s, const char *data)
{
	struct rdma_conn_param p = {.private_data = data, .private_data_len = (uint8_t)strlen(data), .responder_resources = 3, .initiator_depth = 2, .retry_count = 5,
		.rnr_retry_count = 6, .qp_num = 77};
	CHECK(rdma_connect(s->id, &p) == 0);
}

static struct rdma_cm_id *take_request(struct side *listener, const char *data)
{
	struct rdma_cm_event *e = expect(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	const struct rdma_conn_param *p = &e->param.conn;
	CHECK(e->listen_id == listener->id && e->id != listener->id && e->id->verbs != NULL && e->id->context == listener->id->context);
	CHECK(p->private_data_len == strlen(data) && (*data == '\0' || memcmp(p->private_data, data, strlen(data)) == 0));
	CHECK(p->responder_resources == 2 && p->initiator_depth == 3 && p->retry_count == 5 && p->rnr_retry_count == 6 && p->qp_num == 77);
	CHECK(rdma_get_src_port(e->id) == rdma_get_src_port(listener->id));
	struct rdma_cm_id *id = e->id;
	CHECK(rdma_ack_cm_event(e) == 0);
	return id;
}

static void accept_request(struct rdma_cm_id *id)
{
	struct rdma_conn_param p = {.private_data = "yes", .private_data_len = 4, .responder_resources = 1, .initiator_depth = 1, .qp_num = 78};
	CHECK(rdma_accept(id, &p) == 0 && rdma_accept(id, &p) != 0 && errno == EINVAL);
}

/* meet connects a client without a queue pair: its program confirms the response. */
static struct rdma_cm_id *meet(struct side *listener, struct side *client)
{
	ask(client, "hello");
	struct rdma_cm_id *server = take_request(listener, "hello");
	accept_request(server);
	struct rdma_cm_event *e = expect(client->channel, RDMA_CM_EVENT_CONNECT_RESPONSE, client->id);
	CHECK(e->param.conn.qp_num == 78 && e->param.conn.private_data_len == 4 && strcmp(e->param.conn.private_data, "yes") == 0);
	CHECK(rdma_ack_cm_event(e) == 0);
	no_event(listener->channel);
	CHECK(rdma_establish(client->id) == 0 && rdma_establish(client->id) != 0);
	see(listener->channel, RDMA_CM_EVENT_ESTABLISHED, server, 0);

	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask;
	struct ibv_port_attr port;
	CHECK(ibv_query_port(server->verbs, 1, &port) == 0);
	CHECK(rdma_init_qp_attr(server, &attr, &mask) == 0 && attr.dest_qp_num == 77 && attr.max_dest_rd_atomic == 1 && attr.ah_attr.dlid == port.lid);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(rdma_init_qp_attr(client->id, &attr, &mask) == 0 && attr.max_rd_atomic == 1 && attr.retry_cnt == 5 && attr.rnr_retry == 0);
	return server;
}

static void orderly(void)
{
	struct side listener = new_listener(), client = new_client(ntohs(rdma_get_src_port(listener.id)));
	struct rdma_cm_id *server = meet(&listener, &client);
	CHECK(rdma_disconnect(client.id) == 0 && rdma_disconnect(client.id) == 0);
	no_event(client.channel);
	see(listener.channel, RDMA_CM_EVENT_DISCONNECTED, server, 0);
	see(client.channel, RDMA_CM_EVENT_DISCONNECTED, client.id, 0);
	CHECK(rdma_disconnect(server) == 0 && rdma_disconnect(client.id) == 0);
	CHECK(rdma_destroy_id(server) == 0);
	no_event(listener.channel);
	no_event(client.channel);
	end_side(&client);

	/* A peer whose program takes no events does not keep the connection. */
	client = new_client(ntohs(rdma_get_src_port(listener.id)));
	server = meet(&listener, &client);
	CHECK(rdma_disconnect(client.id) == 0);
	struct rdma_event_channel *first = client.channel;
	CHECK((client.channel = rdma_create_event_channel()) != NULL && rdma_migrate_id(client.id, client.channel) == 0);
	rdma_destroy_event_channel(first);
	see(client.channel, RDMA_CM_EVENT_DISCONNECTED, client.id, 0);
	see(listener.channel, RDMA_CM_EVENT_DISCONNECTED, server, 0);
	CHECK(rdma_destroy_id(server) == 0);
	end_side(&client);

	/* A side that is destroyed ends the connection, too. */
	client = new_client(ntohs(rdma_get_src_port(listener.id)));
	server = meet(&listener, &client);
	CHECK(rdma_destroy_id(server) == 0);
	see(client.channel, RDMA_CM_EVENT_DISCONNECTED, client.id, 0);
	no_event(client.channel);
	end_side(&client);
	end_side(&listener);
}

static void refused(void)
{
	struct side listener = new_listener();
	const uint16_t port = ntohs(rdma_get_src_port(listener.id));
	struct side client = new_client(port);
	ask(&client, "");
	struct rdma_cm_id *server = take_request(&listener, "");
	CHECK(rdma_reject(server, "no", 3) == 0 && rdma_destroy_id(server) == 0);
	struct rdma_cm_event *e = expect(client.channel, RDMA_CM_EVENT_REJECTED, client.id);
	CHECK(e->status == 28 && e->param.conn.private_data_len == 3 && strcmp(e->param.conn.private_data, "no") == 0 && rdma_ack_cm_event(e) == 0);

	/* The identifier can try again: a program whose server starts late does. A request that the listener's program has not seen is refused, too. */
	ask(&client, "again");
	end_side(&listener);
	see(client.channel, RDMA_CM_EVENT_REJECTED, client.id, 28);
	ask(&client, "and again");
	see(client.channel, RDMA_CM_EVENT_REJECTED, client.id, 8); /* there is no listener */
	end_side(&client);
}

static void addresses(void)
{
	struct side a = new_side(), b = new_side();
	struct sockaddr_in address = loopback(0), far = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(0x01010101)};
	CHECK(rdma_bind_addr(a.id, (struct sockaddr *)&far) != 0 && errno == EADDRNOTAVAIL);
	CHECK(rdma_bind_addr(a.id, (struct sockaddr *)&address) == 0 && rdma_bind_addr(a.id, (struct sockaddr *)&address) != 0 && errno == EINVAL);
	address.sin_port = rdma_get_src_port(a.id);
	CHECK(rdma_bind_addr(b.id, (struct sockaddr *)&address) != 0 && errno == EADDRINUSE);
	CHECK(rdma_resolve_addr(b.id, NULL, (struct sockaddr *)&far, 10) == 0);
	see(b.channel, RDMA_CM_EVENT_ADDR_ERROR, b.id, -EHOSTUNREACH);
	struct sockaddr unknown = {.sa_family = AF_UNIX};
	CHECK(rdma_resolve_addr(b.id, NULL, &unknown, 10) != 0 && errno == EAFNOSUPPORT);
	struct rdma_cm_id *datagrams;
	CHECK(rdma_create_id(b.channel, &datagrams, NULL, RDMA_PS_UDP) != 0 && errno == EOPNOTSUPP);
	end_side(&a);
	CHECK(rdma_bind_addr(b.id, (struct sockaddr *)&address) == 0); /* the port is free again */
	end_side(&b);

	/* A listener of all addresses is found at each of them. */
	struct side listener = new_side();
	CHECK(rdma_listen(listener.id, 0) == 0 && rdma_get_src_port(listener.id) != 0);
	struct side client = new_client(ntohs(rdma_get_src_port(listener.id)));
	struct rdma_cm_id *server = meet(&listener, &client);
	CHECK(((struct sockaddr_in *)&server->route.addr.src_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK) && rdma_destroy_id(server) == 0);
	end_side(&client);
	end_side(&listener);
}

static void without_waiting(void)
{
	struct side s = new_listener();
	struct rdma_cm_event *e;
	CHECK(fcntl(s.channel->fd, F_SETFL, fcntl(s.channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	CHECK(rdma_get_cm_event(s.channel, &e) != 0 && errno == EAGAIN);
	struct side client = new_client(ntohs(rdma_get_src_port(s.id)));
	ask(&client, "x");
	struct pollfd p = {.fd = s.channel->fd, .events = POLLIN};
	CHECK(poll(&p, 1, WATCHDOG * 1000) == 1);

	/* The listener moves with its queued events. */
	struct rdma_event_channel *other = rdma_create_event_channel();
	CHECK(rdma_migrate_id(s.id, other) == 0 && s.id->channel == other);
	no_event(s.channel);
	rdma_destroy_event_channel(s.channel);
	s.channel = other;
	struct rdma_cm_id *server = take_request(&s, "x");
	CHECK(server->channel == other && rdma_destroy_id(server) == 0);
	see(client.channel, RDMA_CM_EVENT_REJECTED, client.id, 28);
	end_side(&client);
	end_side(&s);
}

/* A destroyed identifier waits for the events that the program has taken. */
static _Atomic int waiting_thread;

static bool is_asleep(int thread)
{
	char path[64], line[512] = "";
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
	FILE *f = fopen(path, "r");
	CHECK(f != NULL && fgets(line, sizeof line, f) != NULL && fclose(f) == 0);
	return strstr(line, ") S") != NULL;
}

/* begin begins a thread, which stores its number in waiting_thread, and returns when it waits. */
static pthread_t begin(void *(*run)(void *), void *arg)
{
	pthread_t thread;
	waiting_thread = 0;
	CHECK(pthread_create(&thread, NULL, run, arg) == 0);
	while (waiting_thread == 0 || !is_asleep(waiting_thread))
		continue;
	return thread;
}

static void *destroy(void *id)
{
	waiting_thread = gettid();
	return rdma_destroy_id(id) == 0 ? NULL : id;
}

static void acknowledged(void)
{
	struct side s = new_side();
	struct sockaddr_in to = loopback(9);
	CHECK(rdma_resolve_addr(s.id, NULL, (struct sockaddr *)&to, 0) == 0);
	struct rdma_cm_event *e = expect(s.channel, RDMA_CM_EVENT_ADDR_RESOLVED, s.id);
	const pthread_t thread = begin(destroy, s.id);
	void *failed;
	CHECK(pthread_tryjoin_np(thread, &failed) == EBUSY);
	CHECK(rdma_ack_cm_event(e) == 0 && pthread_join(thread, &failed) == 0 && failed == NULL);
	rdma_destroy_event_channel(s.channel);
}

/* reach_silently returns a socket that is connected to the listener of this process. */
static int reach_silently(void)
{
	const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	for (int fd = 0; fd < s; fd++) {
		struct sockaddr_un name;
		socklen_t size = sizeof name, length = sizeof(int);
		int listens = 0;
		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens && getsockname(fd, (struct sockaddr *)&name, &size) == 0 && name.sun_family == AF_UNIX &&
			connect(s, (struct sockaddr *)&name, size) == 0)
			return s;
	}
	return -1;
}

/* A peer that reaches a listener while that is destroyed, and sends no request. */
static void late_peer(void)
{
	struct side s = new_listener(), client = new_client(ntohs(rdma_get_src_port(s.id)));
	ask(&client, "x");
	struct rdma_cm_event *e = expect(s.channel, RDMA_CM_EVENT_CONNECT_REQUEST, NULL), *none;
	struct rdma_cm_id *server = e->id;
	const pthread_t thread = begin(destroy, s.id);
	void *failed;
	const int peer = reach_silently();
	CHECK(peer >= 0 && fcntl(s.channel->fd, F_SETFL, fcntl(s.channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	CHECK(rdma_get_cm_event(s.channel, &none) != 0 && errno == EAGAIN);
	CHECK(rdma_ack_cm_event(e) == 0 && pthread_join(thread, &failed) == 0 && failed == NULL);
	CHECK(rdma_destroy_id(server) == 0);
	char c;
	CHECK(recv(peer, &c, 1, MSG_DONTWAIT) == 0); /* it has been closed */
	(void)close(peer);
	rdma_destroy_event_channel(s.channel);
	end_side(&client);
}

/* A client that is killed at each step: its server sees the end, and its port is free. */
static void death(void)
{
	for (int step = 0; step < 3; step++) {
		struct side listener = new_listener();
		const uint16_t port = ntohs(rdma_get_src_port(listener.id));
		int alive[2];
		CHECK(pipe(alive) == 0);
		const pid_t child = fork();
		if (child == 0) {
			struct side client = new_client(port);
			ask(&client, "hello");
			if (step > 0)
				(void)expect(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE, client.id);
			if (step > 1)
				CHECK(rdma_establish(client.id) == 0);
			CHECK(write(alive[1], "x", 1) == 1);
			for (;;)
				pause();
		}
		struct rdma_cm_id *server = take_request(&listener, "hello");
		if (step > 0)
			accept_request(server);
		if (step > 1)
			see(listener.channel, RDMA_CM_EVENT_ESTABLISHED, server, 0);
		char c;
		CHECK(read(alive[0], &c, 1) == 1 && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
		if (step > 1)
			see(listener.channel, RDMA_CM_EVENT_DISCONNECTED, server, 0);
		else
			see(listener.channel, RDMA_CM_EVENT_REJECTED, server, 28);
		struct rdma_conn_param p = {.qp_num = 1};
		CHECK(rdma_accept(server, &p) != 0);
		CHECK(rdma_destroy_id(server) == 0);
		end_side(&listener);
		(void)close(alive[0]), (void)close(alive[1]);
	}
}

static _Atomic int interruptions;

static void interrupt(int signal) { interruptions += signal == SIGUSR1; }

static void *wait_for_ever(void *channel)
{
	struct rdma_cm_event *e;
	waiting_thread = gettid();
	CHECK(rdma_get_cm_event(channel, &e) != 0 && errno == EINTR);
	return NULL;
}

/* waited_for destroys a channel while a thread waits for its events, or before that, as rping does. The thread waits until it is cancelled. */
static void waited_for(bool before)
{
	struct sigaction s = {.sa_handler = interrupt};
	struct rdma_event_channel *channel = rdma_create_event_channel(), *other;
	void *result;
	CHECK(channel != NULL && sigaction(SIGUSR1, &s, NULL) == 0);
	interruptions = 0;
	if (before)
		rdma_destroy_event_channel(channel);
	const pthread_t thread = begin(wait_for_ever, channel);
	if (!before)
		rdma_destroy_event_channel(channel);
	CHECK((other = rdma_create_event_channel()) != NULL); /* it may get the same descriptor */
	for (int i = 1; i <= 3; i++) {
		CHECK(pthread_kill(thread, SIGUSR1) == 0);
		while (interruptions < i || !is_asleep(waiting_thread))
			continue;
	}
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	struct side after = new_side(); /* the thread has left without the lock of the library */
	end_side(&after);
	rdma_destroy_event_channel(other);
}

/* A handler without SA_RESTART ends the wait for an event. */
static void interrupted(void)
{
	struct sigaction s = {.sa_handler = interrupt};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel != NULL && sigaction(SIGUSR1, &s, NULL) == 0);
	const pthread_t thread = begin(wait_for_ever, channel);
	while (pthread_tryjoin_np(thread, NULL) == EBUSY) { /* a signal may come before the wait */
		CHECK(pthread_kill(thread, SIGUSR1) == 0);
		(void)usleep(1000);
	}
	rdma_destroy_event_channel(channel);
}

/* The receives of a queue pair whose request is refused fail. */
static void refused_queue_pair(void)
{
	struct side listener = new_listener(), client = new_client(ntohs(rdma_get_src_port(listener.id)));
	struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_wc wc;
	CHECK(rdma_create_qp(client.id, NULL, &attr) == 0 && rdma_post_recvv(client.id, NULL, NULL, 0) == 0 && rdma_connect(client.id, NULL) == 0);
	struct rdma_cm_event *e = expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	struct rdma_cm_id *server = e->id;
	CHECK(e->param.conn.private_data != NULL && e->param.conn.private_data_len == 0 && rdma_ack_cm_event(e) == 0);
	CHECK(rdma_reject(server, NULL, 7) == 0 && rdma_destroy_id(server) == 0);
	see(client.channel, RDMA_CM_EVENT_REJECTED, client.id, 28);
	CHECK(ibv_poll_cq(client.id->recv_cq, 1, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR && rdma_disconnect(client.id) == 0);
	rdma_destroy_qp(client.id);
	end_side(&client);
	end_side(&listener);
}

int main(void)
{
	alarm(WATCHDOG);
	const int before = descriptors();
	orderly();
	refused();
	addresses();
	without_waiting();
	acknowledged();
	late_peer();
	death();
	waited_for(false);
	waited_for(true);
	interrupted();
	CHECK(descriptors() <= before + 1); /* the device's */
	refused_queue_pair();
	return 0;
}

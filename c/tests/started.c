/* Connections without a call that waits: a program starts a connect, an accept or a disconnect, sleeps in poll, and finishes it. And the
 * calls that end the waits of other threads. */
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "endpoint/endpoint.h"
#include "two_members.h"

static int fds[2] = {-1, -1}; /* of a and b; -1: there is no engine, and the calls make progress */

static void make(struct side *s)
{
	OK(snd_cq_create(s->adapter, 64, &s->cq));
	OK(snd_endpoint_create(s->adapter, &(snd_endpoint_config){.receive_cq = s->cq, .initiator_cq = s->cq}, &s->ep));
}

/* await sleeps until the descriptor of a member is readable, and reads it. */
static void await(int member)
{
	uint64_t n;
	struct pollfd p = {.fd = fds[member], .events = POLLIN};
	if (p.fd < 0) {
		OK(snd_fabric_progress(a.fabric));
		OK(snd_fabric_progress(b.fabric));
		return;
	}
	CHECK(poll(&p, 1, 10000) == 1);
	CHECK(read(p.fd, &n, sizeof n) == sizeof n);
}

/* drain reads the events of a member so far. The engines of both may still have some. */
static void drain(int member)
{
	uint64_t n;
	nanosleep(&(struct timespec){0, 2000000}, NULL);
	while (fds[member] >= 0 && read(fds[member], &n, sizeof n) == sizeof n)
		;
}

/* finish finishes a call when it can be, and expects a status. */
static void finish(int member, snd_connector *c, snd_status want)
{
	snd_status s;
	for (int i = 0; (s = snd_connector_finish(c)) == SND_DEVICE_BUSY; i++) {
		CHECK(strstr(snd_last_error(), " is in progress: ") != NULL && i < 1000);
		await(member);
	}
	if (s != want) {
		fprintf(stderr, "finish: %s: %s\n", snd_status_name(s), snd_last_error());
		exit(1);
	}
	CHECK(snd_connector_finish(c) == SND_CONNECTION_INVALID);
}

static snd_address begin(void)
{
	snd_address to;
	make(&a);
	make(&b);
	OK(snd_listener_address(listener, &to));
	OK(snd_connector_create(a.adapter, &a.connector));
	CHECK(snd_connector_finish(a.connector) == SND_CONNECTION_INVALID);
	return to;
}

static void take_request(void)
{
	snd_status s;
	while ((s = snd_listener_request(listener, 0, &b.connector)) == SND_IO_TIMEOUT)
		await(1);
	OK(s);
}

static void test_connect(void)
{
	const snd_connect_params p = {.private_data = "abc", .private_data_length = 3, .inbound_reads = 2, .outbound_reads = 2};
	const snd_address to = begin();
	unsigned char data[8];
	uint32_t n;
	drain(1);
	OK(snd_connector_start_connect(a.connector, a.ep, to, &p));
	await(1); /* the request */
	CHECK(snd_connector_start_connect(a.connector, a.ep, to, &p) == SND_CONNECTION_ACTIVE);
	CHECK(snd_connector_finish(a.connector) == SND_DEVICE_BUSY);
	take_request();
	OK(snd_connector_private_data(b.connector, data, sizeof data, &n));
	CHECK(n == 3 && memcmp(data, "abc", 3) == 0);
	drain(0);
	OK(snd_connector_start_accept(b.connector, b.ep, &p));
	CHECK(snd_connector_finish(b.connector) == SND_DEVICE_BUSY);
	await(0);
	finish(0, a.connector, SND_SUCCESS);
	drain(1);
	OK(snd_connector_complete(a.connector));
	await(1);
	finish(1, b.connector, SND_SUCCESS);
	OK(snd_endpoint_receive(b.ep, 1, NULL, 0));
	OK(snd_endpoint_send(a.ep, 2, NULL, 0, 0));
	WANT(a.cq, SND_REQUEST_SEND, 2, SND_SUCCESS);
	WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
	drain(1);
	OK(snd_connector_start_disconnect(a.connector));
	await(1); /* the connection of b has ended */
	CHECK(snd_connector_start_disconnect(a.connector) == SND_CONNECTION_INVALID && snd_connector_finish(a.connector) == SND_DEVICE_BUSY);
	while (snd_connector_wait_disconnect(b.connector, 0) == SND_IO_TIMEOUT)
		await(1);
	drain(0);
	OK(snd_connector_start_disconnect(b.connector));
	await(0);
	finish(1, b.connector, SND_SUCCESS);
	finish(0, a.connector, SND_SUCCESS);
	disconnect_members();
}

/* Each way in which a call that was started fails, or is given up. */
static void test_failures(void)
{
	snd_address to = begin();
	OK(snd_connector_start_connect(a.connector, a.ep, to, NULL));
	take_request();
	drain(0);
	OK(snd_connector_reject(b.connector, NULL, 0));
	await(0);
	finish(0, a.connector, SND_CONNECTION_REFUSED);
	OK(snd_connector_close(b.connector));
	OK(snd_connector_start_connect(a.connector, a.ep, to, NULL)); /* a refused request can be repeated */
	take_request();
	OK(snd_connector_start_accept(b.connector, b.ep, NULL));
	OK(snd_connector_close(a.connector)); /* gives up */
	finish(1, b.connector, SND_CONNECTION_REFUSED);
	OK(snd_connector_close(b.connector));
	OK(snd_endpoint_close(b.ep));
	make(&b);
	OK(snd_connector_create(a.adapter, &a.connector));
	OK(snd_connector_start_connect(a.connector, a.ep, to, NULL)); /* the endpoint is idle again */
	take_request();
	OK(snd_connector_start_accept(b.connector, b.ep, NULL));
	OK(snd_connector_close(b.connector));
	CHECK(snd_endpoint_error(b.ep) == SND_CONNECTION_ABORTED);
	while (snd_connector_finish(a.connector) == SND_DEVICE_BUSY)
		await(0);
	OK(snd_connector_close(a.connector));
	OK(snd_endpoint_close(a.ep));
	OK(snd_endpoint_close(b.ep));
	/* The close of the fabric ends a call that was started. */
	make(&a);
	OK(snd_connector_create(a.adapter, &a.connector));
	OK(snd_connector_start_connect(a.connector, a.ep, to, NULL));
}

/* A disconnect that waits for the end of a copy ends although the program makes no other call. */
static void test_finish_alone(void)
{
	connect_members(NULL);
	snd_word *hazard = (snd_word *)&a.ep->conn->peer_qp->hazard; /* b copies */
	snd_release(hazard, 1);
	OK(snd_connector_start_disconnect(a.connector));
	OK(snd_connector_start_disconnect(b.connector));
	CHECK(snd_connector_finish(a.connector) == SND_DEVICE_BUSY);
	snd_release(hazard, 0);
	snd_status s = SND_DEVICE_BUSY;
	for (int i = 0; i < 1000 && s == SND_DEVICE_BUSY; i++)
		s = snd_connector_finish(a.connector);
	OK(s);
	OK(snd_connector_finish(b.connector));
	disconnect_members();
}

static snd_srq *srq;
static int which;
static snd_status ended;

static void *wait_in_thread(void *unused)
{
	snd_result r;
	uint32_t n;
	snd_connector *c;
	(void)unused;
	ended = which == 0 ? snd_cq_wait(a.cq, &r, 1, SND_FOREVER, &n) : which == 1 ? snd_cq_notify(a.cq, SND_NOTIFY_ANY, SND_FOREVER)
		: which == 2 ? snd_srq_notify(srq, SND_FOREVER) : snd_listener_request(listener, SND_FOREVER, &c);
	CHECK(strstr(snd_last_error(), ": the call was cancelled") != NULL);
	return NULL;
}

static bool waits(struct snd_fabric *f)
{
	snd_lock(f);
	const bool yes = f->calls > 0;
	snd_unlock(f);
	return yes;
}

static void test_cancel(void)
{
	make(&a);
	OK(snd_srq_create(a.adapter, &(snd_srq_config){.depth = 4}, &srq));
	for (which = 0; which < 4; which++) {
		pthread_t t;
		CHECK(pthread_create(&t, NULL, wait_in_thread, NULL) == 0);
		while (!waits(which < 3 ? a.fabric : b.fabric))
			nanosleep(&(struct timespec){0, 1000000}, NULL);
		OK(which < 2 ? snd_cq_cancel(a.cq) : which == 2 ? snd_srq_cancel(srq) : snd_listener_cancel(listener));
		struct timespec limit;
		clock_gettime(CLOCK_REALTIME, &limit);
		limit.tv_sec += 10;
		CHECK(pthread_timedjoin_np(t, NULL, &limit) == 0 && ended == SND_CANCELED);
	}
	OK(snd_srq_close(srq));
	OK(snd_endpoint_close(a.ep));
	OK(snd_cq_close(a.cq));
}

int main(void)
{
	open_members(SND_EXECUTOR_AUTO);
	OK(snd_fabric_event_fd(a.fabric, &fds[0]));
	OK(snd_fabric_event_fd(b.fabric, &fds[1]));
	int again;
	OK(snd_fabric_event_fd(b.fabric, &again));
	CHECK(again == fds[1] && again > 2);
	for (int i = 0; i < 20; i++)
		test_connect();
	test_cancel();
	test_failures();
	close_members();
	open_members_with((snd_fabric_options){.progress = SND_PROGRESS_MANUAL});
	CHECK(snd_fabric_event_fd(a.fabric, &fds[0]) == SND_NOT_SUPPORTED && fds[0] == -1);
	fds[1] = -1;
	test_connect();
	test_finish_alone();
	test_failures();
	close_members();
	return 0;
}

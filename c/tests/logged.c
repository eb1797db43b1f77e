/* Events as the handler of the program gets them. The tests of endpoint/event_test.go are the same in Go. */
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "endpoint/event.h"
#include "two_members.h"

/* log is what the handler of one side has got. */
struct log {
	pthread_mutex_t mutex;
	snd_event events[2048];
	uint32_t count;
	bool blocks;        /* the handler does not return */
	struct side *calls; /* the handler calls the library about its endpoint, and closes its fabric */
};
static struct log logs[2];

static bool blocks(struct log *l)
{
	pthread_mutex_lock(&l->mutex);
	const bool yes = l->blocks;
	pthread_mutex_unlock(&l->mutex);
	return yes;
}

static void handle(void *arg, const snd_event *event)
{
	struct log *l = arg;
	pthread_mutex_lock(&l->mutex);
	struct side *const calls = l->calls;
	l->calls = NULL;
	pthread_mutex_unlock(&l->mutex);
	if (calls != NULL) {
		snd_endpoint_stats s;
		OK(snd_endpoint_get_stats(calls->ep, &s));
		OK(snd_endpoint_flush(calls->ep, 10 * SECOND));
		OK(snd_fabric_close(calls->fabric));
	}
	pthread_mutex_lock(&l->mutex);
	CHECK(l->count < sizeof l->events / sizeof l->events[0]);
	l->events[l->count++] = *event;
	pthread_mutex_unlock(&l->mutex);
	while (blocks(l))
		usleep(1000);
}

/* find returns the number of events of a type, and stores the latest. */
static uint32_t find(struct log *l, uint32_t type, snd_event *event)
{
	uint32_t n = 0;
	pthread_mutex_lock(&l->mutex);
	for (uint32_t i = 0; i < l->count; i++) {
		if (l->events[i].type == type) {
			*event = l->events[i];
			n++;
		}
	}
	pthread_mutex_unlock(&l->mutex);
	return n;
}

static snd_event await(struct log *l, uint32_t type)
{
	snd_event event;
	for (int i = 0; find(l, type, &event) == 0; i++) {
		CHECK(i < 10000);
		usleep(1000);
	}
	return event;
}

/* set clears a log. */
static void set(struct log *l, bool blocked, struct side *calls)
{
	pthread_mutex_lock(&l->mutex);
	l->count = 0;
	l->blocks = blocked;
	l->calls = calls;
	pthread_mutex_unlock(&l->mutex);
}

static void clear(struct log *l) { set(l, false, NULL); }

static void begin(void)
{
	open_members(SND_EXECUTOR_AUTO);
	for (int i = 0; i < 2; i++) {
		clear(&logs[i]);
		OK(snd_fabric_set_event_handler(i == 0 ? a.fabric : b.fabric, handle, &logs[i]));
	}
	connect_members(NULL);
}

static void test_ends(void)
{
	snd_event e, f;
	begin();
	CHECK(snd_fabric_set_event_handler(a.fabric, handle, &logs[0]) == SND_INVALID_DEVICE_STATE);
	CHECK(snd_fabric_set_event_handler(a.fabric, NULL, NULL) == SND_INVALID_PARAMETER);
	for (int i = 0; i < 2; i++) {
		e = await(&logs[i], SND_EVENT_CONNECTED);
		CHECK(e.number == 1 && e.peer[0] != 0 && find(&logs[i], SND_EVENT_CONNECTED, &e) == 1);
	}
	/* A close in order, with receives posted and requests made. */
	OK(snd_endpoint_receive(a.ep, 1, NULL, 0));
	OK(snd_endpoint_receive(a.ep, 1, NULL, 0));
	OK(snd_endpoint_send(b.ep, 1, NULL, 0, SND_SILENT_SUCCESS));
	WANT(a.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
	OK(snd_endpoint_close(b.ep));
	e = await(&logs[1], SND_EVENT_DISCONNECTED);
	f = await(&logs[0], SND_EVENT_DISCONNECTED);
	CHECK(e.by_peer == 0 && f.by_peer == 1 && find(&logs[0], SND_EVENT_FAILED, &e) == 0 && find(&logs[1], SND_EVENT_FAILED, &e) == 0);
	OK(snd_endpoint_close(a.ep));
	OK(snd_connector_close(a.connector));
	OK(snd_connector_close(b.connector));

	/* A disconnect. */
	connect_members(NULL);
	clear(&logs[0]);
	clear(&logs[1]);
	OK(snd_connector_start_disconnect(a.connector));
	OK(snd_connector_wait_disconnect(b.connector, 10 * SECOND));
	OK(snd_connector_disconnect(b.connector, 10 * SECOND));
	while (snd_connector_finish(a.connector) == SND_DEVICE_BUSY)
		usleep(1000);
	CHECK(await(&logs[0], SND_EVENT_DISCONNECTED).by_peer == 0 && await(&logs[1], SND_EVENT_DISCONNECTED).by_peer == 1);
	disconnect_members();
	CHECK(find(&logs[0], SND_EVENT_DISCONNECTED, &e) == 1 && find(&logs[1], SND_EVENT_DISCONNECTED, &e) == 1);

	/* A failed request. */
	connect_members(NULL);
	clear(&logs[0]);
	clear(&logs[1]);
	snd_mr *mr;
	OK(snd_mr_allocate(a.adapter, 8, 0, &mr));
	const snd_sge sge = snd_mr_sge(mr, 0, 8);
	OK(snd_endpoint_write(a.ep, 1, &sge, 1, 4096, 12345, 0));
	e = await(&logs[0], SND_EVENT_FAILED);
	f = await(&logs[1], SND_EVENT_FAILED);
	CHECK(e.by_peer == 0 && e.number == 3 && e.status == SND_ACCESS_VIOLATION && strstr(e.text, "write") != NULL);
	CHECK(f.by_peer == 1 && f.status == SND_CONNECTION_ABORTED && strstr(f.text, "ended the connection") != NULL);
	disconnect_members();

	/* A close while a request is outstanding, and a flush, are failures to the other side. */
	set_timeouts(SND_FOREVER, SND_DEFAULT_TIMEOUT);
	for (int i = 0; i < 3; i++) {
		connect_members(NULL);
		clear(&logs[0]);
		if (i < 2)
			OK(snd_endpoint_send(i == 0 ? b.ep : a.ep, 1, NULL, 0, 0)); /* no receive is posted for it */
		if (i == 2)
			OK(snd_endpoint_flush(b.ep, 10 * SECOND));
		else
			OK(snd_endpoint_close(b.ep));
		e = await(&logs[0], SND_EVENT_FAILED);
		CHECK(e.by_peer == 1 && strstr(e.text, i == 0 ? "requests were outstanding (1)" : i == 1 ? "close: the endpoint was closed" : "flush") != NULL);
		OK(snd_endpoint_close(a.ep));
		if (i == 2)
			OK(snd_endpoint_close(b.ep));
		OK(snd_connector_close(a.connector));
		OK(snd_connector_close(b.connector));
	}
	close_members();
}

static void test_request_waits(void)
{
	snd_event e;
	begin();
	set_timeouts(SND_FOREVER, SND_DEFAULT_TIMEOUT);
	OK(snd_endpoint_send(a.ep, 77, NULL, 0, 0));
	e = await(&logs[0], SND_EVENT_REQUEST_WAITS);
	CHECK(e.request_context == 77 && e.waited >= 2 * SECOND && strcmp(e.text, "send: waits for the peer to post a receive") == 0);
	CHECK(find(&logs[0], SND_EVENT_REQUEST_WAITS, &e) == 1);
	disconnect_members();
	close_members();
}

static void test_overrun(void)
{
	begin();
	OK(snd_cq_resize(a.cq, 1));
	for (int i = 0; i < 64; i++)
		(void)snd_endpoint_write(a.ep, 1, NULL, 0, 0, 0, 0);
	const snd_event e = await(&logs[0], SND_EVENT_OVERRUN);
	CHECK(e.number > 0 && e.depth == 1);
	CHECK(strstr(await(&logs[0], SND_EVENT_FAILED).text, "overran") != NULL);
	disconnect_members();
	close_members();
}

/* Events beyond the limit are dropped. A handler that does not return holds up neither calls nor the close. */
static void test_handler_blocks(void)
{
	snd_event e;
	begin();
	await(&logs[0], SND_EVENT_CONNECTED);
	set(&logs[0], true, NULL);
	snd_event_overrun(a.fabric, 1, 1);
	await(&logs[0], SND_EVENT_OVERRUN);
	for (int i = 0; i < 1024 + 5; i++)
		snd_event_overrun(a.fabric, 1, 1);
	clear(&logs[0]);
	CHECK(await(&logs[0], SND_EVENT_DROPPED).number == 5 && find(&logs[0], SND_EVENT_OVERRUN, &e) == 1024);
	set(&logs[0], true, NULL);
	OK(snd_endpoint_close(a.ep));
	await(&logs[0], SND_EVENT_DISCONNECTED);
	OK(snd_fabric_close(a.fabric));
	OK(snd_fabric_close(b.fabric));
	clear(&logs[0]);
}

/* A handler may call the library, also the calls that end what the event is about. */
static void test_handler_calls(void)
{
	begin();
	await(&logs[1], SND_EVENT_CONNECTED);
	await(&logs[0], SND_EVENT_CONNECTED);
	set(&logs[0], false, &a);
	OK(snd_endpoint_close(b.ep));
	await(&logs[0], SND_EVENT_DISCONNECTED);
	OK(snd_fabric_close(b.fabric));
}

/* run_peer is a process that connects and waits to be killed. */
static void run_peer(const char *name)
{
	snd_address to;
	OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, NULL, &a.fabric));
	OK(snd_adapter_open(a.fabric, &a.adapter));
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	snd_endpoint *ep[2];
	for (int i = 0; i < 2; i++) {
		CHECK(read(STDIN_FILENO, &to, sizeof to) == sizeof to);
		OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq}, &ep[i]));
		OK(snd_connector_create(a.adapter, &a.connector));
		OK(snd_connector_connect(a.connector, ep[i], to, NULL, 20 * SECOND));
		OK(snd_connector_complete(a.connector));
	}
	for (;;)
		pause();
}

/* The death of a process with two connections makes an event of its own, and one of each connection. */
static void peer_died(snd_progress_model progress)
{
	char name[40];
	int ends[2];
	snd_address at;
	snd_event e;
	snprintf(name, sizeof name, "logged-%d", (int)getpid());
	CHECK(pipe(ends) == 0);
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
		run_peer(name);
	}
	OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, &(snd_fabric_options){.progress = progress}, &b.fabric));
	OK(snd_fabric_set_event_handler(b.fabric, handle, &logs[1]));
	OK(snd_adapter_open(b.fabric, &b.adapter));
	OK(snd_cq_create(b.adapter, 64, &b.cq));
	OK(snd_listener_create(b.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	OK(snd_listener_address(listener, &at));
	for (uint64_t i = 0; i < 2; i++) {
		CHECK(write(ends[1], &at, sizeof at) == sizeof at);
		OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq, .context = 5 + i}, &b.ep));
		OK(snd_listener_request(listener, 20 * SECOND, &b.connector));
		OK(snd_connector_accept(b.connector, b.ep, NULL, 20 * SECOND));
	}
	CHECK(await(&logs[1], SND_EVENT_CONNECTED).endpoint_context >= 5);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	for (int i = 0; find(&logs[1], SND_EVENT_FAILED, &e) < 2; i++) {
		CHECK(i < 10000);
		OK(snd_fabric_progress(b.fabric));
		usleep(1000);
	}
	CHECK(e.by_peer == 1 && e.status == SND_CONNECTION_ABORTED && strstr(e.text, "died") != NULL && e.endpoint_context >= 5);
	CHECK(find(&logs[1], SND_EVENT_PEER_DIED, &e) == 1 && e.peer[0] != 0 && e.number == 0);
	OK(snd_fabric_close(b.fabric));
	close(ends[0]);
	close(ends[1]);
}

/* test_peer_died has a process of its own: a child of a process that uses the library cannot use it. */
static void test_peer_died(snd_progress_model progress)
{
	int status;
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		peer_died(progress);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	alarm(100); /* a hang ends the test */
	for (int i = 0; i < 2; i++)
		pthread_mutex_init(&logs[i].mutex, NULL);
	test_peer_died(SND_PROGRESS_AUTO);
	test_peer_died(SND_PROGRESS_MANUAL);
	test_ends();
	test_overrun();
	test_handler_calls();
	test_handler_blocks();
	test_request_waits();
	return 0;
}

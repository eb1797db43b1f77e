/* With SND_THREAD_SAFE a handle may be closed while another thread waits in a call on it, and so may the fabric. The call
 * returns SND_CANCELED. Of several calls that close one handle at once, one succeeds. */
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "endpoint/cm_listener.h"
#include "endpoint/endpoint.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

static snd_fabric *fabric, *other; /* of one arena */
static snd_adapter *adapter, *other_adapter;
static snd_mr *mr;
static snd_window *window;
static snd_cq *cq, *other_cq;
static snd_srq *srq;
static snd_endpoint *endpoint, *peer;
static snd_listener *listener, *other_listener;
static snd_connector *connector, *passive, *waiting;
static snd_endpoint *idle;

static snd_fabric_options options;

static snd_endpoint *make_endpoint(snd_adapter *a, snd_cq *q)
{
	snd_endpoint *ep;
	OK(snd_endpoint_create(a, &(snd_endpoint_config){.receive_cq = q, .initiator_cq = q}, &ep));
	return ep;
}

static void *accept_one(void *arg)
{
	(void)arg;
	OK(snd_listener_request(other_listener, SECONDS(10), &passive));
	OK(snd_connector_accept(passive, peer, NULL, SECONDS(10)));
	return NULL;
}

/* open_all opens one object of each type, and a connection of the two fabrics. */
static void open_all(void)
{
	pthread_t t;
	snd_address at;
	OK(snd_fabric_create(0, UINT64_C(1) << 28, &options, &fabric));
	OK(snd_fabric_attach(snd_fabric_descriptor(fabric), -1, &options, &other));
	OK(snd_adapter_open(fabric, &adapter));
	OK(snd_adapter_open(other, &other_adapter));
	OK(snd_mr_allocate(adapter, 4096, SND_ALLOW_REMOTE_WRITE, &mr));
	OK(snd_window_create(adapter, &window));
	OK(snd_cq_create(adapter, 64, &cq));
	OK(snd_cq_create(other_adapter, 64, &other_cq));
	OK(snd_srq_create(adapter, &(snd_srq_config){.depth = 4, .threshold = 1}, &srq));
	snd_sge none = {NULL, 0, 0};
	OK(snd_srq_receive(srq, 1, &none, 1));
	endpoint = make_endpoint(adapter, cq);
	idle = make_endpoint(adapter, cq);
	peer = make_endpoint(other_adapter, other_cq);
	OK(snd_listener_create(adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	OK(snd_listener_create(other_adapter, &other_listener));
	OK(snd_listener_bind(other_listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(other_listener, 0));
	OK(snd_listener_address(other_listener, &at));
	OK(snd_connector_create(adapter, &connector));
	OK(snd_connector_create(adapter, &waiting));
	pthread_create(&t, NULL, accept_one, NULL);
	OK(snd_connector_connect(connector, endpoint, at, NULL, SECONDS(10)));
	OK(snd_connector_complete(connector));
	pthread_join(t, NULL);
}

/* Calls that wait for ever. */
static snd_status wait_cq(void)
{
	snd_result r;
	uint32_t n;
	return snd_cq_wait(cq, &r, 1, SND_FOREVER, &n);
}
static snd_status wait_notify(void) { return snd_cq_notify(cq, SND_NOTIFY_ANY, SND_FOREVER); }
static snd_status wait_srq(void) { return snd_srq_notify(srq, SND_FOREVER); }
static snd_status wait_request(void)
{
	snd_connector *c;
	return snd_listener_request(listener, SND_FOREVER, &c);
}
static snd_status wait_connect(void) /* no call takes the request */
{
	snd_address at;
	snd_status s = snd_listener_address(other_listener, &at);
	return s != SND_SUCCESS ? s : snd_connector_connect(waiting, idle, at, NULL, SND_FOREVER);
}
static snd_status wait_disconnected(void) { return snd_connector_wait_disconnect(connector, SND_FOREVER); }
static snd_status wait_flush(void) { return snd_endpoint_flush(endpoint, SND_FOREVER); }
static snd_status wait_mr(void) { return snd_mr_close(mr, SND_FOREVER); }
static snd_status wait_window(void) { return snd_window_close(window, SND_FOREVER); }

static snd_status close_cq(void) { return snd_cq_close(cq); }
static snd_status close_srq(void) { return snd_srq_close(srq); }
static snd_status close_listener(void) { return snd_listener_close(listener); }
static snd_status close_waiting(void) { return snd_connector_close(waiting); }
static snd_status close_connector(void) { return snd_connector_close(connector); }
static snd_status close_endpoint(void) { return snd_endpoint_close(endpoint); }

/* A stopped peer: its hazard names every token that the call waits for. */
static struct {
	snd_half on, ready;
	pthread_t thread;
} hazard;

static void *keep_hazard(void *arg)
{
	(void)arg;
	snd_window_descriptor d;
	OK(snd_mr_query(mr, &d));
	uint32_t token = d.token;
	if (snd_window_query(window, &d) == SND_SUCCESS && d.token != 0)
		token = d.token;
	struct snd_shared_qp *q = ((struct snd_endpoint *)peer)->local_qp;
	snd_lock((struct snd_fabric *)other); /* as during a copy: no housekeeping takes the hazard for a forged one */
	snd_set(&q->hazard, token);
	snd_store_full32(&hazard.ready, 1);
	while (snd_load32(&hazard.on))
		nanosleep(&(struct timespec){0, 100000}, NULL);
	snd_set(&q->hazard, 0);
	snd_unlock((struct snd_fabric *)other);
	return NULL;
}

static void begin_hazard(void)
{
	snd_store_full32(&hazard.on, 1);
	snd_store_full32(&hazard.ready, 0);
	pthread_create(&hazard.thread, NULL, keep_hazard, NULL);
	while (!snd_load32(&hazard.ready))
		nanosleep(&(struct timespec){0, 100000}, NULL);
}

static void end_hazard(void)
{
	snd_store_full32(&hazard.on, 0);
	pthread_join(hazard.thread, NULL);
}

static void bind_window(void)
{
	snd_result r;
	uint32_t n;
	OK(snd_endpoint_bind(endpoint, 1, mr, window, snd_mr_buffer(mr), 100, SND_ALLOW_WRITE));
	OK(snd_cq_wait(cq, &r, 1, SECONDS(10), &n));
	CHECK(n == 1 && r.status == SND_SUCCESS);
}

struct call {
	snd_status (*wait)(void);
	snd_status status;
	pthread_t thread;
};

static void *run(void *arg)
{
	struct call *c = arg;
	c->status = c->wait();
	return NULL;
}

/* calls_of returns how many calls wait in a fabric. */
static uint32_t calls_of(struct snd_fabric *f)
{
	snd_lock(f);
	const uint32_t n = f->calls;
	snd_unlock(f);
	return n;
}

/* start returns when the call waits: it has found its handle open. */
static void start(struct snd_fabric *f, struct call *c, snd_status (*wait)(void))
{
	const uint32_t before = calls_of(f);
	c->wait = wait;
	pthread_create(&c->thread, NULL, run, c);
	while (calls_of(f) == before)
		nanosleep(&(struct timespec){0, 100000}, NULL);
}

static void want(struct call *c, snd_status status, const char *name)
{
	pthread_join(c->thread, NULL);
	if (c->status != status) {
		fprintf(stderr, "%s: %s, want %s\n", name, snd_status_name(c->status), snd_status_name(status));
		exit(1);
	}
}

enum held { NOTHING, REGION, WINDOW };
static const struct {
	const char *name;
	snd_status (*wait)(void);
	snd_status (*close)(void); /* NULL: the wait itself closes the handle */
	enum held held;
} rows[] = {
	{"wait", wait_cq, close_cq, NOTHING}, {"notify", wait_notify, close_cq, NOTHING}, {"shared notify", wait_srq, close_srq, NOTHING},
	{"request", wait_request, close_listener, NOTHING}, {"connect", wait_connect, close_waiting, NOTHING},
	{"wait for disconnect", wait_disconnected, close_connector, NOTHING}, {"flush", wait_flush, close_endpoint, REGION},
	{"close region", wait_mr, NULL, REGION}, {"close window", wait_window, NULL, WINDOW},
};

static void close_fabrics(void)
{
	OK(snd_fabric_close(other));
	snd_status s = snd_fabric_close(fabric);
	CHECK(s == SND_SUCCESS || s == SND_INVALID_HANDLE); /* the test has closed it */
}

static void test_close_of_handle(void)
{
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct call calls[2];
		open_all();
		if (rows[i].held == WINDOW)
			bind_window();
		if (rows[i].held != NOTHING)
			begin_hazard();
		start(fabric, &calls[0], rows[i].wait);
		start(fabric, &calls[1], rows[i].wait == wait_connect ? wait_disconnected : rows[i].wait); /* two requests are no wait */
		if (rows[i].close != NULL) {
			OK(rows[i].close());
			want(&calls[0], SND_CANCELED, rows[i].name);
			if (rows[i].held != NOTHING)
				end_hazard();
			if (rows[i].wait == wait_connect)
				OK(close_connector());
			want(&calls[1], SND_CANCELED, rows[i].name);
		} else {
			end_hazard();
			pthread_join(calls[0].thread, NULL);
			pthread_join(calls[1].thread, NULL);
			CHECK(calls[0].status == SND_SUCCESS || calls[1].status == SND_SUCCESS);
			CHECK(calls[0].status == SND_INVALID_HANDLE || calls[1].status == SND_INVALID_HANDLE);
		}
		close_fabrics();
	}
}

static void test_close_of_fabric(void)
{
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct call c;
		open_all();
		if (rows[i].held == WINDOW)
			bind_window();
		if (rows[i].held != NOTHING)
			begin_hazard();
		start(fabric, &c, rows[i].wait);
		OK(snd_fabric_close(fabric));
		want(&c, SND_CANCELED, rows[i].name);
		if (rows[i].held != NOTHING)
			end_hazard();
		CHECK(rows[i].wait() == SND_INVALID_HANDLE);
		close_fabrics();
	}
}

static bool has_request(void)
{
	struct snd_fabric *f = other;
	snd_lock(f);
	const bool has = snd_acquire(&f->record->inbox) != 0 || !snd_list_is_empty(&other_listener->queue);
	snd_unlock(f);
	return has;
}

/* A listener refuses the requests that no call has taken, if it is closed or its fabric is. With a thread for progress, they are not in the inbox. */
static void test_close_of_listener(bool with_fabric)
{
	struct call c;
	open_all();
	c.wait = wait_connect;
	pthread_create(&c.thread, NULL, run, &c);
	while (!has_request())
		nanosleep(&(struct timespec){0, 100000}, NULL);
	OK(with_fabric ? snd_fabric_close(other) : snd_listener_close(other_listener));
	want(&c, SND_CONNECTION_REFUSED, "connect to a listener that closes");
	if (with_fabric)
		OK(snd_fabric_close(fabric));
	else
		close_fabrics();
}

/* The close of an adapter closes a listener whose call waits. That call then frees what it has made, once. */
static void test_close_of_adapter(void)
{
	for (int i = 0; i < 20; i++) {
		struct call c;
		OK(snd_fabric_create(0, UINT64_C(1) << 28, &options, &fabric));
		OK(snd_adapter_open(fabric, &adapter));
		OK(snd_listener_create(adapter, &listener));
		OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
		OK(snd_listener_listen(listener, 0));
		start(fabric, &c, wait_request);
		OK(snd_adapter_close(adapter, SECONDS(10)));
		want(&c, SND_CANCELED, "request to an adapter that closes");
		OK(snd_fabric_progress(fabric));
		CHECK(snd_list_is_empty(&((struct snd_fabric *)fabric)->adapters) && ((struct snd_adapter *)adapter)->objects == 0); /* it counts each once */
		OK(snd_fabric_close(fabric));
	}
}

static snd_status wait_adapter(void) { return snd_adapter_close(adapter, SND_FOREVER); }

/* The close of an adapter waits for a peer that copies, also if its region has a bind that was posted on an endpoint that it has closed. */
static void test_close_of_adapter_in_use(void)
{
	struct call c;
	open_all();
	OK(snd_endpoint_bind(endpoint, 1, mr, window, snd_mr_buffer(mr), 100, SND_ALLOW_WRITE | SND_DEFER));
	begin_hazard();
	CHECK(snd_adapter_close(adapter, SECONDS(1) / 20) == SND_IO_TIMEOUT);
	start(fabric, &c, wait_adapter);
	end_hazard();
	want(&c, SND_SUCCESS, "close of an adapter in use");
	close_fabrics();
}

/* All ranks of a job in one process. Each connects to all others at once. */
enum { RANKS = 4 };
static snd_job *jobs[RANKS];
static char name[40];

static void *join(void *arg)
{
	const uint32_t rank = (uint32_t)((snd_job **)arg - jobs);
	OK(snd_job_join(name, rank, RANKS, &options, SECONDS(30), &jobs[rank]));
	return NULL;
}

struct connect {
	snd_cq *cq;
	uint32_t from, to;
	pthread_t thread;
};

static void *connect_rank(void *arg)
{
	struct connect *c = arg;
	snd_endpoint *ep;
	OK(snd_job_connect(jobs[c->from], c->to, &(snd_endpoint_config){.receive_cq = c->cq, .initiator_cq = c->cq}, SECONDS(30), &ep));
	OK(snd_endpoint_close(ep));
	return NULL;
}

static snd_status wait_barrier(void) { return snd_job_barrier(jobs[0], SND_FOREVER); }
static snd_status wait_job_connect(void)
{
	snd_endpoint *ep;
	return snd_job_connect(jobs[0], 1, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, SND_FOREVER, &ep);
}

static void test_job(void)
{
	pthread_t threads[RANKS];
	struct connect pairs[RANKS * RANKS];
	snd_cq *queues[RANKS];
	snprintf(name, sizeof name, "closes-%d", (int)getpid());
	for (int i = 0; i < RANKS; i++)
		pthread_create(&threads[i], NULL, join, &jobs[i]);
	for (int i = 0; i < RANKS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < RANKS; i++)
		OK(snd_cq_create(snd_job_adapter(jobs[i]), 64, &queues[i]));
	for (int round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < RANKS * RANKS; i++) {
			pairs[i] = (struct connect){.cq = queues[i / RANKS], .from = i / RANKS, .to = i % RANKS};
			if (pairs[i].from != pairs[i].to)
				pthread_create(&pairs[i].thread, NULL, connect_rank, &pairs[i]);
		}
		for (uint32_t i = 0; i < RANKS * RANKS; i++)
			if (pairs[i].from != pairs[i].to)
				pthread_join(pairs[i].thread, NULL);
	}
	cq = queues[0];
	CHECK(snd_fabric_close(snd_job_fabric(jobs[0])) == SND_DEVICE_BUSY);
	struct call barrier, connect;
	start(snd_job_fabric(jobs[0]), &barrier, wait_barrier);
	start(snd_job_fabric(jobs[0]), &connect, wait_job_connect);
	OK(snd_job_close(jobs[0]));
	want(&barrier, SND_CANCELED, "barrier");
	want(&connect, SND_CANCELED, "connect by rank");
	CHECK(snd_job_close(jobs[0]) == SND_INVALID_HANDLE);
	for (int i = 1; i < RANKS; i++)
		OK(snd_job_close(jobs[i]));
}

int main(void)
{
	options = *test_options();
	options.threading = SND_THREAD_SAFE;
	alarm(100); /* a hang ends the test */
	test_close_of_handle();
	test_close_of_fabric();
	for (int with_fabric = 0; with_fabric < 2; with_fabric++)
		test_close_of_listener(with_fabric);
	test_close_of_adapter();
	test_close_of_adapter_in_use();
	test_job();
	return 0;
}

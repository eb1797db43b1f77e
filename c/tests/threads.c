/* Four threads make random calls on shared handles, and close them and the fabrics under each other. Nothing is checked but
 * that every call returns: the sanitizers look for the rest. The threads are canceled before their first call, and no call notices it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, FABRICS = 2, SLOTS = 3, BUFFER = 4096, MILLISECOND = 1000000 };
enum type { FABRIC, ADAPTER, MR, WINDOW, CQ, SRQ, ENDPOINT, CONNECTOR, LISTENER, TYPES };

/* The handles that all threads use. Some are closed already. */
static _Atomic(void *) handles[FABRICS][TYPES][SLOTS];
static unsigned char buffers[FABRICS][BUFFER]; /* a fabric copies under its lock, so each has its own */
static snd_fabric *arena;                      /* keeps the arena, and is never closed by a thread */
static uint32_t rounds = 8000, first_seed;
static _Atomic uint32_t connected, canceled, refused;

struct thread {
	pthread_t id;
	uint32_t seed;
};

static uint32_t pick(struct thread *t, uint32_t n)
{
	t->seed = t->seed * 1664525 + 1013904223;
	return (t->seed >> 8) % n;
}

static snd_status counted(snd_status s)
{
	if (s == SND_CANCELED)
		atomic_fetch_add_explicit(&canceled, 1, memory_order_relaxed);
	if (s == SND_INVALID_HANDLE)
		atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
	return s;
}

static void *any(struct thread *t, uint32_t f, enum type type) { return atomic_load(&handles[f][type][pick(t, SLOTS)]); }

static void close_handle(enum type type, void *h)
{
	switch (type) {
	case FABRIC: counted(snd_fabric_close(h)); break;
	case ADAPTER: counted(snd_adapter_close(h, MILLISECOND)); break;
	case MR: counted(snd_mr_close(h, MILLISECOND)); break;
	case WINDOW: counted(snd_window_close(h, MILLISECOND)); break;
	case CQ: counted(snd_cq_close(h)); break;
	case SRQ: counted(snd_srq_close(h)); break;
	case ENDPOINT: counted(snd_endpoint_close(h)); break;
	case CONNECTOR: counted(snd_connector_close(h)); break;
	default: counted(snd_listener_close(h)); break;
	}
}

/* replace puts a new handle into a slot and closes the one before it, half of the time before any other thread can know. */
static void replace(struct thread *t, uint32_t f, enum type type, void *h)
{
	void *old = h == NULL ? any(t, f, type) : atomic_exchange(&handles[f][type][type <= ADAPTER ? 0 : pick(t, SLOTS)], h);
	if (old != NULL)
		close_handle(type, old);
}

static void open_fabric(struct thread *t, uint32_t f)
{
	snd_fabric_options o = *test_options();
	o.threading = SND_THREAD_SAFE;
	snd_fabric *h;
	snd_adapter *a;
	OK(snd_fabric_attach(snd_fabric_descriptor(arena), -1, &o, &h));
	OK(snd_adapter_open(h, &a));
	replace(t, f, FABRIC, h);
	replace(t, f, ADAPTER, a);
}

static void create(struct thread *t, uint32_t f)
{
	snd_adapter *a = atomic_load(&handles[f][ADAPTER][0]);
	const uint32_t flags = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE;
	void *h = NULL;
	enum type type = (enum type)(MR + pick(t, TYPES - MR));
	snd_status s;
	switch (type) {
	case MR:
		s = pick(t, 2) ? snd_mr_allocate(a, BUFFER, flags, (snd_mr **)&h) : snd_mr_register(a, buffers[f], BUFFER, flags, (snd_mr **)&h);
		break;
	case WINDOW: s = snd_window_create(a, (snd_window **)&h); break;
	case CQ: s = snd_cq_create(a, 64, (snd_cq **)&h); break;
	case SRQ: s = snd_srq_create(a, &(snd_srq_config){.depth = 8, .threshold = 2}, (snd_srq **)&h); break;
	case ENDPOINT:
		s = snd_endpoint_create(a, &(snd_endpoint_config){.receive_cq = any(t, f, CQ), .initiator_cq = any(t, f, CQ),
			.srq = pick(t, 4) == 0 ? any(t, f, SRQ) : NULL, .receive_depth = 8, .initiator_depth = 8, .inline_size = 64}, (snd_endpoint **)&h);
		break;
	case CONNECTOR: s = snd_connector_create(a, (snd_connector **)&h); break;
	default:
		s = snd_listener_create(a, (snd_listener **)&h);
		if (s == SND_SUCCESS && (counted(snd_listener_bind(h, (snd_address){0, 0, 0})) == SND_SUCCESS))
			counted(snd_listener_listen(h, pick(t, 3)));
	}
	if (counted(s) == SND_SUCCESS)
		replace(t, f, type, h);
}

static snd_sge sge_of(struct thread *t, uint32_t f)
{
	snd_mr *mr = any(t, f, MR);
	return (snd_sge){snd_mr_buffer(mr), pick(t, 3) == 0 ? pick(t, BUFFER) : pick(t, 50), snd_mr_local_token(mr)};
}

static void post(struct thread *t, uint32_t f)
{
	snd_endpoint *ep = any(t, f, ENDPOINT);
	snd_mr *remote = any(t, 1 - f, MR);
	const uint64_t at = snd_mr_address(remote);
	const uint32_t token = snd_mr_remote_token(remote);
	unsigned char small[40] = {0};
	snd_sge sge = sge_of(t, f), in_line = {small, sizeof small, 0};
	snd_request list[2] = {{.type = SND_REQUEST_RECEIVE, .sge = &sge, .count = 1}, {.type = SND_REQUEST_SEND, .sge = &sge, .count = 1}};
	uint32_t n;
	switch (pick(t, 11)) {
	case 0: counted(snd_endpoint_receive(ep, 1, &sge, 1)); break;
	case 1: counted(snd_endpoint_send(ep, 2, &sge, 1, 0)); break;
	case 2: counted(snd_endpoint_write(ep, 3, &sge, 1, at, token, 0)); break;
	case 3: counted(snd_endpoint_write(ep, 4, &in_line, 1, at, token, SND_INLINE)); break;
	case 4: counted(snd_endpoint_read(ep, 5, &sge, 1, at, token, 0)); break;
	case 5: counted(snd_endpoint_bind(ep, 6, any(t, f, MR), any(t, f, WINDOW), sge.buffer, 64, SND_ALLOW_READ | SND_ALLOW_WRITE)); break;
	case 6: counted(snd_endpoint_invalidate(ep, 7, any(t, f, WINDOW), 0)); break;
	case 7: counted(snd_endpoint_post(ep, list, 2, &n)); break;
	case 8: counted(snd_endpoint_error(ep)); break;
	case 9: counted(snd_srq_receive(any(t, f, SRQ), 8, &sge, 1)); break;
	default: counted(snd_endpoint_flush(ep, MILLISECOND));
	}
}

static void connect_one(struct thread *t, uint32_t f)
{
	snd_connector *c = any(t, f, CONNECTOR);
	snd_connector *passive;
	snd_address at;
	uint32_t n, m;
	unsigned char data[8];
	switch (pick(t, 12)) {
	case 0:
	case 1:
		if (counted(snd_listener_address(any(t, pick(t, FABRICS), LISTENER), &at)) == SND_SUCCESS &&
			counted(snd_connector_connect(c, any(t, f, ENDPOINT), at, &(snd_connect_params){.private_data = "x", .private_data_length = 1, .inbound_reads = 4, .outbound_reads = 4},
				10 * MILLISECOND)) == SND_SUCCESS)
			counted(snd_connector_complete(c));
		break;
	case 2:
	case 3:
	case 4:
		if (counted(snd_listener_request(any(t, f, LISTENER), 5 * MILLISECOND, &passive)) != SND_SUCCESS)
			break;
		if (counted(snd_connector_accept(passive, any(t, f, ENDPOINT), NULL, 10 * MILLISECOND)) == SND_SUCCESS)
			atomic_fetch_add_explicit(&connected, 1, memory_order_relaxed);
		replace(t, f, CONNECTOR, passive);
		break;
	case 5: counted(snd_connector_complete(c)); break;
	case 6: counted(snd_connector_reject(c, "no", 2)); break;
	case 7: counted(snd_connector_private_data(c, data, sizeof data, &n)); break;
	case 8:
		counted(snd_connector_read_limits(c, &n, &m));
		counted(snd_connector_local_address(c, &at));
		counted(snd_connector_peer_address(c, &at));
		break;
	case 9: counted(snd_connector_disconnect(c, MILLISECOND)); break;
	case 10: counted(snd_connector_wait_disconnect(c, MILLISECOND)); break;
	default: counted(snd_connector_cancel(c));
	}
}

static void wait_for(struct thread *t, uint32_t f)
{
	snd_cq *q = any(t, f, CQ);
	snd_result r[4];
	snd_window_descriptor d;
	uint32_t n;
	int fd;
	switch (pick(t, 10)) {
	case 0: counted(snd_cq_wait(q, r, 4, pick(t, 2) * MILLISECOND, &n)); break;
	case 1: counted(snd_cq_notify(q, pick(t, 3), pick(t, 2) * MILLISECOND)); break;
	case 2: counted(snd_cq_event_fd(q, &fd)); break;
	case 3: counted(snd_cq_resize(q, 8 + pick(t, 100))); break;
	case 4: counted(snd_srq_notify(any(t, f, SRQ), pick(t, 2) * MILLISECOND)); break;
	case 5: counted(snd_srq_modify(any(t, f, SRQ), 1 + pick(t, 20), pick(t, 4))); break;
	case 6: counted(snd_listener_pause(any(t, f, LISTENER), (int)pick(t, 2))); break;
	case 7: counted(snd_window_query(any(t, f, WINDOW), &d)); break;
	case 8: counted(snd_mr_query(any(t, f, MR), &d)); break;
	default: counted(snd_fabric_progress(atomic_load(&handles[f][FABRIC][0])));
	}
	for (uint32_t i = pick(t, 20) == 0 ? 200 : 10; i > 0; i--) /* enough for the bias of the lock */
		(void)snd_cq_poll(q, r, 4);
}

static void *run(void *arg)
{
	struct thread *t = arg;
	CHECK(pthread_cancel(pthread_self()) == 0);
	for (uint32_t i = 0; i < rounds; i++) {
		const uint32_t f = pick(t, FABRICS), what = pick(t, 4000);
		if (what < 3)
			open_fabric(t, f);
		else if (what < 800)
			create(t, f);
		else if (what < 850)
			replace(t, f, (enum type)(MR + pick(t, TYPES - MR)), NULL);
		else if (what < 2000)
			connect_one(t, f);
		else if (what < 3200)
			post(t, f);
		else
			wait_for(t, f);
	}
	return NULL;
}

static void *wait_long(void *cq)
{
	snd_result r;
	uint32_t n;
	CHECK(pthread_setname_np(pthread_self(), "waits") == 0);
	CHECK(snd_cq_wait(cq, &r, 1, 300 * MILLISECOND, &n) == SND_IO_TIMEOUT);
	return NULL;
}

/* test_crossing lets two threads use a fabric at the same time, and returns what SOFTND_CHECK=1 reports. */
static const char *test_crossing(snd_threading threading, bool at_once)
{
	static char text[2000];
	int out[2], saved = dup(2);
	pthread_t other;
	snd_fabric *f;
	snd_adapter *a;
	snd_cq *cq;
	CHECK(pipe(out) == 0 && dup2(out[1], 2) == 2);
	OK(snd_fabric_create(0, UINT64_C(1) << 28, &(snd_fabric_options){.threading = threading, .progress = SND_PROGRESS_MANUAL}, &f));
	OK(snd_adapter_open(f, &a));
	OK(snd_cq_create(a, 8, &cq));
	CHECK(pthread_create(&other, NULL, wait_long, cq) == 0);
	if (!at_once)
		CHECK(pthread_join(other, NULL) == 0);
	usleep(100 * 1000);
	snd_result r;
	snd_cq_poll(cq, &r, 1);
	if (at_once)
		CHECK(pthread_join(other, NULL) == 0);
	OK(snd_fabric_close(f));
	CHECK(write(out[1], "end", 3) == 3 && dup2(saved, 2) == 2);
	const ssize_t n = read(out[0], text, sizeof text - 1);
	CHECK(n >= 3);
	text[n - 3] = 0;
	close(saved), close(out[0]), close(out[1]);
	return text;
}

/* A poll while another thread waits is a mistake without SND_THREAD_SAFE. Threads that take turns make none. */
static void test_crossings(void)
{
	CHECK(setenv("SOFTND_CHECK", "1", 1) == 0);
	CHECK(strcmp(test_crossing(SND_THREAD_SAFE, true), "") == 0);
	CHECK(strcmp(test_crossing(SND_THREAD_DOMAIN, false), "") == 0);
	const char *text = "";
	for (int i = 0; i < 50 && *text == 0; i++) /* on a loaded machine the wait may be over before the poll */
		text = test_crossing(SND_THREAD_DOMAIN, true);
	char mine[80];
	snprintf(mine, sizeof mine, "and thread %d (", (int)getpid());
	CHECK(strstr(text, "(waits) is in a call on a fabric") != NULL && strstr(text, mine) != NULL);
	CHECK(unsetenv("SOFTND_CHECK") == 0);
}

int main(void)
{
	test_crossings();
	struct thread threads[THREADS], self = {0};
	const char *text = getenv("THREADS_ROUNDS");
	if (text != NULL)
		rounds = (uint32_t)atoi(text);
	first_seed = (text = getenv("THREADS_SEED")) != NULL ? (uint32_t)atoi(text) : 1;
	OK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, &arena));
	for (uint32_t f = 0; f < FABRICS; f++) {
		open_fabric(&self, f);
		for (int i = 0; i < 100; i++)
			create(&self, f);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		threads[i].seed = first_seed * 1000 + i;
		pthread_create(&threads[i].id, NULL, run, &threads[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		void *ended;
		CHECK(pthread_join(threads[i].id, &ended) == 0 && ended == NULL); /* not PTHREAD_CANCELED */
	}
	for (int f = 0; f < FABRICS; f++)
		OK(snd_fabric_close(atomic_load(&handles[f][FABRIC][0])));
	OK(snd_fabric_close(arena));
	fprintf(stderr, "%u connections, %u calls canceled, %u on closed handles\n", connected, canceled, refused);
	CHECK(connected > 0 && canceled > 0 && refused > 0);
	return 0;
}

/* Threads that the program cancels: in a call that waits, at random moments, and before they make calls that do not wait. */
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "sides.h"

/* The address sanitizer of gcc does not know that the frames of a canceled thread end, and finds them when it calls sigaltstack. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "use_sigaltstack=0"; }

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct rdma_event_channel *connections;
static struct side a, b;
static unsigned seed = 1;

static unsigned pick(unsigned n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		CHECK(wc.status == IBV_WC_SUCCESS);
}

/* send_one sends a message to b, and waits for its completion at a. */
static void send_one(void)
{
	drain(b.cq);
	CHECK(receive(&b, 0, 0, 8) == 0 && transfer(&a, &b, 1, IBV_WR_SEND, 8) == 0);
	expect(&a, 1, IBV_WC_SUCCESS);
}

static void wait_completion(void)
{
	struct ibv_cq *cq;
	void *unused;
	CHECK(ibv_get_cq_event(channel, &cq, &unused) == 0 && cq == b.cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	drain(cq);
}

static void wait_asynchronous(void)
{
	struct ibv_async_event e;
	CHECK(ibv_get_async_event(context, &e) == 0 && e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
	ibv_ack_async_event(&e);
}

/* cause_asynchronous makes the shared receive queue reach its limit. */
static void cause_asynchronous(void)
{
	CHECK(ibv_modify_srq(b.srq, &(struct ibv_srq_attr){.srq_limit = DEPTH}, IBV_SRQ_LIMIT) == 0);
	send_one();
}

static void wait_connection(void)
{
	struct rdma_cm_event *e;
	CHECK(rdma_get_cm_event(connections, &e) == 0 && e->event == RDMA_CM_EVENT_ADDR_RESOLVED && rdma_ack_cm_event(e) == 0);
}

static void cause_connection(void)
{
	static struct rdma_cm_id *id;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7000), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(id == NULL || rdma_destroy_id(id) == 0);
	CHECK(rdma_create_id(connections, &id, NULL, RDMA_PS_TCP) == 0 && rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000) == 0);
}

static const struct way {
	void (*wait)(void), (*cause)(void);
} ways[] = {{wait_completion, send_one}, {wait_asynchronous, cause_asynchronous}, {wait_connection, cause_connection}};

static void *wait_again(void *way)
{
	for (;;)
		((const struct way *)way)->wait();
	return NULL;
}

/* at_random cancels a thread that waits again and again. Then this thread can do what that one did. */
static void at_random(const struct way *w, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		pthread_t thread;
		void *ended;
		CHECK(pthread_create(&thread, NULL, wait_again, (void *)(uintptr_t)w) == 0);
		for (unsigned n = pick(3); n > 0; n--)
			w->cause();
		for (unsigned n = pick(2000); n > 0; n--)
			(void)ibv_query_qp(a.qp, &(struct ibv_qp_attr){0}, IBV_QP_STATE, &(struct ibv_qp_init_attr){0});
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED);
		w->cause();
		w->wait();
	}
}

static void open_pair(void)
{
	open_side(&a, context, 0);
	open_side(&b, context, 1);
	CHECK(ibv_destroy_cq(b.cq) == 0 && (b.cq = ibv_create_cq(context, 4 * DEPTH, NULL, channel, 0)) != NULL && ibv_req_notify_cq(b.cq, 0) == 0);
	make_qp(&a, 1, 0);
	make_qp(&b, 0, 0);
	join(&a, &b);
	join(&b, &a);
}

static void *make_calls(void *unused)
{
	const struct side *peer = &b;
	CHECK(pthread_cancel(pthread_self()) == 0);
	context = open_device();
	channel = ibv_create_comp_channel(context);
	CHECK(channel != NULL && (connections = rdma_create_event_channel()) != NULL);
	open_pair();
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		ways[i].cause(); /* the event is there, and no wait follows */
		ways[i].wait();
	}
	struct ibv_mw *mw = ibv_alloc_mw(a.pd, IBV_MW_TYPE_1);
	CHECK(mw != NULL && ibv_dealloc_mw(mw) == 0 && ibv_resize_cq(a.cq, 2 * DEPTH) == 0);
	CHECK(ibv_rereg_mr(a.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS) == 0);
	CHECK(transfer(&a, peer, 2, IBV_WR_RDMA_READ, 4096) == 0);
	expect(&a, 2, IBV_WC_SUCCESS);
	CHECK(setenv("SOFTND_DEBUG", "1", 1) == 0 && move(a.qp, IBV_QPS_SQD, 0) != 0 && unsetenv("SOFTND_DEBUG") == 0); /* prints why */
	return unused;
}

int main(void)
{
	const char *stress = getenv("SOFTND_STRESS");
	const int rounds = stress != NULL && strcmp(stress, "1") == 0 ? 10000 : 1000;
	pthread_t thread;
	void *ended;
	(void)alarm(550); /* before the limit of ctest, so that this process ends itself */
	name_fabric("cancel");
	CHECK(pthread_create(&thread, NULL, make_calls, NULL) == 0 && pthread_join(thread, &ended) == 0 && ended == NULL);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		at_random(&ways[i], rounds);
		drain(b.cq);
	}
	close_side(&a);
	close_side(&b);
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_close_device(context) == 0);
	return 0;
}

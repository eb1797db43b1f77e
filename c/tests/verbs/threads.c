/* Threads that share queue pairs, completion queues and channels. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "processes.h"

/* The address sanitizer of gcc does not know that the frames of a canceled thread end, and finds them when it calls sigaltstack. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "use_sigaltstack=0"; }

enum { SLOTS = 4 * DEPTH, MESSAGE = 64 };

/* end is one end of a connection: one thread posts Sends, one Receives, one polls, and one polls when there are events. */
struct end {
	struct side side;
	struct ibv_comp_channel *channel;
	uint32_t messages;
	atomic_uint sent, received, completed;
	atomic_uchar seen[2][1 << 20]; /* of each request, and of each Receive */
};
static struct end ends[2];
static struct ibv_context *context;

static unsigned char *slot(struct end *e, uint32_t i, int is_receive) { return e->side.buffer + (i % SLOTS * 2 + (uint32_t)is_receive) * MESSAGE; }

/* await waits until the memory of a request that is SLOTS before this one may be used again. */
static void await(struct end *e, uint32_t i, int is_receive)
{
	while (i >= SLOTS && atomic_load(&e->seen[is_receive][i - SLOTS]) == 0)
		sched_yield();
}

static void *send_all(void *arg)
{
	struct end *e = arg;
	for (uint32_t i = 0; i < e->messages; i++) {
		struct ibv_sge sge = {(uintptr_t)slot(e, i, 0), MESSAGE, e->side.mr->lkey};
		struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_SIGNALED | (i % 3 == 0 ? IBV_SEND_INLINE : 0),
			.imm_data = htonl(i)}, *bad;
		int error;
		await(e, i, 0);
		memset(slot(e, i, 0), (int)(i % 251), MESSAGE);
		while ((error = ibv_post_send(e->side.qp, &wr, &bad)) == ENOMEM)
			sched_yield();
		CHECK(error == 0);
	}
	return NULL;
}

static void *receive_all(void *arg)
{
	struct end *e = arg;
	for (uint32_t i = 0; i < e->messages; i++) {
		int error;
		await(e, i, 1);
		while ((error = receive(&e->side, i | UINT64_C(1) << 32, (size_t)(slot(e, i, 1) - e->side.buffer), MESSAGE)) == ENOMEM)
			sched_yield();
		CHECK(error == 0);
	}
	return NULL;
}

static void check(struct end *e, const struct ibv_wc *wc)
{
	const int is_receive = wc->wr_id >> 32 != 0;
	const uint32_t i = (uint32_t)wc->wr_id;
	CHECK(wc->status == IBV_WC_SUCCESS && i < e->messages && wc->opcode == (is_receive ? IBV_WC_RECV : IBV_WC_SEND));
	for (int k = 0; is_receive && k < MESSAGE; k++)
		CHECK(slot(e, i, 1)[k] == i % 251);
	CHECK((!is_receive || ntohl(wc->imm_data) == i) && atomic_exchange(&e->seen[is_receive][i], 1) == 0);
	atomic_fetch_add(&e->completed, 1);
}

static void poll_some(struct end *e)
{
	struct ibv_wc wc[4];
	const int n = ibv_poll_cq(e->side.cq, 4, wc);
	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		check(e, &wc[i]);
}

static void *poll_all(void *arg)
{
	struct end *e = arg;
	while (atomic_load(&e->completed) < 2 * e->messages)
		poll_some(e);
	return NULL;
}

/* poll_at_events ends when it is canceled. */
static void *poll_at_events(void *arg)
{
	struct end *e = arg;
	for (;;) {
		struct ibv_cq *cq;
		void *owner;
		CHECK(ibv_req_notify_cq(e->side.cq, 0) == 0);
		poll_some(e);
		CHECK(ibv_get_cq_event(e->channel, &cq, &owner) == 0 && cq == e->side.cq && owner == e);
		ibv_ack_cq_events(cq, 1);
	}
	return NULL;
}

static void open_end(struct end *e, int extended)
{
	memset(e, 0, sizeof *e);
	open_side(&e->side, context, 0);
	CHECK((e->channel = ibv_create_comp_channel(context)) != NULL && ibv_destroy_cq(e->side.cq) == 0);
	CHECK((e->side.cq = ibv_create_cq(context, 4 * DEPTH, e, e->channel, 0)) != NULL);
	make_qp(&e->side, extended, 0);
	e->messages = rounds(2000, 1 << 20);
}

static void close_end(struct end *e)
{
	close_side(&e->side);
	CHECK(ibv_destroy_comp_channel(e->channel) == 0);
}

/* run makes all threads of some ends work. */
static void run(struct end *const *of, int count)
{
	void *(*const works[])(void *) = {send_all, receive_all, poll_all, poll_at_events};
	enum { WORKS = sizeof works / sizeof works[0] };
	pthread_t threads[2][WORKS];
	for (int i = 0; i < count; i++)
		for (int k = 0; k < WORKS; k++)
			CHECK(pthread_create(&threads[i][k], NULL, works[k], of[i]) == 0);
	for (int k = 0; k < WORKS; k++)
		for (int i = 0; i < count; i++)
			CHECK((k < WORKS - 1 || pthread_cancel(threads[i][k]) == 0) && pthread_join(threads[i][k], NULL) == 0);
	for (int i = 0; i < count; i++)
		CHECK(of[i]->completed == 2 * of[i]->messages);
}

/* within_process has both ends in one process. */
static void within_process(void)
{
	open_end(&ends[0], 0);
	open_end(&ends[1], 1);
	join(&ends[0].side, &ends[1].side);
	join(&ends[1].side, &ends[0].side);
	run((struct end *[]){&ends[0], &ends[1]}, 2);
	close_end(&ends[0]);
	close_end(&ends[1]);
}

static void between_processes(void)
{
	open_end(&ends[0], 0);
	connect_to(ends[0].side.qp, exchange(ends[0].side.qp->qp_num));
	run((struct end *[]){&ends[0]}, 1);
	(void)exchange(0);
	close_end(&ends[0]);
}

static struct ibv_comp_channel *shared;
static atomic_uintptr_t oldest; /* number of the oldest queue that has not been destroyed */

static void *take_completions(void *unused)
{
	for (;;) {
		struct ibv_cq *cq;
		void *number;
		CHECK(ibv_get_cq_event(shared, &cq, &number) == 0 && (uintptr_t)number >= atomic_load(&oldest));
		ibv_ack_cq_events(cq, 1);
	}
	return unused;
}

static void *take_failures(void *unused)
{
	for (;;) {
		struct ibv_async_event e;
		CHECK(ibv_get_async_event(context, &e) == 0 && e.event_type == IBV_EVENT_QP_ACCESS_ERR);
		CHECK((uintptr_t)e.element.qp->qp_context >= atomic_load(&oldest));
		ibv_ack_async_event(&e);
	}
	return unused;
}

/* destroy destroys queue pairs and queues while threads take their events. After the call there is none. */
static void destroy(void)
{
	void *(*const works[])(void *) = {take_completions, take_completions, take_failures};
	pthread_t threads[3];
	CHECK((shared = ibv_create_comp_channel(context)) != NULL);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, works[i], NULL) == 0);
	for (uintptr_t n = 1; n <= rounds(300, 100000); n++) {
		struct side *a = &ends[0].side, *b = &ends[1].side;
		atomic_store(&oldest, n);
		open_side(a, context, 0);
		open_side(b, context, 0);
		CHECK(ibv_destroy_cq(b->cq) == 0 && (b->cq = ibv_create_cq(context, DEPTH, (void *)n, shared, 0)) != NULL && ibv_req_notify_cq(b->cq, 0) == 0);
		make_qp(a, 0, 0);
		make_qp(b, 0, 0);
		b->qp->qp_context = (void *)n;
		join(a, b);
		join(b, a);
		CHECK(receive(b, 1, 0, 8) == 0 && receive(b, 2, 0, 8) == 0 && transfer(a, b, 1, IBV_WR_SEND, 8) == 0);
		b->mr->rkey ^= 1;
		CHECK(transfer(a, b, 2, IBV_WR_RDMA_WRITE, 8) == 0);
		b->mr->rkey ^= 1;
		if (n % 2 == 0) {
			expect(a, 1, IBV_WC_SUCCESS);
			expect(a, 2, IBV_WC_REM_ACCESS_ERR);
		}
		close_side(b);
		close_side(a);
	}
	for (int i = 0; i < 3; i++)
		CHECK(pthread_cancel(threads[i]) == 0 && pthread_join(threads[i], NULL) == 0);
	CHECK(ibv_destroy_comp_channel(shared) == 0);
}

int main(void)
{
	name_fabric("threads");
	const int is_child = split();
	context = open_device();
	between_processes();
	if (!is_child) {
		within_process();
		destroy();
		join_child();
	}
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

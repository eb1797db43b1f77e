/* Queue pairs: how they are made, their states, and the traces of a failure. */
#include <poll.h>

#include "sides.h"

static void refuses(struct ibv_pd *pd, struct ibv_qp_init_attr attr, int error)
{
	errno = 0;
	CHECK(ibv_create_qp(pd, &attr) == NULL && errno == error);
}

static void creation(struct ibv_context *c)
{
	static struct side s;
	open_side(&s, c, 0);
	struct ibv_device_attr device;
	CHECK(ibv_query_device(c, &device) == 0);
	const struct ibv_qp_init_attr good = {.send_cq = s.cq, .recv_cq = s.cq, .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
	struct ibv_qp_init_attr attr = good;
	for (int type = IBV_QPT_UC; type <= IBV_QPT_UD; type++) {
		attr.qp_type = (enum ibv_qp_type)type;
		refuses(s.pd, attr, EOPNOTSUPP);
	}
	attr.qp_type = (enum ibv_qp_type)77;
	refuses(s.pd, attr, EINVAL);
	attr = good;
	attr.send_cq = NULL;
	refuses(s.pd, attr, EINVAL);
	for (int i = 0; i < 5; i++) {
		attr = good;
		*(uint32_t *[]){&attr.cap.max_send_wr, &attr.cap.max_recv_wr, &attr.cap.max_send_sge, &attr.cap.max_recv_sge, &attr.cap.max_inline_data}[i] = 1u << 20;
		refuses(s.pd, attr, EINVAL);
	}
	attr = good;
	attr.cap = (struct ibv_qp_cap){.max_send_wr = (uint32_t)device.max_qp_wr, .max_recv_wr = (uint32_t)device.max_qp_wr, .max_send_sge = (uint32_t)device.max_sge,
		.max_recv_sge = (uint32_t)device.max_sge, .max_inline_data = 1024};
	struct ibv_qp *largest = ibv_create_qp(s.pd, &attr);
	CHECK(largest != NULL && attr.cap.max_send_wr >= (uint32_t)device.max_qp_wr && attr.cap.max_recv_sge >= (uint32_t)device.max_sge && ibv_destroy_qp(largest) == 0);
	attr = good;
	attr.cap = (struct ibv_qp_cap){0};
	struct ibv_qp *least = ibv_create_qp(s.pd, &attr);
	CHECK(least != NULL && attr.cap.max_send_wr > 0 && attr.cap.max_send_sge > 0);

	/* Calls for parts that are not built are refused. */
	struct ibv_qp_init_attr_ex ex = {.send_cq = s.cq, .recv_cq = s.cq, .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = s.pd};
	ex.send_ops_flags = IBV_QP_EX_WITH_TSO;
	errno = 0;
	CHECK(ibv_create_qp_ex(c, &ex) == NULL && errno == EOPNOTSUPP);
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ex.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	errno = 0;
	CHECK(ibv_create_qp_ex(c, &ex) == NULL && errno == EOPNOTSUPP);
	struct ibv_pd *other = ibv_alloc_pd(c);
	attr = good;
	attr.srq = ibv_create_srq(other, &(struct ibv_srq_init_attr){.attr = {.max_wr = 1, .max_sge = 1}});
	CHECK(attr.srq != NULL);
	refuses(s.pd, attr, EINVAL);
	CHECK(ibv_destroy_srq(attr.srq) == 0 && ibv_dealloc_pd(other) == 0);

	/* A queue pair uses its objects. */
	make_qp(&s, 0, 0);
	CHECK(s.qp->qp_num > 1 && s.qp->qp_num < 0xffffff && s.qp->qp_num != least->qp_num && s.qp->state == IBV_QPS_RESET && s.qp->qp_type == IBV_QPT_RC);
	CHECK(ibv_destroy_cq(s.cq) == EBUSY && ibv_dealloc_pd(s.pd) == EBUSY && ibv_destroy_qp(least) == 0);
	close_side(&s);
}

static void put_in(struct ibv_qp *qp, enum ibv_qp_state state)
{
	const enum ibv_qp_state way[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
	const int steps = state == IBV_QPS_ERR ? 2 : (int)state + 1;
	for (int i = 0; i < steps; i++)
		CHECK(move(qp, way[i], 2) == 0);
	if (state == IBV_QPS_ERR)
		CHECK(move(qp, state, 0) == 0);
	CHECK(state_of(qp) == state);
}

/* Each transition needs exactly its attributes; each state refuses all others. */
static void states(struct ibv_context *c)
{
	static const enum ibv_qp_state all[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR};
	static const int required[5][5] = {
		/*         RESET         INIT          RTR       RTS           ERR */
		/* RESET */ {IBV_QP_STATE, INIT_MASK, 0, 0, 0},
		/* INIT */ {IBV_QP_STATE, IBV_QP_STATE, RTR_MASK, 0, IBV_QP_STATE},
		/* RTR */ {IBV_QP_STATE, 0, 0, RTS_MASK, IBV_QP_STATE},
		/* RTS */ {IBV_QP_STATE, 0, 0, IBV_QP_STATE, IBV_QP_STATE},
		/* ERR */ {IBV_QP_STATE, 0, 0, 0, IBV_QP_STATE},
	};
	static struct side s;
	open_side(&s, c, 0);
	make_qp(&s, 0, 0);
	for (int from = 0; from < 5; from++) {
		for (int to = 0; to < 5; to++) {
			struct ibv_qp_attr attr = attributes(all[to], 2);
			const int mask = required[from][to];
			put_in(s.qp, all[from]);
			if (mask == 0) {
				for (int i = 0; i < 5; i++)
					CHECK(ibv_modify_qp(s.qp, &attr, required[i][to] | IBV_QP_STATE) == EINVAL);
				continue;
			}
			for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
				if (mask & bit && bit != IBV_QP_STATE)
					CHECK(ibv_modify_qp(s.qp, &attr, mask & ~bit) == EINVAL);
			CHECK(ibv_modify_qp(s.qp, &attr, mask | IBV_QP_QKEY) == EINVAL && ibv_modify_qp(s.qp, &attr, mask | IBV_QP_CAP) == EINVAL);
			CHECK(state_of(s.qp) == all[from] && ibv_modify_qp(s.qp, &attr, mask) == 0 && state_of(s.qp) == all[to]);
		}
	}
	close_side(&s);
}

/* A value that the model does not have is refused, and leaves the state. */
static void values(struct ibv_context *c)
{
	static struct side s;
	open_side(&s, c, 0);
	make_qp(&s, 0, 0);
	struct ibv_qp_attr attr = attributes(IBV_QPS_INIT, 2), query;
	struct ibv_qp_init_attr init;
	attr.port_num = 2;
	CHECK(ibv_modify_qp(s.qp, &attr, INIT_MASK) == EINVAL);
	attr = attributes(IBV_QPS_INIT, 2);
	attr.pkey_index = 1;
	CHECK(ibv_modify_qp(s.qp, &attr, INIT_MASK) == EINVAL);
	put_in(s.qp, IBV_QPS_INIT);
	for (int i = 0; i < 5; i++) {
		attr = attributes(IBV_QPS_RTR, i == 0 ? 1u << 24 : 2);
		attr.min_rnr_timer = i == 1 ? 32 : 0;
		attr.path_mtu = i == 2 ? (enum ibv_mtu)6 : IBV_MTU_4096;
		attr.max_dest_rd_atomic = i == 3 ? 129 : 0;
		attr.ah_attr.port_num = i == 4 ? 0 : 1;
		CHECK(ibv_modify_qp(s.qp, &attr, RTR_MASK) == EINVAL && state_of(s.qp) == IBV_QPS_INIT);
	}
	put_in(s.qp, IBV_QPS_RTR);
	for (int i = 0; i < 4; i++) {
		attr = attributes(IBV_QPS_RTS, 0);
		attr.timeout = i == 0 ? 32 : 0;
		attr.retry_cnt = i == 1 ? 8 : 0;
		attr.rnr_retry = i == 2 ? 8 : 0;
		attr.max_rd_atomic = i == 3 ? 129 : 0;
		CHECK(ibv_modify_qp(s.qp, &attr, RTS_MASK) == EINVAL && state_of(s.qp) == IBV_QPS_RTR);
	}
	put_in(s.qp, IBV_QPS_RTS);
	attr = attributes(IBV_QPS_RTS, 0);
	attr.cur_qp_state = IBV_QPS_RTR;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	attr.min_rnr_timer = 3;
	CHECK(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
	CHECK(ibv_modify_qp(s.qp, &attr, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_SQD;
	CHECK(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE) == EOPNOTSUPP);
	CHECK(ibv_query_qp(s.qp, &query, -1, &init) == 0 && query.dest_qp_num == 2 && query.timeout == 12 && query.rnr_retry == 7 && query.retry_cnt == 7 && query.path_mtu == IBV_MTU_1024);
	CHECK(query.qp_access_flags == IBV_ACCESS_REMOTE_READ && query.min_rnr_timer == 3 && query.max_rd_atomic == 4 && query.cap.max_send_wr == DEPTH && query.ah_attr.dlid != 0);
	CHECK(init.send_cq == s.cq && init.cap.max_inline_data == INLINE && init.qp_type == IBV_QPT_RC && init.sq_sig_all == 0);
	CHECK(move(s.qp, IBV_QPS_RESET, 0) == 0 && ibv_query_qp(s.qp, &query, -1, &init) == 0 && query.dest_qp_num == 0);
	close_side(&s);
}

/* ERR flushes requests and receives, and those that are posted in it. RESET drops results, and the number connects again. */
static void again(struct ibv_context *c)
{
	static struct side a, b;
	open_side(&a, c, 0);
	open_side(&b, c, 0);
	make_qp(&a, 0, 0);
	make_qp(&b, 0, 0);
	const uint32_t number = a.qp->qp_num;
	for (int turn = 0; turn < 20; turn++) {
		struct side *first = turn % 2 == 0 ? &a : &b, *second = turn % 2 == 0 ? &b : &a;
		CHECK(move(a.qp, IBV_QPS_INIT, 0) == 0 && move(b.qp, IBV_QPS_INIT, 0) == 0 && receive(&b, 1, 0, 100) == 0 && receive(&b, 2, 0, 100) == 0);
		CHECK(move(a.qp, IBV_QPS_RESET, 0) == 0 && move(b.qp, IBV_QPS_RESET, 0) == 0); /* the receives are gone */
		join(first, second);
		join(second, first);
		CHECK(receive(&b, 3, 0, 100) == 0 && receive(&b, 4, 0, 100) == 0 && transfer(&a, &b, 5, IBV_WR_SEND, 10) == 0);
		expect(&a, 5, IBV_WC_SUCCESS);
		expect(&b, 3, IBV_WC_SUCCESS);
		CHECK(move(b.qp, IBV_QPS_ERR, 0) == 0 && receive(&b, 6, 0, 1) == 0 && transfer(&b, &a, 7, IBV_WR_SEND, 1) == 0);
		if (turn < 10) {
			uint64_t seen = 0;
			for (int i = 0; i < 3; i++) {
				const struct ibv_wc wc = take(&b);
				CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
				seen |= UINT64_C(1) << wc.wr_id;
			}
			CHECK(seen == (1 << 4 | 1 << 6 | 1 << 7));
		}
		struct timespec begin, end;
		(void)clock_gettime(CLOCK_MONOTONIC, &begin);
		CHECK(state_of(b.qp) == IBV_QPS_ERR && state_of(a.qp) == IBV_QPS_RTS && transfer(&a, &b, 8, IBV_WR_SEND, 1) == 0);
		expect(&a, 8, IBV_WC_RETRY_EXC_ERR); /* when it was repeated for 8 * 4.096 us * 2^12 */
		(void)clock_gettime(CLOCK_MONOTONIC, &end);
		CHECK((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 >= 134);
		CHECK(state_of(a.qp) == IBV_QPS_ERR && move(a.qp, IBV_QPS_RESET, 0) == 0 && move(b.qp, IBV_QPS_RESET, 0) == 0);
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0 && ibv_poll_cq(b.cq, 1, &wc) == 0 && a.qp->qp_num == number);
	}
	close_side(&a);
	close_side(&b);
}

/* Destroying a queue pair takes its results out of a queue, and leaves those of others. */
static void results(struct ibv_context *c)
{
	static struct side a, b;
	open_side(&a, c, 0);
	open_side(&b, c, 0);
	make_qp(&a, 0, 0);
	make_qp(&b, 0, 0);
	struct ibv_qp *const first = a.qp;
	make_qp(&a, 0, 0);
	struct ibv_qp *const second = a.qp;
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < 2; k++) {
			a.qp = k == 0 ? first : second;
			if (i == 0)
				CHECK(move(a.qp, IBV_QPS_INIT, 0) == 0);
			CHECK(receive(&a, (uint64_t)(10 * k + i), 0, 1) == 0);
		}
	}
	a.qp = first;
	CHECK(move(first, IBV_QPS_ERR, 0) == 0 && move(second, IBV_QPS_ERR, 0) == 0);
	expect(&a, 0, IBV_WC_WR_FLUSH_ERR);
	CHECK(ibv_destroy_qp(first) == 0);
	a.qp = second;
	for (uint64_t i = 0; i < 3; i++)
		expect(&a, 10 + i, IBV_WC_WR_FLUSH_ERR);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
	close_side(&a);
	close_side(&b);
}

/* A queue pair serves what its peer has sent before it ends, also if its program does not poll. */
static void parting(struct ibv_context *c)
{
	static struct side a, b;
	open_side(&a, c, 0);
	open_side(&b, c, 1);
	for (int turn = 0; turn < 20; turn++) {
		make_qp(&a, 0, 0);
		make_qp(&b, 0, 0);
		join(&a, &b);
		join(&b, &a);
		CHECK(receive(&b, 1, 0, 10) == 0 && receive(&b, 2, 0, 10) == 0 && transfer(&a, &b, 3, IBV_WR_SEND, 10) == 0);
		expect(&a, 3, IBV_WC_SUCCESS);
		CHECK(transfer(&a, &b, 4, IBV_WR_SEND, 10) == 0 && ibv_destroy_qp(b.qp) == 0);
		expect(&a, 4, IBV_WC_SUCCESS);
		CHECK(ibv_destroy_qp(a.qp) == 0);
	}
	make_qp(&a, 0, 0);
	make_qp(&b, 0, 0);
	close_side(&a);
	close_side(&b);
}

/* open_joined opens two sides that are connected. The receives of b are shared with with_srq. */
static void open_joined(struct side *a, struct side *b, struct ibv_context *c, int with_srq)
{
	open_side(a, c, 0);
	open_side(b, c, with_srq);
	make_qp(a, 0, 0);
	make_qp(b, 0, 0);
	join(a, b);
	join(b, a);
}

/* A request that the peer refuses ends both, and the peer's program gets an event, which it has to acknowledge. */
static void refused(struct ibv_context *c)
{
	static struct side a, b;
	struct ibv_async_event event;
	open_joined(&a, &b, c, 1);
	b.mr->rkey ^= 1; /* as the peer was told */
	CHECK(transfer(&a, &b, 1, IBV_WR_RDMA_WRITE, 10) == 0);
	expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_get_async_event(c, &event) == 0 && event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b.qp && state_of(b.qp) == IBV_QPS_ERR);
	ibv_ack_async_event(&event);
	CHECK(ibv_get_async_event(c, &event) == 0 && event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == b.qp);
	ibv_ack_async_event(&event);
	close_side(&a);
	close_side(&b);
}

/* An atomic of a number that is not aligned is refused by its completion. */
static void unaligned(struct ibv_context *c)
{
	static struct side a, b;
	struct ibv_async_event event;
	open_joined(&a, &b, c, 0);
	struct ibv_sge to = at(&a, 0, 8);
	struct ibv_send_wr add = {.wr_id = 1, .sg_list = &to, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = (uintptr_t)b.buffer + 4, .compare_add = 1, .rkey = b.mr->rkey}}, *bad;
	CHECK(ibv_post_send(a.qp, &add, &bad) == 0);
	expect(&a, 1, IBV_WC_REM_INV_REQ_ERR);
	CHECK(ibv_get_async_event(c, &event) == 0 && event.event_type == IBV_EVENT_QP_REQ_ERR && event.element.qp == b.qp && state_of(b.qp) == IBV_QPS_ERR);
	ibv_ack_async_event(&event);
	close_side(&a);
	close_side(&b);
}

/* A queue pair that its program resets or destroys has not failed: there is no event, also if its receives are shared. */
static void unbroken(struct ibv_context *c)
{
	static struct side a, b;
	struct pollfd events = {.fd = c->async_fd, .events = POLLIN};
	open_joined(&a, &b, c, 1);
	CHECK(move(b.qp, IBV_QPS_RESET, 0) == 0 && poll(&events, 1, 0) == 0);
	close_side(&a);
	close_side(&b);
	CHECK(poll(&events, 1, 0) == 0);
}

/* A queue pair that is connected to itself receives what it sends, and reaches its own memory. */
static void itself(struct ibv_context *c, int with_srq)
{
	static struct side s;
	open_side(&s, c, with_srq);
	make_qp(&s, 0, 1);
	join(&s, &s);
	for (uint32_t length = 8; length <= BYTES / 4; length *= 4) {
		struct ibv_sge to = {(uintptr_t)s.buffer + BYTES / 2, BYTES / 4, s.mr->lkey}, from = {(uintptr_t)s.buffer, length, s.mr->lkey};
		struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad_receive;
		struct ibv_send_wr send = {.wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
		memset(s.buffer, (int)length % 251, BYTES / 2);
		CHECK((with_srq ? ibv_post_srq_recv(s.srq, &receive, &bad_receive) : ibv_post_recv(s.qp, &receive, &bad_receive)) == 0 && ibv_post_send(s.qp, &send, &bad) == 0);
		const struct ibv_wc one = take(&s), two = take(&s);
		CHECK(one.status == IBV_WC_SUCCESS && two.status == IBV_WC_SUCCESS && one.wr_id + two.wr_id == 3 && (one.wr_id == 1 ? one : two).byte_len == length);
		CHECK(memcmp(s.buffer, s.buffer + BYTES / 2, length) == 0);
		send.opcode = IBV_WR_RDMA_WRITE;
		send.wr.rdma.remote_addr = (uintptr_t)s.buffer + BYTES / 4 * 3;
		send.wr.rdma.rkey = s.mr->rkey;
		CHECK(ibv_post_send(s.qp, &send, &bad) == 0);
		expect(&s, 2, IBV_WC_SUCCESS);
		CHECK(memcmp(s.buffer, s.buffer + BYTES / 4 * 3, length) == 0);
	}
	struct ibv_sge word = {(uintptr_t)s.buffer, 8, s.mr->lkey};
	struct ibv_send_wr add = {.wr_id = 3, .sg_list = &word, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .wr.atomic = {(uintptr_t)s.buffer + 8, 5, 0, s.mr->rkey}}, *bad;
	memset(s.buffer, 0, 16);
	CHECK(ibv_post_send(s.qp, &add, &bad) == 0);
	expect(&s, 3, IBV_WC_SUCCESS);
	CHECK(s.buffer[0] == 0 && s.buffer[8] == 5);
	add.wr.atomic.rkey ^= 1;
	CHECK(ibv_post_send(s.qp, &add, &bad) == 0);
	expect(&s, 3, IBV_WC_REM_ACCESS_ERR);
	CHECK(state_of(s.qp) == IBV_QPS_ERR);
	close_side(&s);
}

int main(void)
{
	name_fabric("pairs");
	struct ibv_context *c = open_device();
	creation(c);
	states(c);
	values(c);
	again(c);
	results(c);
	parting(c);
	refused(c);
	unaligned(c);
	unbroken(c);
	itself(c, 0);
	itself(c, 1);
	CHECK(ibv_close_device(c) == 0);
	return 0;
}

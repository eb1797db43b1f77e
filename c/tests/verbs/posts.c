/* Posting: both ways of making requests give the same results, and refuse the same mistakes. */
#include "sides.h"

/* Both ways, for one request with entries at the offsets 0, 100 and so on, of length bytes each. */
struct request {
	uint64_t id;
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	int entries;
	uint32_t length;
	uint64_t address;
	uint32_t rkey;
	uint64_t operand, swap;
};

static int post_old(struct side *s, const struct request *r)
{
	struct ibv_sge sges[SGES + 1];
	struct ibv_send_wr wr = {.wr_id = r->id, .sg_list = sges, .num_sge = r->entries, .opcode = r->opcode, .send_flags = r->flags, .imm_data = htonl(0x1234)}, *bad = NULL;
	for (int i = 0; i < r->entries && i <= SGES; i++)
		sges[i] = at(s, (size_t)i * 100, r->length);
	if (r->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = r->address;
		wr.wr.atomic.rkey = r->rkey;
		wr.wr.atomic.compare_add = r->operand;
		wr.wr.atomic.swap = r->swap;
	} else {
		wr.wr.rdma.remote_addr = r->address;
		wr.wr.rdma.rkey = r->rkey;
	}
	const int error = ibv_post_send(s->qp, &wr, &bad);
	CHECK(bad == (error == 0 ? NULL : &wr));
	return error;
}

/* build adds a request to a list that ibv_wr_start has begun. */
static void build(struct side *s, const struct request *r)
{
	struct ibv_qp_ex *x = s->ex;
	struct ibv_sge sges[SGES + 1];
	struct ibv_data_buf buffers[SGES + 1];
	x->wr_id = r->id;
	x->wr_flags = r->flags;
	switch (r->opcode) {
	case IBV_WR_SEND: ibv_wr_send(x); break;
	case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(x, htonl(0x1234)); break;
	case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(x, r->rkey, r->address); break;
	case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(x, r->rkey, r->address, htonl(0x1234)); break;
	case IBV_WR_RDMA_READ: ibv_wr_rdma_read(x, r->rkey, r->address); break;
	case IBV_WR_ATOMIC_CMP_AND_SWP: ibv_wr_atomic_cmp_swp(x, r->rkey, r->address, r->operand, r->swap); break;
	default: ibv_wr_atomic_fetch_add(x, r->rkey, r->address, r->operand);
	}
	for (int i = 0; i < r->entries && i <= SGES; i++) {
		sges[i] = at(s, (size_t)i * 100, r->length);
		buffers[i] = (struct ibv_data_buf){s->buffer + i * 100, r->length};
	}
	if ((r->flags & IBV_SEND_INLINE) != 0 && r->entries == 1)
		ibv_wr_set_inline_data(x, s->buffer, r->length);
	else if ((r->flags & IBV_SEND_INLINE) != 0)
		ibv_wr_set_inline_data_list(x, (size_t)r->entries, buffers);
	else if (r->entries == 1)
		ibv_wr_set_sge(x, s->mr->lkey, (uintptr_t)s->buffer, r->length);
	else
		ibv_wr_set_sge_list(x, (size_t)r->entries, sges);
}

static int post(struct side *s, const struct request *r)
{
	if (s->ex == NULL)
		return post_old(s, r);
	ibv_wr_start(s->ex);
	build(s, r);
	return ibv_wr_complete(s->ex);
}

static void fill(struct side *s, unsigned seed)
{
	for (unsigned i = 0; i < BYTES; i++)
		s->buffer[i] = (unsigned char)(i * 7 + seed);
}

/* holds checks that memory has the bytes that a request of count entries has gathered. */
static int holds(const unsigned char *memory, const struct side *from, int count, uint32_t length)
{
	for (int i = 0; i < count; i++)
		if (memcmp(memory + (size_t)i * length, from->buffer + (size_t)i * 100, length) != 0)
			return 0;
	return 1;
}

static void transfers(struct side *a, struct side *b)
{
	static const struct { enum ibv_wr_opcode opcode; enum ibv_wc_opcode sent, received; } kinds[] = {
		{IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV},
		{IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV},
		{IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_RECV},
		{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM},
		{IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, IBV_WC_RECV},
	};
	static const struct { int entries; uint32_t length; } shapes[] = {{1, 1}, {1, 20}, {3, 20}, {2, 100}, {1, 4000}};
	const uintptr_t far = (uintptr_t)b->buffer + 4000;
	for (unsigned i = 0; i < 5 * 5 * 2; i++) {
		const enum ibv_wr_opcode opcode = kinds[i % 5].opcode;
		const uint32_t length = shapes[i / 5 % 5].length;
		const int count = shapes[i / 5 % 5].entries, receives = opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
		const uint32_t total = (uint32_t)count * length;
		const unsigned in_line = i >= 25 && opcode != IBV_WR_RDMA_READ && total <= INLINE ? IBV_SEND_INLINE : 0;
		fill(a, i);
		fill(b, i + 100);
		if (receives)
			CHECK(receive(b, 1000 + i, 4000, 4000) == 0);
		CHECK(post(a, &(struct request){i, opcode, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE | in_line, count, length, far, b->mr->rkey, 0, 0}) == 0);
		if (in_line != 0)
			memset(a->buffer, 0, sizeof a->buffer); /* the program may change it at once */
		struct ibv_wc wc = take(a);
		CHECK(wc.wr_id == i && wc.status == IBV_WC_SUCCESS && wc.opcode == kinds[i % 5].sent);
		if (in_line != 0)
			fill(a, i);
		if (receives) {
			wc = take(b);
			CHECK(wc.wr_id == 1000 + i && wc.status == IBV_WC_SUCCESS && wc.opcode == kinds[i % 5].received && wc.byte_len == total);
			CHECK(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == (opcode != IBV_WR_SEND) && (opcode == IBV_WR_SEND || wc.imm_data == htonl(0x1234)));
		}
		if (opcode == IBV_WR_RDMA_READ)
			for (int k = 0; k < count; k++)
				CHECK(memcmp(a->buffer + k * 100, b->buffer + 4000 + (uint32_t)k * length, length) == 0);
		else
			CHECK(holds(b->buffer + 4000, a, count, length));
	}
	/* Requests without data. */
	for (int i = 0; i < 2; i++) {
		CHECK(post(a, &(struct request){7, i == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 0, 0, 0, 0, 0}) == 0);
		expect(a, 7, IBV_WC_SUCCESS);
	}
	CHECK(receive(b, 8, 0, 1) == 0 && post(a, &(struct request){7, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 0, 0, 0, 0, 0}) == 0);
	expect(a, 7, IBV_WC_SUCCESS);
	expect(b, 8, IBV_WC_SUCCESS);
}

static void atomics(struct side *a, struct side *b)
{
	uint64_t *near = (uint64_t *)(void *)a->buffer, *far = (uint64_t *)(void *)b->buffer;
	*far = 40;
	struct request r = {1, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED, 1, 12 /* of which 8 are used */, (uintptr_t)far, b->mr->rkey, 2, 0};
	CHECK(post(a, &r) == 0);
	expect(a, 1, IBV_WC_SUCCESS);
	CHECK(*near == 40 && *far == 42);
	for (uint64_t old = 41; old <= 42; old++) {
		r = (struct request){old, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED, 1, 8, (uintptr_t)far, b->mr->rkey, old, 7};
		CHECK(post(a, &r) == 0);
		expect(a, old, IBV_WC_SUCCESS);
		CHECK(*near == 42 && *far == (old == 42 ? 7 : 42));
	}
}

/* Mistakes in a post, and lists that are too long. */
static void mistakes(struct side *a, struct side *b)
{
	const struct request good = {1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 1, 1, (uintptr_t)b->buffer, b->mr->rkey, 0, 0};
	struct request r = good;
	r.entries = SGES + 1;
	CHECK(post(a, &r) == EINVAL);
	r = good;
	r.flags |= IBV_SEND_INLINE;
	r.length = INLINE + 1;
	CHECK(post(a, &r) == EINVAL);
	struct ibv_sge sge = at(b, 0, 1);
	struct ibv_recv_wr receives[3] = {{.wr_id = 1, .next = &receives[1], .sg_list = &sge, .num_sge = 1}, {.wr_id = 2, .next = &receives[2], .num_sge = SGES + 1}, {.wr_id = 3}}, *bad_receive = NULL;
	if (b->srq == NULL) {
		CHECK(ibv_post_recv(b->qp, receives, &bad_receive) == EINVAL && bad_receive == &receives[1]);
		for (uint64_t i = 1; i < DEPTH; i++)
			CHECK(receive(b, 1, 0, 1) == 0);
		CHECK(receive(b, 1, 0, 1) == ENOMEM);
		for (int i = 0; i < DEPTH; i++) {
			CHECK(transfer(a, b, 1, IBV_WR_SEND, 1) == 0);
			expect(a, 1, IBV_WC_SUCCESS);
			expect(b, 1, IBV_WC_SUCCESS);
		}
	} else {
		CHECK(ibv_post_recv(b->qp, receives, &bad_receive) == EINVAL && bad_receive == receives);
	}
	/* A list is posted up to the first that is wrong, or that finds no place, also behind the first few. */
	struct ibv_send_wr list[40] = {{0}}, *bad = NULL;
	sge = at(a, 0, 1);
	for (int i = 0; i < 40; i++)
		list[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i, .next = i < 39 ? &list[i + 1] : NULL, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {(uintptr_t)b->buffer, b->mr->rkey}};
	static const struct { enum ibv_wr_opcode opcode; int error; } wrong[] = {{IBV_WR_TSO, EOPNOTSUPP}, {(enum ibv_wr_opcode)99, EINVAL}};
	for (int i = 0; i < 2; i++) {
		list[3].opcode = wrong[i].opcode;
		CHECK(ibv_post_send(a->qp, list, &bad) == wrong[i].error && bad == &list[3]);
		for (uint64_t k = 0; k < 3; k++)
			expect(a, k, IBV_WC_SUCCESS);
	}
	list[3].opcode = IBV_WR_RDMA_WRITE;
	struct ibv_sge nothing = {.length = 1};
	struct ibv_send_wr in_line = {.sg_list = &nothing, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};
	CHECK(ibv_post_send(a->qp, &in_line, &bad) == EINVAL && bad == &in_line); /* data at address 0 */
	CHECK(ibv_post_send(a->qp, list, &bad) == ENOMEM && bad == &list[DEPTH]);
	for (uint64_t k = 0; k < DEPTH; k++)
		expect(a, k, IBV_WC_SUCCESS);
	list[7].next = NULL;
	CHECK(ibv_post_send(a->qp, list, &bad) == 0);
	for (uint64_t k = 0; k < DEPTH; k++)
		expect(a, k, IBV_WC_SUCCESS);
}

/* The requests between ibv_wr_start and ibv_wr_complete are posted together, or not at all. */
static void lists(struct side *a, struct side *b)
{
	const struct request good = {1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 1, 8, (uintptr_t)b->buffer + 4000, b->mr->rkey, 0, 0};
	struct ibv_wc wc;
	if (a->ex == NULL)
		return;
	for (int turn = 0; turn < 4; turn++) {
		const int count = turn == 1 ? DEPTH + 1 : DEPTH;
		struct request r = good;
		ibv_wr_start(a->ex);
		for (int i = 0; i < count; i++) {
			r.id = (uint64_t)i;
			r.entries = turn == 2 && i == 3 ? SGES + 1 : 1;
			build(a, &r);
		}
		if (turn == 3)
			ibv_wr_abort(a->ex);
		else
			CHECK(ibv_wr_complete(a->ex) == (turn == 0 ? 0 : turn == 1 ? ENOMEM : EINVAL));
		for (uint64_t i = 0; turn == 0 && i < DEPTH; i++)
			expect(a, i, IBV_WC_SUCCESS);
		CHECK(ibv_poll_cq(a->cq, 1, &wc) == 0);
	}
	CHECK(post(a, &good) == 0);
	ibv_wr_start(a->ex); /* the queue has room for all but one */
	for (int i = 0; i < DEPTH; i++)
		build(a, &good);
	CHECK(ibv_wr_complete(a->ex) == ENOMEM);
	expect(a, 1, IBV_WC_SUCCESS);
	CHECK(ibv_poll_cq(a->cq, 1, &wc) == 0);
	ibv_wr_start(a->ex);
	CHECK(ibv_wr_complete(a->ex) == 0);
}

/* An unsignalled request keeps its place until the completion of a later one is taken. */
static void unsignalled(struct side *a, struct side *b, int signals_all)
{
	struct request r = {0, IBV_WR_RDMA_WRITE, 0, 1, 8, (uintptr_t)b->buffer, b->mr->rkey, 0, 0};
	struct ibv_wc wc;
	for (uint64_t turn = 0; turn < 200; turn++) {
		const uint64_t signalled = turn % DEPTH;
		for (r.id = 0; r.id < DEPTH; r.id++) {
			r.flags = r.id == signalled ? IBV_SEND_SIGNALED : 0;
			r.opcode = (turn + r.id) % 3 == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
			CHECK(post(a, &r) == 0);
		}
		CHECK(post(a, &r) == ENOMEM);
		for (uint64_t i = 0; signals_all && i < DEPTH; i++)
			expect(a, i, IBV_WC_SUCCESS);
		if (!signals_all) {
			expect(a, signalled, IBV_WC_SUCCESS);
			CHECK(ibv_poll_cq(a->cq, 1, &wc) == 0);
			r.flags = IBV_SEND_SIGNALED; /* those after the signalled one are not free, and the last of these frees them */
			for (uint64_t i = 0; i <= signalled; i++)
				CHECK(post(a, &r) == 0);
			CHECK(post(a, &r) == ENOMEM);
			for (uint64_t i = 0; i <= signalled; i++)
				expect(a, DEPTH, IBV_WC_SUCCESS);
		}
	}
}

/* A queue pair takes requests in RTS and ERR, and receives in all states but RESET. */
static void early(struct side *a, struct side *b)
{
	const struct request r = {1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 1, 1, (uintptr_t)b->buffer, b->mr->rkey, 0, 0};
	CHECK(post(a, &r) == EINVAL && (a->srq != NULL || receive(a, 1, 0, 1) == EINVAL));
	CHECK(move(a->qp, IBV_QPS_INIT, 0) == 0 && post(a, &r) == EINVAL && receive(a, 1, 0, 1) == 0);
	CHECK(move(a->qp, IBV_QPS_RTR, b->qp->qp_num) == 0 && post(a, &r) == EINVAL && receive(a, 1, 0, 1) == 0);
	CHECK(move(a->qp, IBV_QPS_RESET, 0) == 0);
}

int main(void)
{
	static struct side a, b;
	name_fabric("posts");
	struct ibv_context *c = open_device();
	for (int i = 0; i < 8; i++) {
		const int extended = i & 1, signals_all = i >> 1 & 1, with_srq = i >> 2 & 1;
		open_side(&a, c, with_srq);
		open_side(&b, c, with_srq);
		make_qp(&a, extended, signals_all);
		make_qp(&b, extended, signals_all);
		early(&a, &b);
		join(&a, &b);
		join(&b, &a);
		transfers(&a, &b);
		atomics(&a, &b);
		mistakes(&a, &b);
		lists(&a, &b);
		unsignalled(&a, &b, signals_all);
		close_side(&a);
		close_side(&b);
	}
	CHECK(ibv_close_device(c) == 0);
	return 0;
}

/* Two queue pairs of one process, for tests. */
#ifndef SOFTND_VERBS_SIDES_H
#define SOFTND_VERBS_SIDES_H

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../check.h"

enum { DEPTH = 8, SGES = 3, INLINE = 64, BYTES = 8192, RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex; /* NULL = made by ibv_create_qp */
	struct ibv_mr *mr;
	unsigned char buffer[BYTES] __attribute__((aligned(64)));
};

/* name_fabric gives the process a fabric of its own. */
static inline void name_fabric(const char *test)
{
	char name[40];
	snprintf(name, sizeof name, "verbs-%s-%d", test, (int)getpid());
	CHECK(setenv("SOFTND_VERBS_FABRIC", name, 1) == 0);
}

static inline struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list != NULL && list[0] != NULL);
	struct ibv_context *c = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	CHECK(c != NULL);
	return c;
}

/* make_qp makes the queue pair of a side, by ibv_create_qp_ex if extended. */
static inline void make_qp(struct side *s, int extended, int signals_all)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.srq = s->srq,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = SGES, .max_recv_sge = SGES, .max_inline_data = INLINE},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = signals_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
			IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp_init_attr old = {.send_cq = s->cq, .recv_cq = s->cq, .srq = s->srq, .cap = attr.cap, .qp_type = IBV_QPT_RC, .sq_sig_all = signals_all};
	s->qp = extended ? ibv_create_qp_ex(s->context, &attr) : ibv_create_qp(s->pd, &old);
	CHECK(s->qp != NULL);
	s->ex = ibv_qp_to_qp_ex(s->qp);
	CHECK((s->ex != NULL) == (extended != 0));
}

static inline void open_side(struct side *s, struct ibv_context *c, int with_srq)
{
	memset(s, 0, sizeof *s);
	s->context = c;
	s->pd = ibv_alloc_pd(c);
	s->cq = ibv_create_cq(c, 4 * DEPTH, NULL, NULL, 0);
	CHECK(s->pd != NULL && s->cq != NULL);
	s->srq = with_srq ? ibv_create_srq(s->pd, &(struct ibv_srq_init_attr){.attr = {.max_wr = DEPTH, .max_sge = SGES}}) : NULL;
	s->mr = ibv_reg_mr(s->pd, s->buffer, sizeof s->buffer, RIGHTS);
	CHECK(s->mr != NULL && (s->srq != NULL) == (with_srq != 0));
}

static inline void close_side(struct side *s)
{
	CHECK(ibv_destroy_qp(s->qp) == 0 && ibv_dereg_mr(s->mr) == 0 && (s->srq == NULL || ibv_destroy_srq(s->srq) == 0));
	CHECK(ibv_destroy_cq(s->cq) == 0 && ibv_dealloc_pd(s->pd) == 0);
}

/* The attributes of each transition to a state. */
enum {
	INIT_MASK = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	RTS_MASK = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
};

static inline struct ibv_qp_attr attributes(enum ibv_qp_state state, uint32_t dest)
{
	return (struct ibv_qp_attr){
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.ah_attr = {.port_num = 1},
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = 12,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
}

/* move goes to a state with all its attributes, and returns an errno. */
static inline int move(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t dest)
{
	struct ibv_qp_attr attr = attributes(state, dest);
	struct ibv_port_attr port;
	CHECK(ibv_query_port(qp->context, attr.port_num, &port) == 0);
	attr.ah_attr.dlid = port.lid;
	return ibv_modify_qp(qp, &attr, state == IBV_QPS_INIT ? INIT_MASK : state == IBV_QPS_RTR ? RTR_MASK : state == IBV_QPS_RTS ? RTS_MASK : IBV_QP_STATE);
}

static inline void join(struct side *s, struct side *peer)
{
	CHECK(move(s->qp, IBV_QPS_INIT, 0) == 0 && move(s->qp, IBV_QPS_RTR, peer->qp->qp_num) == 0 && move(s->qp, IBV_QPS_RTS, 0) == 0);
}

static inline enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == qp->state);
	return attr.qp_state;
}

/* take waits for a completion of a side. */
static inline struct ibv_wc take(struct side *s)
{
	struct ibv_wc wc;
	const time_t end = time(NULL) + 30;
	int n;
	while ((n = ibv_poll_cq(s->cq, 1, &wc)) == 0)
		CHECK(time(NULL) < end);
	CHECK(n == 1 && wc.qp_num == s->qp->qp_num);
	return wc;
}

/* expect waits for a completion with a status. */
static inline void expect(struct side *s, uint64_t id, enum ibv_wc_status status)
{
	const struct ibv_wc wc = take(s);
	if (wc.wr_id != id || wc.status != status)
		fprintf(stderr, "completion %llu, %s; want %llu, %s\n", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), (unsigned long long)id, ibv_wc_status_str(status));
	CHECK(wc.wr_id == id && wc.status == status);
}

static inline struct ibv_sge at(const struct side *s, size_t offset, uint32_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)s->buffer + offset, .length = length, .lkey = s->mr->lkey};
}

static inline int receive(struct side *s, uint64_t id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = at(s, offset, length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	const int error = s->srq != NULL ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);
	CHECK((error == 0) == (bad == NULL));
	return error;
}

/* transfer posts a signalled request of one entry. */
static inline int transfer(struct side *s, const struct side *peer, uint64_t id, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_sge sge = at(s, 0, length);
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(7), .wr.rdma = {(uintptr_t)peer->buffer, peer->mr->rkey}};
	struct ibv_send_wr *bad = NULL;
	const int error = ibv_post_send(s->qp, &wr, &bad);
	CHECK((error == 0) == (bad == NULL));
	return error;
}

#endif

/* Posting lists of requests and receives. */
#include <errno.h>

#include "atomic.h"
#include "qp.h"

_Static_assert(sizeof(struct ibv_sge) == sizeof(snd_sge) && offsetof(struct ibv_sge, length) == offsetof(snd_sge, length) &&
	offsetof(struct ibv_sge, lkey) == offsetof(snd_sge, token), "lists of entries are passed on as they are");

enum { TURN = 16 }; /* requests that one call of the core posts */

int check_sends(const struct qp *qp)
{
	const enum ibv_qp_state s = qp->public.base.state;
	return s == IBV_QPS_RTS || s == IBV_QPS_ERR ? 0 : refuse(EINVAL, "post send: the queue pair is in state %d: it takes requests in RTS", (int)s);
}

static bool takes_receive(enum ibv_wr_opcode opcode) { return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV ||
	opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }

uint32_t request_flags(const struct qp *qp, enum ibv_wr_opcode opcode, unsigned int flags)
{
	return (qp->signals_all || flags & IBV_SEND_SIGNALED ? 0 : SND_SILENT_SUCCESS) | (flags & IBV_SEND_FENCE ? SND_READ_FENCE : 0) |
		(flags & IBV_SEND_INLINE ? SND_INLINE : 0) | (flags & IBV_SEND_SOLICITED && takes_receive(opcode) ? SND_SOLICIT_EVENT : 0);
}

/* fits reports whether a request has as many entries as the queue pair takes. A negative number is a large one. */
static inline bool fits(const struct qp *qp, const struct ibv_send_wr *wr) { return (uint32_t)wr->num_sge <= qp->cap.max_send_sge; }

/* translate makes a request of the core. It returns an errno. */
static int translate(const struct qp *qp, const struct ibv_send_wr *wr, snd_request *r)
{
	if (!fits(qp, wr))
		return refuse(EINVAL, "post send: %d entries, max_send_sge is %u", wr->num_sge, qp->cap.max_send_sge);
	*r = (snd_request){
		.flags = request_flags(qp, wr->opcode, wr->send_flags),
		.context = wr->wr_id,
		.sge = (const snd_sge *)(const void *)wr->sg_list,
		.count = (uint32_t)wr->num_sge,
	};
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		r->has_immediate = 1;
		r->immediate = wr->imm_data;
		break;
	default: break;
	}
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM: r->type = SND_REQUEST_SEND; return 0;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM: r->type = SND_REQUEST_WRITE; break;
	case IBV_WR_RDMA_READ: r->type = SND_REQUEST_READ; break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		r->type = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? SND_REQUEST_COMPARE_AND_SWAP : SND_REQUEST_FETCH_AND_ADD;
		r->address = wr->wr.atomic.remote_addr;
		r->token = token_of(wr->wr.atomic.rkey);
		r->operand = wr->wr.atomic.compare_add;
		r->swap = wr->wr.atomic.swap;
		return 0;
	case IBV_WR_SEND_WITH_INV:
		r->type = SND_REQUEST_SEND;
		r->token = token_of(wr->invalidate_rkey);
		return 0;
	case IBV_WR_LOCAL_INV:
		r->type = SND_REQUEST_INVALIDATE;
		r->token = token_of(wr->invalidate_rkey);
		return 0;
	case IBV_WR_BIND_MW: return set_keyed_bind(qp, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info, r);
	case IBV_WR_TSO:
	case IBV_WR_DRIVER1:
	case IBV_WR_ATOMIC_WRITE: return refuse(EOPNOTSUPP, "post send: operation %d is not supported", (int)wr->opcode);
	default: return refuse(EINVAL, "post send: unknown operation %d", (int)wr->opcode);
	}
	r->address = wr->wr.rdma.remote_addr;
	r->token = token_of(wr->wr.rdma.rkey);
	return 0;
}

/* post_alone posts a request without making a list of it. It returns false if it is not of a frequent kind. */
static inline bool post_alone(const struct qp *qp, const struct ibv_send_wr *wr, snd_status *status)
{
	if (snd_unlikely(wr == NULL || wr->next != NULL || !fits(qp, wr)))
		return false;
	const snd_sge *sge = (const snd_sge *)(const void *)wr->sg_list;
	const uint32_t count = (uint32_t)wr->num_sge, flags = request_flags(qp, wr->opcode, wr->send_flags);
	const uint64_t address = wr->wr.rdma.remote_addr;
	const uint32_t token = token_of(wr->wr.rdma.rkey);
	switch (wr->opcode) {
	case IBV_WR_SEND: *status = snd_endpoint_send(qp->core, wr->wr_id, sge, count, flags); return true;
	case IBV_WR_RDMA_WRITE: *status = snd_endpoint_write(qp->core, wr->wr_id, sge, count, address, token, flags); return true;
	case IBV_WR_RDMA_READ: *status = snd_endpoint_read(qp->core, wr->wr_id, sge, count, address, token, flags); return true;
	default: return false;
	}
}

int post_send(struct ibv_qp *public, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *qp = (struct qp *)public;
	struct ibv_send_wr *first = wr; /* that is not posted */
	snd_request list[TURN];
	snd_status s;
	int error = check_sends(qp);
	if (snd_likely(error == 0) && post_alone(qp, wr, &s)) {
		if (snd_likely(s == SND_SUCCESS))
			return 0;
		error = refuse_status(s);
	}
	while (wr != NULL && error == 0) {
		uint32_t count = 0, posted = 0;
		for (; wr != NULL && count < TURN && (error = translate(qp, wr, &list[count])) == 0; wr = wr->next)
			count++;
		s = snd_endpoint_post(qp->core, list, count, &posted);
		for (; posted > 0 && first != NULL; posted--)
			first = first->next;
		if (s != SND_SUCCESS)
			error = refuse_status(s);
	}
	if (error != 0)
		*bad = first;
	return error;
}

/* translate_receive makes a receive of the core. It returns an errno. */
static int translate_receive(const struct qp *qp, const struct ibv_recv_wr *wr, snd_request *r)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_recv_sge)
		return refuse(EINVAL, "post receive: %d entries, max_recv_sge is %u", wr->num_sge, qp->cap.max_recv_sge);
	*r = (snd_request){.type = SND_REQUEST_RECEIVE, .context = wr->wr_id, .sge = (const snd_sge *)(const void *)wr->sg_list, .count = (uint32_t)wr->num_sge};
	return 0;
}

static int check_receives(const struct ibv_qp *public)
{
	if (public->state == IBV_QPS_RESET)
		return refuse(EINVAL, "post receive: the queue pair is in RESET: it takes receives from INIT on");
	if (public->srq != NULL)
		return refuse(EINVAL, "post receive: the queue pair has a shared receive queue: post to that");
	return 0;
}

int post_recv(struct ibv_qp *public, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *qp = (struct qp *)public;
	struct ibv_recv_wr *first = wr;
	snd_request list[TURN];
	int error = check_receives(public);
	while (wr != NULL && error == 0) {
		uint32_t count = 0, posted = 0;
		for (; wr != NULL && count < TURN && (error = translate_receive(qp, wr, &list[count])) == 0; wr = wr->next)
			count++;
		const snd_status s = snd_endpoint_post(qp->core, list, count, &posted);
		for (; posted > 0 && first != NULL; posted--)
			first = first->next;
		if (s != SND_SUCCESS)
			error = refuse_status(s);
	}
	if (error != 0)
		*bad = first;
	return error;
}

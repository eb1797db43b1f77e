/* Queue pairs of identifiers, with the objects that a program may leave to the library, and requests of synchronous listeners. */
#include <errno.h>
#include <stdlib.h>

#include "cm.h"

static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->qp != NULL || id->srq != NULL)
		return;
	if (id->recv_cq != NULL)
		(void)ibv_destroy_cq(id->recv_cq);
	if (id->recv_cq_channel != NULL)
		(void)ibv_destroy_comp_channel(id->recv_cq_channel);
	if (id->send_cq != NULL && id->send_cq != id->recv_cq)
		(void)ibv_destroy_cq(id->send_cq);
	if (id->send_cq_channel != NULL && id->send_cq_channel != id->recv_cq_channel)
		(void)ibv_destroy_comp_channel(id->send_cq_channel);
	id->recv_cq = id->send_cq = NULL;
	id->recv_cq_channel = id->send_cq_channel = NULL;
}

static bool make_cq(struct rdma_cm_id *id, uint32_t depth, struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	*channel = ibv_create_comp_channel(id->verbs);
	if (*channel != NULL)
		*cq = ibv_create_cq(id->verbs, (int)depth, id, *channel, 0);
	return *cq != NULL;
}

/* make_cqs makes the completion queues that the program does not bring. */
static bool make_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	const bool receives = attr->recv_cq == NULL && (attr->srq == NULL || attr->cap.max_recv_wr > 0);
	if (receives && id->recv_cq == NULL && !make_cq(id, attr->cap.max_recv_wr + 1, &id->recv_cq_channel, &id->recv_cq))
		return false;
	if (attr->send_cq == NULL && !make_cq(id, attr->cap.max_send_wr + 1, &id->send_cq_channel, &id->send_cq))
		return false;
	if (attr->send_cq == NULL)
		attr->send_cq = id->send_cq;
	if (attr->recv_cq == NULL)
		attr->recv_cq = id->recv_cq != NULL ? id->recv_cq : attr->send_cq;
	return true;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (id == NULL || attr == NULL || id->verbs == NULL || id->qp != NULL || attr->qp_type != id->qp_type)
		return fail(EINVAL);
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == NULL) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd;
	} else if (attr->pd->context != id->verbs) {
		return fail(EINVAL);
	}
	if (attr->srq == NULL)
		attr->srq = id->srq;
	if (!make_cqs(id, attr)) {
		const int error = errno;
		destroy_cqs(id);
		return fail(error);
	}
	id_of(id)->has_no_qp = false;
	id->qp = ibv_create_qp_ex(id->verbs, attr);
	int error = id->qp == NULL ? errno : 0;
	if (error == 0) {
		struct ibv_qp_attr first = {.qp_state = IBV_QPS_INIT};
		int mask;
		error = rdma_init_qp_attr(id, &first, &mask) != 0 ? errno : ibv_modify_qp(id->qp, &first, mask);
	}
	if (error != 0) {
		rdma_destroy_qp(id);
		return fail(error);
	}
	id->pd = attr->pd;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (id == NULL || attr == NULL)
		return fail(EINVAL);
	struct ibv_qp_init_attr_ex ex = {.qp_context = attr->qp_context, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq, .cap = attr->cap,
		.qp_type = attr->qp_type, .sq_sig_all = attr->sq_sig_all, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd != NULL ? pd : id->pd};
	const int failed = rdma_create_qp_ex(id, &ex);
	attr->cap = ex.cap;
	return failed;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (id->qp != NULL)
		(void)ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_cqs(id);
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	if (id == NULL || attr == NULL || id->verbs == NULL || id->srq != NULL)
		return fail(EINVAL);
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	id->srq = ibv_create_srq_ex(id->verbs, attr);
	return id->srq == NULL ? -1 : 0;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	if (id == NULL || attr == NULL)
		return fail(EINVAL);
	struct ibv_srq_init_attr_ex ex = {.srq_context = attr->srq_context, .attr = attr->attr, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC, .pd = pd != NULL ? pd : id->pd};
	const int failed = rdma_create_srq_ex(id, &ex);
	attr->attr = ex.attr;
	return failed;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq != NULL)
		(void)ibv_destroy_srq(id->srq);
	id->srq = NULL;
	destroy_cqs(id);
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	if (listen == NULL || id == NULL || !id_of(listen)->synchronous)
		return fail(EINVAL);
	struct id *listener = id_of(listen);
	if (listen->event != NULL) {
		(void)rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	struct rdma_cm_event *event;
	if (rdma_get_cm_event(listen->channel, &event) != 0)
		return -1;
	if (event->status != 0 || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		const int error = event->status < 0 ? -event->status : EINVAL;
		(void)rdma_ack_cm_event(event);
		return fail(error);
	}
	struct rdma_cm_id *request = event->id;
	int failed = rdma_migrate_id(request, NULL);
	if (failed == 0 && listener->attr != NULL) {
		struct ibv_qp_init_attr attr = *listener->attr;
		failed = rdma_create_qp(request, listen->pd, &attr);
	}
	if (failed != 0) {
		const int error = errno;
		(void)rdma_reject(request, NULL, 0);
		(void)rdma_ack_cm_event(event);
		(void)rdma_destroy_id(request);
		return fail(error);
	}
	request->event = event;
	*id = request;
	return 0;
}

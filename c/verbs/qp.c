/* Making and ending queue pairs. */
#include "qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/cm_number.h"
#include "endpoint/cq.h"
#include "endpoint/progress.h"
#include "endpoint/provider.h"

#define END_TIMEOUT INT64_C(1000000000) /* for a copy of the peer that is under way */
enum { MAX_TURNS = 64 };                   /* of a peer that does not stop sending */

static uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* has_failed is called with the fabric's lock held. fault is what this side has done wrong as the responder. */
static void has_failed(void *arg, snd_status fault)
{
	struct qp *qp = arg;
	struct event_queue *events = &context_of(qp->public.base.context)->events;
	if (fault == SND_ACCESS_VIOLATION || fault == SND_INVALID_DEVICE_REQUEST) {
		qp->failure.async.event_type = fault == SND_ACCESS_VIOLATION ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR;
		raise_event(events, &qp->failure);
	}
	if (qp->public.base.srq != NULL)
		raise_event(events, &qp->last);
}

/* watch_failure has call called when the endpoint fails, or nothing if it is NULL. */
static snd_status watch_failure(snd_endpoint *endpoint, void (*call)(void *arg, snd_status fault), struct qp *qp)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "watch failure");
	endpoint->failed_arg = qp;
	endpoint->failed = call;
	return snd_leave_with(endpoint->object.fabric, SND_SUCCESS);
}

int new_endpoint(struct qp *qp, snd_endpoint **core)
{
	const struct ibv_qp *public = &qp->public.base;
	const snd_endpoint_config config = {
		.receive_cq = ((struct cq *)public->recv_cq)->core,
		.initiator_cq = ((struct cq *)public->send_cq)->core,
		.srq = public->srq == NULL ? NULL : ((struct srq *)public->srq)->core,
		.context = public->qp_num,
		.receive_depth = most(qp->cap.max_recv_wr, 1),
		.initiator_depth = qp->cap.max_send_wr,
		.max_receive_sge = most(qp->cap.max_recv_sge, 1),
		.max_initiator_sge = qp->cap.max_send_sge,
		.inline_size = qp->cap.max_inline_data,
	};
	const snd_status s = snd_endpoint_create(sizeof config, ((struct pd *)public->pd)->adapter, &config, core);
	if (s != SND_SUCCESS)
		return refuse_status(s);
	return watch_failure(*core, has_failed, qp) == SND_SUCCESS ? 0 : EINVAL;
}

snd_status serve_rest(snd_endpoint *endpoint)
{
	SND_UNCANCELED;
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "serve");
	for (int i = 0; i < MAX_TURNS && snd_progress(endpoint); i++)
		;
	return snd_leave_with(endpoint->object.fabric, SND_SUCCESS);
}

static bool has_results(snd_endpoint *endpoint)
{
	SND_GET(endpoint, SND_TYPE_ENDPOINT, "results", bool, snd_cq_has(endpoint->receive_cq, endpoint) || snd_cq_has(endpoint->initiator_cq, endpoint), false);
}

static void (*_Atomic destroys)(struct ibv_qp *qp);

void softnd_watch_destroyed(void (*call)(struct ibv_qp *qp)) { destroys = call; }

bool softnd_has_completions(struct ibv_qp *public)
{
	struct qp *qp = (struct qp *)public;
	if (pthread_mutex_trylock(&qp->changing) != 0)
		return true;
	(void)serve_rest(qp->core);
	const bool has = has_results(qp->core);
	(void)pthread_mutex_unlock(&qp->changing);
	return has;
}

/* end_silently lets the endpoint end without results: after RESET or destroy, a program gets none of the earlier life. */
static snd_status end_silently(snd_endpoint *endpoint)
{
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, "end silently");
	endpoint->ends_silently = true;
	return snd_leave_with(endpoint->object.fabric, SND_SUCCESS);
}

int end_endpoint(snd_endpoint *core)
{
	(void)serve_rest(core);
	(void)watch_failure(core, NULL, NULL); /* from here on, the end is what the program asks for */
	(void)snd_number_leave(core);
	(void)snd_endpoint_flush(core, END_TIMEOUT);
	(void)end_silently(core);
	return refuse_end(snd_endpoint_close(core));
}

/* check_type returns 0 for the types of queue pairs that are built. */
static int check_type(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC: return 0;
	case IBV_QPT_UC:
	case IBV_QPT_UD:
	case IBV_QPT_RAW_PACKET:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
	case IBV_QPT_DRIVER: return refuse(EOPNOTSUPP, "create queue pair: type %d: only IBV_QPT_RC is supported", (int)type);
	default: return refuse(EINVAL, "create queue pair: unknown type %d", (int)type);
	}
}

/* grant checks the capabilities that the program asks for, and stores those that it gets. */
static int grant(struct ibv_qp_cap *cap, bool has_srq)
{
	const struct { const char *name; uint32_t asked, limit; } limits[] = {
		{"max_send_wr", cap->max_send_wr, snd_large_limits.queue_depth},
		{"max_recv_wr", has_srq ? 0 : cap->max_recv_wr, snd_large_limits.queue_depth},
		{"max_send_sge", cap->max_send_sge, snd_large_limits.sge},
		{"max_recv_sge", has_srq ? 0 : cap->max_recv_sge, snd_large_limits.sge},
		{"max_inline_data", cap->max_inline_data, snd_large_limits.inline_size},
	};
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
		if (limits[i].asked > limits[i].limit)
			return refuse(EINVAL, "create queue pair: %s %u, at most %u", limits[i].name, limits[i].asked, limits[i].limit);
	cap->max_send_wr = most(cap->max_send_wr, 1);
	cap->max_send_sge = most(cap->max_send_sge, 1);
	if (has_srq)
		cap->max_recv_wr = cap->max_recv_sge = 0;
	return 0;
}

/* check_attr checks what ibv_create_qp_ex has beyond ibv_create_qp. */
static int check_attr(const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	const uint64_t operations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
		IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	const int error = check_type(attr->qp_type);
	if (error != 0)
		return error;
	if ((attr->comp_mask & ~known) != 0 || (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags != 0))
		return refuse(EOPNOTSUPP, "create queue pair: attributes %#x, flags %#x: only a domain and operations are supported", attr->comp_mask, attr->create_flags);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && (attr->send_ops_flags & ~operations) != 0)
		return refuse(EOPNOTSUPP, "create queue pair: operations %#llx, supported are %#llx", (unsigned long long)attr->send_ops_flags, (unsigned long long)operations);
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == NULL || attr->send_cq == NULL || attr->recv_cq == NULL)
		return refuse(EINVAL, "create queue pair: no protection domain, or no completion queue");
	if (attr->srq != NULL && attr->srq->pd != attr->pd)
		return refuse(EINVAL, "create queue pair: the shared receive queue is of another protection domain");
	return 0;
}

/* count_users counts the queue pair at the objects that it uses. */
static void count_users(const struct ibv_qp *public, unsigned change)
{
	atomic_fetch_add(&((struct pd *)public->pd)->users, change);
	atomic_fetch_add(&((struct cq *)public->send_cq)->users, change);
	if (public->recv_cq != public->send_cq)
		atomic_fetch_add(&((struct cq *)public->recv_cq)->users, change);
	if (public->srq != NULL)
		atomic_fetch_add(&((struct srq *)public->srq)->users, change);
}

static void free_qp(struct qp *qp)
{
	close_list(qp);
	(void)pthread_mutex_destroy(&qp->changing);
	(void)pthread_cond_destroy(&qp->public.base.cond);
	(void)pthread_mutex_destroy(&qp->public.base.mutex);
	free(qp);
}

/* start makes what the queue pair has in the fabric. It returns an errno. */
static int start(struct qp *qp)
{
	struct ibv_qp *public = &qp->public.base;
	snd_adapter *adapter = adapter_of((struct pd *)public->pd);
	if (adapter == NULL)
		return errno;
	if (qp->is_extended && !open_list(qp))
		return ENOMEM;
	const snd_status s = snd_number_claim(adapter, &public->qp_num);
	if (s != SND_SUCCESS)
		return refuse_status(s);
	public->handle = public->qp_num;
	const int error = new_endpoint(qp, &qp->core);
	if (error != 0)
		(void)snd_number_free(adapter, public->qp_num);
	return error;
}

struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_cap cap = attr->cap;
	if (check_attr(attr) != 0 || grant(&cap, attr->srq != NULL) != 0)
		return NULL;
	struct qp *qp = calloc(1, sizeof *qp);
	if (qp == NULL)
		return NULL;
	struct ibv_qp *public = &qp->public.base;
	public->context = context;
	public->qp_context = attr->qp_context;
	public->pd = attr->pd;
	public->send_cq = attr->send_cq;
	public->recv_cq = attr->recv_cq;
	public->srq = attr->srq;
	public->state = IBV_QPS_RESET;
	qp->failure = (struct event){.taken = &qp->taken, .async.element.qp = public};
	qp->last = (struct event){.taken = &qp->taken, .async = {.element.qp = public, .event_type = IBV_EVENT_QP_LAST_WQE_REACHED}};
	public->qp_type = attr->qp_type;
	(void)pthread_mutex_init(&public->mutex, NULL);
	(void)pthread_cond_init(&public->cond, NULL);
	(void)pthread_mutex_init(&qp->changing, NULL);
	qp->cap = cap;
	qp->signals_all = attr->sq_sig_all != 0;
	qp->is_extended = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
	const int error = start(qp);
	if (error != 0) {
		free_qp(qp);
		errno = error;
		return NULL;
	}
	count_users(public, 1);
	attr->cap = cap;
	return public;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex;
	memcpy(&ex, attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask)); /* both begin with the same fields */
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd;
	struct ibv_qp *public = create_qp_ex(pd->context, &ex);
	if (public != NULL)
		attr->cap = ex.cap;
	return public;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *public)
{
	struct qp *qp = (struct qp *)public;
	return qp->is_extended ? &qp->public.ex : NULL;
}

int ibv_destroy_qp(struct ibv_qp *public)
{
	struct qp *qp = (struct qp *)public;
	void (*call)(struct ibv_qp *) = destroys;
	if (call != NULL)
		call(public);
	const int error = end_endpoint(qp->core);
	if (error != 0)
		return error;
	(void)snd_number_free(((struct pd *)public->pd)->adapter, public->qp_num);
	drop_event(&context_of(public->context)->events, &qp->failure);
	drop_event(&context_of(public->context)->events, &qp->last);
	await_acknowledged(&public->mutex, &public->cond, &public->events_completed, &qp->taken);
	count_users(public, -1U);
	free_qp(qp);
	return 0;
}

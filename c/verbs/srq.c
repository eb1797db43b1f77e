/* Shared receive queues. */
#include "endpoint/srq.h"

#include <errno.h>
#include <stdlib.h>

#include "endpoint/provider.h"
#include "objects.h"

_Static_assert(sizeof(struct ibv_sge) == sizeof(snd_sge) && offsetof(struct ibv_sge, length) == offsetof(snd_sge, length) &&
	offsetof(struct ibv_sge, lkey) == offsetof(snd_sge, token), "lists are passed on unchanged");

/* notice is called with the fabric's lock held. */
static void notice(void *arg)
{
	struct srq *srq = arg;
	raise_event(&context_of(srq->public.context)->events, &srq->low);
}

static struct ibv_srq *new_srq(struct ibv_pd *public_pd, void *srq_context, struct ibv_srq_attr *attr)
{
	static atomic_uint created;
	const char *op = "create shared receive queue";
	struct pd *pd = (struct pd *)public_pd;
	if (attr->max_wr < 1 || attr->max_wr > snd_large_limits.queue_depth || attr->max_sge > snd_large_limits.sge) {
		(void)refuse(EINVAL, "%s: %u receives, allowed 1 to %u; %u entries of a receive, at most %u", op, attr->max_wr, (unsigned)snd_large_limits.queue_depth, attr->max_sge,
			(unsigned)snd_large_limits.sge);
		return NULL;
	}
	snd_adapter *adapter = adapter_of(pd);
	struct srq *srq = adapter == NULL ? NULL : calloc(1, sizeof *srq);
	if (srq == NULL)
		return NULL;
	const snd_srq_config config = {.depth = attr->max_wr, .max_sge = attr->max_sge};
	const snd_status s = snd_srq_create(sizeof config, adapter, &config, &srq->core);
	if (s != SND_SUCCESS) {
		free(srq);
		(void)refuse_status(s);
		return NULL;
	}
	srq->attr = (struct ibv_srq_attr){.max_wr = attr->max_wr, .max_sge = attr->max_sge};
	struct ibv_srq *public = &srq->public;
	public->context = public_pd->context;
	public->srq_context = srq_context;
	public->pd = public_pd;
	public->handle = atomic_fetch_add(&created, 1);
	(void)pthread_mutex_init(&public->mutex, NULL);
	(void)pthread_cond_init(&public->cond, NULL);
	srq->low = (struct event){.taken = &srq->taken, .async = {.element.srq = public, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED}};
	atomic_fetch_add(&pd->users, 1);
	return public;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) { return new_srq(pd, attr->srq_context, &attr->attr); }

struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	const char *op = "create shared receive queue";
	(void)context;
	if ((attr->comp_mask & ~known) != 0 || (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC)) {
		(void)refuse(EOPNOTSUPP, "%s: attributes %#x, type %d: only IBV_SRQT_BASIC is supported", op, attr->comp_mask, (int)attr->srq_type);
		return NULL;
	}
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) {
		(void)refuse(EINVAL, "%s: no protection domain", op);
		return NULL;
	}
	return new_srq(attr->pd, attr->srq_context, &attr->attr);
}

int ibv_modify_srq(struct ibv_srq *public, struct ibv_srq_attr *attr, int mask)
{
	struct srq *srq = (struct srq *)public;
	const char *op = "modify shared receive queue";
	if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0)
		return refuse(EINVAL, "%s: attributes %#x, known are IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT", op, (unsigned)mask);
	const uint32_t depth = mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq->attr.max_wr;
	if (depth < 1 || (mask & IBV_SRQ_LIMIT && attr->srq_limit > depth))
		return refuse(EINVAL, "%s: limit %u, and %u receives: the limit is at most their number", op, attr->srq_limit, depth);
	snd_status s = mask & IBV_SRQ_MAX_WR ? snd_srq_modify(srq->core, depth, 0) : SND_SUCCESS;
	if (s == SND_SUCCESS)
		srq->attr.max_wr = depth;
	if (s == SND_SUCCESS && mask & IBV_SRQ_LIMIT)
		s = snd_srq_arm(srq->core, attr->srq_limit, notice, srq);
	return s == SND_SUCCESS ? 0 : refuse_status(s);
}

int ibv_query_srq(struct ibv_srq *public, struct ibv_srq_attr *attr)
{
	struct srq *srq = (struct srq *)public;
	*attr = srq->attr;
	attr->srq_limit = snd_srq_threshold(srq->core);
	return 0;
}

int post_srq_recv(struct ibv_srq *public, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct srq *srq = (struct srq *)public;
	for (; wr != NULL; wr = wr->next) {
		const snd_status s = wr->num_sge < 0 ? SND_INVALID_PARAMETER : snd_srq_receive(srq->core, wr->wr_id, (const snd_sge *)(const void *)wr->sg_list, (uint32_t)wr->num_sge);
		if (s != SND_SUCCESS) {
			*bad = wr;
			return refuse_status(s);
		}
	}
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *public)
{
	struct srq *srq = (struct srq *)public;
	const unsigned users = atomic_load(&srq->users);
	if (users != 0)
		return refuse(EBUSY, "destroy shared receive queue: %u queue pairs use it: destroy them first", users);
	const int error = refuse_end(snd_srq_close(srq->core));
	if (error != 0)
		return error;
	drop_event(&context_of(public->context)->events, &srq->low);
	await_acknowledged(&public->mutex, &public->cond, &public->events_completed, &srq->taken);
	atomic_fetch_sub(&((struct pd *)public->pd)->users, 1);
	(void)pthread_cond_destroy(&public->cond);
	(void)pthread_mutex_destroy(&public->mutex);
	free(srq);
	return 0;
}

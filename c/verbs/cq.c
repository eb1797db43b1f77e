/* Completion queues. */
#include "endpoint/cq.h"

#include <errno.h>
#include <stdlib.h>

#include "endpoint/provider.h"
#include "objects.h"

enum { WC_TURN = 16 }; /* results that one call of the core takes */

static struct event_queue *channel_events(const struct cq *cq) { return &((struct channel *)cq->public.channel)->events; }

/* notice is called with the fabric's lock held. */
static void notice(void *arg, bool overrun)
{
	struct cq *cq = arg;
	if (overrun)
		raise_event(&context_of(cq->public.context)->events, &cq->overrun);
	else
		raise_event(channel_events(cq), &cq->completion);
}

static void count_queue(struct ibv_comp_channel *public, int change)
{
	struct channel *channel = (struct channel *)public;
	if (channel == NULL)
		return;
	(void)pthread_mutex_lock(&channel->events.lock);
	public->refcnt += change;
	(void)pthread_mutex_unlock(&channel->events.lock);
}

static int check_depth(const char *op, int64_t depth)
{
	return depth >= 1 && depth <= MAX_CQE ? 0 : refuse(EINVAL, "%s: %lld results, allowed 1 to %d", op, (long long)depth, MAX_CQE);
}

struct cq *new_cq(struct ibv_context *context, int64_t depth, void *cq_context, struct ibv_comp_channel *channel, int64_t vector)
{
	static atomic_uint created;
	const char *op = "create completion queue";
	if (check_depth(op, depth) != 0)
		return NULL;
	if (vector < 0 || vector >= context->num_comp_vectors) {
		(void)refuse(EINVAL, "%s: completion vector %lld, allowed 0 to %d", op, (long long)vector, context->num_comp_vectors - 1);
		return NULL;
	}
	snd_adapter *adapter = queues_of(context_of(context));
	struct cq *cq = adapter == NULL ? NULL : calloc(1, sizeof *cq);
	if (cq == NULL)
		return NULL;
	snd_status s = snd_cq_create(adapter, (uint32_t)depth, &cq->core);
	if (s != SND_SUCCESS) {
		free(cq);
		(void)refuse_status(s);
		return NULL;
	}
	struct ibv_cq *public = ibv_cq_ex_to_cq(&cq->public);
	public->context = context;
	public->channel = channel;
	public->cq_context = cq_context;
	public->handle = atomic_fetch_add(&created, 1);
	public->cqe = (int)depth;
	(void)pthread_mutex_init(&public->mutex, NULL);
	(void)pthread_cond_init(&public->cond, NULL);
	(void)pthread_mutex_init(&cq->polling, NULL);
	cq->completion = (struct event){.taken = &cq->completions_taken, .async.element.cq = public};
	cq->overrun = (struct event){.taken = &cq->overruns_taken, .async = {.element.cq = public, .event_type = IBV_EVENT_CQ_ERR}};
	count_queue(channel, 1);
	context_of(context)->queue_count++;
	(void)snd_cq_set_hook(cq->core, notice, cq);
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int comp_vector)
{
	struct cq *cq = new_cq(context, cqe, cq_context, channel, comp_vector);
	return cq == NULL ? NULL : ibv_cq_ex_to_cq(&cq->public);
}

int poll_cq(struct ibv_cq *public, int count, struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)public;
	snd_result results[WC_TURN];
	int taken = 0;
	while (taken < count) {
		const int turn = count - taken < WC_TURN ? count - taken : WC_TURN;
		const int32_t n = snd_cq_poll(cq->core, results, (uint32_t)turn);
		if (n < 0)
			return taken > 0 ? taken : -refuse_status((snd_status)n);
		for (int32_t i = 0; i < n; i++) {
			fill_wc(wc + taken + i, &results[i]);
			if (snd_unlikely(results[i].status != SND_SUCCESS))
				explain(cq->core, &results[i]);
		}
		taken += n;
		if (n < turn)
			break;
	}
	return taken;
}

int req_notify_cq(struct ibv_cq *public, int solicited)
{
	struct cq *cq = (struct cq *)public;
	if (public->channel == NULL)
		return 0; /* as on a card: there is none that an event could reach */
	const snd_status s = snd_cq_arm(cq->core, solicited != 0 ? SND_NOTIFY_SOLICITED : SND_NOTIFY_ANY);
	return s == SND_SUCCESS ? 0 : refuse_status(s);
}

int modify_cq(struct ibv_cq *public, struct ibv_modify_cq_attr *attr)
{
	struct cq *cq = (struct cq *)public;
	if (attr->attr_mask != IBV_CQ_ATTR_MODERATE)
		return refuse(attr->attr_mask < IBV_CQ_ATTR_RESERVED ? EINVAL : EOPNOTSUPP, "modify completion queue: attributes %#x, and only moderation can be changed", attr->attr_mask);
	const snd_status s = snd_cq_moderate(cq->core, (int64_t)attr->moderate.cq_period * 1000, attr->moderate.cq_count);
	return s == SND_SUCCESS ? 0 : refuse_status(s);
}

int ibv_resize_cq(struct ibv_cq *public, int cqe)
{
	struct cq *cq = (struct cq *)public;
	const int error = check_depth("resize completion queue", cqe);
	if (error != 0)
		return error;
	const snd_status s = snd_cq_resize(cq->core, (uint32_t)cqe);
	if (s != SND_SUCCESS)
		return refuse_status(s);
	public->cqe = cqe;
	return 0;
}

int ibv_destroy_cq(struct ibv_cq *public)
{
	struct cq *cq = (struct cq *)public;
	const unsigned users = atomic_load(&cq->users);
	if (users != 0)
		return refuse(EBUSY, "destroy completion queue: %u queue pairs use it: destroy them first", users);
	const int error = refuse_end(snd_cq_close(cq->core));
	if (error != 0)
		return error;
	if (public->channel != NULL)
		drop_event(channel_events(cq), &cq->completion);
	drop_event(&context_of(public->context)->events, &cq->overrun);
	await_acknowledged(&public->mutex, &public->cond, &public->comp_events_completed, &cq->completions_taken);
	await_acknowledged(&public->mutex, &public->cond, &public->async_events_completed, &cq->overruns_taken);
	count_queue(public->channel, -1);
	(void)pthread_mutex_destroy(&cq->polling);
	(void)pthread_cond_destroy(&public->cond);
	(void)pthread_mutex_destroy(&public->mutex);
	context_of(public->context)->queue_count--;
	free(cq);
	return 0;
}

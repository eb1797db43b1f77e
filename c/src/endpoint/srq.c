/* Shared receive queues: receives for several endpoints of one adapter. They are local to the process. Peers know only that
 * their messages travel by ring and wait there for a receive. TWIN endpoint/srq.go. */
#include "endpoint/srq.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/hook.h"
#include "endpoint/mr_mapping.h"
#include "endpoint/progress_wait.h"
#include "endpoint/qp_post.h"
#include "endpoint/qp_receive.h"
#include "linux/memory_limit.h"
#include "shm/doorbell.h"
#include "shm/work.h"
#include "structure.h"

static uint64_t outstanding(const struct snd_srq *q) { return q->tail - q->head; }
static bool is_low(const struct snd_srq *q) { return outstanding(q) < q->threshold; }

static struct snd_receive *at(const struct snd_srq *q, uint64_t number) { return &q->receives[number & q->mask]; }

static uint64_t queue_bytes(uint32_t depth, uint32_t sge) { return depth * (sizeof(struct snd_receive) + sge * sizeof(struct snd_entry)); }

static void copy_receive(struct snd_receive *to, const struct snd_receive *from)
{
	struct snd_entry *list = to->list;
	memcpy(list, from->list, from->count * sizeof *list);
	*to = *from;
	to->list = list;
}

/* make_room makes room for depth receives, and keeps those that are posted. */
static bool make_room(struct snd_srq *q, uint32_t depth)
{
	uint64_t size = 1;
	while (size < depth)
		size *= 2;
	if (q->receives != NULL && size <= q->mask + 1) {
		q->depth = depth;
		return true;
	}
	struct snd_receive *receives = calloc((size_t)size, sizeof *receives);
	struct snd_entry *entries = calloc((size_t)size * q->max_sge, sizeof *entries);
	if (receives == NULL || entries == NULL) {
		free(receives);
		free(entries);
		return false;
	}
	for (uint64_t i = 0; i < size; i++) {
		struct snd_receive *to = &receives[(q->head + i) & (size - 1)];
		to->list = entries + i * q->max_sge;
		if (i < outstanding(q))
			copy_receive(to, at(q, q->head + i));
	}
	free(q->receives);
	free(q->entries);
	q->receives = receives;
	q->entries = entries;
	q->mask = size - 1;
	q->depth = depth;
	return true;
}

void snd_srq_release(struct snd_srq *q)
{
	if (!q->closed || q->references > 0)
		return;
	snd_list_remove(&q->link);
	free(q->receives);
	free(q->entries);
	q->adapter->objects--;
	snd_object_free(&q->object);
}

snd_status snd_srq_create(size_t config_size, snd_adapter *adapter, const snd_srq_config *config, snd_srq **srq)
{
	SND_KEEP_ERRNO;
	const char *op = "create shared receive queue";
	SND_CHECK(adapter, SND_TYPE_ADAPTER, op);
	if (config == NULL || srq == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s is NULL", op, config == NULL ? "config" : "srq");
	*srq = NULL;
	SND_KNOWN(snd_srq_config, config, config_size, op);
	const struct snd_srq_config c = *config;
	SND_ENTER(adapter, SND_TYPE_ADAPTER, op);
	struct snd_fabric *f = adapter->object.fabric;
	const struct snd_limits *most = f->limits;
	const uint32_t depth = c.depth == 0 ? SND_DEFAULT_QUEUE_DEPTH : c.depth, sge = c.max_sge < most->least_sge ? most->least_sge : c.max_sge;
	if (depth > most->queue_depth || sge > most->sge || c.threshold > depth)
		return snd_leave_with(f, snd_fail(SND_INVALID_PARAMETER, "%s: depth %" PRIu32 ", at most %" PRIu32 "; max_sge %" PRIu32 ", at most %" PRIu32 "; threshold %" PRIu32 ", at most the depth", op,
			depth, most->queue_depth, c.max_sge, most->sge, c.threshold));
	snd_status s = snd_check_reserved(&c, op);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	struct snd_srq *q = snd_new(f, SND_TYPE_SRQ, sizeof *q);
	if (q != NULL) {
		q->max_sge = sge;
		q->threshold = c.threshold;
	}
	if (q == NULL || !make_room(q, depth)) {
		s = snd_no_memory(sizeof *q + queue_bytes(depth, sge), "private memory", op);
		if (q != NULL)
			snd_object_free(&q->object);
	} else {
		q->adapter = adapter;
		adapter->objects++;
		snd_list_init(&q->waiting);
		snd_list_append(&f->shared_queues, &q->link);
		*srq = q;
	}
	return snd_leave_with(f, s);
}

static snd_status post(struct snd_srq *q, uint64_t context, const snd_sge *sge, uint32_t count)
{
	const char *op = "receive";
	if (outstanding(q) >= q->depth)
		return snd_fail(SND_NO_MORE_ENTRIES, "%s: all %" PRIu32 " receives of the shared queue are outstanding: poll for results, then retry", op, q->depth);
	struct snd_receive *r = at(q, q->tail);
	snd_status s = snd_set_receive(r, context, sge, count, q->max_sge, op);
	if (s != SND_SUCCESS)
		return s;
	const struct snd_call_hook *hook = q->object.fabric->call_hook;
	if (snd_unlikely(hook != NULL) && (s = hook->post_shared_receive(q->object.fabric, r->capacity)) != SND_SUCCESS)
		return s;
	for (uint32_t i = 0; i < r->count; i++)
		snd_resolve(q->adapter, r->list[i].address, r->list[i].length, &r->list[i].token);
	r->single = r->list[0]; /* if it is the only one */
	q->tail++;
	if (!snd_list_is_empty(&q->waiting))
		snd_wake_progress(q->object.fabric);
	return SND_SUCCESS;
}

snd_status snd_srq_receive(snd_srq *srq, uint64_t context, const snd_sge *sge, uint32_t count)
{
	SND_ENTER(srq, SND_TYPE_SRQ, "receive");
	return snd_leave_with(srq->object.fabric, post(srq, context, sge, count));
}

snd_status snd_srq_post(snd_srq *srq, const snd_request *requests, uint32_t count, uint32_t *posted)
{
	const char *op = "post";
	SND_CHECK(srq, SND_TYPE_SRQ, op);
	if (posted != NULL)
		*posted = 0;
	if (count > 0 && requests == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: requests is NULL", op);
	SND_ENTER(srq, SND_TYPE_SRQ, op);
	snd_status s = SND_SUCCESS;
	for (uint32_t i = 0; i < count && s == SND_SUCCESS; i++) {
		const snd_request *r = &requests[i];
		if (r->type != SND_REQUEST_RECEIVE || r->flags != 0)
			s = snd_fail(SND_INVALID_PARAMETER, "it is no receive, or has flags: pass SND_REQUEST_RECEIVE");
		else
			s = post(srq, r->context, r->sge, r->count);
		if (s != SND_SUCCESS)
			s = snd_refuse_list(s, i, count);
		else if (posted != NULL)
			*posted = i + 1;
	}
	return snd_leave_with(srq->object.fabric, s);
}

/* count_low counts an event if the number of receives has just fallen below the threshold. */
static void count_low(struct snd_srq *q, bool was_low)
{
	if (was_low || !is_low(q))
		return;
	q->events++;
	snd_wake(q->object.fabric);
	if (q->hook != NULL) {
		q->threshold = 0;
		q->hook(q->hook_arg);
	}
}

bool snd_assign_receive(struct snd_endpoint *ep)
{
	struct snd_srq *q = ep->srq;
	const bool waits = !snd_list_is_empty(&ep->srq_link);
	uint64_t ahead = 0; /* of this endpoint: the one that has waited longest is served first */
	for (struct snd_link *l = q->waiting.next; l != &q->waiting && l != &ep->srq_link; l = l->next)
		ahead++;
	if (ahead >= outstanding(q)) {
		if (!waits) {
			snd_list_append(&q->waiting, &ep->srq_link);
			ep->counters.shared_stalls++;
		}
		return false;
	}
	snd_list_remove(&ep->srq_link);
	bool was_low = is_low(q);
	copy_receive(&ep->receives[0], at(q, q->head++));
	ep->rposted++;
	count_low(q, was_low);
	return true;
}

void snd_remove_waiter(struct snd_endpoint *ep)
{
	struct snd_srq *q = ep->srq;
	if (q == NULL || snd_list_is_empty(&ep->srq_link))
		return;
	snd_list_remove(&ep->srq_link);
	if (!snd_list_is_empty(&q->waiting) && outstanding(q) > 0)
		snd_wake_progress(q->object.fabric); /* the next one gets its receive */
}

struct low_wait {
	struct snd_srq *q;
	uint64_t events;
	uint32_t cancels; /* when it began */
};

static bool has_fallen(void *arg)
{
	struct low_wait *w = arg;
	return snd_is_closed(&w->q->object) || w->q->events != w->events || w->q->cancels != w->cancels || is_low(w->q);
}

snd_status snd_srq_notify(snd_srq *srq, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "notify";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(srq, SND_TYPE_SRQ, op);
	struct snd_fabric *f = srq->object.fabric;
	struct low_wait w = {srq, srq->events, srq->cancels};
	snd_hold(&srq->object);
	snd_status s = snd_wait(f, timeout, has_fallen, NULL, &w, &(struct snd_call){.op = op, .object = "shared receive queue"});
	if (snd_is_closed(&srq->object))
		s = snd_fail(SND_CANCELED, "%s: the queue was closed", op);
	else if (s == SND_SUCCESS && srq->events == w.events && !is_low(srq))
		s = snd_fail(SND_CANCELED, "%s: the call was cancelled", op);
	else if (s != SND_SUCCESS)
		s = s == SND_CANCELED ? snd_fail(s, "%s: the fabric was closed", op)
			: snd_fail(s, "%s: not fewer receives than the threshold within %s", op, snd_duration(timeout).text);
	snd_let_go(&srq->object);
	return snd_leave_with(f, s);
}

snd_status snd_srq_modify(snd_srq *srq, uint32_t depth, uint32_t threshold)
{
	SND_KEEP_ERRNO;
	const char *op = "modify";
	SND_ENTER(srq, SND_TYPE_SRQ, op);
	struct snd_fabric *f = srq->object.fabric;
	snd_status s = SND_SUCCESS;
	depth = depth == 0 ? srq->depth : depth;
	threshold = threshold == 0 ? srq->threshold : threshold;
	bool was_low = is_low(srq);
	if (depth > f->limits->queue_depth)
		s = snd_fail(SND_INVALID_PARAMETER, "%s: depth %" PRIu32 ", at most %" PRIu32, op, depth, f->limits->queue_depth);
	else if (depth < outstanding(srq))
		s = snd_fail(SND_BUFFER_OVERFLOW, "%s: depth %" PRIu32 ", and %" PRIu64 " receives are outstanding", op, depth, outstanding(srq));
	else if (threshold > depth)
		s = snd_fail(SND_INVALID_PARAMETER, "%s: threshold %" PRIu32 ", at most the depth of %" PRIu32, op, threshold, depth);
	else if (!make_room(srq, depth))
		s = snd_no_memory(queue_bytes(depth, srq->max_sge), "private memory", op);
	if (s == SND_SUCCESS) {
		srq->threshold = threshold;
		count_low(srq, was_low);
	}
	return snd_leave_with(f, s);
}

snd_status snd_srq_arm(snd_srq *srq, uint32_t threshold, void (*hook)(void *arg), void *arg)
{
	const char *op = "arm";
	SND_ENTER(srq, SND_TYPE_SRQ, op);
	if (threshold > srq->depth)
		return snd_leave_with(srq->object.fabric, snd_fail(SND_INVALID_PARAMETER, "%s: threshold %" PRIu32 ", at most the depth of %" PRIu32, op, threshold, srq->depth));
	srq->hook = hook;
	srq->hook_arg = arg;
	srq->threshold = threshold;
	count_low(srq, false);
	return snd_leave_with(srq->object.fabric, SND_SUCCESS);
}

uint32_t snd_srq_threshold(snd_srq *srq) { SND_GET(srq, SND_TYPE_SRQ, "threshold", uint32_t, srq->threshold, 0); }

snd_status snd_srq_cancel(snd_srq *srq)
{
	SND_KEEP_ERRNO;
	SND_ENTER(srq, SND_TYPE_SRQ, "cancel");
	srq->cancels++;
	snd_wake(srq->object.fabric);
	return snd_leave_with(srq->object.fabric, SND_SUCCESS);
}

snd_status snd_srq_close(snd_srq *srq)
{
	SND_KEEP_ERRNO;
	SND_ENTER(srq, SND_TYPE_SRQ, "close shared receive queue");
	struct snd_fabric *f = srq->object.fabric;
	srq->closed = true;
	snd_object_hide(&srq->object);
	snd_wake(f);
	snd_srq_release(srq);
	return snd_leave_with(f, SND_SUCCESS);
}

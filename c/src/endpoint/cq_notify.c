/* Events of a completion queue: calls of notify, and the event descriptor.
 * TWIN endpoint/cq_notify.go, endpoint/internal/cq/events.go. */
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "endpoint/hook.h"
#include "endpoint/progress.h"
#include "endpoint/progress_wait.h"
#include "linux/clock.h"
#include "shm/work.h"

/* A call of notify. An event ends all calls that wait, of whatever type: a queue waits for the widest of their types. */
struct notification {
	struct snd_link link;
	uint32_t type;
	bool released;
};

static void update_watched(struct snd_cq *q)
{
	const bool watched = q->fd >= 0 || !snd_list_is_empty(&q->notifications) || q->armed || q->moderated;
	q->slow = watched ? q->slow | SND_CQ_WATCHED : q->slow & (uint8_t)~SND_CQ_WATCHED;
}

/* latest returns the latest result that can end a notify of a type. */
static uint64_t latest(const struct snd_cq *q, uint32_t type)
{
	if (type == SND_NOTIFY_ERRORS)
		return q->last_error; /* never delayed */
	if (q->moderated)
		return type == SND_NOTIFY_ANY ? q->announced : q->announced_solicited;
	return type == SND_NOTIFY_ANY ? q->base + q->tail : q->last_solicited;
}

/* release_notifications ends all calls if there is a new result of their widest type that has not been taken. */
static void release_notifications(struct snd_cq *q)
{
	uint32_t widest = SND_NOTIFY_ERRORS;
	if (snd_list_is_empty(&q->notifications))
		return;
	for (struct snd_link *l = q->notifications.next; l != &q->notifications; l = l->next) {
		uint32_t type = SND_OF(l, struct notification, link)->type;
		if (type == SND_NOTIFY_ANY || (type == SND_NOTIFY_SOLICITED && widest == SND_NOTIFY_ERRORS))
			widest = type;
	}
	uint64_t at = latest(q, widest);
	if (at <= q->last_released || at <= q->base + q->head)
		return;
	q->last_released = at;
	while (!snd_list_is_empty(&q->notifications)) {
		struct notification *n = SND_OF(q->notifications.next, struct notification, link);
		n->released = true;
		snd_list_remove(&n->link);
	}
	update_watched(q);
	snd_wake(q->object.fabric);
}

void snd_cq_signal(struct snd_cq *q)
{
	const uint64_t one = 1;
	if (q->fd < 0 || (q->signaled && !q->overrun))
		return;
	SND_KEEP_ERRNO;
	q->signaled = true;
	if (write(q->fd, &one, sizeof one) < 0) { /* only at the maximal count, when it is readable */
	}
}

static void call_hook(struct snd_cq *q)
{
	if (!q->armed || latest(q, q->armed_type) <= q->armed_after)
		return;
	q->armed = false;
	update_watched(q);
	q->hook(q->hook_arg, false);
}

/* raise_event raises an event for all results so far. */
static void raise_event(struct snd_cq *q)
{
	q->announced = q->base + q->tail;
	q->announced_solicited = q->last_solicited;
	release_notifications(q);
	call_hook(q);
	snd_cq_signal(q);
}

/* unannounced returns the number of queued results for which there was no event. */
static uint64_t unannounced(const struct snd_cq *q)
{
	uint64_t taken = q->base + q->head;
	return q->base + q->tail - (q->announced > taken ? q->announced : taken);
}

/* run_timer raises the delayed event when its time has come. If the oldest result was taken meanwhile, the event of the
 * others is slightly early. */
static bool run_timer(struct snd_work *work)
{
	struct snd_cq *q = SND_OF(work, struct snd_cq, timer);
	if (q->moderated && q->event_interval >= 0 && unannounced(q) > 0) {
		if (snd_clock() < q->due)
			return false;
		raise_event(q);
	}
	q->has_timer = false;
	return true;
}

/* delay_event reports whether the event of the latest result is delayed. */
static bool delay_event(struct snd_cq *q)
{
	const uint64_t n = unannounced(q);
	if (q->event_count >= 0 && n >= (uint64_t)q->event_count)
		return false;
	if (n == 1 && q->event_interval > 0)
		q->due = snd_deadline(q->event_interval);
	if (q->event_interval > 0 && !q->has_timer) {
		q->has_timer = true;
		q->timer.run = run_timer;
		snd_defer(q->object.fabric, &q->timer);
	}
	return true;
}

void snd_cq_event(struct snd_cq *q, bool failed, bool solicited)
{
	if (failed)
		q->last_error = q->base + q->tail;
	if (failed || solicited)
		q->last_solicited = q->base + q->tail;
	if (q->moderated && !failed && delay_event(q)) /* a failure is not delayed: no more results may follow it */
		return;
	raise_event(q);
}

struct notify_wait {
	struct snd_cq *q;
	struct notification n;
	uint32_t cancels; /* when it began */
};

static bool is_notified(void *arg)
{
	struct notify_wait *w = arg;
	return w->n.released || snd_is_closed(&w->q->object) || w->q->overrun || w->q->cancels != w->cancels;
}

static void drive(void *arg)
{
	struct snd_cq *q = ((struct notify_wait *)arg)->q;
	if (snd_is_closed(&q->object))
		return;
	for (uint32_t i = 0; i < q->users; i++)
		snd_progress(q->endpoints[i]);
}

snd_status snd_cq_notify(snd_cq *cq, uint32_t type, int64_t timeout)
{
	SND_KEEP_ERRNO;
	static const char *const kinds[] = {"SND_NOTIFY_ERRORS", "SND_NOTIFY_ANY", "SND_NOTIFY_SOLICITED"};
	const char *op = "notify";
	SND_CHECK(cq, SND_TYPE_CQ, op);
	if (type > SND_NOTIFY_SOLICITED)
		return snd_fail(SND_INVALID_PARAMETER, "%s: unknown type %u: pass SND_NOTIFY_ERRORS, SND_NOTIFY_ANY or SND_NOTIFY_SOLICITED", op, (unsigned)type);
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(cq, SND_TYPE_CQ, op);
	struct snd_fabric *f = cq->object.fabric;
	snd_status s = snd_before_call(&cq->object, op, 0, 0, &timeout);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	if (cq->overrun)
		return snd_leave_with(f, snd_cq_wait_status(cq, SND_SUCCESS, op, "", 0));
	struct notify_wait w = {cq, {{NULL, NULL}, type, false}, cq->cancels};
	snd_list_append(&cq->notifications, &w.n.link);
	update_watched(cq);
	release_notifications(cq);
	snd_hold(&cq->object);
	s = snd_wait(f, timeout, is_notified, drive, &w, &(struct snd_call){.op = op, .object = kinds[type], .queue = cq->number});
	snd_list_remove(&w.n.link);
	update_watched(cq);
	if (w.n.released && f->call_hook != NULL)
		f->call_hook->before_return(f, drive, &w);
	s = w.n.released ? SND_SUCCESS : snd_cq_wait_status(cq, s, op, "no result of this type", timeout);
	snd_let_go(&cq->object);
	return snd_leave_with(f, s);
}

/* use_events makes the engine drive the endpoints from now on although the program polls. */
static void use_events(struct snd_cq *q)
{
	struct snd_fabric *f = q->object.fabric;
	if (!q->has_events)
		snd_set32(&f->event_fds, snd_relaxed32(&f->event_fds) + 1);
	q->has_events = true;
	snd_wake_progress(f);
}

snd_status snd_cq_event_fd(snd_cq *cq, int *descriptor)
{
	SND_KEEP_ERRNO;
	const char *op = "event descriptor";
	SND_ENTER_TO(cq, SND_TYPE_CQ, descriptor, op);
	*descriptor = -1;
	struct snd_fabric *f = cq->object.fabric;
	snd_status s = SND_SUCCESS;
	if (!f->has_engine) {
		s = snd_fail(SND_NOT_SUPPORTED, "%s: with manual progress no thread would write it: open the fabric with SND_PROGRESS_AUTO", op);
	} else if (cq->fd >= 0) {
	} else if ((cq->fd = snd_above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) < 0) {
		s = snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: %s; or call snd_cq_wait", op, snd_errno_text(errno));
	} else {
		update_watched(cq);
		if (cq->overrun || latest(cq, SND_NOTIFY_ANY) > cq->base + cq->head)
			snd_cq_signal(cq);
		use_events(cq);
	}
	*descriptor = cq->fd;
	return snd_leave_with(f, s);
}

snd_status snd_cq_set_hook(snd_cq *cq, void (*hook)(void *arg, bool overrun), void *arg)
{
	SND_ENTER(cq, SND_TYPE_CQ, "set hook");
	cq->shared = true;
	cq->hook = hook;
	cq->hook_arg = arg;
	return snd_leave_with(cq->object.fabric, SND_SUCCESS);
}

snd_status snd_cq_arm(snd_cq *cq, uint32_t type)
{
	SND_KEEP_ERRNO;
	SND_ENTER(cq, SND_TYPE_CQ, "arm");
	if (!cq->armed || type == SND_NOTIFY_ANY)
		cq->armed_type = type;
	cq->armed = true;
	cq->armed_after = cq->base + cq->tail;
	update_watched(cq);
	if (!cq->has_events)
		use_events(cq);
	return snd_leave_with(cq->object.fabric, SND_SUCCESS);
}

snd_status snd_cq_moderate(snd_cq *cq, int64_t interval, int32_t count)
{
	const char *op = "moderate events";
	SND_CHECK(cq, SND_TYPE_CQ, op);
	if (interval < 0 && count < 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: neither an interval nor a count: pass at least one of them", op);
	SND_ENTER(cq, SND_TYPE_CQ, op);
	if (cq->moderated && unannounced(cq) > 0)
		raise_event(cq);
	cq->announced = cq->base + cq->tail; /* the new settings begin with the next result */
	cq->announced_solicited = cq->last_solicited;
	cq->event_interval = interval;
	cq->event_count = count;
	cq->moderated = interval != 0 && (count < 0 || count > 1);
	update_watched(cq);
	return snd_leave_with(cq->object.fabric, SND_SUCCESS);
}

/* Events, and the descriptors on which programs wait for them: completion channels, and that of asynchronous events. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "error.h"
#include "linux/descriptor.h"
#include "linux/handlers.h"
#include "objects.h"

bool open_events(struct event_queue *q)
{
	SND_UNCANCELED;
	q->first = NULL;
	q->fd = snd_above_standard(eventfd(0, EFD_CLOEXEC));
	return q->fd >= 0 && pthread_mutex_init(&q->lock, NULL) == 0;
}

void close_events(struct event_queue *q)
{
	SND_UNCANCELED;
	(void)close(q->fd);
	(void)pthread_mutex_destroy(&q->lock);
}

static bool is_readable(int fd) { return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0; }

/* take_out takes an event out of a queue whose lock is held. The descriptor of an empty queue is not readable. */
static void take_out(struct event_queue *q, struct event **at)
{
	SND_UNCANCELED;
	struct event *e = *at;
	uint64_t count;
	*at = e->next;
	e->queued = false;
	if (q->first == NULL && is_readable(q->fd))
		(void)!read(q->fd, &count, sizeof count);
}

void raise_event(struct event_queue *q, struct event *e)
{
	SND_UNCANCELED;
	const uint64_t one = 1;
	(void)pthread_mutex_lock(&q->lock);
	if (!e->queued) {
		struct event **at = &q->first;
		while (*at != NULL)
			at = &(*at)->next;
		*at = e;
		e->next = NULL;
		e->queued = true;
		(void)!write(q->fd, &one, sizeof one);
	}
	(void)pthread_mutex_unlock(&q->lock);
}

void drop_event(struct event_queue *q, struct event *e)
{
	(void)pthread_mutex_lock(&q->lock);
	for (struct event **at = &q->first; e->queued; at = &(*at)->next) {
		if (*at == e) {
			take_out(q, at);
			break;
		}
	}
	(void)pthread_mutex_unlock(&q->lock);
}

void await_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acknowledged, const uint32_t *taken)
{
	SND_UNCANCELED;
	(void)pthread_mutex_lock(mutex);
	while (*acknowledged != *taken)
		(void)pthread_cond_wait(cond, mutex);
	(void)pthread_mutex_unlock(mutex);
}

/* take_event takes the oldest event. Without one it waits, or fails with EAGAIN if the program has set O_NONBLOCK, or with EINTR after a handler
 * without SA_RESTART, unless it is that of a fault. */
static int take_event(struct event_queue *q, struct ibv_async_event *async)
{
	for (;;) {
		(void)pthread_mutex_lock(&q->lock);
		struct event *e = q->first;
		if (e != NULL) {
			take_out(q, &q->first);
			++*e->taken;
			*async = e->async;
		}
		(void)pthread_mutex_unlock(&q->lock);
		if (e != NULL)
			return 0;
		const int flags = fcntl(q->fd, F_GETFL);
		if (flags >= 0 && (flags & O_NONBLOCK) != 0)
			errno = EAGAIN;
		if (flags < 0 || (flags & O_NONBLOCK) != 0)
			return -1;
		if (poll(&(struct pollfd){.fd = q->fd, .events = POLLIN}, 1, -1) < 0 && (errno != EINTR || !snd_handlers_restart()))
			return -1;
	}
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *acknowledged, unsigned int count)
{
	(void)pthread_mutex_lock(mutex);
	*acknowledged += count;
	(void)pthread_cond_broadcast(cond);
	(void)pthread_mutex_unlock(mutex);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *channel = calloc(1, sizeof *channel);
	if (channel == NULL || !open_events(&channel->events)) {
		free(channel);
		return NULL;
	}
	channel->public.context = context;
	channel->public.fd = channel->events.fd;
	return &channel->public;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *public)
{
	struct channel *channel = (struct channel *)public;
	(void)pthread_mutex_lock(&channel->events.lock);
	const int queues = public->refcnt;
	(void)pthread_mutex_unlock(&channel->events.lock);
	if (queues != 0)
		return refuse(EBUSY, "destroy completion channel: %d completion queues use it: destroy them first", queues);
	close_events(&channel->events);
	free(channel);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct ibv_async_event event;
	if (take_event(&((struct channel *)channel)->events, &event) != 0)
		return -1;
	*cq = event.element.cq;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count) { acknowledge(&cq->mutex, &cq->cond, &cq->comp_events_completed, count); }

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) { return take_event(&context_of(context)->events, event); }

void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct ibv_cq *cq = event->element.cq;
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
		break;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct ibv_srq *srq = event->element.srq;
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed, 1);
		break;
	}
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct ibv_qp *qp = event->element.qp;
		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed, 1);
		break;
	}
	default: break; /* of the device or its port */
	}
}

/* TWIN endpoint/event.go, endpoint/internal/eventlog/eventlog.go. */
#include "endpoint/event.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "endpoint/cm_connection.h"
#include "endpoint/qp.h"
#include "endpoint/req_execute.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"
#include "linux/thread.h"

enum { MOST = 1024 }; /* events that wait for the handler; further ones are counted and dropped */
#define CLOSE_GRACE INT64_C(1000000000)
#define WAIT_LIMIT INT64_C(2000000000) /* after which a request waits, if Sends wait without limit */

struct node {
	struct node *next;
	snd_event event;
};

struct snd_events {
	snd_event_handler handler;
	void *arg;
	pthread_t thread;

	pthread_mutex_t mutex; /* held for moments; no other lock is taken meanwhile. It guards the rest */
	pthread_cond_t changed;
	struct node *first, **end;
	uint32_t count;
	uint64_t dropped;          /* since the last delivery */
	uint64_t dead[SNDL_MEMBERS]; /* by slot: the last peer whose death has an event */
	bool closed, done;
	bool orphaned; /* the thread frees everything */
};

static void free_events(struct snd_events *e)
{
	pthread_cond_destroy(&e->changed);
	pthread_mutex_destroy(&e->mutex);
	free(e);
}

/* deliver calls the handler for each event, in order, until the log is closed and no event is left. */
static void *deliver(void *arg)
{
	struct snd_events *e = arg;
	snd_thread_name("softnd-events");
	pthread_mutex_lock(&e->mutex);
	for (;;) {
		while (e->first == NULL && !e->closed)
			pthread_cond_wait(&e->changed, &e->mutex);
		struct node *n = e->first;
		if (n == NULL)
			break;
		const snd_event dropped = {.type = SND_EVENT_DROPPED, .number = e->dropped};
		e->first = NULL;
		e->end = &e->first;
		e->count = 0;
		e->dropped = 0;
		pthread_mutex_unlock(&e->mutex);
		while (n != NULL) {
			struct node *next = n->next;
			e->handler(e->arg, &n->event);
			free(n);
			n = next;
		}
		if (dropped.number > 0)
			e->handler(e->arg, &dropped);
		pthread_mutex_lock(&e->mutex);
	}
	e->done = true;
	const bool orphaned = e->orphaned;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->mutex);
	if (orphaned)
		free_events(e);
	return NULL;
}

snd_status snd_fabric_set_event_handler(snd_fabric *fabric, snd_event_handler handler, void *arg)
{
	SND_KEEP_ERRNO;
	const char *op = "set event handler";
	SND_CHECK(fabric, SND_TYPE_FABRIC, op);
	if (handler == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: handler is NULL", op);
	SND_ENTER(fabric, SND_TYPE_FABRIC, op);
	if (fabric->events != NULL)
		return snd_leave_with(fabric, snd_fail(SND_INVALID_DEVICE_STATE, "%s: the fabric has a handler: set it once", op));
	struct snd_events *e = calloc(1, sizeof *e);
	if (e == NULL)
		return snd_leave_with(fabric, snd_no_memory(sizeof *e, "private memory", op));
	pthread_condattr_t monotonic;
	e->handler = handler;
	e->arg = arg;
	e->end = &e->first;
	pthread_mutex_init(&e->mutex, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&e->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	const snd_status s = snd_thread_start(&e->thread, deliver, e, "softnd-events", op);
	if (s == SND_SUCCESS)
		fabric->events = e;
	else
		free_events(e);
	return snd_leave_with(fabric, s);
}

void snd_end_events(struct snd_events *e)
{
	if (e == NULL)
		return;
	const pthread_t thread = e->thread;
	const int64_t deadline = snd_deadline(CLOSE_GRACE);
	const struct timespec t = {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)};
	pthread_mutex_lock(&e->mutex);
	e->closed = true;
	pthread_cond_broadcast(&e->changed);
	while (!e->done && !pthread_equal(thread, pthread_self()) && pthread_cond_timedwait(&e->changed, &e->mutex, &t) != ETIMEDOUT) {
	}
	const bool done = e->done;
	e->orphaned = !done;
	pthread_mutex_unlock(&e->mutex);
	if (!done) {
		(void)pthread_detach(thread);
		return;
	}
	snd_thread_join(thread);
	free_events(e);
}

static void add(struct snd_events *e, const snd_event *event)
{
	struct node *n = malloc(sizeof *n);
	pthread_mutex_lock(&e->mutex);
	if (e->closed || e->count == MOST || n == NULL) {
		e->dropped += !e->closed;
	} else {
		*n = (struct node){NULL, *event};
		*e->end = n;
		e->end = &n->next;
		e->count++;
		n = NULL;
	}
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->mutex);
	free(n);
}

/* of returns an event of an endpoint. */
static snd_event of(const struct snd_endpoint *ep, uint32_t type)
{
	snd_event event = {.type = type, .number = ep->number, .endpoint_context = ep->initiator_slots.context};
	snd_name_peer(ep->conn, event.peer, sizeof event.peer);
	return event;
}

void snd_event_connected(struct snd_endpoint *ep)
{
	if (ep->object.fabric->events == NULL)
		return;
	const snd_event event = of(ep, SND_EVENT_CONNECTED);
	add(ep->object.fabric->events, &event);
}

void snd_event_disconnected(struct snd_endpoint *ep, bool by_peer)
{
	if (ep->object.fabric->events == NULL)
		return;
	snd_event event = of(ep, SND_EVENT_DISCONNECTED);
	event.by_peer = by_peer;
	add(ep->object.fabric->events, &event);
}

static void failed(struct snd_endpoint *ep, bool by_peer, snd_status status, const char *text)
{
	if (!ep->was_connected)
		return;
	snd_event event = of(ep, SND_EVENT_FAILED);
	event.by_peer = by_peer;
	event.status = status;
	snprintf(event.text, sizeof event.text, "%s", text);
	add(ep->object.fabric->events, &event);
}

void snd_event_own_end(struct snd_endpoint *ep, enum snd_qp_state was, snd_status status, const char *text)
{
	if (ep->object.fabric->events == NULL)
		return;
	if (strncmp(text, "close: ", 7) != 0 && strncmp(text, "flush: ", 7) != 0)
		failed(ep, false, status, text);
	else if (was == SND_QP_CONNECTED)
		snd_event_disconnected(ep, false);
}

/* peer_died adds an event of a peer's death, once for each peer. */
static void peer_died(struct snd_endpoint *ep)
{
	struct snd_events *e = ep->object.fabric->events;
	const uint64_t id = ep->conn->peer.id;
	uint64_t *last = &e->dead[snd_member_slot(id)];
	pthread_mutex_lock(&e->mutex);
	const bool known = *last == id;
	*last = id;
	pthread_mutex_unlock(&e->mutex);
	snd_event event = of(ep, SND_EVENT_PEER_DIED);
	event.number = event.endpoint_context = 0;
	if (!known)
		add(e, &event);
}

void snd_event_peer_end(struct snd_endpoint *ep, enum snd_qp_state was, bool in_order)
{
	const struct snd_connection *c = ep->conn;
	if (ep->object.fabric->events == NULL)
		return;
	if (in_order) {
		if (was == SND_QP_CONNECTED)
			snd_event_disconnected(ep, true);
		return;
	}
	if (ep->was_connected && snd_is_peer_gone(c) && snd_connection_state(c) == SNDL_CONN_ESTABLISHED)
		peer_died(ep); /* a process that leaves the arena has ended its connections before */
	failed(ep, true, ep->cause, ep->cause_text);
}

void snd_event_overrun(struct snd_fabric *f, uint64_t queue, uint32_t depth)
{
	if (f->events == NULL)
		return;
	const snd_event event = {.type = SND_EVENT_OVERRUN, .number = queue, .depth = depth};
	add(f->events, &event);
}

/* awaited says what the oldest request waits for. */
static void awaited(struct snd_endpoint *ep, const struct snd_send_request *r, char *text, size_t size)
{
	static const char *const causes[SND_STALLS] = {[SND_STALL_RECEIVE] = "the peer to post a receive", [SND_STALL_QUEUE] = "free ring entries",
		[SND_STALL_ORDER] = "earlier requests", [SND_STALL_DRAIN] = "the end of an access of the peer"};
	const char *name = snd_request_name(r);
	if (ep->next != ep->completed) {
		snprintf(text, size, "%s: waits for the peer to %s", name, ep->conn->peer_has_srq && snd_takes_receive(r) ? "take a receive from its shared queue" : "process it");
		return;
	}
	for (int cause = 0; cause < SND_STALLS; cause++) {
		if (r->stalled == UINT32_C(1) << cause) {
			snprintf(text, size, "%s: waits for %s", name, causes[cause]);
			return;
		}
	}
	if (r->stalled == 0)
		snprintf(text, size, "%s: waits for the transfer of %" PRIu64 " bytes", name, r->total);
	else
		snprintf(text, size, "%s: waits for several causes, see the stalls of snd_endpoint_stats", name);
}

static void check_waiting(struct snd_endpoint *ep, int64_t now, int64_t limit)
{
	if (ep->completed == ep->submitted || ep->state != SND_QP_CONNECTED) {
		ep->waiting.since = 0;
		return;
	}
	if (ep->waiting.since == 0 || ep->waiting.number != ep->completed) {
		ep->waiting.since = now;
		ep->waiting.number = ep->completed;
		ep->waiting.reported = false;
		return;
	}
	if (ep->waiting.reported || now - ep->waiting.since < limit)
		return;
	ep->waiting.reported = true;
	const struct snd_send_request *r = snd_request_at(ep, ep->completed);
	snd_event event = of(ep, SND_EVENT_REQUEST_WAITS);
	event.request_context = r->context;
	event.waited = now - ep->waiting.since;
	awaited(ep, r, event.text, sizeof event.text);
	add(ep->object.fabric->events, &event);
}

void snd_events_of_waiting(struct snd_fabric *f, int64_t now)
{
	if (f->events == NULL)
		return;
	const int64_t limit = f->receive_timeout <= 0 ? WAIT_LIMIT : f->receive_timeout;
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next)
		check_waiting(SND_OF(l, struct snd_endpoint, link), now, limit);
}

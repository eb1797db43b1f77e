/* TWIN endpoint/cq.go, endpoint/cq_poll.go, endpoint/internal/cq/ring.go. */
#include "endpoint/cq.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cm_number.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/event.h"
#include "endpoint/hook.h"
#include "endpoint/progress.h"
#include "endpoint/progress_housekeeper.h"
#include "endpoint/progress_wait.h"
#include "endpoint/qp.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"
#include "shm/inbox.h"
#include "shm/work.h"

/* A thorough poll drives some endpoints even without visible work, because a peer may have disconnected or died, reads the inbox, and does the
 * periodic work of the process. One poll in THOROUGH is thorough, and one poll in LOOK_INTERVAL reads the clock. */
enum { THOROUGH = 1024, THOROUGH_ENDPOINTS = 8, TICK_ENDPOINTS = 64, LOOK_INTERVAL = 16, SCANNED = 6, MAX_TURNS = 16, POLLS_PER_YIELD = 16 };

/* ring_size returns twice the depth at least: a program that counts on exactly its depth never overruns the queue. See snd_cq_limit. */
static uint64_t ring_size(uint32_t depth)
{
	uint64_t size = 2;
	while (size < 2 * (uint64_t)depth)
		size *= 2;
	return size;
}

static snd_status check_depth(const struct snd_fabric *f, uint32_t depth, const char *op)
{
	if (depth < 1 || depth > f->limits->cq_depth)
		return snd_fail(SND_INVALID_PARAMETER, "%s: depth %" PRIu32 ", allowed 1 to %" PRIu32, op, depth, f->limits->cq_depth);
	return SND_SUCCESS;
}

snd_status snd_cq_create(snd_adapter *adapter, uint32_t depth, snd_cq **cq)
{
	SND_KEEP_ERRNO;
	const char *op = "create completion queue";
	SND_ENTER_TO(adapter, SND_TYPE_ADAPTER, cq, op);
	*cq = NULL;
	struct snd_fabric *f = adapter->object.fabric;
	snd_status s = check_depth(f, depth, op);
	if (s == SND_SUCCESS)
		s = snd_before_call(&adapter->object, op, 0, 0, NULL);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	uint64_t size = ring_size(depth);
	struct snd_cq *q = snd_new(f, SND_TYPE_CQ, sizeof *q);
	struct snd_completion *entries = NULL;
	if (q == NULL || (entries = snd_alloc_lines((size_t)size * sizeof *entries)) == NULL) {
		if (q != NULL)
			snd_object_free(&q->object);
		return snd_leave_with(f, snd_no_memory(sizeof *q + size * sizeof *entries, "private memory", op));
	}
	q->adapter = adapter;
	q->entries = entries;
	q->mask = size - 1;
	q->depth = depth;
	q->fd = -1;
	snd_list_init(&q->notifications);
	adapter->objects++;
	q->number = ++f->queues_created;
	snd_list_append(&f->queues, &q->link);
	*cq = q;
	return snd_leave_with(f, SND_SUCCESS);
}

bool snd_cq_attach(struct snd_cq *q, struct snd_endpoint *ep)
{
	if (q->users > 0 && q->endpoints[q->users - 1] == ep)
		return true; /* one queue for receives and requests */
	if (q->users == q->capacity) {
		uint32_t capacity = q->capacity == 0 ? 4 : q->capacity * 2;
		struct snd_endpoint **list = realloc(q->endpoints, capacity * sizeof(struct snd_endpoint *));
		if (list == NULL)
			return false;
		q->endpoints = list;
		q->capacity = capacity;
	}
	q->endpoints[q->users++] = ep;
	if (q->overrun)
		ep->slow |= SND_SLOW_OVERRUN;
	return true;
}

static bool is_of(const struct snd_completion *e, const struct snd_endpoint *ep) { return e->slots == &ep->initiator_slots || e->slots == &ep->receive_slots; }

void snd_cq_detach(struct snd_cq *q, struct snd_endpoint *ep)
{
	for (uint32_t i = 0; i < q->users; i++) {
		if (q->endpoints[i] == ep) {
			for (q->users--; i < q->users; i++)
				q->endpoints[i] = q->endpoints[i + 1];
		}
	}
	for (uint64_t i = q->head; i != q->tail; i++) {
		struct snd_completion *e = &q->entries[i & q->mask];
		if (is_of(e, ep))
			e->slots = &q->nobody;
	}
}

bool snd_cq_has(const struct snd_cq *q, const struct snd_endpoint *ep)
{
	for (uint64_t i = q->head; i != q->tail; i++)
		if (is_of(&q->entries[i & q->mask], ep))
			return true;
	return false;
}

void snd_cq_drop(struct snd_cq *q, const struct snd_endpoint *ep)
{
	uint64_t to = q->tail;
	for (uint64_t i = q->tail; i != q->head; i--) {
		const struct snd_completion *e = &q->entries[(i - 1) & q->mask];
		if (!is_of(e, ep))
			memmove(&q->entries[--to & q->mask], e, sizeof *e);
	}
	q->head = to;
	q->signaled = q->signaled && to != q->tail;
}

void snd_cq_overrun(struct snd_cq *q)
{
	if (q->closed || q->overrun)
		return;
	q->overrun = true;
	q->slow |= SND_CQ_ENDED;
	snd_event_overrun(q->object.fabric, q->number, q->depth);
	q->next_look = 0; /* each poll finds it out, at no cost for those of other queues */
	for (uint32_t i = 0; i < q->users; i++)
		q->endpoints[i]->slow |= SND_SLOW_OVERRUN; /* each fails when it is driven next */
	snd_cq_signal(q);
	if (q->hook != NULL)
		q->hook(q->hook_arg, true);
	snd_wake_progress(q->object.fabric);
}

void snd_cq_drives_beside(struct snd_cq *q)
{
	q->has_beside = true;
	q->next_look = 0; /* each poll looks, at no cost for those of other queues */
}

/* pop takes queued results. The queue must not be empty. */
SND_FAST uint32_t pop(struct snd_cq *q, snd_result *results, uint32_t count)
{
	const struct snd_completion *entries = q->entries;
	uint64_t head = q->head;
	const uint64_t mask = q->mask, tail = q->tail, end = tail - head < count ? tail : head + count;
	snd_word *to = (snd_word *)(void *)results;
	do {
		const struct snd_completion *e = &entries[head++ & mask];
		snd_set(&to[0], snd_relaxed(&e->words[0]));
		snd_set(&to[1], snd_relaxed(&e->words[1]));
		snd_set(&to[2], snd_relaxed(&e->words[2]));
		snd_set(&to[3], snd_relaxed(&e->words[3]));
		to += 4;
		e->slots->freed++;
	} while (head != end);
	const uint32_t n = (uint32_t)(head - q->head);
	q->head = head;
	if (head == tail && tail >= SND_CQ_REUSED) { /* a queue that is usually empty touches few cache lines. In Go the next result does this, because a poll must not change the tail */
		q->base += tail;
		q->head = q->tail = 0;
	}
	if (snd_unlikely(q->signaled))
		q->signaled = head != tail;
	return n;
}

static inline bool has_work(const struct snd_endpoint *ep)
{
	return ep->state != SND_QP_CONNECTED || snd_has_overrun(ep) || ep->completed != ep->posted || snd_front(&ep->conn->in) != NULL;
}

/* scan drives endpoints that have work until there is a result. */
static uint32_t scan(struct snd_cq *q, snd_result *results, uint32_t count, uint32_t endpoints)
{
	for (uint32_t i = 0; i < endpoints && i < q->users; i++) {
		uint32_t at = q->next < q->users ? q->next : 0;
		struct snd_endpoint *ep = q->endpoints[at];
		q->next = at + 1;
		if (!has_work(ep))
			continue;
		uint32_t n = snd_progress_into(ep, q, results, count);
		if (n > 0 || q->head != q->tail)
			return n;
	}
	return 0;
}

static void thorough(struct snd_cq *q, uint32_t endpoints)
{
	SND_KEEP_ERRNO;
	struct snd_fabric *f = q->object.fabric;
	snd_read_inbox(f, snd_handle_request);
	snd_housekeep(f, snd_clock());
	snd_number_progress_all(f); /* the program may poll no queue of these */
	for (uint32_t i = 0; i < endpoints && i < q->users; i++) {
		uint32_t at = q->next < q->users ? q->next : 0;
		q->next = at + 1;
		snd_progress(q->endpoints[at]);
	}
	if (!snd_list_is_empty(&f->work))
		snd_run_deferred(f);
}

/* find_gone drives the endpoints whose peers have died or left. */
static void find_gone(struct snd_cq *q)
{
	SND_KEEP_ERRNO;
	snd_housekeep(q->object.fabric, snd_clock());
	for (uint32_t i = 0; i < q->users; i++) {
		const struct snd_connection *c = q->endpoints[i]->conn;
		if (c != NULL && c->attached && snd_is_peer_gone(c))
			snd_progress(q->endpoints[i]);
	}
}

/* drive_beside drives endpoints and their peers, if these are of this process: no engine may run, or it sleeps. */
static void drive_beside(struct snd_cq *q)
{
	bool progressed = true;
	for (int turns = 0; progressed && turns < MAX_TURNS; turns++) {
		progressed = false;
		for (uint32_t i = 0; i < q->users; i++) {
			struct snd_endpoint *ep = q->endpoints[i];
			if (ep->beside != NULL && has_work(ep->beside))
				progressed = snd_progress(ep->beside) || progressed;
			if (ep->beside != NULL && has_work(ep))
				progressed = snd_progress(ep) || progressed;
		}
	}
}

/* look reads the clock. If it has ticked since the last look, so that the program may poll rarely, this poll is thorough, and
 * the next one looks again. */
static __attribute__((noinline)) void look(struct snd_cq *q)
{
	struct snd_fabric *f = q->object.fabric;
	snd_set(&f->activity, snd_relaxed(&f->activity) + 1); /* the engine needs to know only that the program polls */
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t); /* its ticks are some milliseconds apart, and it costs a fraction of the other clock */
	const int64_t tick = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; /* a copy of t would be one load of two stores, which waits for all stores before them */
	const bool ticked = tick != q->tick;
	q->tick = tick;
	q->next_look = q->overrun || q->has_beside ? 0 : q->polls + (ticked ? 1 : LOOK_INTERVAL);
	if (q->has_beside)
		drive_beside(q);
	if (q->polls - q->last_thorough >= THOROUGH) {
		q->last_thorough = q->polls;
		thorough(q, THOROUGH_ENDPOINTS);
	} else if (ticked && f->stepwise) {
		find_gone(q); /* the steps must not depend on time */
	} else if (ticked) {
		thorough(q, TICK_ENDPOINTS);
	}
}

/* poll_overrun is a poll of a queue that has overrun: its endpoints fail, and the results that it has are taken first. */
static __attribute__((noinline)) int32_t poll_overrun(struct snd_cq *q, snd_result *results, uint32_t count)
{
	for (uint32_t i = 0; i < q->users; i++)
		snd_progress(q->endpoints[i]);
	if (q->head == q->tail)
		return (int32_t)snd_cq_wait_status(q, SND_SUCCESS, "poll", "", 0);
	return count > 0 ? (int32_t)pop(q, results, count) : 0;
}

/* drive is a poll without room for results. */
static int32_t drive(struct snd_cq *q)
{
	q->polls++;
	look(q);
	if (q->overrun)
		return poll_overrun(q, NULL, 0);
	for (uint32_t i = 0; i < q->users; i++)
		if (has_work(q->endpoints[i]))
			snd_progress(q->endpoints[i]);
	return 0;
}

static int32_t poll(struct snd_cq *q, snd_result *results, uint32_t count)
{
	uint32_t n = 0;
	if (snd_unlikely(++q->polls >= q->next_look)) {
		look(q);
		if (q->overrun)
			return poll_overrun(q, results, count);
	}
	if (q->head == q->tail)
		n = q->users == 1 ? snd_progress_into(q->endpoints[0], q, results, count) : scan(q, results, count, SCANNED);
	return (int32_t)(q->head == q->tail || n == count ? n : n + pop(q, results + n, count - n));
}

/* should_yield reports whether an empty poll waits for the engine of a peer, which may need this core: with the engines there are more threads than
 * cores. */
static bool should_yield(const struct snd_cq *q)
{
	const struct snd_fabric *f = q->object.fabric;
	if (q->polls % POLLS_PER_YIELD != 0 || 2 * f->processes <= f->cores)
		return false;
	for (uint32_t i = 0; i < q->users && i < SCANNED; i++)
		if (q->endpoints[i]->completed != q->endpoints[i]->posted)
			return true;
	return false;
}

/* poll_any is snd_cq_poll without its fast path. */
static __attribute__((noinline)) int32_t poll_any(snd_cq *cq, snd_result *results, uint32_t count)
{
	if (snd_unlikely(!snd_enter(SND_OBJECT(cq), SND_TYPE_CQ)))
		return (int32_t)snd_bad_handle("poll", "cq");
	int32_t n = 0;
	if (snd_unlikely(count == 0))
		n = drive(cq);
	else if (snd_likely(results != NULL))
		n = poll(cq, results, count);
	else
		n = (int32_t)snd_fail(SND_INVALID_PARAMETER, "poll: results is NULL, and count is %" PRIu32, count);
	const bool yields = snd_unlikely(snd_relaxed32(&cq->object.fabric->serves_memory) != 0) && n == 0 && should_yield(cq);
	snd_unlock(cq->object.fabric);
	if (yields)
		sched_yield();
	return n;
}

int32_t snd_cq_poll(snd_cq *cq, snd_result *results, uint32_t count)
{
	struct snd_bias *bias;
	if (snd_unlikely(count == 0 || results == NULL || !snd_try_enter(SND_OBJECT(cq), SND_TYPE_CQ, &bias)))
		return poll_any(cq, results, count);
	const bool is_empty = cq->head == cq->tail;
	if (snd_unlikely(cq->polls + 1 >= cq->next_look || (is_empty && (cq->users != 1 || has_work(cq->endpoints[0]))))) {
		snd_try_leave(bias);
		return poll_any(cq, results, count);
	}
	cq->polls++;
	const int32_t n = is_empty ? 0 : (int32_t)pop(cq, results, count);
	snd_try_leave(bias);
	return n;
}

struct cq_wait {
	struct snd_cq *q;
	struct snd_endpoint *endpoint; /* whose end ends the wait; NULL = none */
	snd_result *results;
	uint32_t count, taken;
	uint32_t cancels; /* when it began */
	bool is_over;     /* because of the endpoint's end */
};

/* take takes results for a wait, and reports whether there are any. */
static bool take(struct cq_wait *w)
{
	struct snd_cq *q = w->q;
	w->taken = q->head == q->tail ? scan(q, w->results, w->count, q->users) : 0;
	if (q->head != q->tail && w->taken < w->count)
		w->taken += pop(q, w->results + w->taken, w->count - w->taken);
	return w->taken > 0;
}

static bool cq_ready(void *arg)
{
	struct cq_wait *w = arg;
	struct snd_cq *q = w->q;
	if (snd_is_closed(&q->object) || q->cancels != w->cancels)
		return true;
	if (q->overrun) { /* in this wait: the results that it has are taken first, as by a poll */
		w->taken = q->head != q->tail ? pop(q, w->results, w->count) : 0;
		return true;
	}
	if (take(w))
		return true;
	if (w->endpoint == NULL || !(snd_is_closed(&w->endpoint->object) || snd_has_no_more_results(w->endpoint)))
		return false;
	w->is_over = !take(w); /* a result may have been added since */
	return true;
}

void snd_cq_release(struct snd_cq *q)
{
	if (!q->closed || q->references > 0)
		return;
	snd_list_remove(&q->link);
	free(q->entries);
	free(q->endpoints);
	q->adapter->objects--;
	snd_object_free(&q->object);
}

snd_status snd_cq_wait_status(const struct snd_cq *q, snd_status s, const char *op, const char *late, int64_t timeout)
{
	if (snd_is_closed(&q->object))
		return snd_fail(SND_CANCELED, "%s: the queue was closed", op);
	if (q->overrun)
		return snd_fail(SND_BUFFER_OVERFLOW, "%s: the queue overran, and results were lost: create a deeper queue", op);
	if (s == SND_CANCELED)
		return snd_fail(s, "%s: the fabric was closed", op);
	if (s == SND_SUCCESS)
		return snd_fail(SND_CANCELED, "%s: the call was cancelled", op);
	return snd_fail(s, "%s: %s within %s", op, late, snd_duration(timeout).text);
}

/* wait_over is the status of a wait that the end of an endpoint has ended. */
static snd_status wait_over(const struct snd_endpoint *ep, const char *op)
{
	if (snd_is_closed(&ep->object))
		return snd_fail(SND_CANCELED, "%s: the %s was closed", op, ep->object.fabric->closed ? "fabric" : "endpoint");
	return ep->cause != SND_SUCCESS ? snd_fail(ep->cause, "%s", ep->cause_text) : snd_fail(SND_CONNECTION_ABORTED, "%s: the connection has ended", op);
}

/* wait_for is snd_cq_wait that also ends, with the status of snd_endpoint_error, when the queue gets no further result of an endpoint that has
 * ended. endpoint may be NULL. */
static snd_status wait_for(snd_cq *cq, snd_endpoint *endpoint, snd_result *results, uint32_t count, int64_t timeout, uint32_t *taken)
{
	const char *op = "wait";
	SND_CHECK(cq, SND_TYPE_CQ, op);
	if (results == NULL || count == 0 || taken == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: results or taken is NULL, or count is 0", op);
	*taken = 0;
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(cq, SND_TYPE_CQ, op);
	struct snd_fabric *f = cq->object.fabric;
	if (endpoint != NULL && !snd_belongs(f, endpoint, SND_TYPE_ENDPOINT))
		return snd_leave_with(f, snd_bad_handle(op, "endpoint"));
	struct cq_wait w = {cq, endpoint, results, count, 0, cq->cancels, false};
	const int32_t n = poll(cq, results, count);
	*taken = n > 0 ? (uint32_t)n : 0;
	if (n > 0)
		return snd_leave_with(f, SND_SUCCESS);
	snd_hold(&cq->object);
	if (endpoint != NULL)
		snd_hold(&endpoint->object);
	snd_status s = snd_wait(f, timeout, cq_ready, NULL, &w, &(struct snd_call){.op = op, .queue = cq->number});
	*taken = w.taken;
	s = w.taken > 0 ? SND_SUCCESS : endpoint != NULL && w.is_over ? wait_over(endpoint, op) : snd_cq_wait_status(cq, s, op, "no result", timeout);
	if (endpoint != NULL)
		snd_let_go(&endpoint->object);
	snd_let_go(&cq->object);
	return snd_leave_with(f, s);
}

snd_status snd_cq_wait(snd_cq *cq, snd_result *results, uint32_t count, int64_t timeout, uint32_t *taken)
{
	SND_KEEP_ERRNO;
	return wait_for(cq, NULL, results, count, timeout, taken);
}

snd_status snd_cq_wait_one(snd_cq *cq, snd_endpoint *endpoint, int64_t timeout, snd_result *result)
{
	SND_KEEP_ERRNO;
	snd_result r = {0};
	uint32_t n;
	snd_status s = wait_for(cq, endpoint, &r, 1, timeout, &n);
	if (s != SND_SUCCESS)
		return s;
	if (result != NULL)
		*result = r;
	if (r.status == SND_SUCCESS)
		return s;
	if (endpoint != NULL && (s = snd_endpoint_error(endpoint)) != SND_SUCCESS)
		return s;
	return snd_fail(r.status, "%s: request %" PRIu64 ": %s", "wait", r.request_context, snd_status_name(r.status));
}

snd_status snd_cq_resize(snd_cq *cq, uint32_t depth)
{
	SND_KEEP_ERRNO;
	const char *op = "resize";
	SND_CHECK(cq, SND_TYPE_CQ, op);
	SND_ENTER(cq, SND_TYPE_CQ, op);
	struct snd_fabric *f = cq->object.fabric;
	snd_status s = check_depth(f, depth, op);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	uint64_t size = ring_size(depth), queued = cq->tail - cq->head;
	struct snd_completion *entries = NULL;
	if (queued > depth)
		s = snd_fail(SND_BUFFER_OVERFLOW, "%s: depth %" PRIu32 ", but %" PRIu64 " results are queued: take results, then retry", op, depth, queued);
	else if ((entries = snd_alloc_lines((size_t)size * sizeof *entries)) == NULL)
		s = snd_no_memory(size * sizeof *entries, "private memory", op);
	if (s == SND_SUCCESS) {
		for (uint64_t i = cq->head; i != cq->tail; i++)
			memcpy(&entries[i & (size - 1)], &cq->entries[i & cq->mask], sizeof *entries);
		free(cq->entries);
		cq->entries = entries;
		cq->mask = size - 1;
		cq->depth = depth;
	}
	return snd_leave_with(f, s);
}

snd_status snd_cq_cancel(snd_cq *cq)
{
	SND_KEEP_ERRNO;
	SND_ENTER(cq, SND_TYPE_CQ, "cancel");
	cq->cancels++;
	snd_wake(cq->object.fabric);
	return snd_leave_with(cq->object.fabric, SND_SUCCESS);
}

snd_status snd_cq_close(snd_cq *cq)
{
	SND_KEEP_ERRNO;
	SND_ENTER(cq, SND_TYPE_CQ, "close completion queue");
	struct snd_fabric *f = cq->object.fabric;
	cq->closed = true;
	cq->slow |= SND_CQ_ENDED;
	cq->head = cq->tail;
	if (cq->has_timer)
		snd_list_remove(&cq->timer.link);
	snd_list_remove(&cq->link);
	snd_list_append(&f->closing_queues, &cq->link);
	snd_object_hide(&cq->object);
	if (cq->has_events)
		snd_set32(&f->event_fds, snd_relaxed32(&f->event_fds) - 1);
	if (cq->fd >= 0) {
		close(cq->fd);
		cq->fd = -1;
	}
	snd_wake(f);
	snd_cq_release(cq);
	return snd_leave_with(f, SND_SUCCESS);
}

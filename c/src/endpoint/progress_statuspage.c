/* TWIN endpoint/progress_statuspage.go, internal/statuspage/statuspage.go. */
#include "endpoint/progress_statuspage.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "endpoint/cq.h"
#include "endpoint/qp.h"
#include "endpoint/req_execute.h"
#include "endpoint/srq.h"
#include "linux/clock.h"
#include "shm/number.h"

#define REPUBLISH_INTERVAL INT64_C(1000000000) /* calls may begin and end without progress */
#define POLL_LIFETIME INT64_C(2000000000)      /* how long a queue counts as polled after a poll */
enum { MAX_TEXT = 8128, MAX_CALLS = 32, MAX_ENDPOINTS = 128, MAX_QUEUES = 64, TAIL = 32 /* bytes for the end of the text */ };

_Static_assert(MAX_TEXT == sizeof ((struct snd_status_page *)0)->text, "the text fills the page");

/* text is the JSON text of internal/statuspage.Page. */
struct text {
	size_t length;
	bool full; /* the latest addition did not fit */
	char bytes[MAX_TEXT];
};

static void add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *format, ...)
{
	va_list args;
	const size_t room = sizeof t->bytes - TAIL - t->length;
	va_start(args, format);
	const int n = vsnprintf(t->bytes + t->length, room, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= room)
		t->full = true;
	else
		t->length += (size_t)n;
}

/* add_number adds a field that is left out if it is 0. */
static void add_number(struct text *t, const char *name, uint64_t n)
{
	if (n != 0)
		add(t, ",\"%s\":%" PRIu64, name, n);
}

static void add_string(struct text *t, const char *name, const char *value)
{
	char quoted[2 * SND_REASON + 1];
	size_t n = 0;
	if (value == NULL || *value == 0)
		return;
	for (; *value != 0 && n + 2 < sizeof quoted; value++) {
		if (*value == '"' || *value == '\\')
			quoted[n++] = '\\';
		quoted[n++] = (char)((unsigned char)*value >= ' ' ? *value : '?');
	}
	quoted[n] = 0;
	add(t, ",\"%s\":\"%s\"", name, quoted);
}

/* list is one list of the page. begin_entry and end_entry enclose each entry; an entry that does not fit is removed. */
struct list {
	const char *name;
	uint32_t count, most;
	uint32_t omitted;
	size_t start; /* of the current entry */
};

static void begin_entry(struct text *t, struct list *l, const char *first, uint64_t value)
{
	l->start = t->length;
	t->full = l->count == l->most;
	if (l->count == 0)
		add(t, "%s\"%s\":[", t->length > 1 ? "," : "", l->name);
	else
		add(t, ",");
	add(t, "{\"%s\":%" PRIu64, first, value);
}

static void end_entry(struct text *t, struct list *l)
{
	add(t, "}");
	if (t->full) {
		t->length = l->start;
		l->omitted++;
	} else {
		l->count++;
	}
}

static void end_list(struct text *t, const struct list *l)
{
	if (l->count > 0)
		t->bytes[t->length++] = ']'; /* of the bytes for the end */
}

static void add_call(struct text *t, struct list *l, const struct snd_fabric *f, const struct snd_call *c)
{
	begin_entry(t, l, "t", (uint64_t)(c->since - f->clock_ahead));
	add_string(t, "op", c->op);
	add_string(t, "x", c->object);
	add_number(t, "p", c->peer);
	add_number(t, "q", c->queue);
	add_number(t, "r", c->round);
	end_entry(t, l);
}

/* weight is higher the more a call explains. */
static int weight(const struct snd_call *c) { return c->round > 0 ? 2 : c->peer > 0 ? 1 : 0; }

static bool waits_at(const struct snd_fabric *f, uint64_t queue)
{
	for (struct snd_link *l = f->waiting.next; l != &f->waiting; l = l->next)
		if (SND_OF(l, struct snd_call, link)->queue == queue)
			return true;
	return false;
}

static void add_calls(struct text *t, struct snd_fabric *f, int64_t now)
{
	struct list list = {.name = "c", .most = MAX_CALLS};
	for (int w = 2; w >= 0; w--)
		for (struct snd_link *l = f->waiting.next; l != &f->waiting; l = l->next)
			if (weight(SND_OF(l, struct snd_call, link)) == w)
				add_call(t, &list, f, SND_OF(l, struct snd_call, link));
	for (struct snd_link *l = f->queues.next; l != &f->queues; l = l->next) {
		const struct snd_cq *q = SND_OF(l, struct snd_cq, link);
		if (q->polled_at != 0 && now - q->polled_at < POLL_LIFETIME && !waits_at(f, q->number))
			add_call(t, &list, f, &(struct snd_call){.op = "poll", .queue = q->number, .since = f->progress_at});
	}
	end_list(t, &list);
}

static bool is_open(const struct snd_endpoint *ep)
{
	return ep->state == SND_QP_CONNECTED || ep->state == SND_QP_PEER_DISCONNECTED || ep->state == SND_QP_DISCONNECTING;
}

static bool peer_copies(const struct snd_endpoint *ep)
{
	return is_open(ep) && ep->conn != NULL && ep->conn->attached && snd_relaxed(&ep->conn->peer_qp->hazard) != 0;
}

static uint64_t receives_of(const struct snd_endpoint *ep)
{
	return ep->srq != NULL ? ep->srq->tail - ep->srq->head : ep->rposted - ep->rcompleted;
}

/* importance is higher the more an endpoint explains, and -1 if it explains nothing. */
static int importance(const struct snd_endpoint *ep)
{
	if (ep->state == SND_QP_FAILED)
		return ep->posted != ep->completed ? 2 : 1;
	if (ep->state == SND_QP_CONNECTING && ep->numbered) /* it waits for its peer */
		return ep->posted != ep->completed ? 2 : 1;
	if (!is_open(ep))
		return -1;
	return ep->posted != ep->completed ? 2 : receives_of(ep) > 0 || peer_copies(ep) ? 0 : -1;
}

static void add_endpoint(struct text *t, struct list *l, struct snd_endpoint *ep)
{
	const struct snd_connection *c = ep->conn;
	begin_entry(t, l, "n", ep->number);
	add_string(t, "s", snd_qp_states.text[ep->state]);
	if (c != NULL) {
		add_number(t, "p", c->peer.id);
		add_number(t, "m", c->attached ? c->far.endpoint : 0);
	}
	if (ep->numbered) {
		struct snd_seen_number peer;
		add_number(t, "q", ep->match.own);
		add_number(t, "d", ep->match.dest);
		if (c == NULL && snd_find_number(ep->object.fabric, ep->match.dest, &peer))
			add_number(t, "p", peer.peer.id);
	}
	add_number(t, "i", ep->initiator_cq->number);
	add_number(t, "r", ep->receive_cq->number);
	add_number(t, "b", receives_of(ep));
	if (ep->posted != ep->completed) {
		const struct snd_send_request *r = snd_request_at(ep, ep->completed);
		add_number(t, "o", ep->posted - ep->completed);
		add_string(t, "k", snd_request_name(r));
		if ((r->stalled >> SND_STALL_RECEIVE & 1) != 0 && !r->has_receive)
			add(t, ",\"w\":true");
	}
	if (ep->state == SND_QP_FAILED)
		add_string(t, "f", ep->cause_text);
	if (peer_copies(ep))
		add(t, ",\"h\":true");
	end_entry(t, l);
}

static void add_endpoints(struct text *t, struct snd_fabric *f)
{
	struct list list = {.name = "e", .most = MAX_ENDPOINTS};
	for (int i = 2; i >= 0; i--)
		for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next)
			if (importance(SND_OF(l, struct snd_endpoint, link)) == i)
				add_endpoint(t, &list, SND_OF(l, struct snd_endpoint, link));
	end_list(t, &list);
	if (list.omitted > 0)
		t->length += (size_t)snprintf(t->bytes + t->length, TAIL / 2, ",\"o\":%" PRIu32, list.omitted);
}

static void add_queues(struct text *t, struct snd_fabric *f)
{
	struct list list = {.name = "q", .most = MAX_QUEUES};
	for (struct snd_link *l = f->queues.next; l != &f->queues; l = l->next) {
		const struct snd_cq *q = SND_OF(l, struct snd_cq, link);
		if (q->head == q->tail)
			continue;
		begin_entry(t, &list, "n", q->number);
		add_number(t, "r", q->tail - q->head);
		end_entry(t, &list);
	}
	end_list(t, &list);
}

/* publish replaces the text of the page. */
static void publish(struct snd_fabric *f, int64_t now)
{
	struct text t = {.length = 1, .bytes = "{"};
	struct snd_status_page *p = f->page;
	if (!f->has_engine) /* only calls update the page and answer observers */
		add(&t, "\"m\":true");
	add_calls(&t, f, now);
	add_queues(&t, f);
	add_endpoints(&t, f);
	t.bytes[t.length++] = '}';
	atomic_fetch_add(&p->seq, 1); /* ORDER status-odd: before the words; pairs with the second load in Go's sharedPage.read */
	for (size_t i = 0; 8 * i < t.length; i++) {
		uint64_t word;
		memcpy(&word, t.bytes + 8 * i, sizeof word);
		snd_release(&p->text[i], word);
	}
	snd_release(&p->length, t.length);
	snd_release(&p->written_at, (uint64_t)(now - f->clock_ahead));
	atomic_fetch_add(&p->seq, 1); /* ORDER status-even: after the words; pairs with the first load in Go's sharedPage.read */
	f->published_at = now;
}

/* mark_of computes a number that changes when the process makes progress. */
static uint64_t mark_of(const struct snd_fabric *f)
{
	uint64_t mark = f->progress_made;
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next) {
		const struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		mark = mark * 31 + ep->state;
		mark = mark * 31 + ep->completed + ep->adjustment + ep->initiator_slots.freed;
		mark = mark * 31 + ep->rcompleted + ep->receive_slots.freed;
	}
	for (struct snd_link *l = f->queues.next; l != &f->queues; l = l->next) {
		const struct snd_cq *q = SND_OF(l, struct snd_cq, link);
		mark = mark * 31 + q->base + q->tail;
	}
	return mark;
}

static void note_polls(struct snd_fabric *f, int64_t now)
{
	for (struct snd_link *l = f->queues.next; l != &f->queues; l = l->next) {
		struct snd_cq *q = SND_OF(l, struct snd_cq, link);
		if (q->polls != q->reported_polls) {
			q->reported_polls = q->polls;
			q->polled_at = now;
		}
	}
}

static void note_progress(struct snd_fabric *f, int64_t now)
{
	f->progress_at = now;
	f->published_at = 0;
	snd_set(&f->page->last_progress, (uint64_t)(now - f->clock_ahead));
}

void snd_reset_status_page(struct snd_fabric *f)
{
	struct snd_status_page *p = f->page;
	snd_set(&p->seq, (snd_relaxed(&p->seq) + 1) & ~UINT64_C(1)); /* odd if the previous reporter died while it wrote */
	snd_set(&p->stacks_length, 0);
	const int64_t now = snd_clock();
	note_progress(f, now);
	publish(f, now);
}

bool snd_is_asked(const struct snd_fabric *f) { return snd_relaxed32(&f->page->requested) != snd_relaxed32(&f->page->answered); }

void snd_update_status_page(struct snd_fabric *f, int64_t now)
{
	const uint64_t mark = mark_of(f);
	const uint32_t requested = snd_relaxed32(&f->page->requested);
	const bool asked = requested != snd_relaxed32(&f->page->answered);
	note_polls(f, now);
	if (mark != f->progress_mark) {
		f->progress_mark = mark;
		note_progress(f, now);
	} else if (f->published_at == 0 || asked || now - f->published_at >= REPUBLISH_INTERVAL) {
		publish(f, now);
	}
	if (asked) { /* for stacks, of which a C program has none to give */
		snd_set(&f->page->stacks_length, 0);
		snd_release32(&f->page->answered, requested); /* ORDER stacks-answered: after the length; pairs with the load in Go's Observer.Stacks */
	}
}

bool snd_status_page_is_old(const struct snd_fabric *f) { return f->published_at == 0 || snd_is_asked(f) || mark_of(f) != f->progress_mark; }

void snd_begin_call(struct snd_fabric *f, struct snd_call *c)
{
	c->since = snd_clock();
	snd_list_append(&f->waiting, &c->link);
	f->published_at = 0; /* the page does not show this call yet */
}

void snd_end_call(struct snd_fabric *f, struct snd_call *c, bool progress)
{
	snd_list_remove(&c->link);
	if (f->published_at == 0 || f->closed)
		return;
	/* Without this, the page would show the call until the program makes another one. */
	const int64_t now = snd_clock();
	if (progress)
		note_progress(f, now);
	publish(f, now);
}

/* loops.c: the operations of each test, and the polls in them. They are one file, so that the compiler can inline
 * the small parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

static struct pair *link_next(struct link *l)
{
	struct pair *p = &l->pairs[l->next];
	if (++l->next == l->count)
		l->next = 0;
	return p;
}

static void link_check(const snd_result *r)
{
	if (r->status == SND_SUCCESS)
		return;
	fprintf(stderr, "softnd_perf: rank %u: request of type %u on queue pair %llu: %s\n", (unsigned)rank, (unsigned)r->type,
		(unsigned long long)r->endpoint_context, snd_status_name(r->status));
	exit(1);
}

/* link_poll takes completions, if there are any. */
static void link_poll(struct link *l)
{
	int32_t n = snd_cq_poll(l->cq, l->results, MAX_RESULTS);
	if (n < 0)
		must((snd_status)n);
	for (int32_t i = 0; i < n; i++) {
		const snd_result *r = &l->results[i];
		link_check(r);
		if (r->type != SND_REQUEST_RECEIVE) {
			l->done++;
			continue;
		}
		l->received++;
		if (l->repost) {
			struct pair *p = &l->pairs[r->endpoint_context];
			must(snd_endpoint_receive(p->ep, 0, &p->land, 1));
		}
	}
}

/* link_complete polls until count initiator requests have completed, counted since link_open. */
static void link_complete(struct link *l, uint64_t count)
{
	while (l->done < count)
		link_poll(l);
}

/* link_signal tells the other rank that a repeat is over; see link_serve. */
void link_signal(struct link *l)
{
	if (!l->must_poll)
		return;
	mark_put(&l->flag_mark, ++l->signaled);
	must(snd_endpoint_write(l->pairs[0].ep, 0, &l->flag_out, 1, l->far.address, l->far.token, 0));
	link_complete(l, l->done + 1);
}

/* link_serve polls until the other rank signals. If the other rank does not depend on polls, it returns at
 * once, and the rank waits in a barrier. */
void link_serve(struct link *l)
{
	if (!l->must_poll)
		return;
	l->awaited++;
	while (!mark_shows(&l->flag, l->awaited))
		link_poll(l);
}

static void write_on(struct link *l, struct pair *p)
{
	must(snd_endpoint_write(p->ep, 0, &p->out, 1, p->to, l->far.token, l->flags));
	link_complete(l, l->done + 1);
}

/* arrive waits until the memory shows the pair's number. A rank that moves the bytes itself has to poll
 * meanwhile. */
static void arrive(struct link *l, struct pair *p)
{
	if (!l->must_poll) {
		while (!mark_shows(&p->landed, p->seq)) {
		}
		return;
	}
	while (!mark_shows(&p->landed, p->seq))
		link_poll(l);
}

/* ping_writes writes the next number to the other rank, and waits until that rank has written it back. */
static void ping_writes(struct link *l, uint64_t n)
{
	while (n-- > 0) {
		struct pair *p = link_next(l);
		mark_put(&p->stamp, ++p->seq);
		write_on(l, p);
		arrive(l, p);
	}
}

static void pong_writes(struct link *l, uint64_t n)
{
	while (n-- > 0) {
		struct pair *p = link_next(l);
		p->seq++;
		arrive(l, p);
		mark_put(&p->stamp, p->seq);
		write_on(l, p);
	}
}

static void add_on(struct link *l, struct pair *p)
{
	must(snd_endpoint_fetch_and_add(p->ep, 0, &p->out, 1, p->to, l->far.token, 1, 0));
	link_complete(l, l->done + 1);
}

/* ping_adds adds 1 to the other rank's number, and waits until that rank has done the same. */
static void ping_adds(struct link *l, uint64_t n)
{
	while (n-- > 0) {
		struct pair *p = link_next(l);
		p->seq++;
		add_on(l, p);
		arrive(l, p);
	}
}

static void pong_adds(struct link *l, uint64_t n)
{
	while (n-- > 0) {
		struct pair *p = link_next(l);
		p->seq++;
		arrive(l, p);
		add_on(l, p);
	}
}

static void writes(struct link *l, uint64_t n)
{
	while (n-- > 0)
		write_on(l, link_next(l));
}

static void reads(struct link *l, uint64_t n)
{
	while (n-- > 0) {
		struct pair *p = link_next(l);
		must(snd_endpoint_read(p->ep, 0, &p->out, 1, p->to, l->far.token, 0));
		link_complete(l, l->done + 1);
	}
}

/* send_on posts a Send. Then it posts a Receive for the one taken last, which does not delay the message. */
static void send_on(struct link *l, struct pair *p)
{
	must(snd_endpoint_send(p->ep, 0, &p->out, 1, l->flags));
	l->posted++;
	must(snd_endpoint_receive(p->ep, 0, &p->land, 1));
}

/* receive takes the next message, and all completions of Sends except the latest. */
static void receive(struct link *l)
{
	l->expected++;
	while (l->received < l->expected || l->done + 1 < l->posted)
		link_poll(l);
}

static void ping_sends(struct link *l, uint64_t n)
{
	while (n-- > 0) {
		send_on(l, link_next(l));
		receive(l);
	}
}

/* pong_sends returns when the last message is complete, because a sender has to poll while a long message is
 * transferred. */
static void pong_sends(struct link *l, uint64_t n)
{
	while (n-- > 0) {
		receive(l);
		send_on(l, link_next(l));
	}
	link_complete(l, l->posted);
}

static inline void post(struct link *l, struct pair *p, uint32_t type)
{
	switch (type) {
	case SND_REQUEST_WRITE:
		must(snd_endpoint_write(p->ep, 0, &p->out, 1, p->to, l->far.token, l->flags));
		break;
	case SND_REQUEST_READ:
		must(snd_endpoint_read(p->ep, 0, &p->out, 1, p->to, l->far.token, 0));
		break;
	default:
		must(snd_endpoint_send(p->ep, 0, &p->out, 1, l->flags));
	}
}

/* flow posts n requests, as many at once as the depth allows, and returns when they are complete. */
static inline void flow(struct link *l, uint64_t n, uint32_t type)
{
	uint64_t left = n, end = l->done + n;
	while (l->done < end) {
		for (; left > 0 && end - left - l->done < l->depth; left--)
			post(l, link_next(l), type);
		link_poll(l);
	}
}

static void flow_writes(struct link *l, uint64_t n) { flow(l, n, SND_REQUEST_WRITE); }
static void flow_reads(struct link *l, uint64_t n) { flow(l, n, SND_REQUEST_READ); }
static void flow_sends(struct link *l, uint64_t n) { flow(l, n, SND_REQUEST_SEND); }

/* flow_in returns when n messages have arrived. Further ones count for the next call. */
static void flow_in(struct link *l, uint64_t n)
{
	l->expected += n;
	while (l->received < l->expected)
		link_poll(l);
}

static void bind_invalidate(struct link *l, uint64_t n)
{
	struct pair *p = &l->pairs[0];
	while (n-- > 0) {
		must(snd_endpoint_bind(p->ep, 0, l->mr, l->window, p->land.buffer, l->size, SND_ALLOW_READ | SND_ALLOW_WRITE));
		link_complete(l, l->done + 1);
		must(snd_endpoint_invalidate(p->ep, 0, l->window, 0));
		link_complete(l, l->done + 1);
	}
}

static const struct test tests[] = {
	{"write_lat", ping_writes, pong_writes},
	{"send_lat", ping_sends, pong_sends},
	{"read_lat", reads, NULL},
	{"atomic_lat", ping_adds, pong_adds},
	{"write_completion", writes, NULL},
	{"write_bw", flow_writes, NULL},
	{"read_bw", flow_reads, NULL},
	{"send_bw", flow_sends, flow_in},
	{"msg_rate", flow_sends, flow_in},
	{"posted", flow_writes, NULL},
	{"bind_invalidate", bind_invalidate, NULL},
};

/* test_named returns the test of a name, NULL if there is none. */
const struct test *test_named(const char *name)
{
	for (unsigned i = 0; i < sizeof tests / sizeof *tests; i++)
		if (strcmp(tests[i].name, name) == 0)
			return &tests[i];
	return NULL;
}

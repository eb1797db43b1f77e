/* The counters of endpoints and completion queues. TestStats in endpoint counts the same in Go. */
#include <stdbool.h>

#include "two_members.h"

#define ALL (SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE)

static snd_mr *mine, *theirs, *far; /* far is private memory of b, which only b can copy */
static unsigned char memory[4096];

static snd_endpoint_stats of(snd_endpoint *ep)
{
	snd_endpoint_stats s;
	OK(snd_endpoint_get_stats(ep, &s));
	return s;
}

static void write_to(snd_mr *mr, uint64_t context, uint32_t flags)
{
	const snd_sge s = snd_mr_sge(mine, 0, 64);
	OK(snd_endpoint_write(a.ep, context, &s, 1, snd_mr_address(mr), snd_mr_remote_token(mr), flags));
}

static bool is(const snd_operation_count *c, uint64_t succeeded, uint64_t failed, uint64_t bytes)
{
	return c->succeeded == succeeded && c->failed == failed && c->bytes == bytes;
}

static void wait_for(snd_cq *cq, int n)
{
	while (n-- > 0)
		CHECK(next_result(cq).status == SND_SUCCESS);
}

/* count_by_type makes requests of each type, those of TestStatsCountOperationsByType among them. */
static void count_by_type(snd_executor executor)
{
	enum { LONG = 100 << 10 };
	open_members_with((snd_fabric_options){.executor = executor, .count_operations = 1});
	OK(snd_mr_allocate(a.adapter, LONG, ALL, &mine));
	OK(snd_mr_allocate(b.adapter, LONG, ALL | SND_ALLOW_REMOTE_ATOMIC, &theirs));
	connect_members(NULL);
	const snd_sge small = snd_mr_sge(mine, 0, 8), large = snd_mr_sge(mine, 0, LONG), into = snd_mr_sge(theirs, 0, LONG);
	const uint64_t to = snd_mr_address(theirs);
	const uint32_t token = snd_mr_remote_token(theirs);
	snd_window *window;
	OK(snd_window_create(a.adapter, &window));
	for (int i = 0; i < 4; i++)
		OK(snd_endpoint_receive(b.ep, 1, &into, 1));
	OK(snd_endpoint_write(a.ep, 1, &small, 1, to, token, 0));
	OK(snd_endpoint_write(a.ep, 1, &large, 1, to, token, 0));
	OK(snd_endpoint_read(a.ep, 1, &small, 1, to, token, 0));
	OK(snd_endpoint_send(a.ep, 1, &large, 1, 0));
	OK(snd_endpoint_send(a.ep, 1, &small, 1, 0));
	OK(snd_endpoint_fetch_and_add(a.ep, 1, &small, 1, to, token, 1, 0));
	OK(snd_endpoint_bind(a.ep, 1, mine, window, snd_mr_buffer(mine), 8, SND_ALLOW_READ));
	OK(snd_endpoint_invalidate(a.ep, 1, window, 0));
	OK(snd_endpoint_send(a.ep, 1, &small, 1, SND_SILENT_SUCCESS));
	wait_for(a.cq, 8);
	wait_for(b.cq, 3);
	while (of(a.ep).requests_completed < 9) /* with the peer as executor, the silent Send completes when a poll sees that */
		CHECK(snd_cq_poll(a.cq, NULL, 0) == 0);
	OK(snd_endpoint_flush(b.ep, 10 * SECOND));
	CHECK(next_result(b.cq).status == SND_CANCELED);
	const snd_operation_stats s = of(a.ep).operations, t = of(b.ep).operations;
	CHECK(is(&s.write, 2, 0, 8 + LONG) && is(&s.read, 1, 0, 8) && is(&s.send, 3, 0, 16 + LONG) && is(&s.atomic, 1, 0, 8));
	CHECK(is(&s.bind, 1, 0, 0) && is(&s.invalidate, 1, 0, 0) && is(&s.fast_register, 0, 0, 0) && is(&s.receive, 0, 0, 0));
	CHECK(is(&t.receive, 3, 1, 16 + LONG) && is(&t.send, 0, 0, 0));
	snd_cq_stats q, r;
	OK(snd_cq_get_stats(a.cq, &q));
	OK(snd_cq_get_stats(b.cq, &r));
	CHECK(is(&q.operations.send, 2, 0, 8 + LONG) && is(&q.operations.write, 2, 0, 8 + LONG) && q.results == 8); /* without the silent one */
	CHECK(memcmp(&r.operations, &t, sizeof t) == 0 && r.results == 4);
	OK(snd_window_close(window, SECOND));
	disconnect_members();
	OK(snd_mr_close(mine, SECOND));
	OK(snd_mr_close(theirs, SECOND));
	close_members();
}

int main(void)
{
	count_by_type(SND_EXECUTOR_AUTO);
	count_by_type(SND_EXECUTOR_TARGET);
	open_members(SND_EXECUTOR_AUTO);
	OK(snd_mr_allocate(a.adapter, 4096, ALL, &mine));
	OK(snd_mr_allocate(b.adapter, 4096, ALL, &theirs));
	OK(snd_mr_register(b.adapter, memory, sizeof memory, ALL, &far));
	connect_members(NULL);
	snd_endpoint_stats s = of(a.ep), t;
	CHECK(s.number == 1 && s.requests_posted == 0 && strcmp(s.state, "connected") == 0 && s.peer[0] != 0);

	/* Requests of the fast path, a silent one, one that the peer copies, and one that waits for a receive. */
	write_to(theirs, 1, 0);
	write_to(theirs, 2, SND_SILENT_SUCCESS);
	write_to(far, 3, 0);
	WANT(a.cq, SND_REQUEST_WRITE, 1, SND_SUCCESS);
	WANT(a.cq, SND_REQUEST_WRITE, 3, SND_SUCCESS);
	s = of(a.ep);
	CHECK(s.requests_posted == 3 && s.requests_completed == 3 && s.requests_immediate == 2 && s.stalls_receive == 0 && s.accesses_refused == 0);
	OK(snd_endpoint_send(a.ep, 4, NULL, 0, 0));
	s = of(a.ep);
	CHECK(s.requests_posted == 4 && s.requests_completed == 3 && s.stalls_receive == 1);
	OK(snd_endpoint_receive(b.ep, 5, NULL, 0));
	WANT(a.cq, SND_REQUEST_SEND, 4, SND_SUCCESS);
	WANT(b.cq, SND_REQUEST_RECEIVE, 5, SND_SUCCESS);
	s = of(a.ep);
	t = of(b.ep);
	CHECK(s.requests_completed == 4 && s.stalls_receive == 1 && s.retries > 0 && t.receives_posted == 1 && t.receives_completed == 1);

	/* A full queue. */
	for (int i = 0; i < 64; i++)
		OK(snd_endpoint_receive(b.ep, 6, NULL, 0));
	CHECK(snd_endpoint_receive(b.ep, 6, NULL, 0) == SND_NO_MORE_ENTRIES && of(b.ep).posts_refused == 1);
	snd_cq_stats q;
	OK(snd_cq_get_stats(a.cq, &q));
	CHECK(q.number > 0 && q.depth == 64 && q.queued == 0 && q.results == 3 && q.polls > 0 && q.overrun == 0);

	/* A refused access. */
	const snd_sge sge = snd_mr_sge(mine, 0, 8);
	OK(snd_endpoint_write(a.ep, 7, &sge, 1, snd_mr_address(theirs), 0x12345, 0));
	WANT(a.cq, SND_REQUEST_WRITE, 7, SND_ACCESS_VIOLATION);
	s = of(a.ep);
	CHECK(s.accesses_refused == 1 && strcmp(s.state, "failed") == 0);
	CHECK(is(&s.operations.write, 0, 0, 0) && is(&s.operations.send, 0, 0, 0)); /* the fabric does not count them */
	disconnect_members();
	OK(snd_mr_close(mine, SECOND));
	OK(snd_mr_close(theirs, SECOND));
	OK(snd_mr_close(far, SECOND));
	close_members();
	return 0;
}

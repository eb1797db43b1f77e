/* Moderated events, the processors that serve them, and lists of receives and messages. */
#include <poll.h>
#include <unistd.h>

#include "two_members.h"

#define MS INT64_C(1000000)

/* complete makes n results of a's requests. The queue is not polled. */
static void complete(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		OK(snd_endpoint_write(a.ep, 1, NULL, 0, 0, 0, 0));
}

static uint32_t take_all(void)
{
	snd_result r[64];
	uint32_t n = 0;
	for (int32_t got; (got = snd_cq_poll(a.cq, r, 64)) > 0;)
		n += (uint32_t)got;
	return n;
}

static int readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	CHECK(poll(&p, 1, 0) >= 0);
	return (p.revents & POLLIN) != 0;
}

static void drain(int fd)
{
	uint64_t count;
	CHECK(read(fd, &count, sizeof count) == sizeof count);
	take_all();
}

static void test_moderation(void)
{
	int fd;
	connect_members(NULL);
	CHECK(snd_cq_moderate(a.cq, -1, -1) == SND_INVALID_PARAMETER);
	OK(snd_cq_event_fd(a.cq, &fd));
	complete(2);
	CHECK(readable(fd));
	drain(fd);

	OK(snd_cq_moderate(a.cq, -1, 3)); /* only the count */
	complete(2);
	CHECK(snd_cq_notify(a.cq, SND_NOTIFY_ANY, 30 * MS) == SND_IO_TIMEOUT && !readable(fd));
	complete(1);
	OK(snd_cq_notify(a.cq, SND_NOTIFY_ANY, 0));
	CHECK(readable(fd));
	drain(fd);
	complete(4); /* the event of the third covers three */
	CHECK(readable(fd));
	CHECK(read(fd, &(uint64_t){0}, 8) == 8 && take_all() == 4);

	OK(snd_cq_moderate(a.cq, 20 * MS, 1000)); /* the interval comes first */
	complete(1);
	OK(snd_cq_notify(a.cq, SND_NOTIFY_ANY, 10 * SECOND));
	CHECK(readable(fd));
	drain(fd);

	OK(snd_cq_moderate(a.cq, -1, 1000));
	complete(2);
	CHECK(!readable(fd));
	OK(snd_cq_moderate(a.cq, 0, 0)); /* the end of moderation announces what was delayed */
	CHECK(readable(fd));
	drain(fd);
	complete(1);
	CHECK(readable(fd));
	drain(fd);

	OK(snd_cq_moderate(a.cq, 10 * SECOND, 1000));
	complete(1);
	snd_sge bad = {&fd, 4, 12345};
	CHECK(!readable(fd));
	OK(snd_endpoint_write(a.ep, 2, &bad, 1, 1, 1, 0));
	OK(snd_cq_notify(a.cq, SND_NOTIFY_ERRORS, SECOND)); /* a failure is announced at once */
	CHECK(readable(fd));
	disconnect_members(); /* with the timer under way */
}

static void test_affinity(snd_srq *srq)
{
	uint16_t group[2];
	uint64_t mask[2];
	OK(snd_cq_notify_affinity(a.cq, &group[0], &mask[0]));
	OK(snd_srq_notify_affinity(srq, &group[1], &mask[1]));
	CHECK(mask[0] != 0 && mask[0] == mask[1] && group[0] == group[1]);
	CHECK(snd_cq_notify_affinity(a.cq, NULL, &mask[0]) == SND_INVALID_PARAMETER);
}

/* One call posts receives to the shared queue; one posts the messages, of which the second also ends a window. */
static void test_lists(void)
{
	snd_srq *srq;
	snd_mr *mr;
	snd_window *w;
	snd_window_descriptor d;
	uint32_t posted, taken;
	OK(snd_srq_create(b.adapter, &(snd_srq_config){.depth = 4}, &srq));
	connect_members(srq);
	OK(snd_mr_allocate(b.adapter, 4096, SND_ALLOW_LOCAL_WRITE, &mr));
	test_affinity(srq);
	OK(snd_window_create(b.adapter, &w));
	OK(snd_endpoint_bind(b.ep, 1, mr, w, snd_mr_buffer(mr), 8, SND_ALLOW_WRITE));
	WANT(b.cq, SND_REQUEST_BIND, 1, SND_SUCCESS);
	OK(snd_window_query(w, &d));
	snd_sge s = {snd_mr_buffer(mr), 64, snd_mr_local_token(mr)};
	const snd_request receives[] = {{.type = SND_REQUEST_RECEIVE, .context = 10, .sge = &s, .count = 1}, {.type = SND_REQUEST_RECEIVE, .context = 11, .sge = &s, .count = 1},
		{.type = SND_REQUEST_RECEIVE, .context = 12}, {.type = SND_REQUEST_RECEIVE, .context = 13}, {.type = SND_REQUEST_RECEIVE, .context = 14}};
	CHECK(snd_srq_post(srq, receives, 5, &posted) == SND_NO_MORE_ENTRIES && posted == 4);
	const snd_request wrong = {.type = SND_REQUEST_SEND};
	CHECK(snd_srq_post(srq, &wrong, 1, &posted) == SND_INVALID_PARAMETER && posted == 0 && snd_srq_post(srq, NULL, 1, NULL) == SND_INVALID_PARAMETER);
	CHECK(snd_endpoint_post(b.ep, receives, 1, &posted) == SND_INVALID_DEVICE_REQUEST && posted == 0);
	const snd_request sends[] = {{.type = SND_REQUEST_SEND, .context = 20}, {.type = SND_REQUEST_SEND, .context = 21, .token = d.token}, {.type = SND_REQUEST_SEND, .context = 22}};
	OK(snd_endpoint_post(a.ep, sends, 3, &posted));
	CHECK(posted == 3);
	for (uint64_t i = 0; i < 3; i++) {
		WANT(a.cq, SND_REQUEST_SEND, 20 + i, SND_SUCCESS);
		snd_result r;
		OK(snd_cq_wait(b.cq, &r, 1, 10 * SECOND, &taken));
		CHECK(r.status == SND_SUCCESS && r.request_context == 10 + i);
		CHECK(r.type == (i == 1 ? SND_REQUEST_RECEIVE_AND_INVALIDATE : SND_REQUEST_RECEIVE) && r.invalidated_token == (i == 1 ? d.token : 0));
	}
	disconnect_members();
	OK(snd_srq_close(srq));
	OK(snd_window_close(w, SECOND));
	OK(snd_mr_close(mr, SECOND));
}

int main(void)
{
	open_members(SND_EXECUTOR_AUTO);
	test_moderation();
	test_lists();
	close_members();
	return 0;
}

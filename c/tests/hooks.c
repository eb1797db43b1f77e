/* Hooks of completion queues and shared receive queues, which the library for verbs programs sets. */
#include <unistd.h>

#include "endpoint/cq.h"
#include "endpoint/srq.h"
#include "two_members.h"

/* calls of the hooks. */
static _Atomic int events, overruns, lows;

static void on_event(void *arg, bool overrun)
{
	CHECK(arg == &events);
	if (overrun)
		overruns++;
	else
		events++;
}

static void on_low(void *arg)
{
	CHECK(arg == &lows);
	lows++;
}

/* AWAIT waits until a counter that a thread of the library changes has a value. */
#define AWAIT(counter, value) \
	do { \
		for (int i_ = 0; i_ < 10000 && (counter) < (value); i_++) \
			usleep(1000); \
		CHECK((counter) == (value)); \
	} while (0)

static void open_pair(snd_srq *srq)
{
	events = overruns = lows = 0;
	connect_members(srq);
	OK(snd_cq_set_hook(b.cq, on_event, &events));
}

static void post_receives(int n)
{
	while (n-- > 0)
		OK(snd_endpoint_receive(b.ep, 1, NULL, 0));
}

static void send_to_b(uint32_t flags)
{
	OK(snd_endpoint_send(a.ep, 1, NULL, 0, flags));
	WANT(a.cq, SND_REQUEST_SEND, 1, SND_SUCCESS);
}

static int queued_at_b(void)
{
	snd_lock(b.fabric);
	const int n = (int)(b.cq->tail - b.cq->head);
	snd_unlock(b.fabric);
	return n;
}

static void take_at_b(void) { WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS); }

/* Each arming calls the hook once, for a result that comes later. */
static void test_arm(void)
{
	open_pair(NULL);
	post_receives(16);
	send_to_b(0);
	AWAIT(queued_at_b(), 1);
	CHECK(events == 0); /* not armed */
	OK(snd_cq_arm(b.cq, SND_NOTIFY_ANY));
	take_at_b();
	CHECK(events == 0); /* it came before */
	send_to_b(0); /* b's engine takes it */
	AWAIT(events, 1);
	send_to_b(0);
	take_at_b();
	take_at_b();
	CHECK(events == 1);

	OK(snd_cq_arm(b.cq, SND_NOTIFY_SOLICITED));
	send_to_b(0);
	take_at_b();
	CHECK(events == 1);
	send_to_b(SND_SOLICIT_EVENT);
	AWAIT(events, 2);
	OK(snd_cq_arm(b.cq, SND_NOTIFY_SOLICITED));
	send_to_b(0);
	take_at_b();
	take_at_b();
	CHECK(events == 2);

	/* The wider of two armings holds. */
	OK(snd_cq_arm(b.cq, SND_NOTIFY_ANY));
	OK(snd_cq_arm(b.cq, SND_NOTIFY_SOLICITED));
	send_to_b(0);
	AWAIT(events, 3);
	OK(snd_cq_arm(b.cq, SND_NOTIFY_SOLICITED));
	OK(snd_cq_arm(b.cq, SND_NOTIFY_ANY));
	send_to_b(0);
	AWAIT(events, 4);

	/* A failure counts as solicited. */
	OK(snd_cq_arm(b.cq, SND_NOTIFY_SOLICITED));
	OK(snd_endpoint_close(a.ep));
	AWAIT(events, 5);
	CHECK(overruns == 0);
	OK(snd_endpoint_close(b.ep));
	OK(snd_connector_close(a.connector));
	OK(snd_connector_close(b.connector));
	OK(snd_cq_close(a.cq));
	OK(snd_cq_close(b.cq));
}

/* A queue with events of both kinds counts once. */
static void test_count(void)
{
	int fd;
	open_pair(NULL);
	const uint32_t before = snd_relaxed32(&b.fabric->event_fds);
	OK(snd_cq_arm(b.cq, SND_NOTIFY_ANY));
	OK(snd_cq_event_fd(b.cq, &fd));
	OK(snd_cq_arm(b.cq, SND_NOTIFY_ANY));
	CHECK(snd_relaxed32(&b.fabric->event_fds) == before + 1);
	disconnect_members();
	CHECK(snd_relaxed32(&b.fabric->event_fds) == before);
}

static void test_overrun(void)
{
	open_pair(NULL);
	OK(snd_cq_resize(b.cq, 1)); /* two places */
	post_receives(4);
	for (int i = 0; i < 3; i++)
		OK(snd_endpoint_send(a.ep, 1, NULL, 0, 0));
	AWAIT(overruns, 1);
	OK(snd_endpoint_flush(b.ep, 10 * SECOND));
	CHECK(overruns == 1 && events == 0);
	disconnect_members();
}

/* Endpoints of all adapters may use a queue with a hook. */
static void test_adapters(void)
{
	snd_adapter *other;
	snd_cq *cq;
	snd_endpoint *ep;
	OK(snd_adapter_open(a.fabric, &other));
	OK(snd_cq_create(other, 10, &cq));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	CHECK(snd_endpoint_create(a.adapter, &config, &ep) == SND_INVALID_PARAMETER);
	OK(snd_cq_set_hook(cq, on_event, &events));
	OK(snd_endpoint_create(a.adapter, &config, &ep));
	OK(snd_endpoint_close(ep));
	OK(snd_adapter_close(other, SND_FOREVER));
}

static void test_srq(void)
{
	snd_srq *srq;
	OK(snd_srq_create(b.adapter, &(snd_srq_config){.depth = 4}, &srq));
	open_pair(srq);
	for (int i = 0; i < 4; i++)
		OK(snd_srq_receive(srq, 1, NULL, 0));
	CHECK(snd_srq_arm(srq, 5, on_low, &lows) == SND_INVALID_PARAMETER);
	OK(snd_srq_arm(srq, 3, on_low, &lows));
	for (int i = 0; i < 4; i++) {
		CHECK(lows == (i > 1) && snd_srq_threshold(srq) == (i > 1 ? 0 : 3));
		send_to_b(0);
		take_at_b();
	}
	OK(snd_srq_receive(srq, 1, NULL, 0));
	OK(snd_srq_arm(srq, 1, on_low, &lows));
	CHECK(lows == 1);
	OK(snd_srq_arm(srq, 2, on_low, &lows));
	CHECK(lows == 2 && snd_srq_threshold(srq) == 0); /* there are fewer already */
	disconnect_members();
	OK(snd_srq_close(srq));
}

int main(void)
{
	open_members(SND_EXECUTOR_AUTO);
	test_arm();
	test_count();
	test_overrun();
	test_adapters();
	test_srq();
	close_members();
	return 0;
}

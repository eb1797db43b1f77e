/* Fault rules about calls. */
#include "planted.h"

static void *close_queue(void *q)
{
	while (snd_relaxed(&records[0].counters.fired) < 3)
		usleep(100); /* until the rule delays the third call */
	OK(snd_cq_close(q));
	return NULL;
}

/* A call is late by a part of its timeout, and another thread may close its handle meanwhile. */
static void test_late_calls(void)
{
	struct snd_fault_rule r = rule(SNDL_FAULT_NOTIFY, SNDL_FAULT_AT_POST, SNDL_FAULT_DELAY);
	pthread_t thread;
	snd_cq *q;
	r.delay = UINT64_MAX;
	plant(&r, 1);
	open_side(&a, 0, SND_EXECUTOR_AUTO);
	OK(snd_cq_create(a.adapter, 4, &q));
	CHECK(snd_cq_notify(q, SND_NOTIFY_ANY, 0) == SND_IO_TIMEOUT && snd_cq_notify(q, SND_NOTIFY_ANY, 2000000) == SND_IO_TIMEOUT);
	CHECK(pthread_create(&thread, NULL, close_queue, q) == 0);
	CHECK(snd_cq_notify(q, SND_NOTIFY_ANY, SND_FOREVER) == SND_CANCELED);
	CHECK(pthread_join(thread, NULL) == 0);
	want_counts(0, 3, 3);
	OK(snd_fabric_close(a.fabric));
	OK(snd_fabric_close(base));
}

/* canceler is a thread that cancels the calls of a connector when a rule delays one of them. */
struct canceler {
	int rule;
	snd_connector *connector;
	pthread_t thread;
};

static void *cancel_call(void *arg)
{
	struct canceler *c = arg;
	while (snd_relaxed(&records[c->rule].counters.fired) == 0)
		usleep(100);
	OK(snd_connector_cancel(c->connector));
	return NULL;
}

static void begin_cancel(struct canceler *c, int number, snd_connector *connector)
{
	c->rule = number;
	c->connector = connector;
	CHECK(pthread_create(&c->thread, NULL, cancel_call, c) == 0);
}

static void *connect_a(void *to)
{
	OK(snd_connector_connect(a.connector, a.ep, *(snd_address *)to, NULL, 10 * SECOND));
	OK(snd_connector_complete(a.connector));
	return NULL;
}

/* A cancel ends the delay of a call, and the connector is as before: the call succeeds later. A call with bad arguments meets no rule. */
static void test_canceled_calls(void)
{
	struct snd_fault_rule rules[] = {rule(SNDL_FAULT_CONNECT, SNDL_FAULT_AT_POST, SNDL_FAULT_DELAY), rule(SNDL_FAULT_ACCEPT, SNDL_FAULT_AT_POST, SNDL_FAULT_DELAY),
		rule(SNDL_FAULT_DISCONNECT, SNDL_FAULT_AT_POST, SNDL_FAULT_DELAY)};
	const snd_connect_params bad = {.private_data_length = 1};
	struct canceler c;
	snd_address to;
	pthread_t thread;
	for (int i = 0; i < 3; i++) {
		rules[i].delay = UINT64_MAX;
		rules[i].times = 1;
	}
	rules[1].ranks[0] = 2; /* b */
	plant(rules, 3);
	open_side(&a, 0, SND_EXECUTOR_AUTO);
	open_side(&b, 1, SND_EXECUTOR_AUTO);
	OK(snd_listener_create(b.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	OK(snd_listener_address(listener, &to));
	struct side *sides[] = {&a, &b};
	for (int i = 0; i < 2; i++) {
		OK(snd_cq_create(sides[i]->adapter, 4, &sides[i]->cq));
		OK(snd_endpoint_create(sides[i]->adapter, &(snd_endpoint_config){.receive_cq = sides[i]->cq, .initiator_cq = sides[i]->cq}, &sides[i]->ep));
	}
	OK(snd_connector_create(a.adapter, &a.connector));
	begin_cancel(&c, 0, a.connector);
	CHECK(snd_connector_connect(a.connector, a.ep, to, NULL, SND_FOREVER) == SND_CANCELED);
	CHECK(pthread_join(c.thread, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, connect_a, &to) == 0);
	OK(snd_listener_request(listener, 10 * SECOND, &b.connector));
	CHECK(snd_connector_accept(b.connector, b.ep, &bad, SND_FOREVER) == SND_INVALID_PARAMETER);
	want_counts(1, 0, 0);
	begin_cancel(&c, 1, b.connector);
	CHECK(snd_connector_accept(b.connector, b.ep, NULL, SND_FOREVER) == SND_CANCELED);
	CHECK(pthread_join(c.thread, NULL) == 0);
	OK(snd_connector_accept(b.connector, b.ep, NULL, 10 * SECOND));
	CHECK(pthread_join(thread, NULL) == 0);
	begin_cancel(&c, 2, a.connector);
	CHECK(snd_connector_disconnect(a.connector, SND_FOREVER) == SND_CANCELED);
	CHECK(pthread_join(c.thread, NULL) == 0 && snd_endpoint_error(a.ep) == SND_SUCCESS);
	disconnect_members();
	close_members();
	OK(snd_fabric_close(base));
}

int main(void)
{
	test_late_calls();
	test_canceled_calls();
	return 0;
}

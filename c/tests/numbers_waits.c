/* The deadline of requests that wait for a connection by number. A member makes progress in its calls only: without calls it is as a stopped process. */
#include <unistd.h>

#include "endpoint/cm_number.h"
#include "linux/clock.h"
#include "shm/number.h"
#include "two_members.h"

#define DEADLINE (SECOND * 3 / 10)
#define LONGER (SECOND * 4 / 10)

static uint32_t of_a, of_b; /* numbers of the sides */

/* claim_numbers gives a the higher number, or the lower one. Each use of an entry has a higher tag. */
static void claim_numbers(bool a_is_higher)
{
	OK(snd_number_claim(a.adapter, &of_a));
	OK(snd_number_claim(b.adapter, &of_b));
	while ((of_a > of_b) != a_is_higher) {
		const struct side *s = a_is_higher ? &a : &b;
		uint32_t *n = a_is_higher ? &of_a : &of_b;
		OK(snd_number_free(s->adapter, *n));
		OK(snd_number_claim(s->adapter, n));
	}
}

static void make_endpoints(void)
{
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq}, &a.ep));
	OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq}, &b.ep));
	OK(snd_endpoint_receive(b.ep, 1, NULL, 0));
}

/* name makes a side wait for the other one. */
static void name(struct side *s)
{
	const snd_number_params p = {.number = s == &a ? of_a : of_b, .dest = s == &a ? of_b : of_a, .rnr_timer = 1000000, .rnr_retry = 7, .retry_deadline = DEADLINE};
	OK(snd_endpoint_connect_number(s->ep, &p));
}

static void post(void) { OK(snd_endpoint_send(a.ep, 2, NULL, 0, 0)); }

static void leave(struct side *s)
{
	snd_result r;
	OK(snd_number_leave(s->ep));
	OK(snd_endpoint_close(s->ep));
	while (snd_cq_poll(s->cq, &r, 1) > 0) { /* of the end */
	}
}

/* poll_in_vain polls a's queue, which stays empty, for longer than the deadline. */
static void poll_in_vain(void)
{
	snd_result r;
	for (const int64_t end = snd_clock() + LONGER; snd_clock() < end;)
		CHECK(snd_cq_poll(a.cq, &r, 1) == 0);
}

/* poll polls the queue of a side until it has a result. The other side makes progress, too. */
static snd_result poll(struct side *s)
{
	snd_result r;
	for (const int64_t end = snd_clock() + 10 * SECOND; snd_cq_poll(s->cq, &r, 1) == 0;) {
		CHECK(snd_clock() < end);
		OK(snd_fabric_progress(s == &a ? b.fabric : a.fabric));
	}
	return r;
}

/* expect_transfer waits until the request has succeeded, and ends the endpoints. */
static void expect_transfer(void)
{
	const snd_result received = poll(&b), sent = poll(&a);
	CHECK(received.request_context == 1 && received.status == SND_SUCCESS);
	CHECK(sent.request_context == 2 && sent.status == SND_SUCCESS);
	leave(&a);
	leave(&b);
}

/* The peer is ready, and then stopped, before it knows of this side. */
static void test_ready_peer(void)
{
	make_endpoints();
	name(&b);
	name(&a);
	post();
	poll_in_vain();
	expect_transfer();
}

/* The peer becomes ready while this side waits, and is then stopped. If it is the active one, its record is under way. */
static void test_late_peer(void)
{
	make_endpoints();
	name(&a);
	post();
	name(&b);
	poll_in_vain();
	expect_transfer();
}

/* This side is stopped while its request waits, and goes on before the peer is ready. */
static void test_stopped(void)
{
	snd_result r;
	make_endpoints();
	name(&a);
	post();
	CHECK(snd_cq_poll(a.cq, &r, 1) == 0);
	CHECK(usleep(LONGER / 1000) == 0);
	CHECK(snd_cq_poll(a.cq, &r, 1) == 0);
	name(&b);
	expect_transfer();
}

/* The passive side cannot use the record, and refuses it. Both sides wait, and the deadline runs. */
static void test_refused(void)
{
	make_endpoints();
	struct side *active = of_a < of_b ? &b : &a;
	const uint64_t offset = active->ep->local_qp_offset;
	active->ep->local_qp_offset = 1;
	name(&b);
	name(&a);
	post();
	const snd_result r = poll(&a);
	CHECK(r.request_context == 2 && r.status == SND_CONNECTION_ABORTED);
	active->ep->local_qp_offset = offset;
	leave(&a);
	leave(&b);
}

int main(void)
{
	open_members_with((snd_fabric_options){.threading = SND_THREAD_DOMAIN, .progress = SND_PROGRESS_MANUAL});
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_cq_create(b.adapter, 64, &b.cq));
	for (int higher = 0; higher < 2; higher++) { /* b, then a */
		claim_numbers(higher == 1);
		test_ready_peer();
		test_late_peer();
		test_stopped();
		test_refused();
	}
	close_members();
	return 0;
}

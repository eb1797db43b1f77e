/* A process is stopped while a request waits for its connection. Once the peer is in RTR, a request does not fail for that: a card would answer. */
#include <signal.h>

#include "processes.h"

static struct side own;

/* settle gives the queue pair of this process a number that is higher than that of the peer, or waits until the peer has done so. */
static uint32_t settle(int is_higher)
{
	uint32_t theirs;
	make_qp(&own, 0, 1);
	if (is_higher) {
		hear(&theirs, sizeof theirs);
		while (own.qp->qp_num < theirs) { /* each use of a number's entry has a higher tag */
			CHECK(ibv_destroy_qp(own.qp) == 0);
			make_qp(&own, 0, 1);
		}
		tell(&own.qp->qp_num, sizeof own.qp->qp_num);
	} else {
		tell(&own.qp->qp_num, sizeof own.qp->qp_num);
		hear(&theirs, sizeof theirs);
	}
	return theirs;
}

/* get_ready moves to RTS, with the time after which requests to a peer that is not ready fail: 8 * 4.096 us * 2^timeout. */
static void get_ready(uint32_t dest, uint8_t timeout)
{
	struct ibv_qp_attr attr = attributes(IBV_QPS_RTS, dest);
	attr.timeout = timeout;
	CHECK(move(own.qp, IBV_QPS_INIT, 0) == 0 && receive(&own, 1, 0, BYTES) == 0);
	CHECK(move(own.qp, IBV_QPS_RTR, dest) == 0 && ibv_modify_qp(own.qp, &attr, RTS_MASK) == 0);
}

/* await_stop waits until all threads of the child are stopped. */
static void await_stop(void)
{
	int status;
	CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
}

/* poll_for polls the queue, which stays empty, for some milliseconds. */
static void poll_for(int64_t milliseconds)
{
	struct timespec begin, now;
	struct ibv_wc wc;
	(void)clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		CHECK(ibv_poll_cq(own.cq, 1, &wc) == 0);
		(void)clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < milliseconds);
}

/* peer_stops: the child is ready, and stopped when the parent posts. */
static void peer_stops(int is_child, int child_is_higher)
{
	const uint32_t dest = settle(is_child == child_is_higher);
	if (is_child) {
		get_ready(dest, 0);
		CHECK(raise(SIGSTOP) == 0);
		expect(&own, 1, IBV_WC_SUCCESS);
	} else {
		await_stop();
		get_ready(dest, 8); /* 8 ms */
		CHECK(transfer(&own, &own, 2, IBV_WR_SEND, 8) == 0);
		poll_for(100);
		CHECK(kill(child, SIGCONT) == 0);
		expect(&own, 2, IBV_WC_SUCCESS);
	}
	(void)exchange(0);
	CHECK(ibv_destroy_qp(own.qp) == 0);
}

/* sender_stops: the child is stopped when it has posted, until the parent has been ready for longer than the child's requests wait. */
static void sender_stops(int is_child, int child_is_higher)
{
	const uint32_t dest = settle(is_child == child_is_higher);
	if (is_child) {
		get_ready(dest, 16); /* 2.1 s: a busy machine may take some of it before the stop */
		CHECK(transfer(&own, &own, 2, IBV_WR_SEND, 8) == 0 && raise(SIGSTOP) == 0);
		expect(&own, 2, IBV_WC_SUCCESS);
	} else {
		await_stop();
		get_ready(dest, 0);
		poll_for(2500);
		CHECK(kill(child, SIGCONT) == 0);
		expect(&own, 1, IBV_WC_SUCCESS);
	}
	(void)exchange(0);
	CHECK(ibv_destroy_qp(own.qp) == 0);
}

int main(void)
{
	name_fabric("stopped");
	const int is_child = split();
	struct ibv_context *c = open_device();
	open_side(&own, c, 0);
	for (int child_is_higher = 0; child_is_higher < 2; child_is_higher++) {
		peer_stops(is_child, child_is_higher);
		sender_stops(is_child, child_is_higher);
	}
	CHECK(ibv_dereg_mr(own.mr) == 0 && ibv_destroy_cq(own.cq) == 0 && ibv_dealloc_pd(own.pd) == 0 && ibv_close_device(c) == 0);
	if (!is_child)
		join_child();
	return 0;
}

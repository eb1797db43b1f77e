/* Completion channels and asynchronous events of queue pairs that transfer data. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "sides.h"

static struct side a, b;

static int is_readable(int fd) { return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1; }

static int has_become_readable(int fd) { return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 30000) == 1; }

/* open_pair makes and connects both sides. The queue of b has a channel, which may be NULL, and a depth. */
static void open_pair(struct ibv_context *c, struct ibv_comp_channel *channel, int depth, int with_srq)
{
	open_side(&a, c, 0);
	open_side(&b, c, with_srq);
	CHECK(ibv_destroy_cq(b.cq) == 0 && (b.cq = ibv_create_cq(c, depth, &b, channel, 0)) != NULL);
	make_qp(&a, 0, 0);
	make_qp(&b, 0, 0);
	join(&a, &b);
	join(&b, &a);
}

static void close_pair(void)
{
	close_side(&a);
	close_side(&b);
}

/* send_to_b sends one message for which b has a receive, and takes the completion at a. */
static void send_to_b(unsigned flags)
{
	struct ibv_sge sge = at(&a, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags}, *bad;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	expect(&a, 1, IBV_WC_SUCCESS);
}

static void want_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	CHECK(ibv_get_cq_event(channel, &cq, &context) == 0 && cq == b.cq && context == &b);
}

static void *wait_event(void *channel)
{
	want_event(channel);
	return NULL;
}

static void *acknowledge(void *cq)
{
	ibv_ack_cq_events(cq, 3);
	return NULL;
}

static void completions(struct ibv_context *c)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(c);
	struct ibv_cq *cq;
	void *context;
	pthread_t thread;
	open_pair(c, channel, 32, 0);
	for (int i = 0; i < DEPTH; i++)
		CHECK(receive(&b, (uint64_t)i, 0, 64) == 0);
	send_to_b(0);
	expect(&b, 0, IBV_WC_SUCCESS);
	CHECK(!is_readable(channel->fd)); /* not armed */

	/* A thread sleeps, while no thread polls. One event for each arming. */
	CHECK(ibv_req_notify_cq(b.cq, 0) == 0 && pthread_create(&thread, NULL, wait_event, channel) == 0);
	send_to_b(0);
	CHECK(pthread_join(thread, NULL) == 0);
	send_to_b(0);
	expect(&b, 1, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
	CHECK(!is_readable(channel->fd));

	/* Only messages that solicit an event. */
	CHECK(ibv_req_notify_cq(b.cq, 1) == 0);
	send_to_b(0);
	expect(&b, 3, IBV_WC_SUCCESS);
	CHECK(!is_readable(channel->fd));
	send_to_b(IBV_SEND_SOLICITED);
	CHECK(has_become_readable(channel->fd));
	want_event(channel);
	expect(&b, 4, IBV_WC_SUCCESS);
	CHECK(!is_readable(channel->fd) && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	errno = 0;
	CHECK(ibv_get_cq_event(channel, &cq, &context) == -1 && errno == EAGAIN);

	/* A failure counts as solicited. */
	CHECK(ibv_req_notify_cq(b.cq, 1) == 0 && move(b.qp, IBV_QPS_ERR, 0) == 0);
	expect(&b, 5, IBV_WC_WR_FLUSH_ERR);
	want_event(channel);

	/* The end of the queue drops an event that is not taken, and waits for the acknowledgement of the others. */
	CHECK(ibv_req_notify_cq(b.cq, 0) == 0 && receive(&b, 9, 0, 8) == 0 && has_become_readable(channel->fd));
	CHECK(ibv_destroy_cq(b.cq) == EBUSY && ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(pthread_create(&thread, NULL, acknowledge, b.cq) == 0);
	close_pair();
	CHECK(pthread_join(thread, NULL) == 0 && !is_readable(channel->fd) && ibv_destroy_comp_channel(channel) == 0);
}

static _Atomic int handled, has_failed;

static void handle(int number)
{
	(void)number;
	handled++;
}

static void *wait_interrupted(void *channel)
{
	struct ibv_cq *cq;
	void *context;
	has_failed = ibv_get_cq_event(channel, &cq, &context) != 0 && errno == EINTR;
	return NULL;
}

/* A wait goes on after a handler with SA_RESTART, as the read of a card's descriptor does, whatever the handlers of faults are, and ends after
 * another one. */
static void interrupted(struct ibv_context *c)
{
	pthread_t thread;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(c);
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART}, crash = {.sa_handler = handle};
	CHECK(channel != NULL && sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGFPE, &crash, NULL) == 0);
	open_pair(c, channel, 16, 0);
	CHECK(receive(&b, 1, 0, 8) == 0 && ibv_req_notify_cq(b.cq, 0) == 0 && pthread_create(&thread, NULL, wait_event, channel) == 0);
	while (handled < 5) {
		CHECK(pthread_kill(thread, SIGUSR1) == 0);
		(void)usleep(1000);
	}
	send_to_b(0);
	CHECK(pthread_join(thread, NULL) == 0);
	ibv_ack_cq_events(b.cq, 1);

	action.sa_flags = 0;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && pthread_create(&thread, NULL, wait_interrupted, channel) == 0);
	while (!has_failed) {
		(void)pthread_kill(thread, SIGUSR1);
		(void)usleep(1000);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	close_pair();
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static void overrun(struct ibv_context *c)
{
	struct ibv_async_event event;
	struct ibv_wc wc[DEPTH];
	open_pair(c, NULL, 1, 0);
	for (int i = 0; i < 4; i++)
		CHECK(receive(&b, (uint64_t)i, 0, 64) == 0);
	for (int i = 0; i < 4; i++) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
		CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	}
	CHECK(has_become_readable(c->async_fd) && ibv_get_async_event(c, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == b.cq);
	ibv_ack_async_event(&event);
	while (ibv_poll_cq(b.cq, DEPTH, wc) > 0)
		; /* the results before it */
	CHECK(ibv_poll_cq(b.cq, DEPTH, wc) < 0);
	close_pair();
}

static void shared_receives(struct ibv_context *c)
{
	struct ibv_async_event event;
	open_pair(c, NULL, 32, 1);
	for (int i = 0; i < 4; i++)
		CHECK(receive(&b, (uint64_t)i, 0, 64) == 0);
	CHECK(ibv_modify_srq(b.srq, &(struct ibv_srq_attr){.srq_limit = 2}, IBV_SRQ_LIMIT) == 0);
	for (int i = 0; i < 2; i++) {
		send_to_b(0);
		expect(&b, (uint64_t)i, IBV_WC_SUCCESS);
	}
	CHECK(!is_readable(c->async_fd)); /* two are left */
	send_to_b(0);
	CHECK(has_become_readable(c->async_fd) && ibv_get_async_event(c, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == b.srq);
	ibv_ack_async_event(&event);
	send_to_b(0);
	CHECK(!is_readable(c->async_fd)); /* the limit holds once */
	close_pair();
}

enum { POLLERS = 3, MESSAGES = 300 };

static _Atomic int taken, seen[MESSAGES];

/* take_some polls with other threads. The fields are those of the result that this thread has taken. */
static void *take_some(void *extended)
{
	struct ibv_cq_ex *cq = extended;
	struct ibv_poll_cq_attr attr = {0};
	while (taken < MESSAGES) {
		int status = ibv_start_poll(cq, &attr);
		if (status == ENOENT)
			continue;
		for (; status == 0; status = ibv_next_poll(cq)) {
			const uint64_t id = cq->wr_id, stamp = ibv_wc_read_completion_ts(cq);
			CHECK(id < MESSAGES && seen[id]++ == 0 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
			CHECK(ibv_wc_read_qp_num(cq) == a.qp->qp_num && ibv_wc_read_wc_flags(cq) == 0);
			sched_yield();
			CHECK(cq->wr_id == id && ibv_wc_read_completion_ts(cq) == stamp);
			taken++;
		}
		CHECK(status == ENOENT);
		ibv_end_poll(cq);
	}
	return NULL;
}

static void pollers(struct ibv_context *c)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 4 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	pthread_t threads[POLLERS];
	open_side(&a, c, 0);
	open_side(&b, c, 0);
	struct ibv_cq_ex *extended = ibv_create_cq_ex(c, &attr);
	CHECK(extended != NULL && ibv_destroy_cq(a.cq) == 0);
	a.cq = ibv_cq_ex_to_cq(extended);
	make_qp(&a, 0, 1);
	make_qp(&b, 0, 0);
	join(&a, &b);
	join(&b, &a);
	taken = 0;
	for (int i = 0; i < POLLERS; i++)
		CHECK(pthread_create(&threads[i], NULL, take_some, extended) == 0);
	for (int posted = 0; posted < MESSAGES;) {
		struct ibv_sge sge = at(&a, 0, 8);
		struct ibv_send_wr wr = {.wr_id = (uint64_t)posted, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {(uintptr_t)b.buffer, b.mr->rkey}}, *bad;
		const int error = ibv_post_send(a.qp, &wr, &bad);
		CHECK(error == 0 || error == ENOMEM);
		posted += error == 0;
	}
	for (int i = 0; i < POLLERS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(taken == MESSAGES);
	close_pair();
}

/* SOFTND_DEBUG=1 says in words why a request has failed, once, and nothing about those that fail after it. */
static void words(struct ibv_context *c)
{
	const int kept = dup(STDERR_FILENO), file = memfd_create("stderr", 0);
	char text[1000], want[100];
	open_pair(c, NULL, 32, 0);
	CHECK(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0 && setenv("SOFTND_DEBUG", "1", 1) == 0);
	b.mr->rkey ^= 1; /* another tag */
	CHECK(transfer(&a, &b, 5, IBV_WR_RDMA_WRITE, 8) == 0);
	expect(&a, 5, IBV_WC_REM_ACCESS_ERR);
	CHECK(receive(&a, 6, 0, 8) == 0);
	expect(&a, 6, IBV_WC_WR_FLUSH_ERR);
	snprintf(want, sizeof want, "softnd: queue pair %#06x, request 5: remote access error: ", a.qp->qp_num);
	close_pair();
	CHECK(dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0 && unsetenv("SOFTND_DEBUG") == 0);
	const ssize_t n = pread(file, text, sizeof text - 1, 0);
	CHECK(n > 0 && close(file) == 0);
	text[n] = '\0';
	if (strncmp(text, want, strlen(want)) != 0 || strchr(text, '\n') != text + n - 1)
		fprintf(stderr, "\"%s\", want %s", text, want);
	CHECK(strncmp(text, want, strlen(want)) == 0 && strchr(text, '\n') == text + n - 1);
}

int main(void)
{
	name_fabric("events");
	struct ibv_context *c = open_device();
	completions(c);
	interrupted(c);
	overrun(c);
	shared_receives(c);
	pollers(c);
	words(c);
	CHECK(!is_readable(c->async_fd) && ibv_close_device(c) == 0);
	return 0;
}

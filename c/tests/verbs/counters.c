/* Counters of the port: exact in the process that posts, and seen by one that has not joined. */
#include "sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

/* The call is not in verbs.h. */
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size);

static int tries = 1; /* to read a counter other than 0 */

static uint64_t counter(const char *name, uint64_t want)
{
	char text[64], file[64];
	uint64_t n = 0;
	snprintf(file, sizeof file, "ports/1/counters/%s", name);
	for (int i = 0; n == 0 && i < (want != 0 ? tries : 1); i++) {
		CHECK(ibv_read_sysfs_file("/sys/class/infiniband/softnd0", file, text, sizeof text) > 0);
		n = strtoull(text, NULL, 10);
	}
	return n;
}

/* check_counters compares the counters with bytes and requests. */
static void check_counters(uint64_t bytes, uint64_t requests)
{
	static const char *const data[] = {"port_xmit_data", "port_rcv_data"}, *const packets[] = {"port_xmit_packets", "unicast_rcv_packets"};
	for (int i = 0; i < 2; i++) {
		CHECK(counter(data[i], bytes / 4) == bytes / 4);
		CHECK(counter(packets[i], requests + bytes / 4096) == requests + bytes / 4096);
	}
	CHECK(counter("symbol_error", 0) == 0);
}

/* post posts a request that is signalled or not. */
static void post(struct side *s, const struct side *peer, enum ibv_wr_opcode opcode, uint32_t length, unsigned flags)
{
	struct ibv_sge sge = at(s, 0, length);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags, .wr.rdma = {(uintptr_t)peer->buffer, peer->mr->rkey}}, *bad;
	CHECK(ibv_post_send(s->qp, &wr, &bad) == 0);
}

int main(void)
{
	static struct side a, b;
	name_fabric("counters");
	struct ibv_context *c = open_device();
	check_counters(0, 0); /* no process is in the fabric */
	open_side(&a, c, 0);
	open_side(&b, c, 0);
	make_qp(&a, 0, 0);
	make_qp(&b, 0, 0);
	join(&a, &b);
	join(&b, &a);
	uint64_t bytes = 0, requests = 0;
	for (uint32_t n = 4; n <= BYTES; n *= 2) {
		post(&a, &b, IBV_WR_RDMA_WRITE, n / 2, IBV_SEND_SIGNALED);
		expect(&a, 0, IBV_WC_SUCCESS);
		post(&a, &b, IBV_WR_RDMA_WRITE, n / 2, 0);
		post(&b, &a, IBV_WR_RDMA_READ, n / 2, IBV_SEND_SIGNALED);
		expect(&b, 0, IBV_WC_SUCCESS);
		post(&a, &b, IBV_WR_RDMA_READ, 0, IBV_SEND_SIGNALED); /* the one before it has ended, too */
		expect(&a, 0, IBV_WC_SUCCESS);
		requests += 4;
		bytes += 3 * n / 2;
	}
	CHECK(receive(&b, 1, 0, 100) == 0 && transfer(&a, &b, 2, IBV_WR_SEND, 100) == 0);
	expect(&a, 2, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);
	check_counters(bytes += 100, ++requests);
	/* A request that fails has transferred nothing. */
	struct ibv_sge sge = at(&a, 0, 64);
	struct ibv_send_wr wr = {.wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)b.buffer, b.mr->rkey ^ 0x100}}, *bad;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	expect(&a, 3, IBV_WC_REM_ACCESS_ERR);
	check_counters(bytes, ++requests);
	/* A child is no member, and asks one: for half a second, so on a busy machine it may get no answer. */
	const pid_t child = fork();
	if (child == 0) {
		tries = 100;
		check_counters(bytes, requests);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	close_side(&a);
	close_side(&b);
	check_counters(bytes, requests);
	CHECK(ibv_close_device(c) == 0);
	check_counters(0, 0);
	return 0;
}

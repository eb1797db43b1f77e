/* A first measurement: C ranks beside Go ranks (c/tests/gorank bench). The two may be mixed. */
#include <sched.h>
#include <string.h>

#include "../src/atomic.h"
#include "../src/arena.h"
#include "check.h"

enum { ROUNDS = 2000000, PING = 400000, WINDOW = 64, SIZE = 8 };

static snd_job *job;
static uint32_t rank;

static void barrier(void) { OK(snd_job_barrier(job, INT64_C(60000000000))); }

static void report(const char *what, int64_t began, double n)
{
	double ns = (double)(snd_clock() - began) / n;
	if (rank == 0)
		printf("C   %-28s %8.1f ns\n", what, ns);
}

static uint64_t load(const void *p) { return atomic_load_explicit((const snd_word *)p, memory_order_acquire); }

int main(void)
{
	OK(snd_job_init(NULL, INT64_C(30000000000), &job));
	rank = snd_job_rank(job);
	setvbuf(stdout, NULL, _IOLBF, 0);
	cpu_set_t core;
	CPU_ZERO(&core);
	CPU_SET(rank, &core);
	sched_setaffinity(0, sizeof core, &core);
	snd_adapter *a = snd_job_adapter(job);
	snd_cq *cq;
	snd_endpoint *ep;
	snd_mr *mr;
	OK(snd_cq_create(a, 512, &cq));
	snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq, .receive_depth = 128, .initiator_depth = 128};
	OK(snd_job_connect(job, 1 - rank, &config, INT64_C(20000000000), &ep));
	OK(snd_mr_allocate(a, 4 << 20, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, &mr));
	unsigned char *b = snd_mr_buffer(mr);
	memset(b, 0, 4 << 20);
	snd_window_descriptor mine, d;
	uint8_t bytes[20], all[40];
	OK(snd_mr_query(mr, &mine));
	snd_window_descriptor_encode(&mine, bytes);
	OK(snd_job_exchange(job, bytes, 20, all, INT64_C(20000000000)));
	snd_window_descriptor_decode(all + (1 - rank) * 20, &d);
	snd_sge s = {b + 4096, SIZE, snd_mr_local_token(mr)};
	snd_result r[WINDOW];
	int64_t t;

	for (int k = 0; k < 3; k++) {
		if (getenv("BENCH_STREAM") != NULL)
			goto messages;
		barrier();
		t = snd_clock();
		if (rank == 0) {
			for (uint32_t i = 0; i < ROUNDS; i++) {
				OK(snd_endpoint_write(ep, i, &s, 1, d.address, d.token, 0));
				while (snd_cq_poll(cq, r, 1) == 0) {
				}
			}
		}
		report("Write 8 B posted+polled", t, ROUNDS);
		barrier();
		t = snd_clock();
		if (rank == 0) {
			for (uint32_t i = 0; i < ROUNDS; i++) {
				OK(snd_endpoint_read(ep, i, &s, 1, d.address, d.token, 0));
				while (snd_cq_poll(cq, r, 1) == 0) {
				}
			}
		}
		report("Read 8 B posted+polled", t, ROUNDS);

		/* Ping-pong of Writes: each side polls its memory. */
		barrier();
		t = snd_clock();
		uint64_t *out = (uint64_t *)(void *)(b + 4096);
		for (uint64_t i = 1; i <= PING; i++) {
			uint64_t tag = (uint64_t)k << 32 | i;
			if (rank == 1)
				while (load(b + 8192) != tag) {
				}
			*out = tag;
			OK(snd_endpoint_write(ep, i, &s, 1, d.address + 8192, d.token, 0));
			while (snd_cq_poll(cq, r, 1) == 0) {
			}
			if (rank == 0)
				while (load(b + 8192) != tag) {
				}
		}
		report("Write 8 B half round trip", t, 2.0 * PING);

	messages:;
		/* Ping-pong of Sends. */
		snd_sge in = {b + 16384, SIZE, s.token};
		if (rank == 1 || k == 0) /* rank 0 keeps the last one */
			OK(snd_endpoint_receive(ep, 0, &in, 1));
		barrier();
		t = snd_clock();
		uint32_t sent = 0, received = 0;
		for (uint32_t i = 0; i < PING; i++) {
			if (rank == 0)
				OK(snd_endpoint_send(ep, i, &s, 1, 0));
			while (received == i) {
				uint32_t n = snd_cq_poll(cq, r, 4);
				for (uint32_t j = 0; j < n; j++) {
					CHECK(r[j].status == SND_SUCCESS);
					if (r[j].type == SND_REQUEST_RECEIVE) {
						received++;
						OK(snd_endpoint_receive(ep, i, &in, 1));
					} else {
						sent++;
					}
				}
			}
			if (rank == 1)
				OK(snd_endpoint_send(ep, i, &s, 1, 0));
		}
		while (sent < PING)
			sent += snd_cq_poll(cq, r, 1);
		report("Send 8 B half round trip", t, 2.0 * PING);

		/* Message rate. */
		for (int i = 1; rank == 1 && i < WINDOW; i++)
			if (rank == 1 || k == 0) /* rank 0 keeps the last one */
			OK(snd_endpoint_receive(ep, 0, &in, 1));
		barrier();
		t = snd_clock();
		uint32_t posted = 0, done = 0;
		while (done < ROUNDS) {
			if (rank == 0)
				for (; posted < ROUNDS && posted - done < WINDOW; posted++)
					OK(snd_endpoint_send(ep, posted, &s, 1, 0));
			uint32_t n = snd_cq_poll(cq, r, WINDOW);
			done += n;
			if (rank == 1)
				for (uint32_t i = 0; i < n && posted + WINDOW < ROUNDS; i++, posted++)
					OK(snd_endpoint_receive(ep, 0, &in, 1));
		}
		barrier();
		report("Send 8 B, each of a stream", t, ROUNDS);

		if (getenv("BENCH_STREAM") != NULL)
			continue;
		/* Large Writes. */
		snd_sge large = {b + (1 << 20), 1 << 20, s.token};
		barrier();
		t = snd_clock();
		if (rank == 0) {
			for (uint32_t i = 0; i < 2000; i++) {
				OK(snd_endpoint_write(ep, i, &large, 1, d.address + (2 << 20), d.token, 0));
				while (snd_cq_poll(cq, r, 1) == 0) {
				}
			}
		}
		report("Write 1 MiB", t, 2000);
		barrier();
		t = snd_clock();
		for (int i = 0; i < 300000; i++)
			barrier();
		report("barrier of 2", t, 300000);
		if (rank == 0)
			printf("\n");
	}
	barrier();
	OK(snd_job_close(job));
	return 0;
}

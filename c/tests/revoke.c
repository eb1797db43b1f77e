/* Rank 0 binds a window and invalidates it while rank 1 writes through it as fast as it can. After an Invalidate has
 * completed, no byte of the memory changes. REVOKE_SECONDS says for how long. gorank revoke plays the same in Go. */
#include <string.h>
#include <time.h>

#include "check.h"
#include "linux/clock.h"
#include "shm/arena.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

enum { SIZE = 2 << 20 };

static uint64_t seed = 88172645463325252;

static uint64_t random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void nap(long ns) { nanosleep(&(struct timespec){0, ns}, NULL); }

static uint64_t load(const void *p) { return atomic_load_explicit((const snd_word *)p, memory_order_acquire); }

static snd_result wait_one(snd_cq *cq)
{
	snd_result r;
	uint32_t n;
	OK(snd_cq_wait(cq, &r, 1, SECONDS(30), &n));
	return r;
}

static void own(snd_job *job, snd_adapter *a)
{
	static unsigned char before[SIZE];
	const char *text = getenv("REVOKE_SECONDS");
	const int64_t end = snd_clock() + SECONDS(text != NULL ? atoi(text) : 2);
	snd_mr *mr, *message;
	OK(snd_mr_allocate(a, SIZE, SND_ALLOW_LOCAL_WRITE, &mr));
	OK(snd_mr_allocate(a, 64, SND_ALLOW_LOCAL_WRITE, &message));
	unsigned char *b = snd_mr_buffer(mr);
	uint64_t rounds = 0, late = 0, cut = 0;
	for (int more = 1; more; rounds++) {
		snd_cq *cq;
		snd_endpoint *ep;
		snd_window *w;
		snd_window_descriptor d = {0};
		more = snd_clock() < end;
		OK(snd_cq_create(a, 64, &cq));
		snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
		OK(snd_job_connect(job, 1, &config, SECONDS(20), &ep));
		OK(snd_window_create(a, &w));
		if (more) {
			OK(snd_endpoint_bind(ep, 1, mr, w, b, SIZE, SND_ALLOW_WRITE));
			CHECK(wait_one(cq).status == SND_SUCCESS);
			OK(snd_window_query(w, &d));
		}
		snd_window_descriptor_encode(&d, snd_mr_buffer(message));
		snd_sge s = {snd_mr_buffer(message), SND_WINDOW_DESCRIPTOR_SIZE, snd_mr_local_token(message)};
		uint64_t first = load(b);
		OK(snd_endpoint_send(ep, 2, &s, 1, 0));
		CHECK(wait_one(cq).status == SND_SUCCESS);
		if (more) {
			while (load(b) == first) { /* until the first write is seen, which may take its sleep */
				snd_result none;
				CHECK(snd_cq_poll(cq, &none, 1) == 0);
			}
			for (int64_t until = snd_clock() + (int64_t)(random64() % 400000); snd_clock() < until;) {
			}
			OK(snd_endpoint_invalidate(ep, 3, w, 0));
			snd_result r = wait_one(cq);
			CHECK(r.status == SND_SUCCESS && r.type == SND_REQUEST_INVALIDATE);
			memcpy(before, b, SIZE);
			cut += memcmp(before + 8, before + SIZE - 8, 8) != 0; /* the last long Write has come in part */
			nap((long)(random64() % 300000));
			late += memcmp(before, b, SIZE) != 0;
		}
		OK(snd_endpoint_close(ep));
		OK(snd_window_close(w, SECONDS(10)));
		OK(snd_cq_close(cq));
	}
	printf("revoke: %lu rounds, %lu with a transfer in flight, %lu with a late byte\n", (unsigned long)rounds, (unsigned long)cut, (unsigned long)late);
	CHECK(late == 0);
	OK(snd_mr_close(mr, SECONDS(10)));
	OK(snd_mr_close(message, SECONDS(10)));
}

static void write_all(snd_job *job, snd_adapter *a)
{
	snd_mr *mr;
	OK(snd_mr_allocate(a, SIZE + 64, SND_ALLOW_LOCAL_WRITE, &mr));
	unsigned char *b = snd_mr_buffer(mr);
	uint64_t stamp = 0;
	for (int more = 1; more;) {
		snd_cq *cq;
		snd_endpoint *ep;
		snd_window_descriptor d;
		OK(snd_cq_create(a, 64, &cq));
		snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
		OK(snd_job_connect(job, 0, &config, SECONDS(20), &ep));
		snd_sge s = {b + SIZE, 64, snd_mr_local_token(mr)};
		OK(snd_endpoint_receive(ep, 1, &s, 1));
		CHECK(wait_one(cq).status == SND_SUCCESS);
		snd_window_descriptor_decode(b + SIZE, &d);
		more = d.length != 0;
		snd_result r = {0};
		while (more && r.status == SND_SUCCESS) {
			stamp++;
			/* The whole range, or a word at its start, each with a new stamp. */
			uint32_t n = random64() % 4 == 0 ? SIZE : 8;
			memset(b, (int)stamp, n);
			memcpy(b, &stamp, 8);
			s = (snd_sge){b, n, snd_mr_local_token(mr)};
			snd_status posted = snd_endpoint_write(ep, 2, &s, 1, d.address, d.token, 0);
			if (posted == SND_SUCCESS)
				r = wait_one(cq);
			else
				r.status = posted;
		}
		if (more)
			CHECK(r.status == SND_ACCESS_VIOLATION || r.status == SND_CANCELED || r.status == SND_CONNECTION_INVALID);
		OK(snd_endpoint_close(ep));
		OK(snd_cq_close(cq));
	}
	OK(snd_mr_close(mr, SECONDS(10)));
}

int main(void)
{
	snd_job *job;
	OK(snd_job_init(test_options(), SECONDS(30), &job));
	seed += snd_job_rank(job);
	if (snd_job_rank(job) == 0)
		own(job, snd_job_adapter(job));
	else
		write_all(job, snd_job_adapter(job));
	OK(snd_job_barrier(job, SECONDS(30)));
	OK(snd_job_close(job));
	return 0;
}

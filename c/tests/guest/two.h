/* Two processes or threads that are the ranks of a job of two, for tests of what surrounds them: they join by name, connect,
 * and move data both ways. */
#ifndef SND_TWO_TEST_H
#define SND_TWO_TEST_H

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

struct two {
	uint32_t rank;
	snd_job *job;
	snd_adapter *adapter;
	snd_cq *cq;
	snd_endpoint *ep;
	snd_mr *mr; /* words 0: written by the other rank, 1: received, 2: to send, 3: read */
	snd_window_descriptor theirs;
};

/* two_name makes a name that no other run of the test has. */
static inline const char *two_name(char text[64], const char *test, long parent)
{
	snprintf(text, 64, "%s.%ld", test, parent);
	return text;
}

/* two_connect connects the ranks of a job. */
static inline void two_connect(struct two *t)
{
	snd_window_descriptor mine, both[2];
	t->rank = snd_job_rank(t->job);
	t->adapter = snd_job_adapter(t->job);
	OK(snd_cq_create(t->adapter, 64, &t->cq));
	const snd_endpoint_config config = {.receive_cq = t->cq, .initiator_cq = t->cq};
	OK(snd_job_connect(t->job, 1 - t->rank, &config, SECONDS(30), &t->ep));
	OK(snd_mr_allocate(t->adapter, 4096, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, &t->mr));
	OK(snd_mr_query(t->mr, &mine));
	OK(snd_job_exchange(t->job, &mine, sizeof mine, both, SECONDS(30)));
	t->theirs = both[1 - t->rank];
}

static inline void two_join(struct two *t, const char *name, uint32_t rank, const snd_fabric_options *options)
{
	OK(snd_job_join(name, rank, 2, options, SECONDS(30), &t->job));
	two_connect(t);
}

/* two_round writes n into the other rank's memory, reads it back, and sends n. Both ranks call it with the same
 * numbers, one after the other. */
static inline void two_round(struct two *t, uint64_t n)
{
	volatile uint64_t *words = snd_mr_buffer(t->mr);
	const uint32_t token = snd_mr_local_token(t->mr);
	const snd_sge in = {(void *)&words[1], 8, token}, out = {(void *)&words[2], 8, token}, back = {(void *)&words[3], 8, token};
	words[2] = n;
	OK(snd_endpoint_receive(t->ep, 1, &in, 1));
	OK(snd_endpoint_write(t->ep, 2, &out, 1, t->theirs.address, t->theirs.token, 0));
	OK(snd_endpoint_read(t->ep, 3, &back, 1, t->theirs.address, t->theirs.token, 0));
	OK(snd_endpoint_send(t->ep, 4, &out, 1, 0));
	for (int left = 4; left > 0;) {
		snd_result r[4];
		uint32_t taken;
		OK(snd_cq_wait(t->cq, r, (uint32_t)left, SECONDS(30), &taken));
		for (uint32_t i = 0; i < taken; i++)
			CHECK(r[i].status == SND_SUCCESS);
		left -= (int)taken;
	}
	CHECK(words[0] - n <= 1 && words[1] == n && words[3] == n); /* the other rank may be in the next round */
}

/* two_leave ends the connection and the job, after both ranks have moved all data. */
static inline void two_leave(struct two *t)
{
	OK(snd_job_barrier(t->job, SECONDS(30)));
	OK(snd_endpoint_close(t->ep));
	OK(snd_cq_close(t->cq));
	OK(snd_mr_close(t->mr, SECONDS(30)));
	OK(snd_job_close(t->job));
}

#endif

/* Connections by rank: all with all, and listeners that other ranks dial. The ranks are threads of this process. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "shm/fabric.h"

#define SECOND INT64_C(1000000000)
enum { RANKS = 3 };

static char name[40];

/* rank is what a thread has. */
struct rank {
	uint32_t number;
	snd_job *job;
	snd_cq *cq;
	snd_endpoint_config config;
};

static snd_result next(struct rank *r)
{
	snd_result result;
	uint32_t n;
	OK(snd_cq_wait(r->cq, &result, 1, 10 * SECOND, &n));
	CHECK(result.status == SND_SUCCESS);
	return result;
}

/* exchange sends a message over an endpoint, whose peer does the same. */
static void exchange(struct rank *r, snd_endpoint *ep)
{
	OK(snd_endpoint_receive(ep, 1, NULL, 0));
	OK(snd_endpoint_send(ep, 2, NULL, 0, 0));
	CHECK(next(r).request_context + next(r).request_context == 3);
}

static void test_all(struct rank *r)
{
	snd_endpoint *all[RANKS] = {NULL};
	OK(snd_job_connect_all(r->job, &r->config, 10 * SECOND, all));
	CHECK(all[r->number] == NULL);
	for (uint32_t i = 0; i < RANKS; i++)
		if (i != r->number)
			OK(snd_endpoint_receive(all[i], 1, NULL, 0));
	for (uint32_t i = 0; i < RANKS; i++)
		if (i != r->number)
			OK(snd_endpoint_send(all[i], 2, NULL, 0, SND_SILENT_SUCCESS));
	uint64_t from = 0;
	for (int i = 0; i < RANKS - 1; i++)
		from |= 1u << next(r).endpoint_context;
	CHECK((from | 1u << r->number) == (1 << RANKS) - 1); /* the context is the rank of the peer */
	OK(snd_job_barrier(r->job, 10 * SECOND));
	for (uint32_t i = 0; i < RANKS; i++)
		if (i != r->number)
			OK(snd_endpoint_close(all[i]));
}

/* A call without time takes the request of another rank, which has time to complete the connection. */
static void test_connect_at_once(struct rank *r)
{
	snd_endpoint *ep;
	snd_status s;
	if (r->number < 2) {
		while ((s = snd_job_connect(r->job, 1 - r->number, &r->config, r->number == 0 ? 0 : 10 * SECOND, &ep)) == SND_IO_TIMEOUT && r->number == 0)
			usleep(1000);
		OK(s);
		exchange(r, ep);
	}
	OK(snd_job_barrier(r->job, 10 * SECOND));
	if (r->number < 2)
		OK(snd_endpoint_close(ep));
}

static void *wait_for_dial(void *arg)
{
	struct rank *r = arg;
	snd_endpoint *ep;
	uint32_t peer;
	return snd_job_accept(r->job, (snd_listener *)(uintptr_t)r->config.context, &(snd_endpoint_config){.receive_cq = r->cq, .initiator_cq = r->cq}, SND_FOREVER, &ep, &peer) == SND_CANCELED ? r : NULL;
}

/* accept_waits reports whether an accept waits: the call, and the wait in it, keep the fabric. */
static bool accept_waits(struct snd_fabric *f)
{
	snd_lock(f);
	const bool yes = f->calls > 1;
	snd_unlock(f);
	return yes;
}

static void listen_and_accept(struct rank *r)
{
	snd_listener *l, *second;
	snd_endpoint *ep;
	uint32_t peer, seen = 0;
	OK(snd_job_listen(r->job, &l));
	CHECK(snd_job_listen(r->job, &second) == SND_SHARING_VIOLATION && second == NULL);
	CHECK(snd_job_accept(r->job, l, &r->config, 0, &ep, &peer) == SND_IO_TIMEOUT && ep == NULL && strstr(snd_last_error(), "no rank has called snd_job_dial") != NULL);
	OK(snd_job_barrier(r->job, 10 * SECOND));
	for (int i = 1; i < RANKS; i++) {
		snd_status s; /* the first dial is accepted by a call that does not wait for it */
		while ((s = snd_job_accept(r->job, l, &r->config, i == 1 ? 0 : 10 * SECOND, &ep, &peer)) == SND_IO_TIMEOUT && i == 1)
			usleep(1000);
		OK(s);
		seen |= 1u << peer;
		exchange(r, ep);
		OK(snd_endpoint_close(ep));
	}
	CHECK(seen == (1 << RANKS) - 2);
	OK(snd_job_barrier(r->job, 10 * SECOND));
	snd_connector *c; /* a dial that is given up */
	OK(snd_listener_request(l, 10 * SECOND, &c));
	OK(snd_endpoint_create(snd_job_adapter(r->job), &r->config, &ep));
	OK(snd_connector_start_accept(c, ep, NULL));
	OK(snd_connector_close(c));
	OK(snd_endpoint_close(ep));
	/* The close of a listener ends an accept of another thread. */
	pthread_t t;
	struct rank waiting = *r;
	void *canceled;
	waiting.config.context = (uintptr_t)l;
	CHECK(pthread_create(&t, NULL, wait_for_dial, &waiting) == 0);
	while (!accept_waits(snd_job_fabric(r->job)))
		usleep(1000);
	OK(snd_listener_close(l));
	CHECK(pthread_join(t, &canceled) == 0);
	CHECK(canceled != NULL);
	OK(snd_job_barrier(r->job, 10 * SECOND));
}

static void dial(struct rank *r)
{
	snd_endpoint *ep;
	OK(snd_job_barrier(r->job, 10 * SECOND));
	OK(snd_job_dial(r->job, 0, &r->config, 10 * SECOND, &ep));
	exchange(r, ep);
	OK(snd_job_barrier(r->job, 10 * SECOND));
	OK(snd_endpoint_close(ep));
	if (r->number == 1) {
		const struct snd_fabric *f = snd_job_fabric(r->job);
		snd_word *lost_at = &snd_rank(&f->arena, r->number)->lost_peer_at;
		snd_set(lost_at, 0);
		if (snd_job_dial(r->job, 0, &r->config, 10 * SECOND, &ep) == SND_SUCCESS)
			OK(snd_endpoint_close(ep)); /* it was completed before it was given up */
		else
			CHECK(snd_load(lost_at) == 0); /* rank 0 lives */
	}
	OK(snd_job_barrier(r->job, 10 * SECOND));
	CHECK(snd_job_dial(r->job, 0, &r->config, 10 * SECOND, &ep) == SND_CONNECTION_REFUSED && ep == NULL); /* no listener */
	CHECK(snd_job_dial(r->job, r->number, &r->config, SECOND, &ep) == SND_INVALID_PARAMETER && strstr(snd_last_error(), "dial: rank ") != NULL);
}

static void *run(void *arg)
{
	struct rank *r = arg;
	const snd_fabric_options safe = {.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO};
	OK(snd_job_join(name, r->number, RANKS, &safe, 10 * SECOND, &r->job));
	OK(snd_cq_create(snd_job_adapter(r->job), 64, &r->cq));
	r->config.receive_cq = r->config.initiator_cq = r->cq;
	test_all(r);
	test_connect_at_once(r);
	if (r->number == 0)
		listen_and_accept(r);
	else
		dial(r);
	OK(snd_job_barrier(r->job, 10 * SECOND));
	/* A rank that has left fails the call, which closes what it has connected. */
	if (r->number < RANKS - 1) {
		snd_endpoint *all[RANKS] = {NULL};
		CHECK(snd_job_connect_all(r->job, &r->config, 10 * SECOND, all) != SND_SUCCESS);
		for (int i = 0; i < RANKS; i++)
			CHECK(all[i] == NULL);
	}
	OK(snd_job_close(r->job));
	return NULL;
}

int main(void)
{
	pthread_t threads[RANKS];
	struct rank ranks[RANKS] = {{0}};
	snprintf(name, sizeof name, "ranks.%ld", (long)getpid());
	for (uint32_t i = 0; i < RANKS; i++) {
		ranks[i].number = i;
		CHECK(pthread_create(&threads[i], NULL, run, &ranks[i]) == 0);
	}
	for (int i = 0; i < RANKS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}

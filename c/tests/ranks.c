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
	OK(snd_cq_wait(r->cq, &result, 1, 60 * SECOND, &n));
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
	OK(snd_job_connect_all(r->job, &r->config, 60 * SECOND, all));
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
	OK(snd_job_barrier(r->job, 60 * SECOND));
	for (uint32_t i = 0; i < RANKS; i++)
		if (i != r->number)
			OK(snd_endpoint_close(all[i]));
}

/* number_of returns how often a rank is among the first n. */
static uint32_t number_of(uint32_t rank, const uint32_t *ranks, uint32_t n)
{
	uint32_t found = 0;
	while (n-- > 0)
		found += ranks[n] == rank;
	return found;
}

/* connect_listed connects with ranks, and checks each connection: the n-th with a rank is the n-th of that rank. */
static void connect_listed(struct rank *r, const uint32_t *peers, uint32_t count, snd_endpoint **eps)
{
	OK(snd_job_connect_ranks(r->job, peers, count, &r->config, 60 * SECOND, eps));
	for (uint32_t i = 0; i < count; i++)
		OK(snd_endpoint_receive(eps[i], i, NULL, 0));
	for (uint32_t i = 0; i < count; i++)
		OK(snd_endpoint_send_immediate(eps[i], count, NULL, 0, number_of(peers[i], peers, i), SND_SILENT_SUCCESS));
	for (uint32_t n = 0; n < count; n++) {
		const snd_result result = next(r);
		const uint64_t i = result.request_context;
		CHECK(i < count && result.endpoint_context == peers[i] && result.invalidated_token == number_of(peers[i], peers, (uint32_t)i));
	}
	OK(snd_job_barrier(r->job, 60 * SECOND));
	for (uint32_t i = 0; i < count; i++)
		OK(snd_endpoint_close(eps[i]));
}

/* Ranks that connect in unlike orders, and some twice, do not wait for each other in a circle. */
static void test_lists(struct rank *r)
{
	enum { MOST = 4 };
	static const struct {
		uint32_t count, peers[MOST];
	} lists[][RANKS] = {
		{{2, {1, 2}}, {2, {2, 0}}, {2, {0, 1}}}, /* each its right neighbour first */
		{{2, {2, 1}}, {2, {0, 2}}, {2, {1, 0}}},
		{{1, {2}}, {0, {0}}, {1, {0}}},
		{{4, {2, 1, 1, 2}}, {3, {0, 2, 0}}, {3, {0, 1, 0}}},
	};
	snd_endpoint *eps[MOST];
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
		connect_listed(r, lists[i][r->number].peers, lists[i][r->number].count, eps);
	if (r->number == 0) { /* connect_all is the same with all ranks */
		snd_endpoint *all[RANKS];
		OK(snd_job_connect_all(r->job, &r->config, 60 * SECOND, all));
		for (uint32_t i = 1; i < RANKS; i++)
			exchange(r, all[i]);
		OK(snd_job_barrier(r->job, 60 * SECOND));
		OK(snd_endpoint_close(all[1]));
		OK(snd_endpoint_close(all[2]));
	} else {
		OK(snd_job_connect_ranks(r->job, &(uint32_t){0}, 1, &r->config, 60 * SECOND, eps));
		exchange(r, eps[0]);
		OK(snd_job_barrier(r->job, 60 * SECOND));
		OK(snd_endpoint_close(eps[0]));
	}
}

/* A list with a number that is no peer fails before the call waits for a rank. */
static void test_bad_lists(struct rank *r)
{
	const uint32_t bad[] = {r->number, RANKS, UINT32_MAX};
	snd_endpoint *eps[2];
	char text[40];
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		const uint32_t peers[] = {(r->number + 1) % RANKS, bad[i]};
		eps[0] = eps[1] = (snd_endpoint *)eps;
		CHECK(snd_job_connect_ranks(r->job, peers, 2, &r->config, SND_FOREVER, eps) == SND_INVALID_PARAMETER && eps[0] == NULL && eps[1] == NULL);
		snprintf(text, sizeof text, "connect: rank %u, but this is ", bad[i]);
		CHECK(strstr(snd_last_error(), text) != NULL);
	}
	OK(snd_job_connect_ranks(r->job, NULL, 0, &r->config, SND_FOREVER, NULL));
	CHECK(snd_job_connect_ranks(r->job, NULL, 1, &r->config, SND_FOREVER, eps) == SND_INVALID_PARAMETER && strstr(snd_last_error(), "peers is NULL") != NULL);
	CHECK(snd_job_connect_ranks(r->job, bad, 1, &r->config, SND_FOREVER, NULL) == SND_INVALID_PARAMETER && strstr(snd_last_error(), "endpoints is NULL") != NULL);
	OK(snd_job_barrier(r->job, 60 * SECOND));
}

/* Ranks whose time ends while they wait for each other in a circle learn how to connect instead. */
static void test_circle(struct rank *r)
{
	const uint32_t right = (r->number + 1) % RANKS;
	snd_endpoint *ep;
	char text[80];
	CHECK(snd_job_connect(r->job, right, &r->config, SECOND / 10, &ep) == SND_IO_TIMEOUT && ep == NULL);
	snprintf(text, sizeof text, ": rank %u must connect with rank %u, too; to connect with several ranks, ", right, r->number);
	CHECK(strstr(snd_last_error(), text) != NULL && strstr(snd_last_error(), "call snd_job_connect_ranks in each, so that they do not wait in a circle") != NULL);
	OK(snd_job_barrier(r->job, 60 * SECOND));
}

/* A call whose time ends names a rank that waits for this one meanwhile. */
static void test_named(struct rank *r, uint32_t caller, uint32_t absent)
{
	snd_endpoint *ep;
	if (r->number == caller) {
		do
			CHECK(snd_job_connect(r->job, absent, &r->config, SECOND / 100, &ep) == SND_IO_TIMEOUT);
		while (strstr(snd_last_error(), ", and rank 2 waits for this rank: ") == NULL);
		OK(snd_job_connect(r->job, 2, &r->config, 60 * SECOND, &ep));
	}
	if (r->number == 2)
		OK(snd_job_connect(r->job, caller, &r->config, 60 * SECOND, &ep));
	OK(snd_job_barrier(r->job, 60 * SECOND));
	if (r->number != absent)
		OK(snd_endpoint_close(ep));
}

/* A call without time takes the request of another rank, which has time to complete the connection. */
static void test_connect_at_once(struct rank *r)
{
	snd_endpoint *ep;
	snd_status s;
	if (r->number < 2) {
		while ((s = snd_job_connect(r->job, 1 - r->number, &r->config, r->number == 0 ? 0 : 60 * SECOND, &ep)) == SND_IO_TIMEOUT && r->number == 0)
			usleep(1000);
		OK(s);
		exchange(r, ep);
	}
	OK(snd_job_barrier(r->job, 60 * SECOND));
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
	OK(snd_job_barrier(r->job, 60 * SECOND));
	for (int i = 1; i < RANKS; i++) {
		snd_status s; /* the first dial is accepted by a call that does not wait for it */
		while ((s = snd_job_accept(r->job, l, &r->config, i == 1 ? 0 : 60 * SECOND, &ep, &peer)) == SND_IO_TIMEOUT && i == 1)
			usleep(1000);
		OK(s);
		seen |= 1u << peer;
		exchange(r, ep);
		OK(snd_endpoint_close(ep));
	}
	CHECK(seen == (1 << RANKS) - 2);
	OK(snd_job_barrier(r->job, 60 * SECOND));
	snd_connector *c; /* a dial that is given up */
	OK(snd_listener_request(l, 60 * SECOND, &c));
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
	OK(snd_job_barrier(r->job, 60 * SECOND));
}

static void dial(struct rank *r)
{
	snd_endpoint *ep;
	OK(snd_job_barrier(r->job, 60 * SECOND));
	OK(snd_job_dial(r->job, 0, &r->config, 60 * SECOND, &ep));
	exchange(r, ep);
	OK(snd_job_barrier(r->job, 60 * SECOND));
	OK(snd_endpoint_close(ep));
	if (r->number == 1) {
		const struct snd_fabric *f = snd_job_fabric(r->job);
		snd_word *lost_at = &snd_rank(&f->arena, r->number)->lost_peer_at;
		snd_set(lost_at, 0);
		if (snd_job_dial(r->job, 0, &r->config, 60 * SECOND, &ep) == SND_SUCCESS)
			OK(snd_endpoint_close(ep)); /* it was completed before it was given up */
		else
			CHECK(snd_load(lost_at) == 0); /* rank 0 lives */
	}
	OK(snd_job_barrier(r->job, 60 * SECOND));
	CHECK(snd_job_dial(r->job, 0, &r->config, 60 * SECOND, &ep) == SND_CONNECTION_REFUSED && ep == NULL); /* no listener */
	CHECK(snd_job_dial(r->job, r->number, &r->config, SECOND, &ep) == SND_INVALID_PARAMETER && strstr(snd_last_error(), "dial: rank ") != NULL);
}

static void *run(void *arg)
{
	struct rank *r = arg;
	const snd_fabric_options safe = {.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO};
	OK(snd_job_join(name, r->number, RANKS, &safe, 60 * SECOND, &r->job));
	OK(snd_cq_create(snd_job_adapter(r->job), 64, &r->cq));
	r->config.receive_cq = r->config.initiator_cq = r->cq;
	test_all(r);
	test_lists(r);
	test_bad_lists(r);
	test_circle(r);
	test_named(r, 0, 1); /* rank 0 waits for a request of rank 1, and rank 1 makes one */
	test_named(r, 1, 0);
	test_connect_at_once(r);
	if (r->number == 0)
		listen_and_accept(r);
	else
		dial(r);
	OK(snd_job_barrier(r->job, 60 * SECOND));
	/* A rank that has left fails the call, which closes what it has connected. */
	if (r->number < RANKS - 1) {
		snd_endpoint *all[RANKS] = {NULL};
		CHECK(snd_job_connect_all(r->job, &r->config, 60 * SECOND, all) != SND_SUCCESS);
		for (int i = 0; i < RANKS; i++)
			CHECK(all[i] == NULL);
		const uint32_t peers[] = {RANKS - 1, 1 - r->number};
		all[0] = all[1] = (snd_endpoint *)all;
		CHECK(snd_job_connect_ranks(r->job, peers, 2, &r->config, 60 * SECOND, all) == SND_HOST_UNREACHABLE && all[0] == NULL && all[1] == NULL);
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

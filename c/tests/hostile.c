/* A hostile member fills shared tables with as much as they hold. No call of another member takes long because of it. */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "endpoint/cm_ports.h"
#include "endpoint/endpoint.h"
#include "endpoint/progress_housekeeper.h"
#include "shm/inbox.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

enum { REQUESTS = 60000, STRIDE = 1152 };

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void within(const char *what, double began, double limit)
{
	double took = cpu() - began;
	if (getenv("SOFTND_TEST_EMULATOR") != NULL)
		limit *= 5;
	printf("%s: %.3f s\n", what, took);
	if (took > limit) {
		fprintf(stderr, "%s takes %.3f s, at most %.3f are allowed\n", what, took, limit);
		exit(1);
	}
}

/* connecting is a Connect in a thread of its own. */
struct connecting {
	snd_connector *connector;
	snd_endpoint *endpoint;
	snd_address to;
	snd_status status;
};

static void *connect_one(void *arg)
{
	struct connecting *c = arg;
	c->status = snd_connector_connect(c->connector, c->endpoint, c->to, NULL, SECONDS(30));
	return NULL;
}

static void join_both(struct snd_fabric **victim, struct snd_fabric **attacker)
{
	OK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, victim));
	OK(snd_fabric_attach(snd_fabric_descriptor(*victim), -1, MANUAL, attacker));
}

/* flood sends many connection requests, each with a record of its own, all at once. */
static void flood(int listens)
{
	struct snd_fabric *victim, *attacker;
	snd_adapter *a;
	snd_listener *l;
	uint64_t base;
	join_both(&victim, &attacker);
	OK(snd_adapter_open(victim, &a));
	OK(snd_listener_create(a, &l));
	OK(snd_listener_bind(l, (snd_address){0, 7, 0}));
	if (listens)
		OK(snd_listener_listen(l, 0));
	OK(snd_alloc(&attacker->heap, (uint64_t)REQUESTS * STRIDE, false, &base, "flood"));
	struct snd_peer p = {.id = victim->id, .record = victim->record};
	for (uint64_t i = 0; i < REQUESTS; i++) {
		struct snd_connection_record *r = (struct snd_connection_record *)(void *)(attacker->arena.base + base + i * STRIDE);
		snd_set(&r->member[SND_ACTIVE], attacker->id);
		snd_set(&r->member[SND_PASSIVE], victim->id);
		snd_set32(&r->address[SND_PASSIVE], snd_host_of(victim, victim->slot));
		snd_set32(&r->port[SND_PASSIVE], 7);
		snd_set32(&r->state, SNDL_CONN_REQUESTED);
		snd_send_mail(attacker, &p, base + i * STRIDE, &r->link);
	}
	double began = cpu();
	for (int i = 0; i < 10; i++)
		OK(snd_fabric_progress(victim));
	within(listens ? "a flood of requests for a listener" : "a flood of requests for no listener", began, 4);
	CHECK(snd_load(&victim->record->inbox) == 0);
	CHECK(listens || (snd_list_is_empty(&victim->connections) && snd_list_is_empty(&victim->work))); /* although the sender does not detach */
	began = cpu();
	OK(snd_fabric_close(attacker));
	for (int i = 0; i < 10; i++)
		OK(snd_fabric_progress(victim));
	OK(snd_fabric_close(victim));
	within("the end of the flood", began, 4);
}

/* fill_members makes all free member records look alive, or dead and not counted. */
static void fill_members(uint32_t status)
{
	struct snd_fabric *victim, *attacker;
	join_both(&victim, &attacker);
	snd_set(&snd_header(&victim->arena)->slots, UINT64_C(1) << 40);
	for (int round = 0; round < 3; round++) {
		for (uint32_t slot = 0; slot < SNDL_MEMBERS; slot++)
			if (slot != victim->slot && slot != attacker->slot) {
				snd_set(&snd_member(&victim->arena, slot)->death_epoch, 0);
				snd_set(&snd_member(&victim->arena, slot)->state, snd_state_of(status, 5));
			}
		double began = cpu();
		snd_check_liveness(victim);
		within(status == SNDL_STATUS_LIVE ? "many false members" : "many false deaths", began, 2);
	}
	OK(snd_fabric_close(attacker));
	OK(snd_fabric_close(victim));
}

/* lower makes the member records look as if none had been in use. A member that has seen them raises the number again. */
static void lower(void)
{
	struct snd_fabric *victim, *attacker;
	join_both(&victim, &attacker);
	snd_check_liveness(victim);
	snd_word *slots = &snd_header(&victim->arena)->slots;
	const uint64_t used = snd_load(slots);
	CHECK(used > victim->slot && used > attacker->slot && used < SNDL_MEMBERS);
	snd_set(slots, 0);
	CHECK(snd_used_slots(&victim->arena) == used && snd_load(slots) == used);
	OK(snd_fabric_close(attacker));
	OK(snd_fabric_close(victim));
}

/* damage overwrites the queue-pair state of a member that connects. The other side refuses it, so its call does not wait until
 * its time is over. */
static void damage(void)
{
	struct snd_fabric *active, *passive;
	snd_adapter *a, *p;
	snd_cq *cq, *other;
	snd_listener *l;
	snd_connector *request;
	snd_endpoint *ep;
	struct connecting c;
	pthread_t thread;
	join_both(&active, &passive);
	OK(snd_adapter_open(active, &a));
	OK(snd_adapter_open(passive, &p));
	OK(snd_cq_create(a, 16, &cq));
	OK(snd_cq_create(p, 16, &other));
	OK(snd_endpoint_create(a, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, &c.endpoint));
	OK(snd_endpoint_create(p, &(snd_endpoint_config){.receive_cq = other, .initiator_cq = other}, &ep));
	OK(snd_listener_create(p, &l));
	OK(snd_listener_bind(l, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(l, 0));
	OK(snd_listener_address(l, &c.to));
	OK(snd_connector_create(a, &c.connector));
	snd_set(&c.endpoint->local_qp->ring_slots, 3);
	CHECK(pthread_create(&thread, NULL, connect_one, &c) == 0);
	OK(snd_listener_request(l, SECONDS(10), &request));
	CHECK(snd_connector_accept(request, ep, NULL, SECONDS(10)) == SND_CONNECTION_ABORTED);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(c.status == SND_CONNECTION_REFUSED);
	OK(snd_fabric_close(active));
	OK(snd_fabric_close(passive));
}

int main(void)
{
	lower();
	damage();
	fill_members(SNDL_STATUS_LIVE);
	fill_members(SNDL_STATUS_DEAD);
	flood(0);
	flood(1);
	return 0;
}

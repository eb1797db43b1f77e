/* A hostile member fills shared tables with as much as they hold. No call of another member takes long because of it. */
#include <string.h>
#include <time.h>

#include "../src/endpoint.h"
#include "check.h"

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
	printf("%s: %.3f s\n", what, took);
	if (took > limit) {
		fprintf(stderr, "%s takes %.3f s, at most %.3f are allowed\n", what, took, limit);
		exit(1);
	}
}

static void join_both(struct snd_fabric **victim, struct snd_fabric **liar)
{
	OK(snd_fabric_create(0, UINT64_C(1) << 28, NULL, victim));
	OK(snd_fabric_attach(snd_fabric_descriptor(*victim), -1, NULL, liar));
}

/* flood sends many connection requests, each with a record of its own, all at once. */
static void flood(int listens)
{
	struct snd_fabric *victim, *liar;
	snd_adapter *a;
	snd_listener *l;
	uint64_t base;
	join_both(&victim, &liar);
	OK(snd_adapter_open(victim, &a));
	OK(snd_listener_create(a, &l));
	OK(snd_listener_bind(l, (snd_address){0, 7, 0}));
	if (listens)
		OK(snd_listener_listen(l, 0));
	OK(snd_alloc(&liar->heap, (uint64_t)REQUESTS * STRIDE, false, &base, "flood"));
	struct snd_peer p = {victim->id, victim->record};
	for (uint64_t i = 0; i < REQUESTS; i++) {
		struct snd_connection_record *r = (struct snd_connection_record *)(void *)(liar->arena.base + base + i * STRIDE);
		snd_set(&r->member[SND_ACTIVE], liar->id);
		snd_set(&r->member[SND_PASSIVE], victim->id);
		snd_set32(&r->port[SND_PASSIVE], 7);
		snd_set32(&r->state, SNDL_CONN_REQUESTED);
		snd_send_mail(liar, &p, base + i * STRIDE, &r->link);
	}
	double began = cpu();
	for (int i = 0; i < 10; i++)
		OK(snd_fabric_progress(victim));
	within(listens ? "a flood of requests for a listener" : "a flood of requests for no listener", began, 1.5);
	CHECK(snd_load(&victim->record->inbox) == 0);
	began = cpu();
	OK(snd_fabric_close(liar));
	for (int i = 0; i < 10; i++)
		OK(snd_fabric_progress(victim));
	OK(snd_fabric_close(victim));
	within("the end of the flood", began, 1.5);
}

/* crowd makes all free member records look alive, or dead and not counted. */
static void crowd(uint32_t status)
{
	struct snd_fabric *victim, *liar;
	join_both(&victim, &liar);
	for (int round = 0; round < 3; round++) {
		for (uint32_t slot = 0; slot < SNDL_MEMBERS; slot++)
			if (slot != victim->slot && slot != liar->slot) {
				snd_set(&snd_member(&victim->arena, slot)->death_epoch, 0);
				snd_set(&snd_member(&victim->arena, slot)->state, snd_state_of(status, 5));
			}
		double began = cpu();
		snd_check_liveness(victim);
		within(status == SNDL_STATUS_LIVE ? "a crowd of false members" : "a crowd of false deaths", began, 0.5);
	}
	OK(snd_fabric_close(liar));
	OK(snd_fabric_close(victim));
}

int main(void)
{
	crowd(SNDL_STATUS_LIVE);
	crowd(SNDL_STATUS_DEAD);
	flood(0);
	flood(1);
	return 0;
}

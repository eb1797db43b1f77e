/* Weak order: when requests run, and when their results arrive. TWIN endpoint/internal/mode/weak/weak.go. */
#include "endpoint/weak.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/req_aside.h"

/* high returns the upper half of a product of 128 bits. */
static uint64_t high(uint64_t a, uint64_t b)
{
	const uint64_t a0 = a & UINT32_MAX, a1 = a >> 32, b0 = b & UINT32_MAX, b1 = b >> 32;
	const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
	return a1 * b1 + (middle >> 32) + (((middle & UINT32_MAX) + a0 * b1) >> 32);
}

/* pcg returns the first number of Go's rand.NewPCG(seed1, seed2): a step of a generator with 128 bits of state, PCG-DXSM. */
static uint64_t pcg(uint64_t seed1, uint64_t seed2)
{
	const uint64_t mul_high = UINT64_C(2549297995355413924), mul_low = UINT64_C(4865540595714422341);
	const uint64_t inc_high = UINT64_C(6364136223846793005), inc_low = UINT64_C(1442695040888963407);
	uint64_t top = high(seed2, mul_low) + seed1 * mul_low + seed2 * mul_high;
	const uint64_t low = seed2 * mul_low + inc_low;
	top += inc_high + (low < inc_low);
	top ^= top >> 32;
	top *= UINT64_C(0xda942042e4dd58b5);
	top ^= top >> 48;
	return top * (low | 1);
}

uint64_t snd_weak_draw(const struct snd_fabric *f, enum snd_choice c, uint64_t endpoint, uint64_t number)
{
	return pcg(f->weak_seed ^ (uint64_t)c << 56, endpoint << 40 ^ number);
}

void snd_weak_begin(struct snd_fabric *f)
{
	f->weak_seed = snd_weak_draw(f, SND_OF_MEMBER, 0, f->slot); /* ranks have the slot of their number */
}

struct snd_weak *snd_weak_new(size_t requests)
{
	struct snd_weak *w = calloc(1, sizeof *w + requests * sizeof w->requests[0]);
	if (w != NULL)
		w->clock = w->clock_seen = 1;
	return w;
}

static uint64_t draw(const struct snd_endpoint *ep, enum snd_choice c, uint64_t number) { return snd_weak_draw(ep->object.fabric, c, ep->number, number); }

/* Half of the delays are 0. For each kind of decision, an endpoint has a greatest delay: some endpoints are slow where others are
 * fast. */
uint64_t snd_weak_steps(const struct snd_endpoint *ep, enum snd_choice c, uint64_t number)
{
	static const uint64_t greatest[] = {2, 8, 32};
	const uint64_t d = draw(ep, c, number);
	return (d & 1) == 0 ? 0 : 1 + (d >> 1) % greatest[draw(ep, SND_OF_SCALE, c) % 3];
}

struct snd_weak_request *snd_weak_request(struct snd_endpoint *ep, const struct snd_send_request *r)
{
	struct snd_weak_request *s = &ep->weak->requests[r->number & ep->request_mask];
	if (s->id != r->number + 1)
		*s = (struct snd_weak_request){.id = r->number + 1};
	return s;
}

bool snd_weak_before_execute(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out)
{
	struct snd_weak_request *s = snd_weak_request(ep, r);
	const bool aside = r->state == SND_REQ_ASIDE;
	const uint64_t reads = draw(ep, SND_OF_READS, r->number);
	*out = SND_BLOCKED;
	if (r->transferred > 0)
		return false;
	if (aside ? !snd_is_due(ep->weak, &s->read, (reads >> 1) % 64) : !snd_is_due(ep->weak, &s->start, snd_weak_steps(ep, SND_OF_START, r->number)))
		return true;
	*out = SND_EXECUTED;
	return !aside && (reads & 1) != 0 && snd_set_aside(ep, r);
}

/* After the end of a connection no result is delayed. */
bool snd_result_is_due(struct snd_endpoint *ep, const struct snd_send_request *r)
{
	return (ep->state != SND_QP_CONNECTED && ep->state != SND_QP_PEER_DISCONNECTED) ||
		snd_is_due(ep->weak, &snd_weak_request(ep, r)->result, snd_weak_steps(ep, SND_OF_RESULT, r->number));
}

/* While the program drives the endpoint, the engine does not: its rounds depend on the time. */
bool snd_weak_engine_turn(struct snd_endpoint *ep)
{
	enum { ROUNDS = 100 }; /* of snd_poll_interval */
	struct snd_weak *w = ep->weak;
	w->idle_rounds = w->clock == w->clock_seen ? w->idle_rounds + 1 : 0;
	w->clock_seen = w->clock + (w->idle_rounds >= ROUNDS); /* the turn is a step */
	return w->idle_rounds >= ROUNDS;
}

/* Results of a while may arrive meanwhile, so that the notification covers several of them. */
void snd_weak_delay_event(struct snd_fabric *f, void (*drive)(void *), void *arg)
{
	for (uint64_t n = snd_weak_draw(f, SND_OF_EVENTS, 0, ++f->weak_events) % 4; n > 0 && !f->closed; n--) {
		drive(arg);
		snd_unlock(f);
		sched_yield();
		snd_lock(f);
	}
}

/* Weak order: when requests run, and when their results arrive. TWIN endpoint/internal/mode/weak/weak.go. */
#include "endpoint/weak.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/qp.h"
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

struct snd_weak_request *snd_weak_request(struct snd_endpoint *ep, uint64_t number)
{
	struct snd_weak_request *s = &ep->weak->requests[number & ep->request_mask];
	if (s->id != number + 1)
		*s = (struct snd_weak_request){.id = number + 1};
	return s;
}

/* may_overtake reports whether later requests may overtake Read r. */
static bool may_overtake(const struct snd_endpoint *ep, const struct snd_send_request *r)
{
	return r->kind == SND_REQUEST_READ && r->total > 0 && (r->flags & (SND_READ_FENCE | SND_READ_LOCAL_INVALIDATE)) == 0 &&
		(ep->faults == NULL || ep->faults[r - ep->requests].pending.fired.rule == NULL) && ep->aside->count < ep->read_limit;
}

bool snd_weak_before_execute(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out)
{
	struct snd_weak *w = ep->weak;
	struct snd_weak_request *s = snd_weak_request(ep, ep->next);
	*out = SND_BLOCKED;
	if (r->transferred > 0)
		return false;
	if (!snd_is_due(w, &s->start, snd_weak_steps(ep, SND_OF_START, ep->next)))
		return true;
	if (r->kind == SND_REQUEST_SEND && ep->conn->peer_has_srq && ep->aside->count > 0)
		return true; /* such a Send waits in the ring, without limit; no Read may get behind it */
	if (!may_overtake(ep, r) || (draw(ep, SND_OF_READS, ep->next) & 1) == 0)
		return false;
	r->state = SND_REQ_ASIDE;
	ep->aside->reads[ep->aside->count++] = ep->next;
	*out = SND_EXECUTED;
	return true;
}

/* After the end of a connection no result is delayed. */
bool snd_result_is_due(struct snd_endpoint *ep, uint64_t number)
{
	return (ep->state != SND_QP_CONNECTED && ep->state != SND_QP_PEER_DISCONNECTED) ||
		snd_is_due(ep->weak, &snd_weak_request(ep, number)->result, snd_weak_steps(ep, SND_OF_RESULT, number));
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

bool snd_aside_is_due(struct snd_endpoint *ep, uint64_t number)
{
	return snd_is_due(ep->weak, &snd_weak_request(ep, number)->read, (draw(ep, SND_OF_READS, number) >> 1) % 64);
}

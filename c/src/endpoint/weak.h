/* Weak order: the library delays and reorders what the model leaves open. docs/weak-order.md lists the delays, and the orders that
 * remain. endpoint/internal/mode/weak does the same in Go.
 *
 * Each decision depends on the seed, the member's slot, and the numbers of the endpoint and of the request. A rank in C and a
 * rank in Go with the same numbers decide the same. A delay is a number of steps: calls that drive the endpoint. The clock of the
 * machine has no part in it, so a program that makes the same calls again meets the same order.
 *
 * The bit SND_SLOW_HOOK keeps all requests and messages from the fast path. The fabric's lock guards everything here. */
#ifndef SND_WEAK_H
#define SND_WEAK_H

#include "endpoint/endpoint.h"

enum snd_choice {
	SND_OF_MEMBER,
	SND_OF_SCALE,
	SND_OF_START,     /* when a request begins to run */
	SND_OF_RESULT,    /* when the result of a finished request is queued */
	SND_OF_READS,     /* which Reads later requests may overtake, and for how long */
	SND_OF_MESSAGES,  /* when an entry of the peer is served */
	SND_OF_DELIVERY,  /* when the receive of a message that is in memory completes */
	SND_OF_PLACEMENT, /* in which parts and order bytes are stored */
	SND_OF_EVENTS,
};

enum { SND_MAX_PARTS = 8 };

/* snd_placement is the order in which the bytes of one transfer are stored. The transfer is divided into parts, which are stored in
 * any order, with delays between them. Cuts are at multiples of 8 bytes of the address, because no hardware divides an aligned
 * word. */
struct snd_placement {
	uint8_t order[SND_MAX_PARTS];
	uint32_t count, next; /* parts, and how many of them are complete; count 0: not drawn yet */
	uint64_t size, skew;  /* bytes of a part, and of the address beyond a multiple of 8 */
	uint64_t total;
	uint64_t within; /* bytes of the current part that are stored */
	uint64_t due;    /* see snd_is_due */
};

/* snd_weak_request is what a request waits for. */
struct snd_weak_request {
	uint64_t id;                  /* number of the request plus 1 */
	uint64_t start, result, read; /* see snd_is_due */
	struct snd_placement placement;
};

/* snd_weak_message is what the entry at the front of the peer's ring waits for. */
struct snd_weak_message {
	uint64_t id; /* number of the entry plus 1 */
	uint64_t start, delivery;
	bool is_placed; /* its data is in the receive */
	struct snd_placement placement;
};

/* snd_weak is the weak order of an endpoint. */
struct snd_weak {
	uint64_t clock;       /* steps so far */
	uint64_t clock_seen;  /* by the engine */
	uint32_t idle_rounds; /* of the engine, since the program last drove the endpoint */
	struct snd_weak_message message;
	struct snd_weak_request requests[]; /* parallel to those of the endpoint */
};

/* weak.c */
/* snd_weak_begin derives the seed of a member that has joined from that of the job. */
void snd_weak_begin(struct snd_fabric *f);
/* snd_weak_draw returns the random number that belongs to a decision about a request or entry of an endpoint. */
uint64_t snd_weak_draw(const struct snd_fabric *f, enum snd_choice c, uint64_t endpoint, uint64_t number);
struct snd_weak *snd_weak_new(size_t requests);
/* snd_weak_steps returns the delay for a decision. */
uint64_t snd_weak_steps(const struct snd_endpoint *ep, enum snd_choice c, uint64_t number);
/* snd_is_due reports whether a delay of steps is over. Its first call begins the delay, and stores its end into due. */
static inline bool snd_is_due(const struct snd_weak *w, uint64_t *due, uint64_t steps)
{
	if (*due == 0)
		*due = w->clock + steps;
	return w->clock >= *due;
}
struct snd_weak_request *snd_weak_request(struct snd_endpoint *ep, const struct snd_send_request *r);
/* snd_weak_before_execute delays request r, or sets it aside. If it returns true, *out replaces the outcome of
 * its execution. */
bool snd_weak_before_execute(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out);
/* snd_result_is_due reports whether the result of a finished request may be queued. */
bool snd_result_is_due(struct snd_endpoint *ep, const struct snd_send_request *r);
/* snd_weak_is_busy reports whether a request or a message waits for steps, which no ring announces. */
static inline bool snd_weak_is_busy(const struct snd_endpoint *ep) { return ep->weak != NULL && (ep->completed != ep->submitted || ep->serving); }
/* snd_weak_engine_turn counts a round of the engine, and reports whether it drives the endpoint. */
bool snd_weak_engine_turn(struct snd_endpoint *ep);
/* snd_weak_delay_event makes a notify return late. */
void snd_weak_delay_event(struct snd_fabric *f, void (*drive)(void *), void *arg);

/* weak_place.c */
void snd_placement_draw(struct snd_placement *p, uint64_t random, uint64_t address, uint64_t total);
/* snd_placement_part returns where the next bytes are stored, relative to the start of the transfer, and how many at most in n. */
uint64_t snd_placement_part(const struct snd_placement *p, uint64_t *n);
void snd_placement_advance(struct snd_placement *p, uint64_t n);
/* snd_next_weak_bytes returns which byte of request r this process copies next. *n is the number of bytes to copy at most, and becomes
 * less; it becomes 0 while they are delayed. snd_weak_copied notes that n bytes are copied. */
uint64_t snd_next_weak_bytes(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t *n);
void snd_weak_copied(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n);
/* The same for the entry of a Read or Write of the peer. */
uint64_t snd_next_weak_part(struct snd_endpoint *ep, uint64_t *n);
void snd_weak_copied_part(struct snd_endpoint *ep, uint64_t n);
/* snd_place_write runs a Write whose data is in the entry, in parts. */
enum snd_outcome snd_place_write(struct snd_endpoint *ep);
/* snd_weak_before_serve delays the entry at the front of the peer's ring. It may store the data of a message some time before the
 * receive completes. If it returns true, *out replaces the outcome of serving the entry. */
bool snd_weak_before_serve(struct snd_endpoint *ep, enum snd_outcome *out);

#endif

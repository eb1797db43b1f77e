/* The flow-control credit of a requester: for how many ring entries the peer has posted receives, and up to
 * which length a message completes at once. The invariants are stated in its TWIN endpoint/internal/credit/credit.go. */
#ifndef SND_CREDIT_H
#define SND_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/layout.h"

struct snd_credit {
	uint64_t send_run_start;         /* number of the first entry of the current run of Sends of the fast path */
	uint64_t payload_end_before_run; /* number after the last entry with data before the run */
	uint64_t ack_request_end;        /* number after the last entry whose consumption completes a request */
	uint64_t fast_limit;             /* entries before this number may take the fast path */
	uint32_t fast_max_length;
	uint32_t small_receive_bytes;
	uint64_t entries_without_receive; /* entries that have taken no receive */
	uint64_t posted;                  /* receives that the peer had posted at the last look */
	uint64_t small_receives_end;
};

static inline uint64_t snd_credit_taken(const struct snd_credit *c, uint64_t pushed) { return pushed - c->entries_without_receive; }
static inline bool snd_credit_is_spent(const struct snd_credit *c, uint64_t pushed) { return c->posted == snd_credit_taken(c, pushed); }

/* snd_credit_refresh sets the credit from words of the peer, and reports whether a receive is posted for the
 * next message. It rejects a number of receives that is more than the peer's queue holds. */
static inline bool snd_credit_refresh(struct snd_credit *c, uint64_t pushed, uint64_t posted, uint64_t size, uint64_t end, uint64_t bytes)
{
	if (posted - snd_credit_taken(c, pushed) > size)
		return false;
	c->posted = posted;
	c->small_receives_end = end;
	c->small_receive_bytes = bytes < SNDL_MAX_SEND_IN_ENTRY ? (uint32_t)bytes : SNDL_MAX_SEND_IN_ENTRY;
	return !snd_credit_is_spent(c, pushed);
}

/* snd_credit_fits reports whether the peer's next receive can certainly hold a message of n bytes. */
static inline bool snd_credit_fits(const struct snd_credit *c, uint64_t pushed, uint64_t n)
{
	return (int64_t)(c->small_receives_end - snd_credit_taken(c, pushed)) <= 0 || n <= c->small_receive_bytes;
}

static inline bool snd_credit_extend(struct snd_credit *c, uint64_t pushed, uint64_t slots)
{
	uint64_t n = c->posted - snd_credit_taken(c, pushed);
	n = n < slots ? n : slots;
	c->fast_limit = pushed + n;
	c->fast_max_length = snd_credit_fits(c, pushed, SNDL_MAX_SEND_IN_ENTRY) ? SNDL_MAX_SEND_IN_ENTRY : c->small_receive_bytes;
	return n != 0;
}

static inline uint64_t snd_credit_payload_end(const struct snd_credit *c, uint64_t pushed)
{
	return pushed != c->send_run_start ? pushed : c->payload_end_before_run;
}

/* snd_credit_count_entry counts an entry that is not a Send of the fast path, after it is pushed. */
static inline void snd_credit_count_entry(struct snd_credit *c, uint64_t number, bool takes_receive)
{
	c->payload_end_before_run = snd_credit_payload_end(c, number);
	if (!takes_receive)
		c->entries_without_receive++;
	c->send_run_start = number + 1;
}

/* snd_credit_order_barrier returns the number after the last entry that later requests must not overtake. */
static inline uint64_t snd_credit_order_barrier(const struct snd_credit *c, uint64_t pushed)
{
	uint64_t end = snd_credit_payload_end(c, pushed);
	return c->ack_request_end > end ? c->ack_request_end : end;
}

#endif

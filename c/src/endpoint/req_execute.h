/* The requester: how requests run, in the order of posting. */
#ifndef SND_ENDPOINT_REQ_EXECUTE_H
#define SND_ENDPOINT_REQ_EXECUTE_H

#include "endpoint/endpoint.h"

const char *snd_request_name(const struct snd_send_request *r);
struct snd_send_request *snd_enqueue_pushed(struct snd_endpoint *ep, uint32_t kind, uint64_t context, uint32_t flags);
bool snd_run_requests(struct snd_endpoint *ep, uint64_t *budget);
/* snd_ask_hook asks the hook about a request that would run now. If it returns true, *out replaces the outcome of its execution. */
bool snd_ask_hook(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out);
/* snd_execute runs or continues request r. */
enum snd_outcome snd_execute(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget);
void snd_complete_request(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_cancel_preparation undoes what the post of a bind or fast registration has prepared. */
void snd_cancel_preparation(struct snd_send_request *r);
void snd_cancel_request(struct snd_send_request *r);
/* snd_drop_request drops what a request refers to, without a result. */
void snd_drop_request(struct snd_endpoint *ep, struct snd_send_request *r);
void snd_finish(struct snd_send_request *r, snd_status s);
/* snd_finish_released finishes a request whose last entry the peer has released. */
void snd_finish_released(struct snd_endpoint *ep, struct snd_send_request *r);
enum snd_outcome snd_reject(struct snd_endpoint *ep, struct snd_send_request *r, snd_status s, const char *format, ...) __attribute__((format(printf, 4, 5)));
enum snd_outcome snd_reject_remote(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_fault f);
enum snd_outcome snd_reject_local(struct snd_endpoint *ep, struct snd_send_request *r, const struct snd_entry *e, enum snd_fault f);
void snd_set_operand(struct snd_send_request *r, struct snd_operand *o, const struct snd_entry *e, uint32_t rights);
void snd_request_wakeup(struct snd_endpoint *ep);
static inline void snd_cancel_wakeup(struct snd_endpoint *ep)
{
	if (snd_unlikely(ep->wakeup_requested)) {
		ep->wakeup_requested = false;
		snd_set32(&ep->local_qp->need_wakeup, 0);
	}
}
bool snd_has_free_entry(struct snd_endpoint *ep);
/* snd_push_entry pushes an entry of r that takes a receive of the peer, or does not; false if the ring is full. It adds the immediate data. */
bool snd_push_entry(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t words[7], bool takes_receive);
bool snd_gather_payload(struct snd_endpoint *ep, struct snd_send_request *r, void *to);
enum snd_outcome snd_send_fragments(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget);
uint32_t snd_entry_flags(const struct snd_send_request *r);
/* snd_has_reads_in_flight reports whether the peer has not yet delivered the data of n Reads or atomics or more. */
bool snd_has_reads_in_flight(struct snd_connection *c, uint64_t n);
/* snd_count_read counts a Read or an atomic that the peer executes. end is the number after its last ring entry. */
static inline void snd_count_read(struct snd_connection *c, uint64_t end) { c->read_ends[c->reads_sent++ % SND_MAX_READS] = end; }

/* snd_data_flags returns the flags of its ring entries that mean further words. */
static inline uint32_t snd_data_flags(const struct snd_send_request *r)
{
	return (r->hashed ? SNDL_FLAG_HASHED : 0) | (r->has_immediate ? SNDL_FLAG_IMMEDIATE : 0);
}

/* snd_room returns how much data fits an entry that carries a whole Send or Write of r. */
static inline uint64_t snd_room(const struct snd_send_request *r)
{
	return snd_entry_room(r->kind == SND_REQUEST_WRITE ? SNDL_KIND_WRITE_IN_ENTRY : SNDL_KIND_SEND_IN_ENTRY, snd_data_flags(r));
}

/* snd_copy_would_overtake reports whether the ring holds an entry that a direct copy must not overtake. */
static inline bool snd_copy_would_overtake(struct snd_connection *c)
{
	if (snd_likely(c->overtaken == c->out.next))
		return false;
	uint64_t last = snd_credit_order_barrier(&c->credit, c->out.next);
	if (last != 0 && (int64_t)(last - c->out.released) > 0 && (int64_t)(last - snd_load_released(&c->out)) > 0)
		return true;
	c->overtaken = c->out.next;
	return false;
}

/* snd_has_unexecuted_requests reports whether a request waits for the peer to execute its ring entries. Unlike snd_copy_would_overtake, it ignores
 * Sends that completed when they were pushed. */
static inline bool snd_has_unexecuted_requests(struct snd_connection *c) { return (int64_t)(c->credit.ack_request_end - snd_load_released(&c->out)) > 0; }

/* snd_peer_must_copy reports whether the peer copies the data of all requests, even where this process can. */
static inline bool snd_peer_must_copy(const struct snd_endpoint *ep) { return ep->object.fabric->target || ep->conn->peer_copies; }

#endif

/* Atomics. */
#ifndef SND_ENDPOINT_REQ_ATOMIC_H
#define SND_ENDPOINT_REQ_ATOMIC_H

#include "endpoint/endpoint.h"

/* snd_post_atomic posts an atomic of a type. The caller holds the lock. */
snd_status snd_post_atomic(struct snd_endpoint *ep, uint32_t kind, uint64_t context, const snd_sge *sge, uint32_t count, uint64_t address, uint32_t token,
	uint64_t operand, uint64_t swap, uint32_t flags);
/* snd_execute_atomic changes 8 bytes of the peer's memory, or lets the peer do so. */
enum snd_outcome snd_execute_atomic(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_take_result takes the old value of an atomic that the peer has executed, and finishes it. */
void snd_take_result(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_take_results finishes the atomics that the peer has executed. Their old values are then in local memory. */
void snd_take_results(struct snd_endpoint *ep);
/* snd_awaits_results reports whether the old values of some atomics are not in local memory. */
static inline bool snd_awaits_results(struct snd_endpoint *ep)
{
	if (snd_likely(ep->conn->atomics_sent == ep->conn->atomics_taken))
		return false;
	snd_take_results(ep);
	return ep->conn->atomics_sent != ep->conn->atomics_taken;
}

#endif

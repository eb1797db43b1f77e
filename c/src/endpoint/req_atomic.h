/* Atomics. */
#ifndef SND_ENDPOINT_REQ_ATOMIC_H
#define SND_ENDPOINT_REQ_ATOMIC_H

#include "endpoint/endpoint.h"

/* snd_execute_atomic changes 8 bytes of the peer's memory, or lets the peer do so. */
enum snd_outcome snd_execute_atomic(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_finish_sent finishes a request that the peer has executed. */
void snd_finish_sent(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_has_results reports whether the old values of some atomics are not in local memory, though the peer may have executed them. */
static inline bool snd_has_results(const struct snd_connection *c) { return c->atomics_sent != c->atomics_taken; }

#endif

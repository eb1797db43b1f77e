/* The responder: it serves the entries of the peer's ring. */
#ifndef SND_ENDPOINT_RESP_SERVE_H
#define SND_ENDPOINT_RESP_SERVE_H

#include "endpoint/endpoint.h"

/* snd_length_of_write returns how many bytes a Write has, according to its last entry. */
static inline uint64_t snd_length_of_write(const struct snd_ring_entry *e)
{
	const uint64_t n = e->kind == SNDL_KIND_WRITE_IN_ENTRY ? e->payload_length : e->request_length;
	return n < SND_MAX_TRANSFER ? n : SND_MAX_TRANSFER;
}

uint32_t snd_serve_sends_fast(struct snd_endpoint *ep, snd_result *results, uint32_t room);
bool snd_serve_ring(struct snd_endpoint *ep, uint64_t *budget);
bool snd_decode_entry(struct snd_endpoint *ep, const struct snd_slot *slot);
bool snd_fill_receive(struct snd_endpoint *ep, struct snd_receive *r, uint64_t at, struct snd_operand *source, uint64_t n);
void snd_release_entries(struct snd_endpoint *ep, bool always_ring);
/* snd_fail_serving fails the connection because of the entry being served. status is that of the peer's request. */
void snd_fail_serving(struct snd_endpoint *ep, snd_status status, snd_status cause, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* snd_fail_receive is snd_fail_serving for a fault of an entry of the receive. */
void snd_fail_receive(struct snd_endpoint *ep, const struct snd_entry *e, enum snd_fault f);
/* snd_refuse_access fails the connection because a Read or Write of the peer may not access o. */
void snd_refuse_access(struct snd_endpoint *ep, const struct snd_operand *o, uint64_t n, enum snd_fault f);

#endif

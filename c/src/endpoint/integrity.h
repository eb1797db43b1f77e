/* Payload checks, see docs/integrity.md. */
#ifndef SND_INTEGRITY_H
#define SND_INTEGRITY_H

#include "endpoint/endpoint.h"

/* snd_payload_sum is the hash of a request. */
struct snd_payload_sum {
	struct snd_hash hash; /* of the bytes stored so far, if this process copies them */
	uint64_t want;        /* the hash that the bytes must have */
	bool made;            /* want is final */
	int place;            /* of a Read: index in snd_endpoint.hashed_reads; -1 = none */
};

/* snd_hash_posted hashes the data of r, which is being posted, if the endpoint asks for checks. */
void snd_hash_posted(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_hash_late hashes the data of r that its post could not hash, when r is about to run. It returns false if it has rejected r. */
bool snd_hash_late(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_copy_hashed is snd_copy for n bytes of r, which it hashes. It returns false if it has rejected r for wrong bytes. */
bool snd_copy_hashed(struct snd_endpoint *ep, struct snd_send_request *r, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
	enum snd_fault *sink_fault, enum snd_fault *source_fault);
/* snd_take_read_place finds a word of the peer for the hash of Read r. It returns false if all are in use. */
bool snd_take_read_place(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_check_read checks the data of r if it is a Read that is about to succeed and is not checked yet. If it is wrong, it rejects r. */
void snd_check_read(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_copy_served is snd_copy for n bytes of the entry being served, of a hashed Read or Write. It returns false if it has failed the
 * connection for wrong bytes. snd_check_write checks a Write whose data is in the entry. */
bool snd_check_write(struct snd_endpoint *ep);
bool snd_copy_served(struct snd_endpoint *ep, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
	enum snd_fault *sink_fault, enum snd_fault *source_fault);
/* snd_check_message checks a message that has filled r, before the receive completes. It returns false if it has failed
 * the connection. */
bool snd_check_message(struct snd_endpoint *ep, struct snd_receive *r, uint64_t total);

#endif

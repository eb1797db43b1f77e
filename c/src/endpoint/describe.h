/* The texts of errors: the request of an endpoint, and the access that a token allows. */
#ifndef SND_ENDPOINT_DESCRIBE_H
#define SND_ENDPOINT_DESCRIBE_H

#include "endpoint/endpoint.h"

const char *snd_fault_text(enum snd_fault f);
/* snd_describe_range names n bytes that o is to access, and the access that its token allows. */
void snd_describe_range(struct snd_endpoint *ep, const struct snd_operand *o, uint64_t n, char *text, size_t size);
/* snd_describe_request says what a request asks of the peer. */
void snd_describe_request(struct snd_endpoint *ep, const struct snd_send_request *r, char *text, size_t size);

#endif

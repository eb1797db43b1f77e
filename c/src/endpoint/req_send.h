/* Sends. */
#ifndef SND_ENDPOINT_REQ_SEND_H
#define SND_ENDPOINT_REQ_SEND_H

#include "endpoint/endpoint.h"

enum snd_outcome snd_execute_send(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget);
bool snd_has_receive(struct snd_connection *c);

#endif

/* Sends. */
#ifndef SND_ENDPOINT_REQ_SEND_H
#define SND_ENDPOINT_REQ_SEND_H

#include "endpoint/endpoint.h"

enum snd_outcome snd_execute_send(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget);
bool snd_has_receive(struct snd_connection *c);
/* snd_take_receive makes sure that the peer has a receive for r, a Send or a Write with immediate data, and sets r->has_receive. Otherwise
 * it returns the outcome of executing r. */
enum snd_outcome snd_take_receive(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_receive_limit returns for how long a request waits for a receive of the peer, in nanoseconds; SND_FOREVER: without a limit. */
int64_t snd_receive_limit(const struct snd_endpoint *ep);
/* snd_may_be_late reports whether r can fail because its entry waits too long for a receive of the peer's shared queue. With a number only;
 * other endpoints wait without a limit. snd_receive_is_late fails it then. */
bool snd_may_be_late(const struct snd_endpoint *ep, const struct snd_send_request *r);
bool snd_receive_is_late(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_complete_if_open completes a request whose last entry is in the ring, if the peer is sure to consume it. */
void snd_complete_if_open(struct snd_endpoint *ep, struct snd_send_request *r);

#endif

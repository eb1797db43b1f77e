/* The end of a connection. */
#ifndef SND_ENDPOINT_CM_TEARDOWN_H
#define SND_ENDPOINT_CM_TEARDOWN_H

#include "endpoint/endpoint.h"

void snd_terminate(struct snd_endpoint *ep, snd_status cause, const char *format, ...) __attribute__((format(printf, 3, 4)));
void snd_end_by_close(struct snd_endpoint *ep, snd_status cause, const char *what);
void snd_set_cause(struct snd_endpoint *ep, snd_status s, const char *format, ...) __attribute__((format(printf, 3, 4)));
void snd_peer_aborted(struct snd_endpoint *ep);
void snd_peer_died(struct snd_connection *c);
void snd_tear_down(struct snd_endpoint *ep);
bool snd_handle_peer_disconnect(struct snd_endpoint *ep);
bool snd_begin_disconnect(struct snd_endpoint *ep);
/* snd_has_no_more_results reports whether the endpoint has left the connected state and adds no further result to its queues. After the peer's
 * disconnect, the receives and requests that wait for the peer get none until this side ends the connection, too. */
bool snd_has_no_more_results(struct snd_endpoint *ep);
void snd_cancel_receives(struct snd_endpoint *ep);
/* snd_blame_peer stores that a failed request of an endpoint with a number ends the peer, too, if it does. */
void snd_blame_peer(struct snd_endpoint *ep, const struct snd_send_request *r);
/* snd_fail_lost fails the requests of an endpoint that has lost its peer, and so the endpoint, when they were repeated for long enough. It reports
 * whether it has. */
bool snd_fail_lost(struct snd_endpoint *ep);

#endif

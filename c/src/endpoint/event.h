/* Events for the handler of the program. They are made with the fabric's lock held, and a thread of their own passes them on without it. */
#ifndef SND_ENDPOINT_EVENT_H
#define SND_ENDPOINT_EVENT_H

#include "endpoint/endpoint.h"

/* snd_events are those of a fabric that wait for its handler. */
struct snd_events;

/* The functions below do nothing if the fabric has no handler. */

void snd_event_connected(struct snd_endpoint *ep);
void snd_event_disconnected(struct snd_endpoint *ep, bool by_peer);
/* snd_event_own_end is for an end of the connection by this side, for a reason that text names. The state was another before. */
void snd_event_own_end(struct snd_endpoint *ep, enum snd_qp_state was, snd_status status, const char *text);
/* snd_event_peer_end is for an end by the peer, or its death. in_order: it has closed the connection, and no request was outstanding. */
void snd_event_peer_end(struct snd_endpoint *ep, enum snd_qp_state was, bool in_order);
void snd_event_overrun(struct snd_fabric *f, uint64_t queue, uint32_t depth);
/* snd_events_of_waiting adds an event for each oldest request of an endpoint that has waited longer than the limit of a Send. */
void snd_events_of_waiting(struct snd_fabric *f, int64_t now);
/* snd_end_events drops later events, and waits for the handler, at most a second. The caller has no lock. */
void snd_end_events(struct snd_events *e);

#endif

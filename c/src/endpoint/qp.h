/* Endpoints: their queues and their state. */
#ifndef SND_ENDPOINT_QP_H
#define SND_ENDPOINT_QP_H

#include "endpoint/endpoint.h"

static inline struct snd_send_request *snd_request_at(struct snd_endpoint *ep, uint64_t number) { return &ep->requests[number & ep->request_mask]; }
static inline struct snd_receive *snd_receive_at(struct snd_endpoint *ep, uint64_t number) { return &ep->receives[number & ep->receive_mask]; }
static inline const struct snd_entry *snd_entries_of(const struct snd_receive *r) { return r->count == 1 ? &r->single : r->list; }
static inline bool snd_has_overrun(const struct snd_endpoint *ep) { return (ep->slow & SND_SLOW_OVERRUN) != 0; }
/* snd_takes_requests reports whether a new request can run, if only later. */
static inline bool snd_takes_requests(const struct snd_endpoint *ep) { return ep->state == SND_QP_CONNECTED || (ep->state == SND_QP_CONNECTING && ep->numbered); }
/* snd_by_number returns the first status for an endpoint with a number: there, each cause has a status of its own, as on a card. */
static inline snd_status snd_by_number(const struct snd_endpoint *ep, snd_status s, snd_status otherwise) { return ep->numbered ? s : otherwise; }
/* snd_is_broken reports whether an endpoint has failed. One that has lost its peer without a fault has not. */
static inline bool snd_is_broken(const struct snd_endpoint *ep) { return ep->state == SND_QP_FAILED && !ep->lost; }
struct snd_entry snd_entry_at(const struct snd_entry *entries, uint32_t count, uint64_t at);
/* snd_change_state changes the state by an event. */
void snd_change_state(struct snd_endpoint *ep, enum snd_conn_event e);
/* snd_set_access sets the rights that requests of the peer can use, at an endpoint with a number: SNDL_RIGHT_READ, _WRITE and _ATOMIC. */
void snd_set_access(struct snd_endpoint *ep, uint32_t rights);
/* snd_part ends that two endpoints of this process drive each other. */
void snd_part(struct snd_endpoint *ep);
/* snd_drop_results drops the results of an endpoint that ends silently. */
void snd_drop_results(struct snd_endpoint *ep);
void snd_close_endpoint(struct snd_endpoint *ep);
void snd_forget_endpoint(struct snd_endpoint *ep);

#endif

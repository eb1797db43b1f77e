/* The slow path of posts. The caller holds the fabric's lock. */
#ifndef SND_ENDPOINT_QP_POST_H
#define SND_ENDPOINT_QP_POST_H

#include "endpoint/endpoint.h"

/* snd_new_request returns the next request of the initiator queue, reset. It is posted only when snd_enqueue is called. */
snd_status snd_new_request(struct snd_endpoint *ep, const char *op, uint32_t kind, uint32_t flags, uint64_t context, struct snd_send_request **request);
/* snd_enqueue queues the next request. It fails only if a mode asks for it. */
snd_status snd_enqueue(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_submit lets all posted requests run. They run within this call if no earlier one waits and the last is small. */
void snd_submit(struct snd_endpoint *ep);
/* snd_submit_on_error submits the deferred requests if a post has failed: the program may never post again. */
snd_status snd_submit_on_error(struct snd_endpoint *ep, snd_status s);
/* snd_post_about queues a request that refers to a window or region. */
snd_status snd_post_about(struct snd_endpoint *ep, struct snd_send_request *r, struct snd_invalidatable *object);
uint32_t snd_bind_rights(uint32_t flags);
/* snd_post_key_bind and snd_post_key_invalidate post requests of numbered endpoints. In q, an invalidation names its window by token, if window
 * is NULL. snd_post_key_bind has the members of a bind. */
snd_status snd_post_key_bind(struct snd_endpoint *ep, const snd_request *q);
snd_status snd_post_key_invalidate(struct snd_endpoint *ep, const snd_request *q);
/* snd_refuse_list makes the status of a post of a list whose request i was refused: the text also has its number, from 1. */
snd_status snd_refuse_list(snd_status s, uint32_t i, uint32_t count);
/* snd_endpoint_post_all is snd_endpoint_post, but posts nothing if the queue has too few slots for all requests. */
snd_status snd_endpoint_post_all(snd_endpoint *endpoint, const snd_request *requests, uint32_t count);
snd_status snd_check_flags(const char *op, uint32_t kind, uint32_t flags);
/* snd_check_extended fails if the peer understands neither atomics nor immediate data. */
snd_status snd_check_extended(const struct snd_endpoint *ep, const struct snd_send_request *r, const char *op);

#endif

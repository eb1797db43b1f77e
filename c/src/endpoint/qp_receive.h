/* Receives. */
#ifndef SND_ENDPOINT_QP_RECEIVE_H
#define SND_ENDPOINT_QP_RECEIVE_H

#include "endpoint/endpoint.h"

/* snd_set_receive sets context and entries of a receive, and checks them. */
snd_status snd_set_receive(struct snd_receive *r, uint64_t context, const snd_sge *sge, uint32_t count, uint32_t most, const char *op);
void snd_complete_receive(struct snd_endpoint *ep, struct snd_receive *r, snd_status s, uint64_t bytes, uint32_t invalidated);
snd_status snd_post_receive(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint32_t count);

#endif

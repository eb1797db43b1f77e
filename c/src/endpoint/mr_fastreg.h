/* The post of a fast registration. */
#ifndef SND_ENDPOINT_MR_FASTREG_H
#define SND_ENDPOINT_MR_FASTREG_H

#include "endpoint/endpoint.h"

snd_status snd_prepare_registration(struct snd_endpoint *ep, struct snd_mr *mr, const snd_fast_registration *p, struct snd_registration **registration, const char *op);

#endif

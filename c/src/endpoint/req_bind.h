/* Binds, invalidations and fast registrations, as requests. */
#ifndef SND_ENDPOINT_REQ_BIND_H
#define SND_ENDPOINT_REQ_BIND_H

#include "endpoint/endpoint.h"

/* snd_execute_bind applies a bind, or a fast registration. */
enum snd_outcome snd_execute_bind(struct snd_endpoint *ep, struct snd_send_request *r);
enum snd_outcome snd_execute_invalidate(struct snd_endpoint *ep, struct snd_send_request *r);
void snd_complete_invalidate(struct snd_send_request *r);
/* snd_find_sink finds the region that a Read with SND_READ_LOCAL_INVALIDATE ends. */
bool snd_find_sink(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_invalidate_sink follows such a Read when its data has arrived, or is on its way through the ring. */
enum snd_outcome snd_invalidate_sink(struct snd_endpoint *ep, struct snd_send_request *r);

#endif

/* Requests that are set aside: Reads that later requests overtake. Their results still come before those of the later requests, because
 * requests complete in the order of posting. TWIN endpoint/req_aside.go. */
#ifndef SND_ENDPOINT_REQ_ASIDE_H
#define SND_ENDPOINT_REQ_ASIDE_H

#include "endpoint/endpoint.h"

struct snd_aside {
	uint32_t count;
	uint64_t reads[SND_MAX_READS]; /* their numbers */
};

static inline bool snd_has_reads_aside(const struct snd_endpoint *ep) { return ep->aside != NULL && ep->aside->count > 0; }
/* snd_set_aside sets Read r aside, which is the next to run. It returns false if later requests must not overtake it. */
bool snd_set_aside(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_has_begun_aside reports whether one of the Reads, the first, has transferred some bytes. It may hold a bounce buffer, so no other
 * request runs before its end. */
bool snd_has_begun_aside(struct snd_endpoint *ep);
/* snd_run_reads_aside runs the Reads that are due, in any order. It transfers at most *budget bytes. */
bool snd_run_reads_aside(struct snd_endpoint *ep, uint64_t *budget);
/* snd_drop_reads_aside forgets the Reads, because all requests are canceled. */
static inline void snd_drop_reads_aside(struct snd_endpoint *ep)
{
	if (ep->aside != NULL)
		*ep->aside = (struct snd_aside){.count = 0};
}

#endif

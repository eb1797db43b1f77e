/* Reads that are set aside: how they run. TWIN endpoint/req_aside.go. */
#include "endpoint/req_aside.h"

#include <string.h>

#include "endpoint/qp.h"
#include "endpoint/req_execute.h"

bool snd_set_aside(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_aside *w = ep->aside;
	if (r->kind != SND_REQUEST_READ || r->total == 0 || (r->flags & (SND_READ_FENCE | SND_READ_LOCAL_INVALIDATE)) != 0 || r->in_order || w->count >= ep->read_limit)
		return false;
	r->state = SND_REQ_ASIDE;
	w->reads[w->count++] = r->number;
	return true;
}

bool snd_has_begun_aside(struct snd_endpoint *ep) { return snd_has_reads_aside(ep) && snd_request_at(ep, ep->aside->reads[0])->transferred > 0; }

/* remove_read removes the Read at an index. */
static void remove_read(struct snd_aside *w, uint32_t at)
{
	w->count--;
	memmove(&w->reads[at], &w->reads[at + 1], (w->count - at) * sizeof w->reads[0]);
}

bool snd_run_reads_aside(struct snd_endpoint *ep, uint64_t *budget)
{
	struct snd_aside *w = ep->aside;
	bool progressed = false;
	if (ep->state != SND_QP_CONNECTED)
		return false;
	if (ep->next != ep->submitted) {
		const struct snd_send_request *next = snd_request_at(ep, ep->next);
		if (next->transferred > 0 && (next->transferred < next->total || next->bounce_index >= 0))
			return false; /* the entries of a message are consecutive, and a bounce buffer with data is not used again */
	} /* a Read with all its bytes may wait to invalidate its sink, and that waits for the Reads */
	for (uint32_t at = 0; at < w->count && *budget > 0;) {
		const uint64_t number = w->reads[at];
		struct snd_send_request *r = snd_request_at(ep, number);
		const uint64_t before = r->transferred;
		enum snd_outcome out;
		if (!snd_ask_hook(ep, r, &out))
			out = snd_execute(ep, r, budget);
		progressed = progressed || out != SND_BLOCKED || r->transferred != before;
		if (out == SND_EXECUTED) {
			if (r->state == SND_REQ_ASIDE)
				r->state = SND_REQ_SENT;
			remove_read(w, at);
			ep->has_failed = ep->has_failed || (r->state == SND_REQ_FINISHED && r->status != SND_SUCCESS);
			at = 0;
		} else if (r->transferred > 0) { /* it is the first from now on */
			memmove(&w->reads[1], &w->reads[0], at * sizeof w->reads[0]);
			w->reads[0] = number;
			return progressed;
		} else {
			at++;
		}
	}
	return progressed;
}

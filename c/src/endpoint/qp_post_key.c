/* Binds and invalidations of numbered endpoints: the program chooses the tag of a token, names windows by token, and learns of every
 * fault from the result, as on a card. */
#include "endpoint/qp_post.h"

#include "window/invalidatable.h"

uint32_t snd_bind_rights(uint32_t flags)
{
	return ((flags & SND_ALLOW_READ) ? SNDL_RIGHT_READ : 0) | ((flags & SND_ALLOW_WRITE) ? SNDL_RIGHT_WRITE : 0) |
		((flags & SND_ALLOW_ATOMIC) ? SNDL_RIGHT_ATOMIC : 0);
}

static const uint32_t request_flags = SND_SILENT_SUCCESS | SND_READ_FENCE | SND_DEFER;

/* snd_post_key_bind takes these members of q otherwise than softnd.h says: token has the tag that the new token gets, or is 0 for the next tag; operand is
 * not 0 for a window whose first address is 0; address is one by which peers name the region's memory, from region.address on. */
snd_status snd_post_key_bind(struct snd_endpoint *ep, const snd_request *q)
{
	const char *op = "bind";
	struct snd_window *w = q->window;
	struct snd_mr *mr = q->mr;
	if (!snd_belongs(ep->object.fabric, w, SND_TYPE_WINDOW) || w->i.adapter != ep->adapter)
		return snd_bad_handle(op, "window");
	struct snd_send_request *r;
	snd_status s = snd_new_request(ep, op, SND_REQUEST_BIND, q->flags & request_flags, q->context, &r);
	if (s != SND_SUCCESS)
		return s;
	const bool is_region = snd_belongs(ep->object.fabric, mr, SND_TYPE_MR) && mr->region.i.adapter == ep->adapter;
	const uint64_t ahead = is_region ? (uint64_t)(uintptr_t)mr->region.memory - mr->region.address : 0; /* q->address is one of the region */
	const struct snd_bind_wish wish = {.memory = (void *)(uintptr_t)(q->address + ahead), .length = q->length, .rights = snd_bind_rights(q->flags), .like = q->token,
		.endpoint = ep->number, .only = (q->flags & SND_THIS_ENDPOINT_ONLY) != 0, .zero_based = q->operand != 0};
	/* A bind that is not prepared fails when it runs. */
	if (is_region)
		(void)snd_prepare(w, &mr->region, &wish, &r->binding);
	return snd_submit_on_error(ep, snd_post_about(ep, r, &w->i));
}

snd_status snd_post_key_invalidate(struct snd_endpoint *ep, const snd_request *q)
{
	const char *op = "invalidate";
	struct snd_invalidatable *i = q->window != NULL ? &q->window->i : snd_window_of(ep->object.fabric->table, q->token);
	struct snd_send_request *r;
	const snd_status s = snd_new_request(ep, op, SND_REQUEST_INVALIDATE, q->flags & request_flags, q->context, &r);
	if (s != SND_SUCCESS)
		return s;
	r->remote_token = q->token;
	return snd_submit_on_error(ep, i != NULL && i->adapter == ep->adapter ? snd_post_about(ep, r, i) : snd_enqueue(ep, r));
}

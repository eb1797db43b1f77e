/* Binds of windows. TWIN window/window.go. */
#include "window/window.h"

#include "window/region.h"

bool snd_prepare(struct snd_window *w, struct snd_region *r, const struct snd_bind_wish *wish, struct snd_binding *b)
{
	uint64_t at = (uint64_t)(uintptr_t)wish->memory, base = (uint64_t)(uintptr_t)r->memory;
	if (r->i.state != SND_BOUND || wish->length == 0 || !snd_within(at, wish->length, base, r->length) ||
		((wish->rights & (SNDL_RIGHT_WRITE | SNDL_RIGHT_ATOMIC)) != 0 && (r->flags & SND_ALLOW_LOCAL_WRITE) == 0))
		return false;
	*b = (struct snd_binding){.region = r, .memory = wish->memory, .base = wish->zero_based ? 0 : r->address + (at - base), .length = wish->length,
		.place = snd_location_of_part(r, at - base, wish->length), .scope = wish->only ? wish->endpoint : 0,
		.bound_on = w->i.any_endpoint ? 0 : wish->endpoint,
		.rights = (wish->rights & (SNDL_RIGHT_READ | SNDL_RIGHT_WRITE | SNDL_RIGHT_ATOMIC)) | SNDL_RIGHT_REMOTE};
	b->token = wish->like != 0 ? snd_tagged_token(w->i.remote, wish->like, &b->bind) : snd_next_token(w->i.remote, &b->bind);
	r->i.windows++;
	w->latest = (snd_window_descriptor){b->base, wish->length, b->token, 0};
	return true;
}

void snd_cancel_binding(struct snd_binding *b)
{
	if (b->region != NULL)
		snd_detach_window(b->region);
	b->region = NULL;
}

bool snd_apply(struct snd_window *w, struct snd_binding *b)
{
	if (w->i.state != SND_UNBOUND || w->i.retired) {
		snd_cancel_binding(b);
		return false;
	}
	struct snd_own_entry *e = w->i.remote;
	w->region = b->region;
	w->i.bound_on = b->bound_on;
	w->i.state = SND_BOUND;
	b->region = NULL;
	e->memory = b->memory;
	e->base = b->base;
	e->length = b->length;
	e->place = b->place;
	e->adapter = w->i.adapter->number;
	e->scope = b->scope;
	e->invalidates = &w->i;
	snd_bind_entry(e, b->token, b->bind, b->rights);
	return true;
}

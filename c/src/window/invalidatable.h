/* The end of a bind or of a registration. */
#ifndef SND_WINDOW_INVALIDATABLE_H
#define SND_WINDOW_INVALIDATABLE_H

#include "window/window.h"

/* snd_begin_invalidation makes the tokens of i invalid. It returns false, and does nothing, unless a request of the endpoint has
 * bound or registered i. The same holds while a window is bound to i, except at_end: the endpoint has ended. (Invalidate in Go also tries to
 * end the invalidation.) */
bool snd_begin_invalidation(struct snd_invalidatable *i, uint64_t endpoint, bool at_end);
/* snd_revoke_all makes the tokens invalid if they are valid. */
void snd_revoke_all(struct snd_invalidatable *i);
/* snd_end_invalidation ends an invalidation, so that i can be bound or registered again. It returns false while a peer uses
 * one of the tokens. Without an invalidation it does nothing and returns true. */
bool snd_end_invalidation(struct snd_invalidatable *i);
/* snd_end_invalidation_of is snd_end_invalidation, as a wait calls it. It is also true if another call has closed the object. */
bool snd_end_invalidation_of(void *invalidatable);
/* snd_end_invalidation_when_drained ends an invalidation that began at the end of an endpoint, when the tokens are drained. It takes
 * over one reference. */
void snd_end_invalidation_when_drained(struct snd_invalidatable *i, uint32_t *pending);
/* snd_find_bound returns what an Invalidate of a token on an endpoint ends, NULL if there is none. kind is
 * SNDL_RIGHT_REMOTE, or SNDL_RIGHT_LOCAL for the local token of a region. */
struct snd_invalidatable *snd_find_bound(const struct snd_table *t, uint64_t adapter, uint64_t endpoint, uint32_t token, uint32_t kind);
void snd_unreference(struct snd_invalidatable *i);
/* snd_free_closed frees the closed object that i is a part of, now or with its last reference. */
void snd_free_closed(struct snd_invalidatable *i);
static inline bool snd_is_region(const struct snd_invalidatable *i) { return i->local != NULL; }

#endif

/* The end of a bind or of a registration: the tokens become invalid at once, and the memory is the owner's alone once no
 * peer uses them. The fabric's lock guards everything here. TWIN window/invalidatable.go, window/domain.go. */
#include "window/invalidatable.h"

#include "shm/doorbell.h"
#include "shm/member.h"
#include "shm/work.h"
#include "window/fastreg.h"
#include "window/region.h"

/* is_drained reports whether no live peer uses the token that an entry had. */
static bool is_drained(const struct snd_adapter *a, const struct snd_own_entry *e)
{
	if (e == NULL)
		return true;
	uint32_t token = snd_word_token(e->word); /* the entry is bound again only after the end of the invalidation */
	/* HAZARD-DRAIN. This process's own executors hold the lock while they copy, so only peers count. */
	for (struct snd_link *l = a->hazards.next; l != &a->hazards; l = l->next) {
		const struct snd_peer_hazard *p = SND_OF(l, struct snd_peer_hazard, link);
		/* A peer whose death was handled still lives only if a hostile process has marked this one dead; docs/shared-memory.md says
		 * what that process can do. */
		if (p->word == NULL || snd_peer_gone(&p->peer))
			continue;
		uint64_t h = snd_load(p->word); /* ORDER hazard, hazard-clear: pairs with snd_publish_hazard and snd_clear_hazard */
		if ((uint32_t)h == token || (uint32_t)(h >> 32) == token)
			return false;
	}
	return true;
}

void snd_revoke_all(struct snd_invalidatable *i)
{
	if (i->state != SND_BOUND)
		return;
	if (i->local != NULL)
		snd_revoke(i->local);
	snd_revoke(i->remote);
	i->state = SND_DRAINING;
	snd_list_remove(&i->bound_link);
}

bool snd_begin_invalidation(struct snd_invalidatable *i, uint64_t endpoint, bool at_end)
{
	if (i->state != SND_BOUND || (i->bound_on != endpoint && !i->any_endpoint) || (i->windows > 0 && !at_end))
		return false;
	snd_revoke_all(i);
	return true;
}

bool snd_end_invalidation(struct snd_invalidatable *i)
{
	if (i->state != SND_DRAINING)
		return true;
	if (!is_drained(i->adapter, i->local) || !is_drained(i->adapter, i->remote))
		return false;
	i->state = SND_UNBOUND;
	if (snd_is_region(i))
		snd_end_registration(SND_OF(i, struct snd_region, i));
	else
		snd_detach_window(SND_OF(i, struct snd_window, i)->region);
	return true;
}

bool snd_end_invalidation_of(void *invalidatable) { return snd_end_invalidation(invalidatable); }

static bool run_end_of_invalidation(struct snd_work *work)
{
	struct snd_invalidatable *i = SND_OF(work, struct snd_invalidatable, work);
	if (!snd_end_invalidation(i))
		return false;
	--*i->pending;
	snd_wake(i->adapter->object.fabric);
	snd_unreference(i);
	return true;
}

void snd_end_invalidation_when_drained(struct snd_invalidatable *i, uint32_t *pending)
{
	i->pending = pending;
	i->work.run = run_end_of_invalidation;
	++*pending;
	snd_run_or_defer(i->adapter->object.fabric, &i->work);
}

struct snd_invalidatable *snd_find_bound(const struct snd_table *t, uint64_t adapter, uint64_t endpoint, uint32_t token, uint32_t kind)
{
	struct snd_own_entry *e = snd_lookup(t, token);
	if (e == NULL || e->adapter != adapter || (snd_word_rights(e->word) & kind) == 0)
		return NULL;
	struct snd_invalidatable *i = e->invalidates;
	return i != NULL && i->state == SND_BOUND && i->bound_on == endpoint && i->windows == 0 ? i : NULL;
}

static void free_object(struct snd_invalidatable *i)
{
	i->adapter->objects--;
	if (snd_is_region(i)) {
		struct snd_mr *m = SND_OF(SND_OF(i, struct snd_region, i), struct snd_mr, region);
		snd_list_remove(&m->link);
		snd_object_free(&m->object);
	} else {
		struct snd_window *w = SND_OF(i, struct snd_window, i);
		snd_list_remove(&w->link);
		snd_object_free(&w->object);
	}
}

void snd_unreference(struct snd_invalidatable *i)
{
	if (--i->references == 0 && i->freed)
		free_object(i);
}

void snd_free_closed(struct snd_invalidatable *i)
{
	i->freed = true;
	if (i->references == 0)
		free_object(i);
}

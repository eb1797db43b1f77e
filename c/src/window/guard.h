/* The fast path of the guarded access. The labels are those of docs/model. */
#ifndef SND_GUARD_H
#define SND_GUARD_H

#include <string.h>

#include "endpoint/endpoint.h"

/* HAZARD-PUBLISH. ORDER hazard: this store, then the loads of the check; pairs with the store of snd_revoke and
 * the loads of is_drained. Either the owner sees the hazard, or we see that the token is invalid. */
SND_FAST void snd_publish_hazard(struct snd_endpoint *ep, uint32_t sink, uint32_t source)
{
	snd_store_full(&ep->local_qp->hazard, (uint64_t)sink << SNDL_HAZARD_SINK_SHIFT | source);
}

/* HAZARD-CLEAR */
static inline void snd_clear_hazard(struct snd_endpoint *ep)
{
	snd_release(&ep->local_qp->hazard, 0); /* ORDER hazard-clear: after the last copy; pairs with the load in is_drained */
}

/* snd_allowed is ENTRY-CHECK for memory of ours: it returns the entry of a token of this adapter that allows the
 * access, NULL if there is none. The fabric's lock keeps it valid. */
SND_FAST struct snd_own_entry *snd_allowed(struct snd_endpoint *ep, uint32_t token, uint32_t rights, uint64_t address, uint64_t n)
{
	struct snd_own_entry *e = ep->cached;
	if (snd_unlikely(!e->valid || snd_word_token(e->word) != token || e->adapter != ep->adapter_number)) {
		if (!snd_cache_entry(ep, token))
			return NULL;
		e = ep->cached;
	}
	uint64_t asked = snd_word_of(token, rights);
	return (e->word & asked) == asked && snd_within(address, n, e->base, e->length) ? e : NULL;
}

/* snd_move is COPY, for a range of one part. */
SND_FAST void snd_move(unsigned char *to, const unsigned char *from, uint64_t n)
{
	if (n == 8 && (uintptr_t)to % 8 == 0) {
		uint64_t v;
		memcpy(&v, from, 8);
		snd_release((snd_word *)(void *)to, v);
		return;
	}
	snd_copy_ordered(to, from, n);
}

/* snd_copy_fast copies between memory of ours with a local token and a peer's. n is 1 to SND_CHUNK_BYTES. It
 * reports no fault: if it returns false, snd_copy makes the request again and finds the reason. Some bytes may
 * have been written then. */
SND_FAST bool snd_copy_fast(struct snd_endpoint *ep, uint32_t remote, uint32_t rights, uint64_t address, uint32_t local,
	unsigned char *buffer, uint64_t n)
{
	const bool write = (rights & SNDL_RIGHT_WRITE) != 0;
	struct snd_connection *c = ep->conn;
	/* ENTRY-CHECK of the local token; no other thread can revoke it meanwhile. */
	if (snd_unlikely(snd_allowed(ep, local, SNDL_RIGHT_LOCAL | (write ? SNDL_RIGHT_READ : SNDL_RIGHT_WRITE), (uint64_t)(uintptr_t)buffer, n) == NULL))
		return false;
	bool ok = false;
	snd_publish_hazard(ep, write ? remote : local, write ? local : remote);
	struct snd_arena *a = &ep->object.fabric->arena;
	const struct snd_access_entry *e = &a->entries[snd_index_of(remote)];
	const uint64_t word = snd_load(&e->word); /* ENTRY-CHECK. ORDER entry-valid: pairs with the store in snd_bind_entry */
	const uint64_t asked = SND_WORD_VALID | snd_word_of(remote, rights);
	if (snd_likely(snd_is_open(c) && (word & (asked | SNDL_WORD_TOKEN_MASK)) == asked && snd_relaxed(&e->owner) == c->peer_adapter)) {
		/* ENTRY-FIELDS: each is loaded once, and belongs to word while the hazard names its token. */
		const uint64_t scope = snd_relaxed(&e->scope), base = snd_relaxed(&e->base), length = snd_relaxed(&e->length), offset = snd_relaxed(&e->offset);
		if (snd_unlikely(offset == 0)) {
			ep->unreachable = remote;
		} else if (snd_likely((scope == 0 || scope == c->peer_endpoint) && snd_within(address, n, base, length))) {
			unsigned char *memory = snd_heap_at(a, offset + (address - base), n);
			if (snd_likely(memory != NULL)) { /* else the entry names memory outside the heap */
				if (write)
					snd_move(memory, buffer, n);
				else
					snd_move(buffer, memory, n);
				snd_fence_after_copy();
				ok = snd_load(&e->word) == word; /* ENTRY-RECHECK. ORDER entry-recheck: after the copy; pairs with the store in snd_revoke */
			}
		}
	}
	snd_clear_hazard(ep);
	return ok;
}

#endif

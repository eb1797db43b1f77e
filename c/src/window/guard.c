/* The guarded access in full: it reports why it refuses.
 * TWIN window/guard.go, window/guard_atomic.go, window/copy_unsafe.go, window/operand.go, window/fault.go. */
#include "window/guard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"

void snd_copy_ordered(unsigned char *sink, const unsigned char *source, uint64_t n)
{
	uintptr_t end = (uintptr_t)sink + n;
	if (n == 0)
		return;
	if (n >= 8 && end % 8 == 0) {
		uint64_t last;
		memcpy(&last, source + n - 8, 8); /* before the copy: the two may overlap */
		memmove(sink, source, n - 8);
		snd_release((snd_word *)(void *)(sink + n - 8), last);
	} else if (n >= 4 && end % 4 == 0) {
		uint32_t last;
		memcpy(&last, source + n - 4, 4);
		memmove(sink, source, n - 4);
		snd_release32((snd_half *)(void *)(sink + n - 4), last);
	} else {
		unsigned char last = source[n - 1];
		memmove(sink, source, n - 1);
		atomic_store_explicit((_Atomic unsigned char *)(void *)(sink + n - 1), last, memory_order_release);
	}
}

bool snd_find_entry(struct snd_guard *g, uint32_t token)
{
	struct snd_own_entry *e = snd_lookup(g->table, token);
	if (e == NULL || e->adapter != g->adapter)
		return false;
	g->last_entry = e;
	g->last_word = e->word;
	g->source = snd_key_with(e->word, SNDL_RIGHT_LOCAL | SNDL_RIGHT_READ);
	g->sink = snd_key_with(e->word, SNDL_RIGHT_LOCAL | SNDL_RIGHT_WRITE);
	return true;
}

/* checked is the memory of an operand that has been checked, with the state that must be the same after the copy. */
struct checked {
	unsigned char *memory;
	const struct snd_access_entry *entry; /* of a peer's token */
	uint64_t word;
};

static enum snd_fault rights_fault(uint32_t have, uint32_t want)
{
	uint32_t kind = want & (SNDL_RIGHT_REMOTE | SNDL_RIGHT_LOCAL);
	return (have & kind) != kind ? SND_FAULT_BAD_TOKEN : SND_FAULT_NO_RIGHT;
}

/* continues reports whether a part of a request may use the bind of word: the token is new to it, or unchanged. */
static bool continues(uint64_t *bind, uint64_t word)
{
	if (bind == NULL)
		return true;
	if (snd_word_token(*bind) != snd_word_token(word)) /* no token is 0 */
		*bind = word;
	return *bind == word;
}

/* are_mapped reports whether the program still has the pages of registered memory, and prints if it has not. */
static bool are_mapped(const unsigned char *at, uint64_t n)
{
	SND_KEEP_ERRNO;
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)at / page * page;
	if (n == 0 || msync((void *)start, (uintptr_t)at + n - start, MS_ASYNC) == 0 || errno != ENOMEM)
		return true;
	fprintf(stderr, "softnd: check pages: of %" PRIu64 " bytes at %p, which a region covers, the program has unmapped some: end the region first\n", n, (const void *)at);
	return false;
}

static enum snd_fault check_own(struct snd_guard *g, struct checked *r, const struct snd_operand *o, uint64_t n)
{
	struct snd_own_entry *e = g->last_entry;
	if (!snd_has_token(g, o->token)) {
		if (!snd_find_entry(g, o->token))
			return SND_FAULT_BAD_TOKEN;
		e = g->last_entry;
	}
	if (e->scope != 0 && o->endpoint != 0 && e->scope != o->endpoint)
		return SND_FAULT_OTHER_SCOPE;
	if ((snd_word_rights(e->word) & o->rights) != o->rights)
		return rights_fault(snd_word_rights(e->word), o->rights);
	if (o->endpoint != 0 && (o->rights & g->denied) != 0)
		return SND_FAULT_NO_ACCESS;
	if (!snd_within(o->address, n, e->base, snd_length_of(e)))
		return SND_FAULT_OUT_OF_RANGE;
	if (!continues(o->bind, e->word))
		return SND_FAULT_REVOKED;
	r->memory = e->memory + (o->address - e->base);
	r->entry = NULL;
	if (snd_unlikely(g->table->checks_pages) && !are_mapped(r->memory, n))
		return SND_FAULT_OUT_OF_RANGE;
	return SND_NO_FAULT;
}

/* denied_by returns the rights that the peer's endpoint denies to requests of this side. */
static uint32_t denied_by(const struct snd_far_end *far)
{
	/* Plain: it is as old as the connection, or takes effect at any later time. */
	return far->access == NULL ? 0 : ~(uint32_t)snd_relaxed(far->access) & (SNDL_RIGHT_READ | SNDL_RIGHT_WRITE | SNDL_RIGHT_ATOMIC);
}

/* own_memory returns the private memory of n bytes of a token, if it covers them. */
static unsigned char *own_memory(const struct snd_table *t, uint32_t token, uint64_t address, uint64_t n)
{
	const struct snd_own_entry *e = snd_lookup(t, token);
	if (e == NULL || !snd_within(address, n, e->base, snd_length_of(e)))
		return NULL;
	unsigned char *at = e->memory + (address - e->base);
	return !t->checks_pages || are_mapped(at, n) ? at : NULL;
}

static struct snd_location place_of(const struct snd_access_entry *e)
{
	const uint32_t ends = snd_relaxed32(&e->ends);
	return (struct snd_location){snd_relaxed(&e->offset), ends >> SNDL_ENDS_HEAD_SHIFT & SNDL_ENDS_HEAD_MASK, ends >> SNDL_ENDS_TAIL_SHIFT & SNDL_ENDS_TAIL_MASK};
}

static enum snd_fault check_peer(struct snd_guard *g, struct checked *r, const struct snd_operand *o, uint64_t n)
{
	const struct snd_far_end *far = g->far;
	if (!snd_is_open(far))
		return SND_FAULT_DISCONNECTED;
	const struct snd_access_entry *e = &g->arena->entries[snd_index_of(o->token)];
	uint64_t word = snd_load(&e->word); /* ORDER entry-valid: pairs with the store in snd_bind_entry */
	if ((word & SND_WORD_VALID) == 0 || snd_word_token(word) != o->token || snd_relaxed(&e->owner) != far->adapter)
		return SND_FAULT_BAD_TOKEN;
	uint64_t scope = snd_relaxed(&e->scope);
	if (scope != 0 && scope != far->endpoint)
		return SND_FAULT_OTHER_SCOPE;
	if ((snd_word_rights(word) & o->rights) != o->rights)
		return rights_fault(snd_word_rights(word), o->rights);
	if ((o->rights & denied_by(far)) != 0 && (o->rights & SNDL_RIGHT_REMOTE) != 0)
		return SND_FAULT_NO_ACCESS;
	uint64_t base = snd_relaxed(&e->base), length = snd_relaxed(&e->length); /* ENTRY-FIELDS */
	const struct snd_location place = place_of(e);
	if (!snd_within(o->address, n, base, length))
		return SND_FAULT_OUT_OF_RANGE;
	if (far->own == NULL && !snd_is_shared(o->address - base, n, length, place))
		return SND_FAULT_UNREACHABLE;
	if (far->own != NULL) /* by the addresses of the program: then overlaps show */
		r->memory = own_memory(far->own, o->token, o->address, n);
	else
		r->memory = snd_heap_at(g->arena, place.offset + (o->address - base - place.head), n);
	if (r->memory == NULL)
		return SND_FAULT_OUT_OF_RANGE; /* the entry names memory outside the heap */
	if (!continues(o->bind, word))
		return SND_FAULT_REVOKED;
	r->entry = e;
	r->word = word;
	return SND_NO_FAULT;
}

/* check is ENTRY-CHECK. */
static enum snd_fault check(struct snd_guard *g, struct checked *r, const struct snd_operand *o, uint64_t n)
{
	if (o->memory != NULL) {
		r->memory = o->memory;
		r->entry = NULL;
		return SND_NO_FAULT;
	}
	return o->peers ? check_peer(g, r, o, n) : check_own(g, r, o, n);
}

/* is_unchanged is ENTRY-RECHECK. Own tokens cannot change while the lock is held. */
static bool is_unchanged(const struct checked *r)
{
	return r->entry == NULL || snd_load(&r->entry->word) == r->word; /* ORDER entry-recheck: after the copy; pairs with the store in snd_revoke */
}

/* refused returns the fault of an access to o that was refused because of f. If the connection has ended, that is the
 * reason: its end revokes the tokens that were bound on it. */
static enum snd_fault refused(const struct snd_guard *g, const struct snd_operand *o, enum snd_fault f)
{
	/* ORDER end-revoke: after the load of the token's word in the access entry, an acquire; pairs with the revocation after
	 * the end in snd_tear_down. */
	if (f != SND_NO_FAULT && o->peers && !snd_is_open(g->far))
		return SND_FAULT_DISCONNECTED;
	return f;
}

bool snd_copy(struct snd_guard *g, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
	enum snd_fault *sink_fault, enum snd_fault *source_fault)
{
	struct checked to = {0}, from = {0};
	const bool shared = sink->peers || source->peers;
	*source_fault = SND_NO_FAULT;
	if (shared)
		snd_publish_hazard(g, sink->token, source->token);
	*sink_fault = check(g, &to, sink, n);
	if (*sink_fault == SND_NO_FAULT)
		*source_fault = check(g, &from, source, n);
	if (*sink_fault == SND_NO_FAULT && *source_fault == SND_NO_FAULT) {
		for (uint64_t moved = 0; moved < n;) {
			uint64_t chunk = n - moved < SND_CHUNK_BYTES ? n - moved : SND_CHUNK_BYTES;
			snd_copy_ordered(to.memory + moved, from.memory + moved, chunk); /* COPY */
			snd_fence_after_copy();
			if (!is_unchanged(&to)) {
				*sink_fault = SND_FAULT_REVOKED;
				break;
			}
			if (!is_unchanged(&from)) {
				*source_fault = SND_FAULT_REVOKED;
				break;
			}
			moved += chunk;
		}
	}
	if (shared)
		snd_clear_hazard(g);
	*sink_fault = refused(g, sink, *sink_fault);
	*source_fault = refused(g, source, *source_fault);
	return *sink_fault == SND_NO_FAULT && *source_fault == SND_NO_FAULT;
}

bool snd_learn(struct snd_guard *g, struct snd_known_bind *known, struct snd_known_bind *found, uint32_t token, uint32_t rights)
{
	const struct snd_far_end *far = g->far;
	const struct snd_access_entry *e = &g->arena->entries[snd_index_of(token)];
	const uint64_t word = snd_load(&e->word), asked = SND_WORD_VALID | snd_word_of(token, rights); /* ORDER entry-valid: pairs with the store in snd_bind_entry */
	if ((word & (asked | SNDL_WORD_TOKEN_MASK)) != asked || snd_relaxed(&e->owner) != far->adapter)
		return false;
	const uint64_t scope = snd_relaxed(&e->scope), base = snd_relaxed(&e->base), length = snd_relaxed(&e->length);
	const struct snd_location place = place_of(e);
	const uint64_t ends = far->own != NULL ? 0 : (uint64_t)place.head + place.tail, first = far->own != NULL ? 0 : place.head;
	const uint32_t denied = denied_by(far) & snd_word_rights(word);
	if ((scope != 0 && scope != far->endpoint) || (denied & rights) != 0)
		return false;
	if (place.offset == 0 && far->own == NULL) {
		g->unreachable = token;
		return false;
	}
	unsigned char *memory = far->own != NULL ? own_memory(far->own, token, base, length) : snd_heap_at(g->arena, place.offset, length - ends);
	if (memory == NULL || ends > length || base + length < base)
		return false; /* the entry names memory outside the heap, or a range that snd_covers does not take */
	*found = (struct snd_known_bind){.writable = ((base + first) ^ (uintptr_t)memory) % 8 != 0 ? 0 : snd_key_with(word, SNDL_RIGHT_REMOTE | SNDL_RIGHT_WRITE),
		.readable = snd_key_with(word, SNDL_RIGHT_REMOTE | SNDL_RIGHT_READ),
		.word = word, .entry = e, .base = base + first, .length = length - ends, .memory = memory};
	/* A third process can make the shared word come again: it must not be what private memory depends on. */
	if (denied == 0 && far->own == NULL && (++known->others == SND_KNOWN_FOR || known->word == 0 || !snd_is_present(known)))
		*known = *found;
	return true;
}

enum snd_fault snd_check_operand(struct snd_guard *g, const struct snd_operand *o, uint64_t n)
{
	struct checked r;
	if (!o->peers)
		return check(g, &r, o, n);
	snd_publish_hazard(g, o->token, 0);
	enum snd_fault f = check(g, &r, o, n);
	snd_clear_hazard(g);
	return refused(g, o, f);
}

/* change_word changes a word, and returns what it was. Other processes may do the same, with the same instructions, at the same time. */
static uint64_t change_word(snd_word *w, struct snd_change c)
{
	switch (c.operation) {
	case SNDL_OPERATION_FETCH_AND_ADD: return atomic_fetch_add(w, c.operand);
	case SNDL_OPERATION_SWAP: return atomic_exchange(w, c.operand);
	case SNDL_OPERATION_COMPARE_AND_SWAP: break;
	default: abort(); /* the caller has checked it */
	}
	(void)atomic_compare_exchange_strong(w, &c.operand, c.swap);
	return c.operand; /* a failed exchange has stored what it found */
}

enum snd_fault snd_change_word(struct snd_guard *g, const struct snd_operand *o, struct snd_change change, uint64_t *old)
{
	struct checked at = {0};
	if (o->peers)
		snd_publish_hazard(g, o->token, 0);
	enum snd_fault f = check(g, &at, o, sizeof *old);
	if (f == SND_NO_FAULT && (uintptr_t)at.memory % sizeof *old != 0)
		f = SND_FAULT_UNALIGNED;
	if (f == SND_NO_FAULT) {
		*old = change_word((snd_word *)(void *)at.memory, change); /* COPY */
		snd_fence_after_copy();
		if (!is_unchanged(&at))
			f = SND_FAULT_REVOKED;
	}
	if (o->peers)
		snd_clear_hazard(g);
	return refused(g, o, f);
}

bool snd_is_private(struct snd_guard *g, const struct snd_operand *o, uint64_t n, enum snd_fault *fault)
{
	struct checked r;
	*fault = SND_NO_FAULT;
	if (o->memory != NULL)
		return true;
	if ((*fault = check_own(g, &r, o, n)) != SND_NO_FAULT)
		return false;
	const struct snd_own_entry *e = g->last_entry;
	return !snd_is_shared(o->address - e->base, n, snd_length_of(e), e->place);
}

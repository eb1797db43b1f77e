/* The fast path of the guarded access. The labels are those of docs/model.
 * TWIN window/guard_fast.go, window/guard.go, window/operand.go, window/fault.go. */
#ifndef SND_GUARD_H
#define SND_GUARD_H

#include <string.h>

#include "window/table.h"

#define SND_CHUNK_BYTES (UINT64_C(256) << 10) /* copied between two checks of the tokens */

/* snd_fault says why a copy was refused. */
enum snd_fault {
	SND_NO_FAULT,
	SND_FAULT_BAD_TOKEN,
	SND_FAULT_REVOKED,
	SND_FAULT_OTHER_SCOPE,
	SND_FAULT_NO_RIGHT,
	SND_FAULT_OUT_OF_RANGE,
	SND_FAULT_UNREACHABLE, /* private memory of the peer */
	SND_FAULT_DISCONNECTED,
	SND_FAULT_UNALIGNED, /* the address of an atomic is not a multiple of 8 in memory */
	SND_FAULT_NO_ACCESS, /* the endpoint of the memory's owner refuses such requests */
};

/* snd_operand is the memory at one end of a copy. */
struct snd_operand {
	unsigned char *memory; /* plain memory without a token; else NULL */
	uint64_t address;
	uint64_t *bind;    /* the bind that all parts of the request must have; 0 = none yet. NULL for a single part */
	uint64_t endpoint; /* own token in a peer's request: our endpoint; 0 = our own request */
	uint32_t token;
	uint32_t rights;
	bool peers; /* a token of the peer */
};

/* snd_known_bind is a bind of the peer that a check has accepted. As long as the word of its entry is the same, so is the rest: the word
 * changes with each bind, and comes again after 2^32 of them. */
struct snd_known_bind {
	_Alignas(64) uint64_t writable; /* key, see snd_key_of; 0 = requests of this side cannot write with the token, or an aligned address is not one in memory */
	uint64_t readable; /* key; 0 = they cannot read */
	uint64_t word; /* 0 = none yet */
	const struct snd_access_entry *entry;
	uint64_t base, length;
	unsigned char *memory; /* at base */
	uint64_t others; /* requests with another token */
};

enum {
	SND_KNOWN_BINDS = 4, /* by the last bits of the token: programs use several windows of a peer in turn */
	SND_KNOWN_FOR = 64   /* requests with another token of the same last bits, until one of them takes the place */
};

/* snd_far_end is the other side of a connection. */
struct snd_far_end {
	const snd_half *state; /* of the connection record */
	const snd_half *disconnected;
	uint64_t adapter, endpoint;
	const snd_half *bar; /* the fast paths do not run while this word is not 0: disconnected, or the upper half of access */
	const snd_word *access; /* rights that requests of this side can use; upper half: not 0 if some were removed while connected. NULL = all */
	const struct snd_table *own; /* the peer is of this process: its tokens are here. NULL = it is not */
	struct snd_known_bind known[SND_KNOWN_BINDS];
};

/* snd_guard makes the guarded copies of an endpoint. */
struct snd_guard {
	struct snd_own_entry *last_entry; /* of the local token that was used last */
	uint64_t last_word;  /* its word then. As long as it has that word, its rights are those; a peer can make the word come again, for an entry of another adapter */
	uint64_t source, sink; /* keys of that token, see snd_key_of; 0 = it may not be read or written */
	snd_word *hazard;
	struct snd_far_end *far; /* of the connection; NULL = none yet */
	struct snd_arena *arena;
	struct snd_table *table;
	uint64_t adapter;     /* whose local tokens it accepts */
	uint32_t unreachable; /* the last token whose memory was found to be private */
	uint32_t denied;      /* rights that requests of the peer cannot use */
};

/* snd_is_open reports whether neither side has ended the connection. ORDER hazard: after snd_publish_hazard;
 * pairs with the change of either word before the load of the hazard. ORDER conn-state: after a push. */
static inline bool snd_is_open(const struct snd_far_end *f)
{
	return snd_load32(f->state) == SNDL_CONN_ESTABLISHED && snd_load32(f->disconnected) == 0;
}

void snd_copy_ordered(unsigned char *sink, const unsigned char *source, uint64_t n);
/* snd_copy copies n bytes while both tokens are valid. The last word is stored last. */
bool snd_copy(struct snd_guard *g, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
	enum snd_fault *sink_fault, enum snd_fault *source_fault);
enum snd_fault snd_check_operand(struct snd_guard *g, const struct snd_operand *o, uint64_t n);
/* snd_change is the effect of an atomic on 8 bytes. */
struct snd_change {
	uint64_t operation, operand, swap;
};
/* snd_change_word makes a change of the 8 bytes of o while its token is valid, and stores what they were. It takes the steps of snd_copy, with
 * one atomic instruction in the place of the copy. After SND_FAULT_REVOKED the bytes may have been changed. */
enum snd_fault snd_change_word(struct snd_guard *g, const struct snd_operand *o, struct snd_change change, uint64_t *old);
/* snd_is_private reports whether an own operand is memory that no peer can reach. */
bool snd_is_private(struct snd_guard *g, const struct snd_operand *o, uint64_t n, enum snd_fault *fault);
bool snd_find_entry(struct snd_guard *g, uint32_t token);

/* HAZARD-PUBLISH. ORDER hazard: this store, then the loads of the check; pairs with the store of snd_revoke and
 * the loads of is_drained. Either the owner sees the hazard, or we see that the token is invalid. */
SND_FAST void snd_publish_hazard(struct snd_guard *g, uint32_t sink, uint32_t source)
{
	snd_store_full(g->hazard, (uint64_t)sink << SNDL_HAZARD_SINK_SHIFT | source);
}

/* HAZARD-CLEAR */
static inline void snd_clear_hazard(struct snd_guard *g)
{
	snd_release(g->hazard, 0); /* ORDER hazard-clear: after the last copy; pairs with the load in is_drained */
}

/* snd_key_of makes a key of a token: it is never 0. */
static inline uint64_t snd_key_of(uint32_t token) { return ~(uint64_t)token; }
/* snd_key_with returns the key of the token of a word that has these rights, else 0. */
static inline uint64_t snd_key_with(uint64_t word, uint32_t rights)
{
	return (snd_word_rights(word) & rights) == rights ? snd_key_of(snd_word_token(word)) : 0;
}

/* snd_has_token reports whether a local token is that of last_entry, and valid. (hasToken of Go does not say whether it is valid.) */
static inline bool snd_has_token(const struct snd_guard *g, uint32_t token)
{
	return g->last_entry->word == g->last_word && g->last_entry->adapter == g->adapter && snd_word_token(g->last_word) == token && g->last_word != 0;
}

/* snd_allowed is ENTRY-CHECK for memory of ours: it returns the entry of a token of this adapter that allows the
 * access, NULL if there is none. The fabric's lock keeps it valid: only this process revokes the token, and with that lock. So a COPY between
 * the memory and a ring entry needs neither a hazard nor ENTRY-RECHECK, if the caller gives the lock up only behind it. */
SND_FAST struct snd_own_entry *snd_allowed(struct snd_guard *g, uint32_t token, uint32_t rights, uint64_t address, uint64_t n)
{
	if (snd_unlikely(!snd_has_token(g, token)) && !snd_find_entry(g, token))
		return NULL;
	struct snd_own_entry *e = g->last_entry;
	uint64_t asked = snd_word_of(token, rights);
	return (e->word & asked) == asked && snd_covers(e->base, e->length, address, n) ? e : NULL;
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

/* snd_learn finds the bind of a peer's token that has these rights, if all of its memory can be reached. It puts the bind in the place of
 * known if that has ended, or if many requests have used others. The hazard is published. */
bool snd_learn(struct snd_guard *g, struct snd_known_bind *known, struct snd_known_bind *found, uint32_t token, uint32_t rights);

/* snd_is_about reports whether known is a bind of a token with these rights. */
SND_FAST bool snd_is_about(const struct snd_known_bind *known, uint32_t token, uint32_t rights)
{
	const uint64_t asked = SND_WORD_VALID | snd_word_of(token, rights);
	return (known->word & (asked | SNDL_WORD_TOKEN_MASK)) == asked;
}

/* snd_is_present is ENTRY-CHECK and ENTRY-FIELDS: the known fields are those of the bind while its word is in the entry. The hazard is published.
 * ORDER entry-valid: as in snd_learn. After the copy it is ENTRY-RECHECK. */
SND_FAST bool snd_is_present(const struct snd_known_bind *known) { return snd_load(&known->entry->word) == known->word; }

/* snd_is_unbarred reports whether the fast paths may run: the connection is open, and none of its rights was revoked. ORDER hazard, conn-state: as in snd_is_open. */
SND_FAST bool snd_is_unbarred(const struct snd_far_end *far) { return snd_load32(far->state) == SNDL_CONN_ESTABLISHED && snd_load32(far->bar) == 0; }

/* snd_known_memory returns the memory of n bytes of a known bind, NULL if it does not cover them, or the connection has ended. */
SND_FAST unsigned char *snd_known_memory(const struct snd_far_end *far, const struct snd_known_bind *known, uint64_t address, uint64_t n)
{
	return snd_likely(snd_is_unbarred(far) && snd_covers(known->base, known->length, address, n)) ? known->memory + (address - known->base) : NULL;
}

/* snd_copy_fast copies between memory of ours and a peer's. The caller has checked the local token; 0 = inline data. n is 1 to SND_CHUNK_BYTES. It
 * reports no fault: if it returns false, snd_copy makes the request again and finds the reason. Some bytes may
 * have been written then. */
SND_FAST bool snd_copy_fast(struct snd_guard *g, uint32_t remote, uint32_t rights, uint64_t address, uint32_t local,
	unsigned char *buffer, uint64_t n)
{
	const bool write = (rights & SNDL_RIGHT_WRITE) != 0;
	struct snd_known_bind found, *known = &g->far->known[remote % SND_KNOWN_BINDS];
	bool ok = false;
	snd_publish_hazard(g, write ? remote : local, write ? local : remote);
	unsigned char *memory = NULL;
	if (snd_likely(snd_is_about(known, remote, rights) && snd_is_present(known)))
		memory = snd_known_memory(g->far, known, address, n);
	else if (snd_learn(g, known, &found, remote, rights))
		memory = snd_known_memory(g->far, known = &found, address, n);
	if (snd_likely(memory != NULL)) {
		if (write)
			snd_move(memory, buffer, n);
		else
			snd_move(buffer, memory, n);
		snd_fence_after_copy();
		ok = snd_is_present(known); /* ENTRY-RECHECK. ORDER entry-recheck: after the copy; pairs with the store in snd_revoke */
	}
	snd_clear_hazard(g);
	return ok;
}

#define SND_WORDS_BYTES 64u
/* SND_HOLD makes the compiler keep an address in a register that it would compute again at each use. */
#define SND_HOLD(address) __asm__("" : "+r"(address))

/* snd_copy_words is snd_copy_fast for up to SND_WORDS_BYTES in aligned words, with a local token that was used last and a bind of the peer that
 * is known. The keys say which rights the tokens have. far is that of the guard. It calls no function. */
SND_FAST bool snd_copy_words(struct snd_guard *g, const struct snd_far_end *far, bool write, uint64_t address, uint32_t remote, const snd_sge *local)
{
	const uint32_t n = local->length, token = local->token;
	const struct snd_own_entry *own = g->last_entry;
	if (snd_unlikely(own->word != g->last_word || own->adapter != g->adapter || (write ? g->source : g->sink) != snd_key_of(token) ||
		((write ? address : (uintptr_t)local->buffer) | n) % 8 != 0 ||
		!snd_covers(own->base, own->length, (uint64_t)(uintptr_t)local->buffer, n)))
		return false;
	const struct snd_known_bind *known = &far->known[remote % SND_KNOWN_BINDS];
	SND_HOLD(known);
	if (snd_unlikely((write ? known->writable : known->readable) != snd_key_of(remote)))
		return false;
	bool ok = false;
	snd_publish_hazard(g, write ? remote : token, write ? token : remote);
	if (snd_likely(snd_is_present(known) && snd_is_unbarred(far) && snd_covers(known->base, known->length, address, n))) {
		unsigned char *memory = known->memory + (address - known->base), *to = write ? memory : local->buffer;
		const unsigned char *from = write ? local->buffer : memory;
		uint64_t v;
		if (snd_likely(n == 8)) { /* COPY */
			memcpy(&v, from, 8);
			snd_release((snd_word *)(void *)to, v);
			ok = true;
		} else if ((uintptr_t)to - (uintptr_t)from >= n) { /* from the first byte on; the two may overlap */
			for (uint64_t at = 0; at != n; at += 8) {
				memcpy(&v, from + at, 8);
				snd_release((snd_word *)(void *)(to + at), v);
			}
			ok = true;
		}
		snd_fence_after_copy();
		ok = ok && snd_is_present(known); /* ENTRY-RECHECK, as in snd_copy_fast */
	}
	snd_clear_hazard(g);
	return ok;
}

#endif

/* The access that a token allows, in words, for the message of a refused access.
 * TWIN window/describe.go, window/fault.go. */
#include "endpoint/describe.h"

#include <inttypes.h>
#include <stdio.h>

const char *snd_fault_text(enum snd_fault f)
{
	static const char *const text[] = {"none", "the token is not valid", "the token was revoked during the transfer",
		"the token is valid on another connection only", "the token does not grant this right: add it to the flags of the region or of the bind",
		"the range is outside the granted memory: compare it with the descriptor", "the memory is private to its owner", "the connection has ended",
		"the 8 bytes are not aligned in memory", "the owner's endpoint does not allow such requests: compare its access flags"};
	return text[f];
}

static void describe_range(uint32_t rights, uint64_t base, uint64_t length, char *text, size_t size)
{
	static const char *const granted[] = {"without access rights", "to read", "to write", "to read and write"};
	const unsigned i = ((rights & SNDL_RIGHT_READ) != 0 ? 1U : 0U) + ((rights & SNDL_RIGHT_WRITE) != 0 ? 2U : 0U);
	snprintf(text, size, "%" PRIu64 " bytes at %#" PRIx64 " %s", length, base, granted[i]);
}

/* describe_wrong_kind says that a local token was used as a remote one, or the reverse. */
static void describe_wrong_kind(uint32_t rights, char *text, size_t size)
{
	snprintf(text, size, "%s", (rights & SNDL_RIGHT_LOCAL) != 0 ?
		"nothing to a peer, since it is the local token of a region (pass the remote token of the peer's region or window)" :
		"nothing here, since it is a remote token (pass the local token of the region)");
}

/* describe_invalid says why a token gives no access to the memory of the adapter wanted. The shared table has recorded the reason.
 * self is the adapter of this side. */
static void describe_invalid(struct snd_arena *a, uint32_t token, uint64_t wanted, uint64_t self, char *text, size_t size)
{
	const uint32_t index = snd_index_of(token);
	const struct snd_access_entry *e = &a->entries[index];
	const uint64_t word = snd_load(&e->word), adapter = snd_relaxed(&e->owner), base = snd_relaxed(&e->base), length = snd_relaxed(&e->length);
	const uint32_t binds = snd_relaxed32(&e->binds);
	/* later is the number of binds since that of the token. */
	const uint32_t later = (snd_bind_base_of(a->secret, index) + binds - (token >> SNDL_TOKEN_TAG_SHIFT)) & (uint32_t)SNDL_TOKEN_TAG_MASK;
	const char *why;
	if (token == 0)
		why = "0 is no token: a window has none before its first bind";
	else if (later >= binds)
		why = "no region or window has had this token: pass it unchanged, as its owner sent it";
	else if (later > 0)
		why = "out of date: its window was bound, or its region registered, again since: ask the owner for the present token";
	else if (adapter == self && self != wanted)
		why = "it is a token of this side's own memory: pass the one that the peer has sent";
	else if (adapter != wanted && self == wanted)
		why = "it is a token of another adapter's memory: pass the one of a region of this adapter";
	else if (adapter != wanted)
		why = "it is a token of another adapter than the one at the other end";
	else if (snd_word_token(word) != token)
		why = "its bind has not run yet";
	else {
		snprintf(text, size, "nothing (invalidated; it covered %" PRIu64 " bytes at %#" PRIx64 ")", length, base); /* also if it was valid a moment ago */
		return;
	}
	snprintf(text, size, "nothing (%s)", why);
}

static void describe_access(struct snd_endpoint *ep, const struct snd_operand *o, char *text, size_t size)
{
	struct snd_arena *a = &ep->object.fabric->arena;
	const uint64_t wanted = o->peers ? ep->conn->far.adapter : ep->adapter_number;
	const uint32_t kind = o->rights & (SNDL_RIGHT_REMOTE | SNDL_RIGHT_LOCAL);
	if (!o->peers) {
		const struct snd_own_entry *own = snd_lookup(ep->object.fabric->table, o->token);
		if (own == NULL || own->adapter != ep->adapter_number)
			describe_invalid(a, o->token, wanted, ep->adapter_number, text, size);
		else if ((snd_word_rights(own->word) & kind) == 0)
			describe_wrong_kind(snd_word_rights(own->word), text, size);
		else
			describe_range(snd_word_rights(own->word), own->base, snd_length_of(own), text, size);
		return;
	}
	const struct snd_access_entry *e = &a->entries[snd_index_of(o->token)];
	const uint64_t word = snd_load(&e->word); /* ORDER entry-valid: pairs with the store in snd_bind_entry */
	const uint64_t adapter = snd_relaxed(&e->owner), base = snd_relaxed(&e->base), length = snd_relaxed(&e->length);
	const bool valid = (word & SND_WORD_VALID) != 0 && snd_word_token(word) == o->token;
	if (valid && (snd_word_rights(word) & kind) == 0) /* of any adapter */
		describe_wrong_kind(snd_word_rights(word), text, size);
	else if (valid && adapter == wanted && snd_load(&e->word) == word) /* while the word stays valid, the fields are its own */
		describe_range(snd_word_rights(word), base, length, text, size);
	else
		describe_invalid(a, o->token, wanted, ep->adapter_number, text, size);
}

void snd_describe_range(struct snd_endpoint *ep, const struct snd_operand *o, uint64_t n, char *text, size_t size)
{
	char grants[SND_REASON / 2];
	describe_access(ep, o, grants, sizeof grants);
	snprintf(text, size, "%" PRIu64 " bytes at %#" PRIx64 " with token(...%02x), which grants %s", n, o->address, o->token & 0xff, grants);
}

void snd_describe_request(struct snd_endpoint *ep, const struct snd_send_request *r, char *text, size_t size)
{
	const struct snd_operand o = {.address = r->remote_address, .token = r->remote_token, .rights = SNDL_RIGHT_REMOTE, .peers = true};
	if (r->kind == SND_REQUEST_SEND && r->invalidate)
		snprintf(text, size, "a message of %" PRIu64 " bytes that invalidates token(...%02x)", r->total, r->remote_token & 0xff);
	else if (r->kind == SND_REQUEST_SEND)
		snprintf(text, size, "a message of %" PRIu64 " bytes", r->total);
	else
		snd_describe_range(ep, &o, r->total, text, size);
}

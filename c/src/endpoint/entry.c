/* Ring entries: their words as fields, and immediate data. TWIN endpoint/internal/wire/entry.go. */
#include "endpoint/entry.h"

#include <string.h>

/* Immediate data of a Send, and of a Write that is placed, is in the header in place of the token. The header of another Write
 * has the remote token. immediate_word returns the index of the word with the immediate data of such a Write. */
static int immediate_word(uint32_t kind, uint32_t flags)
{
	return kind == SNDL_KIND_WRITE_IN_ENTRY && (flags & SNDL_FLAG_HASHED) == 0 ? SNDL_HASH_WORD : SNDL_HASH_WORD - 1;
}

void snd_entry_put_immediate(uint64_t w[7], uint32_t data)
{
	const uint32_t kind = (uint32_t)(w[0] & SNDL_ENTRY_KIND_MASK), flags = (uint32_t)(w[0] >> SNDL_ENTRY_FLAGS_SHIFT & SNDL_ENTRY_FLAGS_MASK);
	if (kind == SNDL_KIND_WRITE_IN_ENTRY || kind == SNDL_KIND_WRITE_FRAGMENT)
		w[immediate_word(kind, flags)] = data;
	else
		w[0] = (uint32_t)w[0] | (uint64_t)data << SNDL_ENTRY_TOKEN_SHIFT;
}

/* decode_immediate returns false if an entry of this kind has no immediate data. */
static bool decode_immediate(struct snd_ring_entry *e, const uint64_t w[7])
{
	switch (e->kind) {
	case SNDL_KIND_SEND_IN_ENTRY:
	case SNDL_KIND_SEND_PLACED:
	case SNDL_KIND_SEND_FRAGMENT:
	case SNDL_KIND_WRITE_PLACED:
		e->immediate = e->token;
		e->token = 0;
		break;
	case SNDL_KIND_WRITE_IN_ENTRY:
	case SNDL_KIND_WRITE_FRAGMENT:
		e->immediate = (uint32_t)w[immediate_word(e->kind, e->flags)];
		break;
	default:
		return false;
	}
	return (e->flags & SNDL_FLAG_INVALIDATE) == 0;
}

bool snd_entry_decode(struct snd_ring_entry *e, const uint64_t w[7])
{
	e->kind = (uint32_t)(w[0] & SNDL_ENTRY_KIND_MASK);
	e->flags = (uint32_t)(w[0] >> SNDL_ENTRY_FLAGS_SHIFT & SNDL_ENTRY_FLAGS_MASK);
	e->payload_length = (uint32_t)(w[0] >> SNDL_ENTRY_LENGTH_SHIFT & SNDL_ENTRY_LENGTH_MASK);
	e->token = (uint32_t)(w[0] >> SNDL_ENTRY_TOKEN_SHIFT);
	const bool hashed = (e->flags & SNDL_FLAG_HASHED) != 0;
	e->hash = hashed ? w[SNDL_HASH_WORD] : 0;
	const uint32_t length = e->payload_length;
	e->immediate = 0;
	if ((e->flags & SNDL_FLAG_IMMEDIATE) != 0 && !decode_immediate(e, w))
		return false;
	switch (e->kind) {
	case SNDL_KIND_SEND_IN_ENTRY:
		if (length > snd_entry_room(e->kind, e->flags))
			return false;
		memcpy(e->payload, w + 1, length);
		return true;
	case SNDL_KIND_WRITE_IN_ENTRY:
		if (length > snd_entry_room(e->kind, e->flags))
			return false;
		e->receiver_address = w[1];
		memcpy(e->payload, w + 2, length);
		return true;
	case SNDL_KIND_SEND_PLACED:
		e->request_length = w[1];
		return length == 0;
	case SNDL_KIND_WRITE_PLACED:
		e->request_length = w[1];
		return length == 0 && (e->flags & SNDL_FLAG_IMMEDIATE) != 0;
	case SNDL_KIND_ATOMIC:
		e->receiver_address = w[1];
		e->operand = w[2];
		e->swap = w[3];
		e->operation = w[4];
		e->result_index = (uint32_t)(w[5] % SNDL_RESULTS);
		return length == 0 && e->flags == SND_PLAIN_WRITE && w[4] - 1 < SNDL_OPERATION_SWAP && w[5] < SNDL_RESULTS;
	case SNDL_KIND_SEND_FAILED:
		e->status = w[1];
		e->request_length = w[2];
		return length == 0;
	case SNDL_KIND_SEND_FRAGMENT:
	case SNDL_KIND_WRITE_FRAGMENT:
	case SNDL_KIND_READ_FRAGMENT:
		e->sender_address = w[1];
		e->fragment_length = (uint32_t)w[2];
		e->sender_token = (uint32_t)(w[2] >> 32);
		e->receiver_address = w[3];
		e->request_length = w[4];
		return length == 0;
	default:
		return false;
	}
}

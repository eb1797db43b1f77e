#include "endpoint/entry.h"

#include <string.h>

bool snd_entry_decode(struct snd_ring_entry *e, const uint64_t w[7])
{
	e->kind = (uint32_t)(w[0] & SNDL_ENTRY_KIND_MASK);
	e->flags = (uint32_t)(w[0] >> SNDL_ENTRY_FLAGS_SHIFT & SNDL_ENTRY_FLAGS_MASK);
	e->payload_length = (uint32_t)(w[0] >> SNDL_ENTRY_LENGTH_SHIFT & SNDL_ENTRY_LENGTH_MASK);
	e->token = (uint32_t)(w[0] >> SNDL_ENTRY_TOKEN_SHIFT);
	const bool hashed = (e->flags & SNDL_FLAG_HASHED) != 0;
	e->hash = hashed ? w[SNDL_HASH_WORD] : 0;
	uint32_t length = e->payload_length, less = hashed ? SNDL_HASH_SIZE : 0;
	switch (e->kind) {
	case SNDL_KIND_SEND_IN_ENTRY:
		if (length > SNDL_MAX_SEND_IN_ENTRY - less)
			return false;
		memcpy(e->payload, w + 1, length);
		return true;
	case SNDL_KIND_WRITE_IN_ENTRY:
		if (length > SNDL_MAX_WRITE_IN_ENTRY - less)
			return false;
		e->receiver_address = w[1];
		memcpy(e->payload, w + 2, length);
		return true;
	case SNDL_KIND_SEND_PLACED:
		e->request_length = w[1];
		return length == 0;
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

/* Ring entries. TWIN endpoint/internal/wire/entry.go. */
#ifndef SND_ENDPOINT_ENTRY_H
#define SND_ENDPOINT_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "softnd/softnd.h"

#include "shm/layout.h"

/* snd_ring_entry is a decoded entry. Which fields are set depends on the kind. The sender is the process that has pushed the
 * entry, the receiver the one that serves it. */
struct snd_ring_entry {
	uint32_t kind, flags;
	uint32_t payload_length;   /* bytes of the data in the entry */
	uint32_t token;            /* the receiver's remote token, or the token to invalidate */
	uint32_t sender_token;     /* local token for the bytes of a fragment */
	uint64_t sender_address;   /* of these bytes */
	uint64_t receiver_address; /* of a Write or Read */
	uint64_t fragment_length;  /* bytes */
	uint64_t request_length;   /* bytes of the whole request or message */
	uint32_t immediate;        /* with SNDL_FLAG_IMMEDIATE only */
	uint32_t result_index;     /* of an Atomic, as the next three */
	uint64_t operation, operand, swap;
	uint64_t hash;             /* the word SNDL_HASH_WORD; with SNDL_FLAG_HASHED only */
	uint64_t status;           /* see snd_entry_receive_status */
	unsigned char payload[SNDL_MAX_SEND_IN_ENTRY];
};

enum {
	SND_PLAIN_SEND = SNDL_FLAG_FIRST | SNDL_FLAG_LAST, /* flags of the fast path: an entry holds a whole request */
	SND_PLAIN_WRITE = SND_PLAIN_SEND | SNDL_FLAG_ACK_REQUEST,
};

/* snd_entry_header packs word 0 of an entry. */
static inline uint64_t snd_entry_header(uint32_t kind, uint32_t flags, uint64_t length, uint32_t token)
{
	return kind | (uint64_t)flags << SNDL_ENTRY_FLAGS_SHIFT | length << SNDL_ENTRY_LENGTH_SHIFT | (uint64_t)token << SNDL_ENTRY_TOKEN_SHIFT;
}

/* snd_entry_room returns the limit of the data in an entry that carries a whole Send or Write with these flags. */
static inline uint32_t snd_entry_room(uint32_t kind, uint32_t flags)
{
	const uint32_t n = (flags & SNDL_FLAG_HASHED) != 0 ? SNDL_HASH_SIZE : 0;
	if (kind != SNDL_KIND_WRITE_IN_ENTRY)
		return SNDL_MAX_SEND_IN_ENTRY - n;
	return SNDL_MAX_WRITE_IN_ENTRY - n - ((flags & SNDL_FLAG_IMMEDIATE) != 0 ? SNDL_IMMEDIATE_SIZE : 0);
}

/* snd_entry_put_immediate stores the immediate data of an entry whose header has SNDL_FLAG_IMMEDIATE. */
void snd_entry_put_immediate(uint64_t w[7], uint32_t data);

/* snd_entry_decode decodes a private copy of the words that a peer wrote. It returns false if no correct peer writes such an
 * entry; kind, flags and payload_length are set even then. */
bool snd_entry_decode(struct snd_ring_entry *e, const uint64_t w[7]);

/* snd_entry_is_write reports whether the entry belongs to a Write. */
static inline bool snd_entry_is_write(const struct snd_ring_entry *e)
{
	return e->kind == SNDL_KIND_WRITE_FRAGMENT || e->kind == SNDL_KIND_WRITE_IN_ENTRY || e->kind == SNDL_KIND_WRITE_PLACED;
}

/* snd_entry_ends_write reports whether the entry is the last of a Write with immediate data, and so takes a receive. */
static inline bool snd_entry_ends_write(const struct snd_ring_entry *e)
{
	const uint32_t both = SNDL_FLAG_IMMEDIATE | SNDL_FLAG_LAST;
	return (e->flags & both) == both && snd_entry_is_write(e);
}

/* snd_entry_receive_status returns the status that a SendFailed entry gives its receive: of any value of the peer, an allowed one. */
static inline snd_status snd_entry_receive_status(const struct snd_ring_entry *e)
{
	return e->status == SND_BUFFER_OVERFLOW ? SND_BUFFER_OVERFLOW : SND_ACCESS_VIOLATION;
}

#endif

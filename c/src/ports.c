/* The member's own port numbers. They are unrelated to the host's. */
#include <inttypes.h>

#include "error.h"
#include "fabric.h"

enum { EPHEMERAL_FIRST = 49152, EPHEMERAL_LAST = 65535 };

/* A member's address is 127.77.x.y, where x.y is its slot plus 1. */
uint32_t snd_host_of(uint32_t slot) { return UINT32_C(0x7f4d0000) | (slot + 1); }

bool snd_slot_of(uint32_t host, uint32_t *slot)
{
	*slot = (host & 0xffff) - 1;
	return host >> 16 == 0x7f4d && *slot < SNDL_MEMBERS;
}

static bool is_used(const struct snd_fabric *f, uint16_t port) { return (f->ports[port / 8] >> (port % 8) & 1) != 0; }

snd_status snd_bind_port(struct snd_fabric *f, snd_address wanted, snd_address *bound, const char *op)
{
	if (wanted.host != 0 && wanted.host != snd_host_of(f->slot))
		return snd_fail(SND_INVALID_ADDRESS, "%s: address %#" PRIx32 " is not local: use snd_fabric_address", op, wanted.host);
	uint16_t port = wanted.port;
	if (port != 0 && is_used(f, port))
		return snd_fail(SND_SHARING_VIOLATION, "%s: port %u is in use: choose another, or 0", op, (unsigned)port);
	for (int i = EPHEMERAL_FIRST; port == 0 && i <= EPHEMERAL_LAST; i++) {
		uint16_t next = f->next_port < EPHEMERAL_FIRST ? EPHEMERAL_FIRST : f->next_port;
		f->next_port = next == EPHEMERAL_LAST ? EPHEMERAL_FIRST : (uint16_t)(next + 1);
		if (!is_used(f, next))
			port = next;
	}
	if (port == 0)
		return snd_fail(SND_TOO_MANY_ADDRESSES, "%s: all ephemeral ports are in use: close unused connectors", op);
	f->ports[port / 8] |= (unsigned char)(1 << (port % 8));
	*bound = (snd_address){snd_host_of(f->slot), port, 0};
	return SND_SUCCESS;
}

void snd_release_port(struct snd_fabric *f, uint16_t port) { f->ports[port / 8] &= (unsigned char)~(1 << (port % 8)); }

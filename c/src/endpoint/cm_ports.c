/* The member's own port numbers. They are unrelated to the host's. TWIN endpoint/internal/cm/ports.go, endpoint/address.go. */
#include "endpoint/cm_ports.h"

#include <inttypes.h>

#include "shm/member.h"

enum { EPHEMERAL_FIRST = 49152, EPHEMERAL_LAST = 65535 };

/* A member's address is 127.h.x.y: h is the number of the arena's host plus FIRST_HOST, x.y the member's slot plus 1. */
enum { NETWORK = 127, FIRST_HOST = 77 };

uint32_t snd_host_of(const struct snd_fabric *f, uint32_t slot) { return (uint32_t)NETWORK << 24 | (FIRST_HOST + f->arena.host) << 16 | (slot + 1); }

/* is_address reports whether a process of a job can have the address. */
static bool is_address(uint32_t host) { return host >> 24 == NETWORK && (host >> 16 & 0xff) >= FIRST_HOST; }

uint32_t snd_number_of_host(uint32_t address) { return (address >> 16 & 0xff) - FIRST_HOST; }

bool snd_is_of_other_host(const struct snd_fabric *f, uint32_t host)
{
	return is_address(host) && snd_number_of_host(host) != f->arena.host;
}

bool snd_is_address_of(uint32_t address, uint32_t host) { return is_address(address) && snd_number_of_host(address) == host; }

bool snd_find_relay(const struct snd_fabric *f, struct snd_peer *p)
{
	uint64_t id = snd_load(&snd_header(&f->arena)->relay); /* ORDER relay-named: pairs with the swap in Member.BecomeRelay */
	return snd_peer_of(f, id, p) && !snd_peer_gone(p);
}

bool snd_has_relay(const struct snd_fabric *f) { return snd_relaxed(&snd_header(&f->arena)->relay) != 0; }

bool snd_peer_at(const struct snd_fabric *f, uint32_t host, struct snd_peer *p, bool *known)
{
	*known = is_address(host);
	if (snd_is_of_other_host(f, host))
		return snd_find_relay(f, p);
	return *known && snd_peer_in_slot(f, (host & 0xffff) - 1, p);
}

static bool is_used(const struct snd_fabric *f, uint16_t port) { return (f->ports[port / 8] >> (port % 8) & 1) != 0; }

snd_status snd_bind_port(struct snd_fabric *f, snd_address wanted, snd_address *bound, const char *op)
{
	snd_status s = snd_check_reserved(&wanted, op);
	if (s != SND_SUCCESS)
		return s;
	if (wanted.host != 0 && wanted.host != snd_host_of(f, f->slot))
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
	*bound = (snd_address){snd_host_of(f, f->slot), port, 0};
	return SND_SUCCESS;
}

void snd_release_port(struct snd_fabric *f, uint16_t port) { f->ports[port / 8] &= (unsigned char)~(1 << (port % 8)); }

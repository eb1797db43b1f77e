/* TWIN internal/meet/bootstrap/address.go. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "error.h"
#include "meet/relay.h"

/* is_global reports whether other hosts can have a route to an address. */
static bool is_global(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, a, sizeof in);
		const uint32_t n = ntohl(in.sin_addr.s_addr);
		return n != 0 && n != UINT32_MAX && n >> 24 != 127 && n >> 16 != 0xa9fe && n >> 28 != 0xe;
	}
	if (a->sa_family != AF_INET6)
		return false;
	struct sockaddr_in6 in;
	memcpy(&in, a, sizeof in);
	const struct in6_addr *n = &in.sin6_addr;
	return !IN6_IS_ADDR_UNSPECIFIED(n) && !IN6_IS_ADDR_LOOPBACK(n) && !IN6_IS_ADDR_LINKLOCAL(n) && !IN6_IS_ADDR_MULTICAST(n);
}

/* write_address writes an address of either family. */
static bool write_address(const struct sockaddr *a, char text[SND_IP_ADDRESS])
{
	if (a->sa_family == AF_INET6) {
		struct sockaddr_in6 in;
		memcpy(&in, a, sizeof in);
		return inet_ntop(AF_INET6, &in.sin6_addr, text, SND_IP_ADDRESS) != NULL;
	}
	struct sockaddr_in in;
	memcpy(&in, a, sizeof in);
	return inet_ntop(AF_INET, &in.sin_addr, text, SND_IP_ADDRESS) != NULL;
}

snd_status snd_host_address(const char *known, char text[SND_IP_ADDRESS], const char *op)
{
	const char *set = getenv("SOFTND_HOST_ADDRESS");
	struct in6_addr parsed;
	if (set != NULL && *set != 0) {
		const int family = strchr(set, ':') != NULL ? AF_INET6 : AF_INET;
		if (inet_pton(family, set, &parsed) == 1 && inet_ntop(family, &parsed, text, SND_IP_ADDRESS) != NULL && strcmp(text, "0.0.0.0") != 0 && strcmp(text, "::") != 0) {
			if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)&parsed))
				return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_HOST_ADDRESS=\"%.100s\": it is a link-local address, which each host needs a zone of its own for: use a global address", op, set);
			return SND_SUCCESS;
		}
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_HOST_ADDRESS=\"%.100s\": want an IP address of this host", op, set);
	}
	if (*known != 0) {
		snprintf(text, SND_IP_ADDRESS, "%s", known);
		return SND_SUCCESS;
	}
	struct ifaddrs *all;
	if (getifaddrs(&all) != 0)
		return snd_fail(SND_HOST_UNREACHABLE, "%s: no address at which other hosts reach this one: getifaddrs: %s: set SOFTND_HOST_ADDRESS", op, snd_errno_text(errno));
	const struct sockaddr *best = NULL; /* the first of IPv4, or else the first */
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
		if (i->ifa_addr != NULL && (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0 && is_global(i->ifa_addr) &&
			(best == NULL || (best->sa_family != AF_INET && i->ifa_addr->sa_family == AF_INET)))
			best = i->ifa_addr;
	const bool found = best != NULL && write_address(best, text);
	freeifaddrs(all);
	return found ? SND_SUCCESS
		: snd_fail(SND_HOST_UNREACHABLE, "%s: no address at which other hosts reach this one: no network interface is up with a global address: set SOFTND_HOST_ADDRESS", op);
}

/* The addresses of fabrics. They are computed from the name of the socket by which processes find a fabric or its job: so they are the same in each
 * run, and a process that has not joined knows them. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "identity.h"
#include "objects.h"
#include "xxh64.h"

bool is_ethernet(void)
{
	const char *link = getenv("SOFTND_VERBS_LINK");
	return link != NULL && strcmp(link, "roce") == 0;
}

void name_own_fabric(char name[FABRIC_NAME])
{
	const char *job = getenv("SOFTND_CONTROL"), *fabric = getenv("SOFTND_VERBS_FABRIC");
	if (job != NULL || getenv("SOFTND_ARENA_FD") != NULL)
		(void)snprintf(name, FABRIC_NAME, "%.*s", job == NULL ? 0 : (int)strcspn(job, ":"), job);
	else
		(void)snprintf(name, FABRIC_NAME, FABRIC_SOCKET "%lu-%s", (unsigned long)geteuid(), fabric != NULL && *fabric != '\0' ? fabric : "verbs");
}

/* hash_of returns the same number for a fabric at each process of this host. */
static uint32_t hash_of(const char *fabric)
{
	struct utsname host;
	char text[sizeof host.nodename + FABRIC_NAME + 1];
	if (uname(&host) != 0)
		host.nodename[0] = '\0';
	const int n = snprintf(text, sizeof text, "%s/%s", host.nodename, fabric);
	return (uint32_t)snd_xxh64(text, (size_t)n);
}

struct addresses addresses_of(const char *fabric)
{
	const uint32_t hash = hash_of(fabric);
	struct addresses a = {.guid = NODE_GUID_PREFIX | hash};
	a.gids[0].global.subnet_prefix = htobe64(PORT_GID_PREFIX);
	a.gids[0].global.interface_id = htobe64(a.guid);
	if (!is_ethernet()) {
		a.lid = (uint16_t)(1 + hash % MAX_LID);
		return a;
	}
	a.gids[1] = a.gids[0];
	a.gids[2].global.interface_id = htobe64(UINT64_C(0xffff7f400000) | (hash & 0x3fffff)); /* ::ffff:127.64.0.0 and up: addresses of lo */
	a.gids[3] = a.gids[2];
	return a;
}

struct addresses own_addresses(void)
{
	char name[FABRIC_NAME];
	name_own_fabric(name);
	return addresses_of(name);
}

bool has_gid(const struct addresses *a, int64_t index)
{
	static const union ibv_gid empty;
	return index >= 0 && index < PORT_GIDS && memcmp(&a->gids[index], &empty, sizeof empty) != 0;
}

enum ibv_gid_type gid_type(uint32_t index) { return !is_ethernet() ? IBV_GID_TYPE_IB : index % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2; }

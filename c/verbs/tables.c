/* The port's tables of GIDs and of partition keys. */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/types.h>

#include "identity.h"
#include "objects.h"
#include "private.h"

union ibv_gid port_gid(void)
{
	union ibv_gid gid;
	gid.global.subnet_prefix = htobe64(PORT_GID_PREFIX);
	gid.global.interface_id = htobe64(NODE_GUID);
	return gid;
}

/* An entry that is not there: -1 with errno, which the old calls return. */
static int no_entry(void)
{
	errno = EINVAL;
	return -1;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	(void)context;
	if (port != PORT || index < 0 || index >= PORT_GIDS)
		return no_entry();
	*gid = index == ENTRY ? port_gid() : (union ibv_gid){{0}};
	return 0;
}

static void fill_gid(struct ibv_gid_entry *entry, size_t size)
{
	const struct ibv_gid_entry all = {.gid = port_gid(), .gid_index = ENTRY, .port_num = PORT, .gid_type = IBV_GID_TYPE_IB};
	memset(entry, 0, size);
	memcpy(entry, &all, size < sizeof all ? size : sizeof all);
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	(void)context;
	if (port != PORT || index >= PORT_GIDS || flags != 0)
		return EINVAL;
	if (index != ENTRY)
		return ENODATA;
	fill_gid(entry, size);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t count, uint32_t flags, size_t size)
{
	(void)context;
	if (count < 1 || flags != 0)
		return -EINVAL;
	fill_gid(entries, size);
	return 1;
}

/* The private call has a type of its own, in which 0 is that of InfiniBand and of RoCE v1. */
static int query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type)
{
	(void)context;
	if (port != PORT || index >= PORT_GIDS)
		return no_entry();
	*type = 0;
	return 0;
}
IN_PRIVATE_NODES(ibv_query_gid_type, query_gid_type)

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context;
	if (port != PORT || index != ENTRY)
		return no_entry();
	*pkey = htobe16(PORT_PKEY);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	(void)context;
	return port == PORT && pkey == htobe16(PORT_PKEY) ? ENTRY : no_entry();
}

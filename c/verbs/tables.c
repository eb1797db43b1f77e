/* The port's tables of GIDs and of partition keys. */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/types.h>

#include "objects.h"
#include "private.h"

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
	*gid = own_addresses().gids[index];
	return 0;
}

static void fill_gid(const struct addresses *own, uint32_t index, struct ibv_gid_entry *entry, size_t size)
{
	const struct ibv_gid_entry all = {.gid = own->gids[index], .gid_index = index, .port_num = PORT, .gid_type = gid_type(index), .ndev_ifindex = is_ethernet() ? NET_INDEX : 0};
	memset(entry, 0, size);
	memcpy(entry, &all, size < sizeof all ? size : sizeof all);
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	const struct addresses own = own_addresses();
	(void)context;
	if (port != PORT || index >= PORT_GIDS || flags != 0)
		return EINVAL;
	if (!has_gid(&own, index))
		return ENODATA;
	fill_gid(&own, index, entry, size);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t count, uint32_t flags, size_t size)
{
	const struct addresses own = own_addresses();
	size_t n = 0;
	(void)context;
	if (flags != 0)
		return -EINVAL;
	for (uint32_t i = 0; i < PORT_GIDS; i++)
		if (has_gid(&own, i)) {
			if (n == count)
				return -EINVAL;
			fill_gid(&own, i, (struct ibv_gid_entry *)(void *)((char *)entries + n++ * size), size);
		}
	return (ssize_t)n;
}

/* The private call has a type of its own, in which 0 is that of InfiniBand and of RoCE v1, and 1 that of RoCE v2. */
static int query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type)
{
	(void)context;
	if (port != PORT || index >= PORT_GIDS)
		return no_entry();
	*type = gid_type(index) == IBV_GID_TYPE_ROCE_V2;
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

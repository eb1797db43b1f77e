/* Address handles. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	static atomic_uint created;
	if (check_path("create address handle", attr) != 0)
		return NULL;
	struct ah *ah = calloc(1, sizeof *ah);
	if (ah == NULL)
		return NULL;
	ah->public = (struct ibv_ah){pd->context, pd, atomic_fetch_add(&created, 1)};
	ah->attr = *attr;
	atomic_fetch_add(&((struct pd *)pd)->users, 1);
	return &ah->public;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	atomic_fetch_sub(&((struct pd *)ah->pd)->users, 1);
	free(ah);
	return 0;
}

/* The address of the sender of a datagram. The low 28 bits of the word that begins its header are traffic class and flow label. */
int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	const struct addresses own = own_addresses();
	int64_t own_gid = 0;
	(void)context;
	*attr = (struct ibv_ah_attr){.dlid = wc->slid, .sl = wc->sl, .src_path_bits = wc->dlid_path_bits, .port_num = port};
	while ((wc->wc_flags & IBV_WC_GRH) != 0 && has_gid(&own, own_gid) && memcmp(&grh->dgid, &own.gids[own_gid], sizeof grh->dgid) != 0)
		own_gid++;
	if (port != PORT || !has_gid(&own, own_gid)) {
		errno = EINVAL;
		return -1;
	}
	if ((wc->wc_flags & IBV_WC_GRH) != 0) {
		const uint32_t flow = be32toh(grh->version_tclass_flow);
		attr->is_global = 1;
		attr->grh = (struct ibv_global_route){grh->sgid, flow & 0xfffff, (uint8_t)own_gid, 0xff, flow >> 20 & 0xff};
	}
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;
	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) == 0 ? ibv_create_ah(pd, &attr) : NULL;
}

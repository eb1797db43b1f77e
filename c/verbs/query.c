/* Attributes of the device and its port. Counts of objects that are not built yet are 0, but for those that programs need to start. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "endpoint/provider.h"
#include "objects.h"
#include "shm/layout.h"
#include "window/window.h"

#undef ibv_query_port

static void fill_device(struct ibv_device_attr *attr)
{
	const __be64 guid = htobe64(own_addresses().guid);
	*attr = (struct ibv_device_attr){
		.node_guid = guid,
		.sys_image_guid = guid,
		.max_mr_size = SND_MAX_REGISTRATION,
		.page_size_cap = (uint64_t)sysconf(_SC_PAGESIZE),
		.vendor_id = VENDOR_ID,
		.vendor_part_id = VENDOR_PART_ID,
		.hw_ver = HARDWARE_VERSION,
		.max_qp = 1 << 16,
		.max_qp_wr = (int)snd_large_limits.queue_depth,
		.device_cap_flags = IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS,
		.max_mw = 1 << 16,
		.max_sge = SNDL_MAX_SGE,
		.max_sge_rd = SNDL_MAX_SGE,
		.max_cq = 1 << 16,
		.max_cqe = MAX_CQE,
		.max_mr = (SNDL_WINDOW_ENTRIES - 1) / 2, /* each has an entry for either key */
		.max_pd = 1 << 16,
		.max_qp_rd_atom = SND_MAX_READS,
		.max_res_rd_atom = SND_MAX_READS * (1 << 16),
		.max_qp_init_rd_atom = SND_MAX_READS,
		.atomic_cap = IBV_ATOMIC_HCA, /* UCX uses no device without it, nor with more */
		.max_srq = 1 << 16,
		.max_srq_wr = (int)snd_large_limits.queue_depth,
		.max_srq_sge = SNDL_MAX_SGE,
		.max_ah = 1 << 16,
		.max_pkeys = 1,
		.phys_port_cnt = 1,
	};
	(void)snprintf(attr->fw_ver, sizeof attr->fw_ver, "%s", FIRMWARE_VERSION);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	fill_device(attr);
	return 0;
}

int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex all = {.phys_port_cnt_ex = 1, .completion_timestamp_mask = UINT64_MAX, .hca_core_clock = 1000000 /* kHz */, .cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX}};
	(void)context;
	if ((input != NULL && input->comp_mask != 0) || size < sizeof all.orig_attr)
		return EINVAL;
	fill_device(&all.orig_attr);
	all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
	memset(attr, 0, size);
	memcpy(attr, &all, size < sizeof all ? size : sizeof all);
	return 0;
}

static void fill_port(void *attr, size_t size)
{
	const bool ethernet = is_ethernet();
	const struct ibv_port_attr all = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = PORT_GIDS,
		.max_msg_sz = 1 << 30,
		.pkey_tbl_len = 1,
		.lid = own_addresses().lid,
		.sm_lid = ethernet ? 0 : PORT_SM_LID,
		.max_vl_num = 1,
		.active_width = PORT_WIDTH,
		.active_speed = PORT_SPEED,
		.phys_state = 5,
		.link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND,
		.flags = ethernet ? IBV_QPF_GRH_REQUIRED : 0,
		.port_cap_flags = ethernet ? IBV_PORT_IP_BASED_GIDS : 0,
	};
	memset(attr, 0, size);
	memcpy(attr, &all, size < sizeof all ? size : sizeof all);
}

int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	(void)context;
	if (port != PORT)
		return EINVAL;
	fill_port(attr, size);
	return 0;
}

/* The structure of this call ends before port_cap_flags2. */
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

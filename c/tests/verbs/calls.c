/* Calls of libibverbs.so.1, as programs make them. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <unistd.h>

#include "../check.h"

/* A structure of the caller, with bytes after it that no call may write. */
#define GUARDED(type) \
	struct { \
		type value; \
		unsigned char guard[64]; \
	}
#define PAINT(s) memset(&(s), 0xa5, sizeof(s))

static int all_painted(const unsigned char *guard)
{
	for (int i = 0; i < 64; i++) {
		if (guard[i] != 0xa5)
			return 0;
	}
	return 1;
}

static struct ibv_context *open_only_device(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list != NULL && count == 1 && list[0] != NULL && list[1] == NULL);
	struct ibv_device *device = list[0];
	const void *driver;
	memcpy(&driver, device + 1, sizeof driver);
	CHECK(driver == NULL); /* mlx5dv_is_supported and the like read it */
	CHECK(strcmp(ibv_get_device_name(device), device->name) == 0 && ibv_get_device_guid(device) != 0);
	struct ibv_context *context = ibv_open_device(device);
	ibv_free_device_list(list);
	CHECK(context != NULL && context->device == device && context->async_fd > 2 && context->num_comp_vectors > 0);
	return context;
}

static void attributes(struct ibv_context *c)
{
	GUARDED(struct ibv_device_attr) device;
	PAINT(device);
	CHECK(ibv_query_device(c, &device.value) == 0 && all_painted(device.guard));
	CHECK(device.value.atomic_cap == IBV_ATOMIC_HCA && device.value.vendor_id == 0xffffff && device.value.vendor_part_id == 0);
	CHECK(device.value.phys_port_cnt == 1 && device.value.max_qp > 0 && device.value.max_pkeys == 1);
	GUARDED(struct ibv_device_attr_ex) ex;
	PAINT(ex);
	CHECK(ibv_query_device_ex(c, NULL, &ex.value) == 0 && all_painted(ex.guard));
	CHECK(ex.value.phys_port_cnt_ex == 1 && ex.value.odp_caps.general_caps == 0 && ex.value.orig_attr.node_guid == device.value.node_guid);
	CHECK(ibv_query_device_ex(c, &(struct ibv_query_device_ex_input){.comp_mask = 1}, &ex.value) == EINVAL);

	GUARDED(struct ibv_port_attr) port;
	PAINT(port);
	CHECK(ibv_query_port(c, 1, &port.value) == 0 && all_painted(port.guard));
	CHECK(port.value.state == IBV_PORT_ACTIVE && port.value.phys_state == 5 && port.value.max_mtu == IBV_MTU_4096);
	CHECK(port.value.max_msg_sz == 1u << 30 && port.value.link_layer == IBV_LINK_LAYER_INFINIBAND && port.value.lid != 0);
	CHECK(ibv_query_port(c, 0, &port.value) == EINVAL && ibv_query_port(c, 2, &port.value) == EINVAL);
	/* The entry of old programs, whose structure is shorter. */
	PAINT(port);
	CHECK((ibv_query_port)(c, 1, (struct _compat_ibv_port_attr *)&port.value) == 0);
	CHECK(port.value.state == IBV_PORT_ACTIVE && port.value.port_cap_flags2 == 0xa5a5 && all_painted(port.guard));
}

static void tables(struct ibv_context *c)
{
	union ibv_gid gid, empty = {{0}};
	CHECK(ibv_query_gid(c, 1, 0, &gid) == 0 && gid.raw[0] == 0xfe && gid.raw[1] == 0x80);
	CHECK(gid.global.interface_id == ibv_get_device_guid(c->device));
	union ibv_gid second;
	CHECK(ibv_query_gid(c, 1, 1, &second) == 0 && memcmp(&second, &empty, sizeof empty) == 0);
	CHECK(ibv_query_gid(c, 1, 4, &second) == -1 && ibv_query_gid(c, 1, -1, &second) == -1 && ibv_query_gid(c, 2, 0, &second) == -1);
	GUARDED(struct ibv_gid_entry) entry;
	PAINT(entry);
	CHECK(ibv_query_gid_ex(c, 1, 0, &entry.value, 0) == 0 && all_painted(entry.guard));
	CHECK(memcmp(&entry.value.gid, &gid, sizeof gid) == 0 && entry.value.port_num == 1 && entry.value.gid_type == IBV_GID_TYPE_IB);
	CHECK(ibv_query_gid_ex(c, 1, 1, &entry.value, 0) == ENODATA && ibv_query_gid_ex(c, 1, 4, &entry.value, 0) == EINVAL);
	CHECK(ibv_query_gid_table(c, &entry.value, 1, 0) == 1 && ibv_query_gid_table(c, &entry.value, 0, 0) == -EINVAL);
	__be16 pkey;
	CHECK(ibv_query_pkey(c, 1, 0, &pkey) == 0 && ntohs(pkey) == 0xffff && ibv_query_pkey(c, 1, 1, &pkey) == -1);
	CHECK(ibv_get_pkey_index(c, 1, pkey) == 0 && ibv_get_pkey_index(c, 1, htons(1)) == -1);
}

/* The files of sysfs, from those beside the library. No header declares the call. */
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size);

static void files(struct ibv_context *c)
{
	typedef char six_bytes[6];
	GUARDED(six_bytes) text;
	PAINT(text);
	CHECK(ibv_read_sysfs_file(c->device->ibdev_path, "ports/1/state", text.value, 6) == 6 && memcmp(text.value, "4: ACT", 6) == 0);
	CHECK(all_painted(text.guard));
	char board[16];
	CHECK(ibv_read_sysfs_file(c->device->ibdev_path, "board_id", board, sizeof board) == 6 && strcmp(board, "softnd") == 0);
	CHECK(ibv_read_sysfs_file(c->device->dev_path, "ibdev", board, sizeof board) == 7 && strcmp(board, "softnd0") == 0);
	errno = 0;
	CHECK(ibv_read_sysfs_file(c->device->ibdev_path, "ports/2/state", board, sizeof board) == -1 && errno == ENOENT);
}

static void domains(struct ibv_context *c)
{
	struct ibv_pd *pd = ibv_alloc_pd(c);
	CHECK(pd != NULL && pd->context == c);
	struct ibv_ah_attr attr = {.dlid = 1, .port_num = 1};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah != NULL && ah->pd == pd && ah->context == c);
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_ah(ah) == 0);
	attr.port_num = 2;
	errno = 0;
	CHECK(ibv_create_ah(pd, &attr) == NULL && errno == EINVAL);

	struct ibv_wc wc = {.slid = 7, .sl = 3, .wc_flags = IBV_WC_GRH};
	struct ibv_grh grh = {.version_tclass_flow = htonl(0x61234567), .sgid = {.raw = {1}}};
	CHECK(ibv_query_gid(c, 1, 0, &grh.dgid) == 0);
	CHECK(ibv_init_ah_from_wc(c, 1, &wc, &grh, &attr) == 0 && attr.dlid == 7 && attr.sl == 3 && attr.port_num == 1);
	CHECK(attr.is_global && attr.grh.traffic_class == 0x12 && attr.grh.flow_label == 0x34567 && attr.grh.dgid.raw[0] == 1);
	grh.dgid.raw[15] ^= 1; /* not for this port */
	CHECK(ibv_init_ah_from_wc(c, 1, &wc, &grh, &attr) == -1 && ibv_create_ah_from_wc(pd, &wc, &grh, 1) == NULL);
	wc.wc_flags = 0;
	ah = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
	CHECK(ah != NULL && ibv_destroy_ah(ah) == 0 && ibv_dealloc_pd(pd) == 0);
}

static void events(struct ibv_context *c)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(c);
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *cq_context;
	CHECK(channel != NULL && channel->context == c && channel->fd > 2);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(c->async_fd, F_SETFL, O_NONBLOCK) == 0);
	errno = 0;
	CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EAGAIN);
	errno = 0;
	CHECK(ibv_get_async_event(c, &event) == -1 && errno == EAGAIN);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

/* Programs call the entries of the table without a check. */
static void table(struct ibv_context *c)
{
	const void *const *entry = (const void *const *)&c->ops;
	for (size_t i = 0; i < sizeof c->ops / sizeof *entry; i++)
		CHECK(entry[i] != NULL);
}

/* Calls of verbs.h that are not built, as names.txt says: the context has no functions for them. */
static void inline_calls(struct ibv_context *c)
{
	const struct verbs_context *v = verbs_get_ctx(c);
	CHECK(v != NULL && v->advise_mr == NULL && v->attach_counters_point_flow == NULL && v->close_xrcd == NULL && v->dealloc_td == NULL && v->destroy_counters == NULL &&
		v->ibv_destroy_flow == NULL && v->destroy_flow_action == NULL && v->destroy_rwq_ind_table == NULL && v->destroy_wq == NULL && v->free_dm == NULL && v->get_srq_num == NULL &&
		v->modify_flow_action_esp == NULL && v->modify_qp_rate_limit == NULL && v->modify_wq == NULL && v->post_srq_ops == NULL && v->read_counters == NULL);
	CHECK(v->alloc_dm == NULL && v->alloc_null_mr == NULL && v->alloc_parent_domain == NULL && v->alloc_td == NULL && v->create_counters == NULL && v->ibv_create_flow == NULL &&
		v->create_flow_action_esp == NULL && v->create_rwq_ind_table == NULL && v->create_wq == NULL && v->open_qp == NULL && v->open_xrcd == NULL && v->reg_dm_mr == NULL);
	CHECK(v->create_cq_ex != NULL && v->create_qp_ex != NULL && v->create_srq_ex != NULL && v->modify_cq != NULL && v->query_device_ex != NULL && v->query_rt_values != NULL);
}

/* The rates are those of the system's library. */
static void rates(const char *original)
{
	void *library = dlopen(original, RTLD_NOW | RTLD_LOCAL);
	CHECK(library != NULL);
	static const char *const names[] = {"ibv_rate_to_mult", "mult_to_ibv_rate", "ibv_rate_to_mbps", "mbps_to_ibv_rate"};
	int (*theirs[4])(int);
	for (int i = 0; i < 4; i++) {
		void *call = dlsym(library, names[i]);
		CHECK(call != NULL);
		memcpy(&theirs[i], &call, sizeof call);
	}
	for (int n = -1; n <= 30; n++)
		CHECK(ibv_rate_to_mult((enum ibv_rate)n) == theirs[0](n) && ibv_rate_to_mbps((enum ibv_rate)n) == theirs[2](n));
	for (int n = -1; n <= 1300000; n++)
		CHECK((int)mult_to_ibv_rate(n) == theirs[1](n) && (int)mbps_to_ibv_rate(n) == theirs[3](n));
}

static void strings(void)
{
	for (int i = -1000; i < 1000; i++) {
		CHECK(ibv_wc_status_str((enum ibv_wc_status)i)[0] != '\0' && ibv_event_type_str((enum ibv_event_type)i)[0] != '\0');
		CHECK(ibv_node_type_str((enum ibv_node_type)i)[0] != '\0' && ibv_port_state_str((enum ibv_port_state)i)[0] != '\0');
	}
	CHECK(strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success") == 0);
}

int main(int argc, char **argv)
{
	const int before = descriptors();
	struct ibv_context *c = open_only_device();
	attributes(c);
	inline_calls(c);
	tables(c);
	files(c);
	domains(c);
	events(c);
	table(c);
	strings();
	CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	CHECK(ibv_close_device(c) == 0 && descriptors() == before);
	if (argc > 1)
		rates(argv[1]);
	return 0;
}

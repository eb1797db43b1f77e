/* A program that is not linked with the library: it loads it and asks for each name with its version, as NCCL does. It moves data between two
 * queue pairs. loaded LIBRARY */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../check.h"

#define FIRST_VERSION(use) \
	use(ibv_get_device_list) use(ibv_free_device_list) use(ibv_get_device_name) use(ibv_open_device) use(ibv_close_device) use(ibv_get_async_event) use(ibv_ack_async_event) \
	use(ibv_query_device) use(ibv_query_gid) use(ibv_query_qp) use(ibv_alloc_pd) use(ibv_dealloc_pd) use(ibv_reg_mr) use(ibv_dereg_mr) use(ibv_create_cq) use(ibv_destroy_cq) \
	use(ibv_create_qp) use(ibv_modify_qp) use(ibv_destroy_qp) use(ibv_fork_init) use(ibv_event_type_str)

#define DECLARE(name) static __typeof__(&name) my_##name;
FIRST_VERSION(DECLARE)

static void *find(void *library, const char *name, const char *version)
{
	void *call = dlvsym(library, name, version);
	if (call == NULL)
		fprintf(stderr, "%s@%s is missing\n", name, version);
	CHECK(call != NULL);
	return call;
}

static void load(void *library)
{
#define LOAD(name) \
	call = find(library, #name, "IBVERBS_1.1"); \
	memcpy(&my_##name, &call, sizeof call);
	void *call;
	FIRST_VERSION(LOAD)
	(void)find(library, "ibv_query_port", "IBVERBS_1.1");
	(void)find(library, "ibv_reg_mr_iova2", "IBVERBS_1.8");
	(void)find(library, "ibv_query_ece", "IBVERBS_1.10");
	(void)find(library, "ibv_set_ece", "IBVERBS_1.10");
	(void)find(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
}

static void ready(struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	CHECK(my_ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = dest, .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = {.dlid = 1, .port_num = 1}};
	CHECK(my_ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	CHECK(my_ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

int main(int argc, char **argv)
{
	static char from[4096] = "some bytes", to[4096];
	char name[40];
	CHECK(argc == 2);
	snprintf(name, sizeof name, "verbs-loaded-%d", (int)getpid());
	CHECK(setenv("SOFTND_VERBS_FABRIC", name, 1) == 0);
	void *library = dlopen(argv[1], RTLD_NOW);
	if (library == NULL)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(library != NULL);
	load(library);
	CHECK(my_ibv_fork_init() == 0);
	struct ibv_device **list = my_ibv_get_device_list(NULL);
	CHECK(list != NULL && list[0] != NULL && my_ibv_get_device_name(list[0]) != NULL);
	struct ibv_context *c = my_ibv_open_device(list[0]);
	my_ibv_free_device_list(list);
	CHECK(c != NULL);
	struct ibv_pd *pd = my_ibv_alloc_pd(c);
	struct ibv_cq *cq = my_ibv_create_cq(c, 16, NULL, NULL, 0);
	CHECK(pd != NULL && cq != NULL);
	struct ibv_mr *near = my_ibv_reg_mr(pd, from, sizeof from, IBV_ACCESS_LOCAL_WRITE), *far = my_ibv_reg_mr(pd, to, sizeof to, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(near != NULL && far != NULL);
	struct ibv_qp *qp[2];
	for (int i = 0; i < 2; i++) {
		qp[i] = my_ibv_create_qp(pd, &(struct ibv_qp_init_attr){.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC});
		CHECK(qp[i] != NULL);
	}
	ready(qp[0], qp[1]->qp_num);
	ready(qp[1], qp[0]->qp_num);
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
	CHECK(ibv_post_recv(qp[1], &receive, &bad_receive) == 0);
	struct ibv_sge sge = {(uintptr_t)from, sizeof from, near->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED, .imm_data = 5, .wr.rdma = {(uintptr_t)to, far->rkey}}, *bad;
	CHECK(ibv_post_send(qp[0], &wr, &bad) == 0);
	const time_t end = time(NULL) + 30;
	for (int n = 0; n < 2;) {
		struct ibv_wc wc;
		const int taken = ibv_poll_cq(cq, 1, &wc);
		CHECK(taken >= 0 && time(NULL) < end && (taken == 0 || wc.status == IBV_WC_SUCCESS));
		n += taken;
	}
	CHECK(memcmp(from, to, sizeof from) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(my_ibv_destroy_qp(qp[i]) == 0);
	CHECK(my_ibv_dereg_mr(near) == 0 && my_ibv_dereg_mr(far) == 0 && my_ibv_destroy_cq(cq) == 0 && my_ibv_dealloc_pd(pd) == 0);
	CHECK(dlclose(library) == 0); /* its threads still run */
	CHECK(my_ibv_close_device(c) == 0);
	return 0;
}

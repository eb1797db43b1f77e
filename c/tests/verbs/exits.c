/* A thread calls exit while another one uses the device of librdmacm, as the one of rping does that sees a rejection. */
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "processes.h"

enum { WATCHDOG = 500 };

/* A process that ends with objects in use has not freed them. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

static atomic_bool is_used;

static void *use(void *cq)
{
	struct ibv_wc wc;
	while (ibv_req_notify_cq(cq, 0) == 0 && ibv_poll_cq(cq, 1, &wc) == 0)
		is_used = true;
	_exit(1);
}

static void exit_in_use(void)
{
	struct ibv_context **devices = rdma_get_devices(NULL);
	CHECK(devices != NULL);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(devices[0]);
	CHECK(channel != NULL);
	struct ibv_cq *cq = ibv_create_cq(devices[0], 1, NULL, channel, 0);
	rdma_free_devices(devices);
	pthread_t thread;
	CHECK(cq != NULL && pthread_create(&thread, NULL, use, cq) == 0);
	while (!is_used)
		(void)usleep(1000);
	exit(0);
}

int main(void)
{
	name_fabric("exits");
	for (unsigned i = rounds(10, 1000); i > 0; i--) {
		alarm(WATCHDOG);
		if (split())
			exit_in_use();
		join_child();
		CHECK(close(other) == 0);
	}
	return 0;
}

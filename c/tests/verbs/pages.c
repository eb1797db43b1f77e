/* With SOFTND_VERBS_CHECK_PAGES=1 a request that reaches unmapped memory of a region fails, and the process goes on. */
#include <sys/mman.h>

#include "sides.h"

enum { LENGTH = 3 * 4096 };

static struct side a, b;

static void request(enum ibv_wr_opcode opcode, const struct ibv_mr *from, const struct ibv_mr *to, enum ibv_wc_status status)
{
	struct ibv_sge sge = {(uintptr_t)from->addr, LENGTH, from->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)to->addr, to->rkey}}, *bad;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	expect(&a, 1, status);
	if (status == IBV_WC_SUCCESS)
		return;
	struct ibv_wc wc;
	CHECK(move(a.qp, IBV_QPS_RESET, 0) == 0 && move(b.qp, IBV_QPS_RESET, 0) == 0);
	while (ibv_poll_cq(a.cq, 1, &wc) > 0 || ibv_poll_cq(b.cq, 1, &wc) > 0)
		;
	join(&a, &b);
	join(&b, &a);
}

static struct ibv_mr *map_region(struct ibv_pd *pd)
{
	void *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(pd, at, LENGTH, RIGHTS);
	CHECK(mr != NULL);
	return mr;
}

int main(void)
{
	char text[1000], want[60];
	name_fabric("pages");
	CHECK(setenv("SOFTND_VERBS_CHECK_PAGES", "1", 1) == 0 && setenv("SOFTND_VERBS_ADOPT", "off", 1) == 0);
	struct ibv_context *c = open_device();
	struct side *sides[] = {&a, &b};
	for (int i = 0; i < 2; i++) {
		open_side(sides[i], c, 0);
		make_qp(sides[i], 0, 0);
	}
	join(&a, &b);
	join(&b, &a);
	struct ibv_mr *from = map_region(a.pd), *to = map_region(b.pd), *other = map_region(b.pd);
	request(IBV_WR_RDMA_WRITE, from, to, IBV_WC_SUCCESS);
	request(IBV_WR_RDMA_READ, from, to, IBV_WC_SUCCESS);

	const int kept = dup(STDERR_FILENO), file = memfd_create("stderr", 0);
	CHECK(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
	CHECK(munmap((char *)to->addr + 4096, 4096) == 0);
	request(IBV_WR_RDMA_WRITE, from, to, IBV_WC_REM_ACCESS_ERR);
	request(IBV_WR_RDMA_READ, from, to, IBV_WC_REM_ACCESS_ERR);
	CHECK(munmap(from->addr, LENGTH) == 0);
	request(IBV_WR_RDMA_WRITE, from, other, IBV_WC_LOC_PROT_ERR);
	CHECK(dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0);
	const ssize_t n = pread(file, text, sizeof text - 1, 0);
	CHECK(n > 0 && close(file) == 0);
	text[n] = 0;
	snprintf(want, sizeof want, "softnd: check pages: of %d bytes at %p", LENGTH, to->addr);
	CHECK(strncmp(text, want, strlen(want)) == 0);
	snprintf(want, sizeof want, "softnd: check pages: of %d bytes at %p", LENGTH, from->addr);
	CHECK(strstr(text, want) != NULL);
	CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0 && ibv_dereg_mr(other) == 0);
	close_side(&a);
	close_side(&b);
	CHECK(ibv_close_device(c) == 0);
	return 0;
}

/* Peers access adopted memory, and outlive its owner. */
#include <sys/prctl.h>

#include "memory.h"

/* reached is what a peer needs of a process. */
struct reached {
	uint32_t number, rkey;
	uint64_t address;
};

#define IOVA ((uint64_t)1 << 40)
/* The region of each process begins so many bytes before its whole pages, and ends as many behind them. */
static size_t head;

/* meet makes a queue pair that is connected to that of the other process, and returns what the peer has told. */
static struct reached meet(struct side *s, const struct ibv_mr *mr, int in, int out)
{
	struct reached mine = {s->qp->qp_num, mr->rkey, IOVA - head}, theirs;
	CHECK(write(out, &mine, sizeof mine) == sizeof mine && read(in, &theirs, sizeof theirs) == sizeof theirs);
	struct ibv_qp_attr attr = attributes(IBV_QPS_RTS, theirs.number);
	attr.timeout = 0; /* never: the machine may be loaded */
	CHECK(move(s->qp, IBV_QPS_INIT, 0) == 0 && move(s->qp, IBV_QPS_RTR, theirs.number) == 0 && ibv_modify_qp(s->qp, &attr, RTS_MASK) == 0);
	return theirs;
}

static void request(struct side *s, const struct ibv_mr *mr, size_t offset, uint32_t length, const struct reached *to, enum ibv_wr_opcode opcode, enum ibv_wc_status status)
{
	const uint32_t part = length / 2; /* entries are copied one after the other */
	struct ibv_sge sges[2] = {{(uintptr_t)mr->addr + offset, length, mr->lkey}, {(uintptr_t)mr->addr + offset + part, length - part, mr->lkey}};
	if (length > PAGE)
		sges[0].length = part;
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = sges, .num_sge = length > PAGE ? 2 : 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.wr.rdma.remote_addr = to->address + offset;
	wr.wr.rdma.rkey = to->rkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic = (__typeof__(wr.wr.atomic)){.remote_addr = to->address + offset, .compare_add = 5, .rkey = to->rkey};
	CHECK(ibv_post_send(s->qp, &wr, &bad) == 0);
	expect(s, 1, status);
}

static void open_end(struct side *s)
{
	begin("auto");
	CHECK(ibv_dealloc_pd(pd) == 0);
	open_side(s, context, 0);
	pd = s->pd;
	make_qp(s, 0, 0);
}

static void close_end(struct side *s)
{
	close_side(s);
	CHECK(ibv_close_device(context) == 0);
}

/* region registers memory with 4 whole pages, which requests name by its address, or by IOVA. */
static struct ibv_mr *region(int by_iova)
{
	unsigned char *at = map_pages(6 * PAGE) + PAGE - head;
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, at, 4 * PAGE + 2 * head, by_iova ? IOVA - head : (uintptr_t)at, RIGHTS);
	CHECK(mr != NULL && kind(at + head, NULL) == 's' && kind(at + 4 * PAGE + head - 1, NULL) == 's');
	CHECK(head == 0 || (kind(at, NULL) == 0 && kind(at + 4 * PAGE + head, NULL) == 0));
	return mr;
}

static void own(int in, int out)
{
	static struct side s;
	char go;
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	open_end(&s);
	struct ibv_mr *mr = region(1);
	unsigned char *at = mr->addr, *pages = at + head;
	(void)meet(&s, mr, in, out);
	struct ibv_sge sge = {IOVA, (uint32_t)(mr->length - head), mr->lkey}; /* it ends with bytes that only this process reaches */
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	CHECK(ibv_post_recv(s.qp, &wr, &bad) == 0);
	expect(&s, 0, IBV_WC_SUCCESS);
	expect_filled(pages, mr->length - head, 9);
	CHECK(write(out, "", 1) == 1 && read(in, &go, 1) == 1 && raise(SIGSTOP) == 0);
	expect_filled(pages, 3 * PAGE, 3);
	CHECK(*(uint64_t *)(void *)(pages + 3 * PAGE) == 5);
	const size_t length = mr->length;
	CHECK(ibv_dereg_mr(mr) == 0);
	fill(at, length, 4);
	CHECK(write(out, &go, 1) == 1 && read(in, &go, 1) == 1);
	expect_filled(at, length, 4);
	close_end(&s);
}

/* A peer accesses the whole pages of adopted memory while its owner is stopped, until the region ends. */
static void direct(void)
{
	static struct side s;
	int in[2], out[2], status;
	CHECK(pipe(in) == 0 && pipe(out) == 0);
	const pid_t owner = fork();
	CHECK(owner >= 0);
	if (owner == 0) {
		close(out[1]);
		own(out[0], in[1]);
		exit(0);
	}
	close(in[1]);
	open_end(&s);
	struct ibv_mr *mr = region(0);
	unsigned char *at = mr->addr;
	const uint32_t length = (uint32_t)mr->length;
	struct reached to = meet(&s, mr, in[0], out[1]);
	for (uint32_t from = 0; from < PAGE; from += 777) { /* the ends, too */
		fill(at, length, from);
		request(&s, mr, from, length - from, &to, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS);
		memset(at + from, 0, length - from);
		request(&s, mr, from, length - from, &to, IBV_WR_RDMA_READ, IBV_WC_SUCCESS);
		expect_filled(at, length, from);
	}
	fill(at, length - head, 9);
	request(&s, mr, 0, length - (uint32_t)head, &to, IBV_WR_SEND, IBV_WC_SUCCESS);
	char go;
	CHECK(read(in[0], &go, 1) == 1 && write(out[1], "", 1) == 1 && waitpid(owner, &status, WUNTRACED) == owner && WIFSTOPPED(status));
	fill(at + head, 3 * PAGE, 3);
	memset(at + head + 3 * PAGE, 0, 8);
	request(&s, mr, head, 4 * PAGE, &to, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS);
	memset(at, 0, length);
	request(&s, mr, head, 3 * PAGE, &to, IBV_WR_RDMA_READ, IBV_WC_SUCCESS);
	expect_filled(at + head, 3 * PAGE, 3);
	request(&s, mr, head + 3 * PAGE, 8, &to, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_SUCCESS);
	CHECK(kill(owner, SIGCONT) == 0 && read(in[0], &go, 1) == 1);
	request(&s, mr, 0, 3 * PAGE, &to, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
	CHECK(write(out[1], "", 1) == 1 && waitpid(owner, &status, 0) == owner && status == 0 && ibv_dereg_mr(mr) == 0);
	close_end(&s);
}

static void ends(void)
{
	head = 104;
	direct();
}

/* The extents of a killed process belong to the arena again. */
static void killed(void)
{
	CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){SMALL_ARENA, SMALL_ARENA}) == 0);
	begin("auto");
	CHECK(ibv_dereg_mr(registered(map_pages(PAGE), PAGE)) == 0); /* this process keeps the arena */
	for (int i = 0; i < 20; i++) {
		const pid_t child = fork();
		if (child == 0) {
			begin("auto");
			unsigned char *at = map_pages(24 << 20);
			struct ibv_mr *mr = registered(at, 24 << 20);
			for (int tries = 0; kind(at, NULL) != 's' && tries < 30000; tries++) { /* the extent of the last child may not be free yet */
				CHECK(ibv_dereg_mr(mr) == 0 && usleep(1000) == 0);
				mr = registered(at, 24 << 20);
			}
			CHECK(kind(at, NULL) == 's');
			raise(SIGKILL);
		}
		int status;
		CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	finish();
}

int main(int argc, char **argv) { return RUN_PARTS(argc, argv, {"direct", direct}, {"ends", ends}, {"killed", killed}); }

/* The end of access: a peer writes as fast as it can, and once a call that ends its access has returned, or its request has completed, no byte of the
 * peer appears in the memory. */
#include <stdbool.h>
#include <sys/mman.h>

#include "processes.h"

enum { SIZE = 1 << 16, PAGE = 4096, DELAY = 300, BIND_RIGHTS = RIGHTS | IBV_ACCESS_MW_BIND };

enum way { DEREG, LOCAL_INVALIDATE, REMOTE_INVALIDATE, UNBIND, DEALLOC_1, DEALLOC_2, REREG_TRANSLATION, REREG_ACCESS, REREG_DOMAIN, WAYS, RESET = WAYS, DESTROY, SLOW_WAYS };
static const char *const names[] = {"dereg_mr", "local invalidate", "Send with Invalidate", "bind of no bytes", "dealloc_mw, type 1", "dealloc_mw, type 2",
	"rereg_mr, translation", "rereg_mr, access", "rereg_mr, domain", "RESET", "destroy_qp"};

/* order is what the owner of the memory tells the writer. */
struct order {
	uint64_t address;
	uint32_t key, length;
	int invalidates; /* after some Writes the writer posts a Send with Invalidate */
};

static struct side own;
static struct ibv_context *context;
static unsigned char *memory[2];
static struct ibv_mr *source;
static unsigned seed, flushed;

static unsigned pick(unsigned n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

static int post(struct side *s, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	wr.send_flags |= IBV_SEND_SIGNALED;
	return ibv_post_send(s->qp, &wr, &bad);
}

static void post_write(const struct order *o)
{
	struct ibv_sge sge = {(uintptr_t)memory[0], o->length, source->lkey};
	const uint64_t address = o->address + (o->length < SIZE ? pick(SIZE - o->length) : 0);
	CHECK(post(&own, (struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {address, o->key}}) == 0);
}

/* write_until_refused keeps the queue full until a request fails, and all after it. */
static void write_until_refused(const struct order *o)
{
	unsigned posted = 0, taken = 0, left = o->invalidates ? 1 + pick(DELAY) : 0;
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	while (status == IBV_WC_SUCCESS || taken < posted) {
		struct ibv_wc wc[DEPTH];
		for (; status == IBV_WC_SUCCESS && posted - taken < DEPTH; posted++) {
			if (left > 0 && --left == 0)
				CHECK(post(&own, (struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = o->key}) == 0);
			else
				post_write(o);
		}
		const int n = ibv_poll_cq(own.cq, DEPTH, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++, taken++)
			if (status == IBV_WC_SUCCESS)
				status = wc[i].status;
	}
	CHECK(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_RETRY_EXC_ERR);
}

static void run_writer(void)
{
	uint32_t dest;
	memset(memory[0], 0xee, SIZE);
	source = ibv_reg_mr(own.pd, memory[0], SIZE, 0);
	CHECK(source != NULL);
	for (hear(&dest, sizeof dest); dest != 0; hear(&dest, sizeof dest)) {
		struct order o;
		CHECK(move(own.qp, IBV_QPS_RESET, 0) == 0);
		connect_to(own.qp, dest);
		CHECK(post(&own, (struct ibv_send_wr){.wr_id = 4, .opcode = IBV_WR_RDMA_WRITE}) == 0); /* of no bytes */
		expect(&own, 4, IBV_WC_SUCCESS);
		(void)exchange(0); /* they are connected */
		hear(&o, sizeof o);
		write_until_refused(&o);
		(void)exchange(0);
	}
	CHECK(ibv_dereg_mr(source) == 0);
	close_side(&own);
}

static struct ibv_mr *region;
static struct ibv_pd *next_domain;
static struct ibv_mw *windows[2]; /* of both types */
static unsigned char *where;      /* the memory that the writer writes to */

static struct ibv_mw *new_window(enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(own.pd, type);
	CHECK(mw != NULL);
	return mw;
}

static struct ibv_mw_bind_info bind_info(uint64_t length)
{
	return (struct ibv_mw_bind_info){.mr = region, .addr = (uintptr_t)where, .length = length, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
}

/* has_succeeded waits for a completion. The request is flushed if the writer has ended the connection before. */
static bool has_succeeded(void)
{
	const struct ibv_wc wc = take(&own);
	CHECK(wc.wr_id == 1 && (wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR));
	return wc.status == IBV_WC_SUCCESS;
}

static bool bind_1(uint64_t length)
{
	struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = bind_info(length)};
	CHECK(ibv_bind_mw(own.qp, windows[0], &bind) == 0);
	return has_succeeded();
}

static void bind_2(void)
{
	const uint32_t key = ibv_inc_rkey(windows[1]->rkey);
	CHECK(post(&own, (struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_BIND_MW, .bind_mw = {.mw = windows[1], .rkey = key, .bind_info = bind_info(SIZE)}}) == 0 && has_succeeded());
	windows[1]->rkey = key;
}

/* give gives the writer access, and returns its key. */
static uint32_t give(enum way w)
{
	switch (w) {
	case UNBIND:
	case DEALLOC_1: CHECK(bind_1(SIZE)); return windows[0]->rkey;
	case LOCAL_INVALIDATE:
	case REMOTE_INVALIDATE:
	case DEALLOC_2: bind_2(); return windows[1]->rkey;
	default: return region->rkey;
	}
}

static void new_region(void) { CHECK((region = ibv_reg_mr(own.pd, where, SIZE, BIND_RIGHTS)) != NULL); }

static void reregister(int flags, unsigned char *to, int access)
{
	CHECK(ibv_rereg_mr(region, flags, next_domain, to, SIZE, access) == 0);
}

/* end ends the access. It returns false if a request for that was flushed. */
static bool end(enum way w)
{
	switch (w) {
	case DEREG: CHECK(ibv_dereg_mr(region) == 0); break;
	case LOCAL_INVALIDATE:
		CHECK(post(&own, (struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = windows[1]->rkey}) == 0);
		return has_succeeded();
	case REMOTE_INVALIDATE: {
		const struct ibv_wc wc = take(&own);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && (wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == windows[1]->rkey);
		break;
	}
	case UNBIND: return bind_1(0);
	case DEALLOC_1:
	case DEALLOC_2: CHECK(ibv_dealloc_mw(windows[w == DEALLOC_2]) == 0); break;
	case REREG_TRANSLATION: reregister(IBV_REREG_MR_CHANGE_TRANSLATION, memory[where == memory[0]], 0); break;
	case REREG_ACCESS: reregister(IBV_REREG_MR_CHANGE_ACCESS, NULL, IBV_ACCESS_LOCAL_WRITE); break;
	case REREG_DOMAIN: reregister(IBV_REREG_MR_CHANGE_PD, NULL, 0); break;
	case RESET: CHECK(move(own.qp, IBV_QPS_RESET, 0) == 0); break;
	default: CHECK(ibv_destroy_qp(own.qp) == 0);
	}
	return true;
}

/* restore undoes what end did to the objects. */
static void restore(enum way w)
{
	switch (w) {
	case DEREG: new_region(); break;
	case DEALLOC_1: windows[0] = new_window(IBV_MW_TYPE_1); break;
	case DEALLOC_2: windows[1] = new_window(IBV_MW_TYPE_2); break;
	case UNBIND: break;
	case REREG_TRANSLATION: where = memory[where == memory[0]]; break;
	case REREG_ACCESS: reregister(IBV_REREG_MR_CHANGE_ACCESS, NULL, BIND_RIGHTS); break;
	case REREG_DOMAIN: {
		struct ibv_pd *pd = next_domain;
		next_domain = own.pd;
		reregister(IBV_REREG_MR_CHANGE_PD, NULL, 0);
		next_domain = pd;
		break;
	}
	case DESTROY: make_qp(&own, 0, 0); break;
	default: break;
	}
}

static void try_end(enum way w, uint32_t peer)
{
	static const uint32_t lengths[] = {1, 64, PAGE, SIZE};
	CHECK(move(own.qp, IBV_QPS_RESET, 0) == 0);
	connect_to(own.qp, peer);
	CHECK(w != REMOTE_INVALIDATE || receive(&own, 3, 0, 8) == 0);
	tell(&own.qp->qp_num, sizeof own.qp->qp_num);
	(void)exchange(0);
	const struct order o = {.address = (uintptr_t)where, .key = give(w), .length = lengths[pick(4)], .invalidates = w == REMOTE_INVALIDATE};
	tell(&o, sizeof o);
	for (unsigned i = pick(DELAY); i > 0; i--)
		CHECK(ibv_query_qp(own.qp, &(struct ibv_qp_attr){0}, IBV_QP_STATE, &(struct ibv_qp_init_attr){0}) == 0);
	const bool ended = end(w);
	memset(where, 0, SIZE);
	(void)exchange(0); /* all requests of the writer have failed */
	flushed += !ended;
	for (size_t i = 0; i < SIZE && ended; i++)
		if (where[i] != 0) {
			fprintf(stderr, "after %s, byte %zu is %#x; Writes of %u bytes\n", names[w], i, where[i], o.length);
			exit(1);
		}
	restore(w);
}

#ifdef __SANITIZE_ADDRESS__ /* it looks for what each round does with memory, not for rare orders, and takes four times as long */
enum { ROUNDS = 200 };
#else
enum { ROUNDS = 1000 };
#endif

static void run_owner(uint32_t peer)
{
	where = memory[0];
	new_region();
	CHECK((next_domain = ibv_alloc_pd(context)) != NULL);
	windows[0] = new_window(IBV_MW_TYPE_1);
	windows[1] = new_window(IBV_MW_TYPE_2);
	for (unsigned i = 0; i < rounds(ROUNDS, 10000); i++) {
		/* After the end of its peer, the writer tries again for 0.5 s. */
		for (enum way w = 0; w < (i % 100 == 0 ? SLOW_WAYS : WAYS); w++)
			try_end(w, peer);
	}
	tell(&(uint32_t){0}, sizeof(uint32_t));
	fprintf(stderr, "%u rounds could not be checked\n", flushed);
	CHECK(flushed < rounds(ROUNDS, 10000) / 2);
	CHECK(ibv_dealloc_mw(windows[0]) == 0 && ibv_dealloc_mw(windows[1]) == 0 && ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(next_domain) == 0);
	close_side(&own);
}

int main(void)
{
	name_fabric("late");
	const int is_writer = split();
	seed = 1 + (unsigned)is_writer;
	for (int i = 0; i < 2; i++)
		CHECK((memory[i] = mmap(NULL, SIZE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	memory[1] += 100; /* the first and last bytes of the region are on pages that are not adopted */
	context = open_device();
	open_side(&own, context, 0);
	make_qp(&own, 0, 0);
	const uint32_t peer = exchange(own.qp->qp_num);
	if (is_writer)
		run_writer();
	else
		run_owner(peer);
	CHECK(ibv_close_device(context) == 0);
	if (!is_writer)
		join_child();
	return 0;
}

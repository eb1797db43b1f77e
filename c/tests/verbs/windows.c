/* Memory windows of both types, with the keys that programs choose, and regions that are registered again. */
#include "sides.h"

enum { PART = 64, BIND_RIGHTS = RIGHTS | IBV_ACCESS_MW_BIND };

static struct side a, b;
static struct ibv_mr *whole; /* of b's buffer */

static void connect_sides(struct ibv_context *c)
{
	struct side *both[] = {&a, &b};
	for (int i = 0; i < 2; i++) {
		open_side(both[i], c, 0);
		make_qp(both[i], 0, 0);
	}
	join(&a, &b);
	join(&b, &a);
	whole = ibv_reg_mr(b.pd, b.buffer, sizeof b.buffer, BIND_RIGHTS);
	CHECK(whole != NULL);
}

/* reconnect makes both queue pairs usable again after a failure. */
static void reconnect(void)
{
	struct ibv_wc wc;
	CHECK(move(a.qp, IBV_QPS_RESET, 0) == 0 && move(b.qp, IBV_QPS_RESET, 0) == 0);
	while (ibv_poll_cq(a.cq, 1, &wc) > 0 || ibv_poll_cq(b.cq, 1, &wc) > 0)
		;
	join(&a, &b);
	join(&b, &a);
}

static struct ibv_mw_bind_info part(size_t offset, uint64_t length, unsigned access)
{
	return (struct ibv_mw_bind_info){.mr = whole, .addr = (uintptr_t)b.buffer + offset, .length = length, .mw_access_flags = access};
}

static void post(struct side *s, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	wr.send_flags |= IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(s->qp, &wr, &bad) == 0);
}

static void bind_keyed(struct ibv_mw *mw, uint32_t key, struct ibv_mw_bind_info info, enum ibv_wc_status status)
{
	post(&b, (struct ibv_send_wr){.wr_id = 5, .opcode = IBV_WR_BIND_MW, .bind_mw = {.mw = mw, .rkey = key, .bind_info = info}});
	expect(&b, 5, status);
}

/* try_write writes 8 bytes into b's memory. */
static void try_write(uint64_t address, uint32_t key, enum ibv_wc_status status)
{
	struct ibv_sge sge = at(&a, 0, 8);
	post(&a, (struct ibv_send_wr){.wr_id = 6, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {address, key}});
	expect(&a, 6, status);
	if (status != IBV_WC_SUCCESS)
		reconnect();
}

static void first_type(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
	CHECK(mw != NULL);
	const uint32_t unbound = mw->rkey;
	try_write((uintptr_t)b.buffer, unbound, IBV_WC_REM_ACCESS_ERR);
	struct ibv_mw_bind bind = {.wr_id = 3, .send_flags = IBV_SEND_SIGNALED, .bind_info = part(PART, PART, IBV_ACCESS_REMOTE_WRITE)};
	CHECK(ibv_bind_mw(b.qp, mw, &bind) == 0 && mw->rkey != unbound);
	expect(&b, 3, IBV_WC_SUCCESS);
	const uint32_t key = mw->rkey;
	a.buffer[0] = 0x5a;
	try_write((uintptr_t)b.buffer + PART, key, IBV_WC_SUCCESS);
	CHECK(b.buffer[PART] == 0x5a && ibv_dereg_mr(whole) == EBUSY);

	/* Another bind ends the one before, also of another queue pair's window. */
	bind.bind_info = part(2 * PART, PART, IBV_ACCESS_REMOTE_WRITE);
	CHECK(ibv_bind_mw(b.qp, mw, &bind) == 0 && mw->rkey != key);
	expect(&b, 3, IBV_WC_SUCCESS);
	try_write((uintptr_t)b.buffer + 2 * PART, mw->rkey, IBV_WC_SUCCESS);
	try_write((uintptr_t)b.buffer + PART, key, IBV_WC_REM_ACCESS_ERR);
	try_write((uintptr_t)b.buffer + 2 * PART, mw->rkey, IBV_WC_SUCCESS); /* it has outlived the connection */
	try_write((uintptr_t)b.buffer + 3 * PART - 7, mw->rkey, IBV_WC_REM_ACCESS_ERR);

	/* A bind of no bytes ends the access. */
	bind.bind_info = part(0, 0, 0);
	CHECK(ibv_bind_mw(b.qp, mw, &bind) == 0);
	expect(&b, 3, IBV_WC_SUCCESS);
	try_write((uintptr_t)b.buffer + 2 * PART, mw->rkey, IBV_WC_REM_ACCESS_ERR);
	struct ibv_mr *foreign = ibv_reg_mr(a.pd, a.buffer, BYTES, BIND_RIGHTS);
	bind.bind_info = (struct ibv_mw_bind_info){.mr = foreign, .addr = (uintptr_t)a.buffer, .length = 1};
	CHECK(ibv_bind_mw(b.qp, mw, &bind) == EPERM);
	CHECK(ibv_dereg_mr(foreign) == 0 && ibv_dealloc_mw(mw) == 0);
}

static void second_type(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2), *other = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	CHECK(mw != NULL && other != NULL && mw->rkey >> 8 != other->rkey >> 8);
	uint32_t key = mw->rkey;
	/* The program chooses the low 8 bits: all of them, in both directions. */
	for (uint32_t i = 0; i < 300; i++) {
		key = i % 3 == 0 ? ibv_inc_rkey(key) : (key & ~UINT32_C(0xff)) | (i * 37 & 0xff);
		bind_keyed(mw, key, part(PART, PART, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
		a.buffer[0] = (unsigned char)i;
		try_write((uintptr_t)b.buffer + PART, key, IBV_WC_SUCCESS);
		CHECK(b.buffer[PART] == (unsigned char)i);
		post(&b, (struct ibv_send_wr){.wr_id = 7, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
		expect(&b, 7, IBV_WC_SUCCESS);
	}
	try_write((uintptr_t)b.buffer + PART, key, IBV_WC_REM_ACCESS_ERR);

	/* A window that begins at 0. */
	bind_keyed(mw, key, part(PART, PART, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED), IBV_WC_SUCCESS);
	try_write(PART - 8, key, IBV_WC_SUCCESS);
	CHECK(b.buffer[2 * PART - 8] == a.buffer[0]);
	try_write((uintptr_t)b.buffer + PART, key, IBV_WC_REM_ACCESS_ERR); /* the connection ends, and the bind with it */

	/* The peer ends the access with a message. */
	bind_keyed(mw, key, part(0, PART, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
	CHECK(receive(&b, 8, 4096, 8) == 0);
	post(&a, (struct ibv_send_wr){.wr_id = 9, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key});
	const struct ibv_wc wc = take(&b);
	CHECK(wc.wr_id == 8 && wc.status == IBV_WC_SUCCESS && (wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == key);
	expect(&a, 9, IBV_WC_SUCCESS);
	try_write((uintptr_t)b.buffer, key, IBV_WC_REM_ACCESS_ERR);

	/* Binds that fail when they run: twice, beyond the region, with a foreign key, of a region without IBV_ACCESS_MW_BIND. */
	bind_keyed(mw, key, part(0, PART, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
	bind_keyed(mw, ibv_inc_rkey(key), part(0, PART, IBV_ACCESS_REMOTE_READ), IBV_WC_MW_BIND_ERR);
	reconnect();
	bind_keyed(mw, key, part(BYTES - 8, 9, IBV_ACCESS_REMOTE_READ), IBV_WC_MW_BIND_ERR);
	reconnect();
	bind_keyed(mw, other->rkey, part(0, PART, IBV_ACCESS_REMOTE_READ), IBV_WC_MW_BIND_ERR);
	reconnect();
	struct ibv_mw_bind_info plain = part(0, PART, IBV_ACCESS_REMOTE_READ);
	plain.mr = b.mr;
	bind_keyed(mw, key, plain, IBV_WC_MW_BIND_ERR);
	reconnect();
	post(&b, (struct ibv_send_wr){.wr_id = 7, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
	expect(&b, 7, IBV_WC_MW_BIND_ERR);
	reconnect();
	post(&b, (struct ibv_send_wr){.wr_id = 7, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = 0x12345678});
	expect(&b, 7, IBV_WC_MW_BIND_ERR);
	reconnect();
	struct ibv_send_wr *bad, wrong = {.opcode = IBV_WR_BIND_MW, .bind_mw = {.mw = mw, .rkey = key, .bind_info = part(0, 1, IBV_ACCESS_ON_DEMAND)}};
	CHECK(ibv_post_send(b.qp, &wrong, &bad) == EINVAL && bad == &wrong);
	CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(other) == 0);
	errno = 0;
	CHECK(ibv_alloc_mw(b.pd, (enum ibv_mw_type)3) == NULL && errno == EINVAL);
}

static void again(void)
{
	static unsigned char elsewhere[PART];
	struct ibv_mr *mr = ibv_reg_mr(b.pd, b.buffer, PART, IBV_ACCESS_LOCAL_WRITE);
	try_write((uintptr_t)b.buffer, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS) == 0);
	try_write((uintptr_t)b.buffer, mr->rkey, IBV_WC_SUCCESS);
	const uint32_t lkey = mr->lkey, rkey = mr->rkey;
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, elsewhere, sizeof elsewhere, 0) == 0 && mr->addr == elsewhere && mr->length == PART);
	try_write((uintptr_t)elsewhere, mr->rkey, IBV_WC_SUCCESS);
	CHECK(elsewhere[0] == a.buffer[0]);
	try_write((uintptr_t)b.buffer, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	CHECK(mr->lkey == lkey && mr->rkey == rkey);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, a.pd, NULL, 0, 0) == 0 && mr->pd == a.pd);
	try_write((uintptr_t)elsewhere, mr->rkey, IBV_WC_REM_ACCESS_ERR); /* of another domain */
	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_INPUT && ibv_dereg_mr(mr) == 0);

	/* Only another place has another iova, which is its address. */
	const uint64_t iova = ((uint64_t)1 << 40) + (uintptr_t)b.buffer;
	mr = ibv_reg_mr_iova(b.pd, b.buffer, PART, iova, RIGHTS);
	try_write(iova, mr->rkey, IBV_WC_SUCCESS);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == 0);
	try_write(iova, mr->rkey, IBV_WC_SUCCESS);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b.buffer, PART, 0) == 0);
	try_write((uintptr_t)b.buffer, mr->rkey, IBV_WC_SUCCESS);
	try_write(iova, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);

	/* A window over it has addresses of the region. */
	mr = ibv_reg_mr_iova(b.pd, b.buffer, PART, iova, BIND_RIGHTS);
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	const uint32_t key = ibv_inc_rkey(mw->rkey);
	bind_keyed(mw, key, (struct ibv_mw_bind_info){.mr = mr, .addr = iova + 8, .length = 16, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}, IBV_WC_SUCCESS);
	try_write(iova + 8, key, IBV_WC_SUCCESS);
	CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
}

int main(void)
{
	name_fabric("windows");
	struct ibv_context *c = open_device();
	connect_sides(c);
	first_type();
	second_type();
	again();
	CHECK(ibv_dereg_mr(whole) == 0);
	close_side(&a);
	close_side(&b);
	CHECK(ibv_close_device(c) == 0);
	return 0;
}

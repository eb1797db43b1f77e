/* ibv_wr_start and its kin: the program makes requests one by one, and posts them together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/qp_post.h"
#include "qp.h"

static struct qp *qp_of(struct ibv_qp_ex *public) { return (struct qp *)(void *)public; }

bool open_list(struct qp *qp)
{
	struct wr_list *l = &qp->list;
	const size_t places = (size_t)qp->cap.max_send_wr + 1;
	(void)pthread_mutex_init(&l->mutex, NULL);
	l->requests = calloc(places, sizeof *l->requests);
	l->entries = calloc(places * qp->cap.max_send_sge, sizeof *l->entries);
	l->inline_data = malloc(places * qp->cap.max_inline_data + 1);
	set_builders(&qp->public.ex);
	return l->requests != NULL && l->entries != NULL && l->inline_data != NULL;
}

void close_list(struct qp *qp)
{
	struct wr_list *l = &qp->list;
	if (!qp->is_extended)
		return;
	free(l->requests);
	free(l->entries);
	free(l->inline_data);
	(void)pthread_mutex_destroy(&l->mutex);
}

static void fail(struct wr_list *l, int error)
{
	if (l->error == 0)
		l->error = error;
}

static void start(struct ibv_qp_ex *public)
{
	struct wr_list *l = &qp_of(public)->list;
	(void)pthread_mutex_lock(&l->mutex);
	l->count = 0;
	l->error = 0;
}

static void cancel(struct ibv_qp_ex *public) { (void)pthread_mutex_unlock(&qp_of(public)->list.mutex); }

static int complete(struct ibv_qp_ex *public)
{
	struct qp *qp = qp_of(public);
	struct wr_list *l = &qp->list;
	int error = l->error != 0 ? l->error : check_sends(qp);
	if (error == 0) {
		const snd_status s = snd_endpoint_post_all(qp->core, l->requests, l->count);
		if (s != SND_SUCCESS)
			error = refuse_status(s);
	}
	(void)pthread_mutex_unlock(&l->mutex);
	return error;
}

/* latest returns the place of the request that was begun last. */
static size_t latest(const struct qp *qp) { return qp->list.error == 0 && qp->list.count > 0 ? qp->list.count - 1 : qp->cap.max_send_wr; }

/* begin begins a request. */
static snd_request *begin(struct ibv_qp_ex *public, uint32_t type, enum ibv_wr_opcode opcode)
{
	struct qp *qp = qp_of(public);
	struct wr_list *l = &qp->list;
	if (l->error == 0 && l->count == qp->cap.max_send_wr)
		fail(l, refuse(ENOMEM, "post send: more than the %u requests of max_send_wr", qp->cap.max_send_wr));
	l->count += l->error == 0;
	snd_request *r = &l->requests[latest(qp)];
	*r = (snd_request){.type = type, .flags = request_flags(qp, opcode, public->wr_flags & ~(unsigned)IBV_SEND_INLINE), .context = public->wr_id};
	return r;
}

static snd_request *begin_remote(struct ibv_qp_ex *public, uint32_t type, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t address)
{
	snd_request *r = begin(public, type, opcode);
	r->token = token_of(rkey);
	r->address = address;
	return r;
}

static void set_immediate(snd_request *r, __be32 immediate)
{
	r->has_immediate = 1;
	r->immediate = immediate;
}

static void compare_and_swap(struct ibv_qp_ex *public, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap)
{
	snd_request *r = begin_remote(public, SND_REQUEST_COMPARE_AND_SWAP, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
	r->operand = compare;
	r->swap = swap;
}

static void fetch_and_add(struct ibv_qp_ex *public, uint32_t rkey, uint64_t address, uint64_t add)
{
	begin_remote(public, SND_REQUEST_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address)->operand = add;
}

static void read_remote(struct ibv_qp_ex *public, uint32_t rkey, uint64_t address) { (void)begin_remote(public, SND_REQUEST_READ, IBV_WR_RDMA_READ, rkey, address); }
static void write_remote(struct ibv_qp_ex *public, uint32_t rkey, uint64_t address) { (void)begin_remote(public, SND_REQUEST_WRITE, IBV_WR_RDMA_WRITE, rkey, address); }

static void write_immediate(struct ibv_qp_ex *public, uint32_t rkey, uint64_t address, __be32 immediate)
{
	set_immediate(begin_remote(public, SND_REQUEST_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address), immediate);
}

static void send_message(struct ibv_qp_ex *public) { (void)begin(public, SND_REQUEST_SEND, IBV_WR_SEND); }
static void send_immediate(struct ibv_qp_ex *public, __be32 immediate) { set_immediate(begin(public, SND_REQUEST_SEND, IBV_WR_SEND_WITH_IMM), immediate); }

static void send_invalidate(struct ibv_qp_ex *public, uint32_t rkey) { begin(public, SND_REQUEST_SEND, IBV_WR_SEND_WITH_INV)->token = token_of(rkey); }
static void invalidate(struct ibv_qp_ex *public, uint32_t rkey) { begin(public, SND_REQUEST_INVALIDATE, IBV_WR_LOCAL_INV)->token = token_of(rkey); }

static void bind_window(struct ibv_qp_ex *public, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	const int error = set_keyed_bind(qp_of(public), mw, rkey, info, begin(public, SND_REQUEST_BIND, IBV_WR_BIND_MW));
	if (error != 0)
		fail(&qp_of(public)->list, error);
}

static void set_entries(struct ibv_qp_ex *public, size_t count, const struct ibv_sge *entries)
{
	struct qp *qp = qp_of(public);
	struct wr_list *l = &qp->list;
	if (count > qp->cap.max_send_sge) {
		fail(l, refuse(EINVAL, "post send: %zu entries, max_send_sge is %u", count, qp->cap.max_send_sge));
		return;
	}
	snd_request *r = &l->requests[latest(qp)];
	snd_sge *to = &l->entries[latest(qp) * qp->cap.max_send_sge];
	for (size_t i = 0; i < count; i++)
		to[i] = (snd_sge){.buffer = (void *)(uintptr_t)entries[i].addr, .length = entries[i].length, .token = entries[i].lkey};
	r->sge = to;
	r->count = (uint32_t)count;
}

static void set_entry(struct ibv_qp_ex *public, uint32_t lkey, uint64_t address, uint32_t length)
{
	set_entries(public, 1, &(struct ibv_sge){.addr = address, .length = length, .lkey = lkey});
}

static void set_inline_list(struct ibv_qp_ex *public, size_t count, const struct ibv_data_buf *buffers)
{
	struct qp *qp = qp_of(public);
	struct wr_list *l = &qp->list;
	const size_t room = qp->cap.max_inline_data;
	unsigned char *to = l->inline_data + latest(qp) * room;
	size_t n = 0;
	for (size_t i = 0; i < count; i++) {
		if (buffers[i].length > room - n) {
			fail(l, refuse(EINVAL, "post send: more than the %zu bytes of max_inline_data", room));
			return;
		}
		if (buffers[i].length > 0)
			memcpy(to + n, buffers[i].addr, buffers[i].length);
		n += buffers[i].length;
	}
	set_entry(public, 0, (uintptr_t)to, (uint32_t)n);
	l->requests[latest(qp)].flags |= SND_INLINE;
}

static void set_inline(struct ibv_qp_ex *public, void *data, size_t length) { set_inline_list(public, 1, &(struct ibv_data_buf){.addr = data, .length = length}); }

void set_builders(struct ibv_qp_ex *public)
{
	public->wr_start = start;
	public->wr_complete = complete;
	public->wr_abort = cancel;
	public->wr_atomic_cmp_swp = compare_and_swap;
	public->wr_atomic_fetch_add = fetch_and_add;
	public->wr_rdma_read = read_remote;
	public->wr_rdma_write = write_remote;
	public->wr_rdma_write_imm = write_immediate;
	public->wr_send = send_message;
	public->wr_send_imm = send_immediate;
	public->wr_send_inv = send_invalidate;
	public->wr_local_inv = invalidate;
	public->wr_bind_mw = bind_window;
	public->wr_set_sge = set_entry;
	public->wr_set_sge_list = set_entries;
	public->wr_set_inline_data = set_inline;
	public->wr_set_inline_data_list = set_inline_list;
}

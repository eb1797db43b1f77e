/* Extended completion queues: results are taken one by one, and their fields are read by calls. */
#include <errno.h>

#include "linux/clock.h"
#include "objects.h"

static const snd_result *current(struct ibv_cq_ex *public) { return &((struct cq *)public)->current; }

static int take(struct cq *cq)
{
	const int32_t n = snd_cq_poll(cq->core, &cq->current, 1);
	if (n < 0)
		return refuse_status((snd_status)n);
	if (n == 0)
		return ENOENT;
	if (cq->current.status != SND_SUCCESS)
		explain(cq->core, &cq->current);
	if (cq->stamps)
		cq->stamp = (uint64_t)snd_clock();
	cq->public.wr_id = cq->current.request_context;
	cq->public.status = wc_status(&cq->current);
	return 0;
}

/* A poll that fails has no end_poll. */
static int start_poll(struct ibv_cq_ex *public, struct ibv_poll_cq_attr *attr)
{
	struct cq *cq = (struct cq *)public;
	if (attr != NULL && attr->comp_mask != 0)
		return refuse(EINVAL, "start poll: attributes %#x are not supported", attr->comp_mask);
	if (!cq->single_threaded)
		(void)pthread_mutex_lock(&cq->polling);
	const int error = take(cq);
	if (error != 0 && !cq->single_threaded)
		(void)pthread_mutex_unlock(&cq->polling);
	return error;
}

static int next_poll(struct ibv_cq_ex *public) { return take((struct cq *)public); }

static void end_poll(struct ibv_cq_ex *public)
{
	struct cq *cq = (struct cq *)public;
	if (!cq->single_threaded)
		(void)pthread_mutex_unlock(&cq->polling);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq) { return wc_opcode(current(cq)); }
static uint32_t read_vendor_err(struct ibv_cq_ex *cq) { return current(cq)->status; }
static uint32_t read_byte_len(struct ibv_cq_ex *cq) { return current(cq)->bytes; }
static __be32 read_imm_data(struct ibv_cq_ex *cq) { return wc_number(current(cq)); }
static uint32_t read_qp_num(struct ibv_cq_ex *cq) { return (uint32_t)current(cq)->endpoint_context; }
static unsigned int read_wc_flags(struct ibv_cq_ex *cq) { return wc_flags(current(cq)); }

static uint64_t read_completion_ts(struct ibv_cq_ex *cq) { return ((struct cq *)cq)->stamp; }

/* Fields that only datagrams have. */
static uint32_t no_number(struct ibv_cq_ex *cq) { return (void)cq, 0; }
static uint8_t no_byte(struct ibv_cq_ex *cq) { return (void)cq, 0; }

struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const char *op = "create completion queue";
	const uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	if ((attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 || (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0 ||
		(attr->wc_flags & ~(uint64_t)(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) != 0) {
		(void)refuse(EOPNOTSUPP, "%s: attributes %#x, flags %#x, fields %#llx: only IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_WC_STANDARD_FLAGS and time stamps are supported", op, attr->comp_mask,
			flags, (unsigned long long)attr->wc_flags);
		return NULL;
	}
	struct cq *cq = new_cq(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
	if (cq == NULL)
		return NULL;
	cq->single_threaded = flags != 0;
	cq->stamps = (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0;
	struct ibv_cq_ex *public = &cq->public;
	public->start_poll = start_poll;
	public->next_poll = next_poll;
	public->end_poll = end_poll;
	public->read_opcode = read_opcode;
	public->read_vendor_err = read_vendor_err;
	public->read_byte_len = read_byte_len;
	public->read_imm_data = read_imm_data;
	public->read_qp_num = read_qp_num;
	public->read_src_qp = no_number;
	public->read_wc_flags = read_wc_flags;
	public->read_slid = no_number;
	public->read_sl = no_byte;
	public->read_dlid_path_bits = no_byte;
	public->read_completion_ts = read_completion_ts;
	return public;
}

/* The clock of time stamps is CLOCK_MONOTONIC, in nanoseconds. */
int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	(void)context;
	if ((values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK) != 0)
		return refuse(EINVAL, "query values: mask %#x: only IBV_VALUES_MASK_RAW_CLOCK is known", values->comp_mask);
	values->raw_clock = (struct timespec){.tv_nsec = (long)snd_clock()}; /* as cards: one number, like the time stamps */
	return 0;
}

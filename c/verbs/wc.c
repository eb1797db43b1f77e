/* Results of the core as work completions. */
#include "objects.h"

static bool is_receive(const snd_result *r)
{
	return r->type == SND_REQUEST_RECEIVE || r->type == SND_REQUEST_RECEIVE_AND_INVALIDATE || r->type == SND_REQUEST_RECEIVE_IMMEDIATE ||
		r->type == SND_REQUEST_RECEIVE_WRITE_IMMEDIATE;
}

/* Of a receive, the fault is of this side. */
static enum ibv_wc_status receive_status(snd_status status)
{
	switch (status) {
	case SND_BUFFER_OVERFLOW: return IBV_WC_LOC_LEN_ERR;
	case SND_ACCESS_VIOLATION: return IBV_WC_LOC_PROT_ERR;
	case SND_INVALID_DEVICE_REQUEST: return IBV_WC_LOC_QP_OP_ERR;
	default: return IBV_WC_GENERAL_ERR;
	}
}

enum ibv_wc_status wc_status(const snd_result *r)
{
	if (r->status == SND_SUCCESS)
		return IBV_WC_SUCCESS;
	if (r->status == SND_CANCELED)
		return IBV_WC_WR_FLUSH_ERR;
	if (is_receive(r))
		return receive_status(r->status);
	switch (r->status) {
	case SND_INVALID_ADDRESS: return IBV_WC_LOC_PROT_ERR; /* an entry of the request */
	case SND_ACCESS_VIOLATION: return IBV_WC_REM_ACCESS_ERR;
	case SND_INVALID_DEVICE_REQUEST: return r->type == SND_REQUEST_BIND || r->type == SND_REQUEST_INVALIDATE ? IBV_WC_MW_BIND_ERR : IBV_WC_REM_INV_REQ_ERR;
	case SND_REMOTE_ERROR: return IBV_WC_REM_OP_ERR;
	case SND_IO_TIMEOUT: return IBV_WC_RNR_RETRY_EXC_ERR;
	case SND_CONNECTION_ABORTED: return IBV_WC_RETRY_EXC_ERR;
	default: return IBV_WC_GENERAL_ERR;
	}
}

enum ibv_wc_opcode wc_opcode(const snd_result *r)
{
	switch (r->type) {
	case SND_REQUEST_SEND: return IBV_WC_SEND;
	case SND_REQUEST_BIND: return IBV_WC_BIND_MW;
	case SND_REQUEST_INVALIDATE: return IBV_WC_LOCAL_INV;
	case SND_REQUEST_READ: return IBV_WC_RDMA_READ;
	case SND_REQUEST_WRITE: return IBV_WC_RDMA_WRITE;
	case SND_REQUEST_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
	case SND_REQUEST_COMPARE_AND_SWAP: return IBV_WC_COMP_SWAP;
	case SND_REQUEST_RECEIVE_WRITE_IMMEDIATE: return IBV_WC_RECV_RDMA_WITH_IMM;
	default: return IBV_WC_RECV;
	}
}

unsigned int wc_flags(const snd_result *r)
{
	switch (r->type) {
	case SND_REQUEST_RECEIVE_AND_INVALIDATE: return IBV_WC_WITH_INV;
	case SND_REQUEST_RECEIVE_IMMEDIATE:
	case SND_REQUEST_RECEIVE_WRITE_IMMEDIATE: return IBV_WC_WITH_IMM;
	default: return 0;
	}
}

/* Immediate data has the same bytes here and there. */
__be32 wc_number(const snd_result *r) { return r->type == SND_REQUEST_RECEIVE_AND_INVALIDATE ? rkey_of(r->invalidated_token) : r->invalidated_token; }

void fill_wc(struct ibv_wc *wc, const snd_result *r)
{
	*wc = (struct ibv_wc){
		.wr_id = r->request_context,
		.status = wc_status(r),
		.opcode = wc_opcode(r),
		.vendor_err = r->status,
		.byte_len = r->bytes,
		.imm_data = wc_number(r),
		.qp_num = (uint32_t)r->endpoint_context,
		.wc_flags = wc_flags(r),
	};
}

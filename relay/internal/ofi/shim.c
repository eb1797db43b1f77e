#include "shim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

enum { batch = 32 };

static uint64_t count(const struct sndr_endpoint *e) { return (uint64_t)e->receives + e->sends; }

static struct fi_info *hints_for(const char *provider)
{
	struct fi_info *h = fi_allocinfo();
	if (h == NULL)
		return NULL;
	h->caps = FI_MSG;
	h->mode = FI_CONTEXT | FI_CONTEXT2;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	h->domain_attr->threading = FI_THREAD_DOMAIN;
	h->domain_attr->resource_mgmt = FI_RM_ENABLED;
	h->tx_attr->msg_order = h->rx_attr->msg_order = FI_ORDER_SAS;
	h->fabric_attr->prov_name = strdup(provider);
	return h;
}

// sndr_open fills in e, which is zero. It returns NULL, or the name of the call that has failed; the caller closes e in
// both cases.
const char *sndr_open(struct sndr_endpoint *e, const char *provider, const char *node, uint32_t size, uint32_t receives, uint32_t sends, uint32_t peers, int *error)
{
	// ofi_rxm moves messages of this size at once, and received ones straight into their buffer. It reads the variable when
	// libfabric starts. The value of the user has precedence.
	char limit[16];
	snprintf(limit, sizeof limit, "%" PRIu32, size);
	setenv("FI_OFI_RXM_EAGER_LIMIT", limit, 0);
	struct fi_info *hints = hints_for(provider);
	if (hints == NULL) {
		*error = -FI_ENOMEM;
		return "fi_allocinfo";
	}
	*error = fi_getinfo(FI_VERSION(1, 11), node, NULL, FI_SOURCE, hints, &e->info);
	fi_freeinfo(hints);
	if (*error != 0)
		return "fi_getinfo";
	e->size = size;
	e->receives = receives;
	e->sends = sends;
	e->peers = peers;
	if ((*error = fi_fabric(e->info->fabric_attr, &e->fabric, NULL)) != 0)
		return "fi_fabric";
	if ((*error = fi_domain(e->fabric, e->info, &e->domain, NULL)) != 0)
		return "fi_domain";
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	if ((*error = fi_av_open(e->domain, &av, &e->av, NULL)) != 0)
		return "fi_av_open";
	struct fi_cq_attr cq = {.size = count(e), .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
	*error = fi_cq_open(e->domain, &cq, &e->cq, NULL);
	if (*error != 0) { // EFA and others have nothing to wait for
		cq.wait_obj = FI_WAIT_NONE;
		if ((*error = fi_cq_open(e->domain, &cq, &e->cq, NULL)) != 0)
			return "fi_cq_open";
	}
	if ((*error = fi_endpoint(e->domain, e->info, &e->ep, NULL)) != 0)
		return "fi_endpoint";
	if ((*error = fi_ep_bind(e->ep, &e->av->fid, 0)) != 0 || (*error = fi_ep_bind(e->ep, &e->cq->fid, FI_RECV)) != 0 ||
	    (*error = fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION)) != 0)
		return "fi_ep_bind";
	if ((*error = fi_enable(e->ep)) != 0)
		return "fi_enable";

	e->contexts = calloc(count(e) + peers, sizeof *e->contexts);
	if (e->contexts == NULL) {
		*error = -FI_ENOMEM;
		return "calloc";
	}
	// A page takes memory when it is first used, unless the provider registers it.
	void *buffers = mmap(NULL, count(e) * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffers == MAP_FAILED) {
		*error = -FI_ENOMEM;
		return "mmap";
	}
	e->buffers = buffers;
	if (e->info->domain_attr->mr_mode & FI_MR_LOCAL) {
		if ((*error = fi_mr_reg(e->domain, e->buffers, count(e) * size, FI_SEND | FI_RECV, 0, 0, 0, &e->mr, NULL)) != 0)
			return "fi_mr_reg";
		e->desc = fi_mr_desc(e->mr);
	}
	return NULL;
}

void sndr_close(struct sndr_endpoint *e)
{
	struct fid *all[] = {e->ep ? &e->ep->fid : NULL, e->mr ? &e->mr->fid : NULL, e->cq ? &e->cq->fid : NULL, e->av ? &e->av->fid : NULL,
		e->domain ? &e->domain->fid : NULL, e->fabric ? &e->fabric->fid : NULL};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i] != NULL)
			fi_close(all[i]);
	if (e->info != NULL)
		fi_freeinfo(e->info);
	if (e->buffers != NULL)
		munmap(e->buffers, count(e) * e->size);
	free(e->contexts);
}

int sndr_name(struct sndr_endpoint *e, void *to, size_t *length) { return fi_getname(&e->ep->fid, to, length); }

int sndr_insert(struct sndr_endpoint *e, const void *address, fi_addr_t *peer)
{
	int n = fi_av_insert(e->av, address, 1, peer, 0, NULL);
	return n == 1 ? 0 : n < 0 ? n : -FI_EINVAL;
}

int sndr_remove(struct sndr_endpoint *e, fi_addr_t peer) { return fi_av_remove(e->av, &peer, 1, 0); }

int sndr_post_receive(struct sndr_endpoint *e, uint32_t buffer)
{
	return (int)fi_recv(e->ep, e->buffers + (uint64_t)buffer * e->size, e->size, e->desc, FI_ADDR_UNSPEC, &e->contexts[buffer]);
}

// sndr_send returns 1 if the buffer is free again already: libfabric copies a small message at once, and reports only its failure. It uses no
// fi_inject, whose failure would not say to which peer the message was.
//
// ofi_rxm of libfabric 1.17 ignores FI_INJECT for such a message. The provider tcp below it copies at once what has at most 128 bytes with
// all headers.
int sndr_send(struct sndr_endpoint *e, fi_addr_t peer, int64_t number, uint32_t buffer, uint32_t length)
{
	struct iovec part = {e->buffers + (uint64_t)buffer * e->size, length};
	const int is_small = length <= e->info->tx_attr->inject_size && number >= 0 && number < e->peers;
	struct fi_msg m = {.msg_iov = &part, .desc = &e->desc, .iov_count = 1, .addr = peer,
		.context = &e->contexts[is_small ? count(e) + (uint64_t)number : buffer]};
	int n = (int)fi_sendmsg(e->ep, &m, is_small ? FI_INJECT : FI_COMPLETION);
	return n == 0 ? is_small : n;
}

// event_of returns the event of an operation with a context.
static struct sndr_event event_of(const struct sndr_endpoint *e, void *context, size_t length, int error, int provider)
{
	struct sndr_event v = {-1, -1, length, error, provider};
	struct fi_context2 *c = context, *first = e->contexts;
	if (c >= first && c < first + count(e))
		v.buffer = c - first;
	else if (c >= first && c < first + count(e) + e->peers)
		v.peer = c - first - (int64_t)count(e);
	return v;
}

// sndr_poll stores completions in events, and returns their number, or an error of the queue itself.
int sndr_poll(struct sndr_endpoint *e, struct sndr_event *events, int room)
{
	struct fi_cq_msg_entry done[batch];
	ssize_t n = fi_cq_read(e->cq, done, room < batch ? (size_t)room : batch);
	if (n == -FI_EAGAIN || n == 0)
		return 0;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry failed = {0};
		n = fi_cq_readerr(e->cq, &failed, 0);
		if (n != 1)
			return n == -FI_EAGAIN ? 0 : (int)n;
		events[0] = event_of(e, failed.op_context, 0, failed.err, failed.prov_errno);
		return 1;
	}
	for (ssize_t i = 0; i < n; i++)
		events[i] = event_of(e, done[i].op_context, done[i].len, 0, 0);
	return (int)n;
}

int sndr_wait_fd(struct sndr_endpoint *e, int *fd) { return fi_control(&e->cq->fid, FI_GETWAIT, fd); }

int sndr_try_wait(struct sndr_endpoint *e)
{
	struct fid *fids[] = {&e->cq->fid};
	return fi_trywait(e->fabric, fids, 1);
}

// The part of libfabric that package ofi uses: one endpoint, one queue, and buffers of one size for each direction.
// libfabric's calls are inline functions, which cgo cannot call.
#ifndef SNDR_SHIM_H
#define SNDR_SHIM_H

#include <stdint.h>
#include <rdma/fabric.h>

struct sndr_endpoint {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr; // of the buffers; NULL if the provider needs none
	void *desc;        // of mr
	char *buffers;     // receives of them for messages that arrive, then sends of them for messages to be sent
	struct fi_context2 *contexts; // one for each buffer, then one for the small messages to each peer
	uint32_t size, receives, sends, peers;
};

// An event is a completion: of a buffer, or an error that may belong to none.
struct sndr_event {
	int64_t buffer; // index in buffers; -1 = none
	int64_t peer;   // number of the peer of a small message that has failed; -1 = none
	uint64_t length;
	int32_t error;    // of fi_errno.h; 0 = none
	int32_t provider; // the provider's error number
};

const char *sndr_open(struct sndr_endpoint *e, const char *provider, const char *node, uint32_t size, uint32_t receives, uint32_t sends, uint32_t peers, int *error);
void sndr_close(struct sndr_endpoint *e);
int sndr_name(struct sndr_endpoint *e, void *to, size_t *length);
int sndr_insert(struct sndr_endpoint *e, const void *address, fi_addr_t *peer);
int sndr_remove(struct sndr_endpoint *e, fi_addr_t peer);
int sndr_post_receive(struct sndr_endpoint *e, uint32_t buffer);
int sndr_send(struct sndr_endpoint *e, fi_addr_t peer, int64_t number, uint32_t buffer, uint32_t length);
int sndr_poll(struct sndr_endpoint *e, struct sndr_event *events, int room);
int sndr_wait_fd(struct sndr_endpoint *e, int *fd);
int sndr_try_wait(struct sndr_endpoint *e);

#endif

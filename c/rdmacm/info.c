/* Addresses of names. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

static struct sockaddr *copy(const struct sockaddr *address, socklen_t size)
{
	struct sockaddr *to = malloc(size);
	if (to != NULL)
		memcpy(to, address, size);
	return to;
}

/* find stores the first address of a name. It returns a status of getaddrinfo. */
static int find(const char *node, const char *service, const struct rdma_addrinfo *hints, struct sockaddr **address, socklen_t *size, int *family)
{
	struct addrinfo *list, like = {.ai_socktype = SOCK_STREAM, .ai_family = hints->ai_family};
	if ((hints->ai_flags & RAI_PASSIVE) != 0)
		like.ai_flags |= AI_PASSIVE;
	if ((hints->ai_flags & RAI_NUMERICHOST) != 0)
		like.ai_flags |= AI_NUMERICHOST;
	const int status = getaddrinfo(node, service, &like, &list);
	if (status != 0)
		return status;
	*address = copy(list->ai_addr, list->ai_addrlen);
	*size = list->ai_addrlen;
	*family = list->ai_family;
	freeaddrinfo(list);
	return *address == NULL ? EAI_MEMORY : 0;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **result)
{
	static const struct rdma_addrinfo none;
	if ((node == NULL && service == NULL && hints == NULL) || result == NULL)
		return fail(EINVAL);
	const struct rdma_addrinfo *h = hints == NULL ? &none : hints;
	struct rdma_addrinfo *r = calloc(1, sizeof *r);
	if (r == NULL)
		return -1;
	const bool passive = (h->ai_flags & RAI_PASSIVE) != 0;
	int status = 0;
	if (node != NULL || service != NULL)
		status = passive ? find(node, service, h, &r->ai_src_addr, &r->ai_src_len, &r->ai_family) : find(node, service, h, &r->ai_dst_addr, &r->ai_dst_len, &r->ai_family);
	else if (h->ai_dst_len > 0)
		status = (r->ai_dst_addr = copy(h->ai_dst_addr, r->ai_dst_len = h->ai_dst_len)) == NULL ? EAI_MEMORY : 0;
	if (status == 0 && r->ai_src_addr == NULL && h->ai_src_len > 0)
		status = (r->ai_src_addr = copy(h->ai_src_addr, r->ai_src_len = h->ai_src_len)) == NULL ? EAI_MEMORY : 0;
	if (status != 0) {
		rdma_freeaddrinfo(r);
		return status == EAI_MEMORY ? fail(ENOMEM) : status == EAI_SYSTEM ? -1 : fail(ENODATA);
	}
	r->ai_flags = h->ai_flags;
	if (r->ai_family == 0)
		r->ai_family = h->ai_family;
	r->ai_port_space = h->ai_port_space != 0 ? h->ai_port_space : h->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	r->ai_qp_type = h->ai_qp_type != 0 ? h->ai_qp_type : r->ai_port_space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
	*result = r;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
	while (info != NULL) {
		struct rdma_addrinfo *next = info->ai_next;
		free(info->ai_src_addr);
		free(info->ai_dst_addr);
		free(info);
		info = next;
	}
}

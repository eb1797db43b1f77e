/* Opened devices. Opening joins no fabric: programs open a device to read its attributes, too. */
#include <errno.h>
#include <stdlib.h>

#include "objects.h"
#include "qp.h"

#undef ibv_query_port

/* Entries that only programs from before 2007 call. */
static void *compat(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

static const struct ibv_context_ops ops = {
	._compat_query_device = ibv_query_device,
	._compat_query_port = ibv_query_port,
	._compat_alloc_pd = compat,
	._compat_dealloc_pd = compat,
	._compat_reg_mr = compat,
	._compat_rereg_mr = compat,
	._compat_dereg_mr = compat,
	.alloc_mw = alloc_mw,
	.bind_mw = bind_mw,
	.dealloc_mw = dealloc_mw,
	._compat_create_cq = compat,
	.poll_cq = poll_cq,
	.req_notify_cq = req_notify_cq,
	._compat_cq_event = compat,
	._compat_resize_cq = compat,
	._compat_destroy_cq = compat,
	._compat_create_srq = compat,
	._compat_modify_srq = compat,
	._compat_query_srq = compat,
	._compat_destroy_srq = compat,
	.post_srq_recv = post_srq_recv,
	._compat_create_qp = compat,
	._compat_query_qp = compat,
	._compat_modify_qp = compat,
	._compat_destroy_qp = compat,
	.post_send = post_send,
	.post_recv = post_recv,
	._compat_create_ah = compat,
	._compat_destroy_ah = compat,
	._compat_attach_mcast = compat,
	._compat_detach_mcast = compat,
	._compat_async_event = compat,
};

/* Where the table after the first one has NULL, the functions of verbs.h answer EOPNOTSUPP. */
struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct context *c = calloc(1, sizeof *c);
	if (c == NULL || !open_events(&c->events)) {
		free(c);
		return NULL;
	}
	struct ibv_context *context = &c->verbs.context;
	context->device = device;
	context->ops = ops;
	context->cmd_fd = context->async_fd = c->events.fd; /* programs duplicate cmd_fd, but no call takes the duplicate */
	context->num_comp_vectors = 1;
	(void)pthread_mutex_init(&context->mutex, NULL);
	context->abi_compat = (void *)UINTPTR_MAX; /* there is a table before the context */
	c->verbs.sz = sizeof c->verbs;
	c->verbs.query_device_ex = query_device_ex;
	c->verbs.query_port = query_port;
	c->verbs.create_cq_ex = create_cq_ex;
	c->verbs.modify_cq = modify_cq;
	c->verbs.query_rt_values = query_rt_values;
	c->verbs.create_srq_ex = create_srq_ex;
	c->verbs.create_qp_ex = create_qp_ex;
	return context;
}

bool softnd_has_objects(struct ibv_context *public)
{
	const struct context *c = context_of(public);
	if (c->queue_count != 0 || pthread_mutex_trylock(&public->mutex) != 0)
		return true;
	const bool has = c->domains != NULL;
	(void)pthread_mutex_unlock(&public->mutex);
	return has;
}

/* All objects of the context end here. The structures of those that the program has not destroyed stay. */
int ibv_close_device(struct ibv_context *context)
{
	struct context *c = context_of(context);
	leave_fabric(c);
	close_events(&c->events);
	(void)pthread_mutex_destroy(&context->mutex);
	free(c);
	return 0;
}

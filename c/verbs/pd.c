/* Protection domains. */
#include <errno.h>
#include <stdlib.h>

#include "objects.h"

struct ibv_pd *ibv_alloc_pd(struct ibv_context *public)
{
	static atomic_uint allocated;
	struct context *c = context_of(public);
	struct pd *pd = calloc(1, sizeof *pd);
	if (pd == NULL)
		return NULL;
	pd->public.context = public;
	pd->public.handle = atomic_fetch_add(&allocated, 1);
	(void)pthread_mutex_lock(&public->mutex);
	pd->next = c->domains;
	c->domains = pd;
	(void)pthread_mutex_unlock(&public->mutex);
	return &pd->public;
}

int ibv_dealloc_pd(struct ibv_pd *public)
{
	struct pd *pd = (struct pd *)public;
	struct ibv_context *context = public->context;
	if (atomic_load(&pd->users) != 0)
		return refuse(EBUSY, "deallocate protection domain: %u of its objects exist: destroy them first", atomic_load(&pd->users));
	give_back(pd->adapter);
	(void)pthread_mutex_lock(&context->mutex);
	struct pd **at = &context_of(context)->domains;
	while (*at != pd)
		at = &(*at)->next;
	*at = pd->next;
	(void)pthread_mutex_unlock(&context->mutex);
	free(pd);
	return 0;
}

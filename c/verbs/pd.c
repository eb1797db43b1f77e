/* Protection domains. */
#include <errno.h>
#include <stdlib.h>

#include "objects.h"

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	static atomic_uint allocated;
	struct pd *pd = calloc(1, sizeof *pd);
	if (pd == NULL)
		return NULL;
	pd->public.context = context;
	pd->public.handle = atomic_fetch_add(&allocated, 1);
	return &pd->public;
}

int ibv_dealloc_pd(struct ibv_pd *public)
{
	struct pd *pd = (struct pd *)public;
	if (atomic_load(&pd->users) != 0)
		return EBUSY;
	free(pd);
	return 0;
}

/* The device: it is opened once, and closed when the process ends, as programs keep regions of it longer than their identifiers. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cm.h"

enum { THE_PORT = 1 };

static struct {
	struct ibv_context *context; /* NULL = not opened */
	struct ibv_pd *pd;           /* of programs that bring none */
	unsigned pd_users;
	pid_t pid; /* that has opened it: a forked child opens its own */
} device;

struct ibv_context *device_context(void)
{
	if (device.pid != getpid()) {
		device.context = NULL;
		device.pd = NULL;
		device.pd_users = 0;
		device.pid = getpid();
	}
	if (device.context == NULL) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		if (list == NULL)
			return NULL;
		if (list[0] != NULL)
			device.context = ibv_open_device(list[0]);
		else
			errno = ENODEV;
		ibv_free_device_list(list);
	}
	return device.context;
}

/* A thread may call exit while another one uses objects of the device: it stays open then. Else it is closed, so that a leak checker finds nothing. */
__attribute__((destructor)) static void close_device(void)
{
	struct ibv_context *context = device.context;
	if (context == NULL || device.pid != getpid() || softnd_has_objects(context))
		return;
	device.context = NULL;
	(void)ibv_close_device(context);
}

bool use_default_pd(struct id *id)
{
	if (device.pd == NULL)
		device.pd = ibv_alloc_pd(device.context);
	if (device.pd == NULL)
		return false;
	device.pd_users++;
	id->has_default_pd = true;
	id->public.pd = device.pd;
	return true;
}

void leave_default_pd(struct id *id)
{
	if (!id->has_default_pd)
		return;
	id->has_default_pd = false;
	id->public.pd = NULL;
	if (device.pid == getpid() && --device.pd_users == 0 && ibv_dealloc_pd(device.pd) == 0)
		device.pd = NULL;
}

bool use_device(struct id *id)
{
	struct ibv_context *context = device_context();
	if (context == NULL)
		return false;
	struct rdma_ib_addr *a = &id->public.route.addr.addr.ibaddr;
	id->public.verbs = context;
	id->public.port_num = THE_PORT;
	if (ibv_query_gid(context, THE_PORT, 0, &a->sgid) != 0)
		return false;
	a->dgid = a->sgid;
	a->pkey = 0xffff;
	return id->public.pd != NULL || use_default_pd(id);
}

struct ibv_context **rdma_get_devices(int *count)
{
	lock();
	struct { struct ibv_context *entries[2]; } *list = calloc(1, sizeof *list);
	struct ibv_context *context = list == NULL ? NULL : device_context();
	unlock();
	if (count != NULL)
		*count = context != NULL;
	if (context == NULL) {
		free(list);
		return NULL;
	}
	list->entries[0] = context;
	return list->entries;
}

void rdma_free_devices(struct ibv_context **list) { free(list); }

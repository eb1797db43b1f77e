/* Descriptors for events. No object exists yet that has an event, so a wait for one lasts until a signal, and on a descriptor with
 * O_NONBLOCK it fails with EAGAIN. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "linux/descriptor.h"
#include "objects.h"

int new_event_descriptor(void) { return snd_above_standard(eventfd(0, EFD_CLOEXEC)); }

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
	if (channel == NULL)
		return NULL;
	channel->context = context;
	channel->fd = new_event_descriptor();
	if (channel->fd < 0) {
		free(channel);
		return NULL;
	}
	return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (channel->refcnt != 0)
		return EBUSY;
	(void)close(channel->fd);
	free(channel);
	return 0;
}

/* Bytes that a program itself writes to a descriptor are no event. */
static int wait_for_event(int fd)
{
	uint64_t count;
	while (read(fd, &count, sizeof count) == sizeof count)
		;
	return -1;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	(void)cq, (void)cq_context;
	return wait_for_event(channel->fd);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)event;
	return wait_for_event(context->async_fd);
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

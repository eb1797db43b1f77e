/* The descriptor of connection events. */
#include "endpoint/cm_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "endpoint/cm_connector.h"
#include "linux/descriptor.h"
#include "shm/work.h"

void snd_raise_event(struct snd_fabric *f)
{
	const uint64_t one = 1;
	SND_KEEP_ERRNO;
	if (write(f->event_fd, &one, sizeof one) < 0) { /* only at the maximal count, when it is readable */
	}
}

void snd_announce_steps(struct snd_fabric *f)
{
	for (struct snd_link *l = f->connectors.next; l != &f->connectors; l = l->next)
		if (snd_has_news(SND_OF(l, struct snd_connector, link)))
			snd_raise_event(f);
}

snd_status snd_fabric_event_fd(snd_fabric *fabric, int *descriptor)
{
	SND_KEEP_ERRNO;
	const char *op = "event descriptor";
	SND_ENTER_TO(fabric, SND_TYPE_FABRIC, descriptor, op);
	*descriptor = -1;
	snd_status s = SND_SUCCESS;
	if (!fabric->has_engine) {
		s = snd_fail(SND_NOT_SUPPORTED, "%s: with manual progress no thread would write it: open the fabric with SND_PROGRESS_AUTO", op);
	} else if (fabric->event_fd >= 0) {
	} else if ((fabric->event_fd = snd_above_standard(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK))) < 0) { /* 1: events that there were before */
		s = snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: %s", op, snd_errno_text(errno));
	} else {
		snd_set32(&fabric->event_fds, snd_relaxed32(&fabric->event_fds) + 1);
		snd_wake_progress(fabric);
	}
	*descriptor = fabric->event_fd;
	return snd_leave_with(fabric, s);
}

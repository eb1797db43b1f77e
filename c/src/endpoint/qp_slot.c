/* TWIN endpoint/qp_slot.go. */
#include "endpoint/cq.h"
#include "endpoint/progress_wait.h"
#include "endpoint/qp_post.h"

static bool has_slot(void *arg)
{
	const struct snd_endpoint *ep = arg;
	return snd_is_closed(&ep->object) || snd_has_queue_slot(ep);
}

snd_status snd_endpoint_wait_slot(snd_endpoint *endpoint, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "wait slot";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(endpoint, SND_TYPE_ENDPOINT, op);
	struct snd_fabric *f = endpoint->object.fabric;
	if (snd_has_queue_slot(endpoint))
		return snd_leave_with(f, SND_SUCCESS);
	snd_submit(endpoint); /* slots of deferred requests would never be free */
	snd_hold(&endpoint->object);
	snd_status s = snd_wait_drained(f, timeout, has_slot, endpoint, &(struct snd_call){.op = op, .object = "endpoint"});
	if (snd_is_closed(&endpoint->object))
		s = snd_fail(SND_CANCELED, "%s: the endpoint was closed", op);
	else if (s == SND_CANCELED)
		s = snd_fail(s, "%s: the fabric was closed", op);
	else if (s != SND_SUCCESS)
		s = snd_fail(s, "%s: no slot is free after %s: take results", op, snd_duration(timeout).text);
	snd_let_go(&endpoint->object);
	return snd_leave_with(f, s);
}

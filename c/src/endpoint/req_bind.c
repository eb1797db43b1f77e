/* Requests that bind or register memory, and those that end that. TWIN endpoint/req_execute.go, endpoint/mr_fastreg.go. */
#include "endpoint/req_bind.h"

#include <inttypes.h>

#include "endpoint/hook.h"
#include "endpoint/req_aside.h"
#include "endpoint/req_atomic.h"
#include "endpoint/req_execute.h"
#include "window/invalidatable.h"
#include "window/region.h"

enum snd_outcome snd_execute_bind(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (r->registration == NULL && r->binding.region == NULL)
		return snd_reject(ep, r, SND_INVALID_DEVICE_REQUEST, "the window cannot be bound to this memory of the region: check the range, the rights of the region, and that it allows binds");
	if (r->object->any_endpoint) { /* another bind ends the one before */
		snd_revoke_all(r->object);
		if (!snd_end_invalidation(r->object))
			return snd_stall(ep, r, SND_STALL_DRAIN);
	}
	struct snd_registration *g = r->registration;
	r->registration = NULL;
	if (g != NULL ? !snd_region_apply(SND_OF(r->object, struct snd_region, i), g) : !snd_apply(SND_OF(r->object, struct snd_window, i), &r->binding))
		return snd_reject(ep, r, SND_INVALID_DEVICE_REQUEST, "the %s already, or closed: invalidate it first", g != NULL ? "region is registered" : "window is bound");
	if (!r->object->any_endpoint)
		snd_list_append(&ep->bound, &r->object->bound_link);
	snd_finish(r, SND_SUCCESS);
	return SND_EXECUTED;
}

void snd_complete_invalidate(struct snd_send_request *r)
{
	if (r->kind == SND_REQUEST_READ) { /* snd_invalidate_sink finds no region to invalidate */
		snd_unreference(r->object);
		r->object = NULL;
	}
	snd_finish(r, SND_SUCCESS);
}

enum snd_outcome snd_execute_invalidate(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (r->state != SND_REQ_DRAINING) {
		if (r->kind == SND_REQUEST_INVALIDATE && (r->object == NULL || (r->remote_token != 0 && snd_word_token(r->object->remote->word) != r->remote_token)))
			return snd_reject(ep, r, SND_INVALID_DEVICE_REQUEST, "no window is bound with token %#" PRIx32, r->remote_token);
		if (r->object->any_endpoint && r->object->state == SND_UNBOUND) {
			snd_finish(r, SND_SUCCESS);
			return SND_EXECUTED;
		}
		struct snd_connection *c = ep->conn;
		if (snd_is_region(r->object) && (snd_has_unexecuted_requests(c) || snd_has_reads_aside(ep) || snd_awaits_results(ep)))
			return snd_stall(ep, r, SND_STALL_ORDER); /* requests that may name the region's local token have not run, or are still in the ring */
		if (snd_is_region(r->object) && !snd_settle_arrived(ep))
			return snd_stall(ep, r, SND_STALL_ORDER); /* the failed Read ends the connection when it completes */
		if (!snd_begin_invalidation(r->object, ep->number, false))
			return snd_reject(ep, r, SND_INVALID_DEVICE_REQUEST, snd_is_region(r->object)
				? "the region is not registered on this endpoint, or a window still uses it" : "the window is not bound on this endpoint");
		r->state = SND_REQ_DRAINING;
	}
	if (!snd_end_invalidation(r->object))
		return snd_stall(ep, r, SND_STALL_DRAIN);
	snd_complete_invalidate(r);
	return SND_EXECUTED;
}

bool snd_find_sink(struct snd_endpoint *ep, struct snd_send_request *r)
{
	r->object = snd_find_bound(ep->object.fabric->table, ep->adapter_number, ep->number, r->entries[0].token, SNDL_RIGHT_LOCAL);
	if (r->object != NULL) {
		r->object->references++;
		return true;
	}
	struct snd_operand sink;
	snd_set_operand(r, &sink, &r->entries[0], SNDL_RIGHT_WRITE);
	enum snd_fault f = snd_check_operand(&ep->guard, &sink, r->entries[0].length);
	if (f != SND_NO_FAULT)
		snd_reject_local(ep, r, &r->entries[0], f);
	else
		snd_reject(ep, r, SND_INVALID_DEVICE_REQUEST, "the first entry is not in a region that this endpoint has fast-registered, or a window is bound to the region");
	return false;
}

enum snd_outcome snd_invalidate_sink(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (r->object == NULL || (r->state == SND_REQ_FINISHED && r->status != SND_SUCCESS))
		return SND_EXECUTED; /* nothing to invalidate, failed, or done */
	if (r->needs_ack && (int64_t)(snd_load_released(&ep->conn->out) - r->end_entry) < 0)
		return SND_BLOCKED;
	snd_data_arrived(ep, r); /* while the token is valid */
	if (r->status != SND_SUCCESS)
		return SND_EXECUTED;
	r->state = SND_REQ_WAITING;
	return snd_execute_invalidate(ep, r);
}

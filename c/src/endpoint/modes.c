/* The modes of an endpoint and of a fabric, behind their hooks. Only this file knows them by name. TWIN endpoint/modes.go. */
#include <stdlib.h>

#include "endpoint/fault.h"
#include "endpoint/hook.h"
#include "endpoint/integrity.h"
#include "endpoint/qp.h"
#include "endpoint/req_aside.h"
#include "endpoint/weak.h"

static snd_status post(struct snd_endpoint *ep, struct snd_send_request *r)
{
	const snd_status s = ep->faults != NULL ? snd_fault_at_post(ep, r) : SND_SUCCESS;
	if (s == SND_SUCCESS)
		snd_hash_posted(ep, r);
	return s;
}

static bool before_run(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out)
{
	*out = SND_EXECUTED;
	return !snd_hash_late(ep, r) || (ep->faults != NULL && snd_fault_before_execute(ep, r, out)) ||
		(ep->weak != NULL && snd_weak_before_execute(ep, r, out));
}

static uint64_t until(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n) { return ep->faults != NULL ? snd_until_rule(ep, r, n) : n; }
static bool splits(struct snd_endpoint *ep, const struct snd_send_request *r) { return ep->faults != NULL && snd_has_rule_within(ep, r); }
static uint64_t bytes(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t *n)
{
	return ep->weak != NULL ? snd_next_weak_bytes(ep, r, n) : r->transferred;
}

static void copied(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n)
{
	if (ep->weak != NULL)
		snd_weak_copied(ep, r, n);
}

static void arrived(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (ep->faults != NULL)
		snd_corrupt_sink(ep, r);
	snd_check_read(ep, r);
}

static bool settle_arrived(struct snd_endpoint *ep)
{
	bool match = true;
	if (ep->sums == NULL || ep->teardown != SND_USES_PEER_STATE)
		return match;
	for (uint64_t i = ep->completed; i != ep->next; i++) {
		struct snd_send_request *r = snd_request_at(ep, i);
		if (r->hashed && (r->state == SND_REQ_FINISHED || (r->state != SND_REQ_ASIDE && (int64_t)(snd_load_released(&ep->conn->out) - r->end_entry) >= 0)))
			arrived(ep, r);
		match = match && r->status == SND_SUCCESS;
	}
	return match;
}

static bool before_completion(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (ep->faults != NULL && !r->posted_after_end) {
		arrived(ep, r);
		if (!snd_fault_before_complete(ep, r))
			return false;
	}
	return ep->weak == NULL || snd_result_is_due(ep, r);
}

static void forget(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (ep->faults != NULL)
		snd_end_fault(ep, r);
}

static snd_status post_receive(struct snd_endpoint *ep, const struct snd_receive *r) { return ep->faults != NULL ? snd_fault_at_receive(ep, r) : SND_SUCCESS; }
static bool before_serving(struct snd_endpoint *ep, enum snd_outcome *out) { return ep->weak != NULL && snd_weak_before_serve(ep, out); }
static bool before_receive(struct snd_endpoint *ep, struct snd_receive *r, enum snd_outcome *out)
{
	return ep->faults != NULL && snd_fault_before_receive(ep, r, out);
}

static bool before_write(struct snd_endpoint *ep, enum snd_outcome *out)
{
	*out = SND_EXECUTED;
	if (!snd_check_write(ep))
		return true;
	if (ep->weak == NULL)
		return false;
	*out = snd_place_write(ep);
	return true;
}

static uint64_t served_bytes(struct snd_endpoint *ep, uint64_t *n) { return ep->weak != NULL ? snd_next_weak_part(ep, n) : ep->in_copied; }
static void copied_served(struct snd_endpoint *ep, uint64_t n)
{
	if (ep->weak != NULL)
		snd_weak_copied_part(ep, n);
}

static bool received(struct snd_endpoint *ep, struct snd_receive *r, uint64_t total)
{
	if ((ep->in_entry.flags & SNDL_FLAG_HASHED) == 0)
		return true;
	if (ep->faults != NULL)
		snd_corrupt_message(ep, r, total); /* before the check, which finds the byte */
	return snd_check_message(ep, r, total);
}

static void served(struct snd_endpoint *ep, struct snd_receive *r, snd_status s, uint64_t n)
{
	if (ep->faults != NULL)
		snd_fault_at_receive_end(ep, r, s, n);
}

static void step(struct snd_endpoint *ep)
{
	if (ep->weak != NULL)
		ep->weak->clock++;
}
static bool waits(struct snd_endpoint *ep) { return snd_weak_is_busy(ep) || (ep->faults != NULL && snd_is_delayed(ep)); }

static const struct snd_hook modes = {
	.post = post, .before_run = before_run, .until = until, .splits = splits, .bytes = bytes, .copy = snd_copy_hashed,
	.copied = copied, .before_read = snd_take_read_place, .arrived = arrived, .settle_arrived = settle_arrived, .before_completion = before_completion,
	.forget = forget,
	.post_receive = post_receive, .before_serving = before_serving, .before_receive = before_receive, .before_write = before_write,
	.served_bytes = served_bytes, .copy_served = snd_copy_served, .copied_served = copied_served, .received = received, .served = served,
	.step = step, .engine_turn = snd_weak_engine_turn, .waits = waits,
};

static snd_status before(const struct snd_new_call *c) { return snd_fabric_of(c->object)->faults != NULL ? snd_fault_before_call(c) : SND_SUCCESS; }
static snd_status post_shared_receive(struct snd_fabric *f, uint64_t size) { return f->faults != NULL ? snd_fault_at_shared_receive(f, size) : SND_SUCCESS; }
static bool refuses(const struct snd_connection *c) { return c->fabric->faults != NULL && snd_fault_refuses(c); }
static void before_return(struct snd_fabric *f, void (*drive)(void *), void *arg)
{
	if (f->stepwise)
		snd_weak_delay_event(f, drive, arg);
}

static const struct snd_call_hook call_modes = {.before = before, .post_shared_receive = post_shared_receive, .refuses = refuses, .before_return = before_return};

snd_status snd_load_modes(struct snd_fabric *f, int32_t rank, const char *op)
{
	const snd_status s = snd_load_faults(f, rank, op);
	if (f->faults != NULL || f->stepwise)
		f->call_hook = &call_modes;
	return s;
}

void snd_begin_modes(struct snd_fabric *f)
{
	if (f->stepwise)
		snd_weak_begin(f);
}

void snd_end_modes(struct snd_fabric *f) { snd_free_faults(f); }

bool snd_add_modes(struct snd_endpoint *ep, size_t requests, bool checks)
{
	const struct snd_fabric *f = ep->object.fabric;
	if (f->faults == NULL && !f->stepwise && !checks)
		return true;
	ep->hook = &modes;
	ep->slow |= SND_SLOW_HOOK;
	return (!checks || (ep->sums = calloc(requests, sizeof *ep->sums)) != NULL) &&
		(f->faults == NULL || (ep->faults = calloc(requests, sizeof *ep->faults)) != NULL) &&
		(!f->stepwise || ((ep->weak = snd_weak_new(requests)) != NULL && (ep->aside = calloc(1, sizeof *ep->aside)) != NULL));
}

void snd_add_payload_checks(struct snd_endpoint *ep)
{
	if (ep->hook == NULL)
		ep->hook = &modes;
}

void snd_free_modes(struct snd_endpoint *ep)
{
	free(ep->sums);
	free(ep->faults);
	free(ep->weak);
	free(ep->aside);
}

/* The effect of fault rules on requests and messages. endpoint/internal/mode/fault does the same.
 * TWIN endpoint/internal/mode/fault/fault.go, endpoint/internal/mode/fault/action.go. */
#include "endpoint/fault.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "endpoint/cm_teardown.h"
#include "endpoint/cq.h"
#include "endpoint/qp.h"
#include "endpoint/qp_receive.h"
#include "endpoint/req_execute.h"
#include "endpoint/resp_serve.h"
#include "linux/clock.h"
#include "window/invalidatable.h"

static const char next_step[] = "the fault plan asks for it: change the rule if you do not want it";

static struct snd_request_fault *state_of(struct snd_endpoint *ep, const struct snd_send_request *r) { return &ep->faults[r - ep->requests]; }

static bool is(const struct snd_pending_fault *p, uint32_t action) { return p->fired.rule != NULL && p->fired.rule->action == action; }

static struct snd_pending_fault begin(struct snd_fired fired)
{
	const uint64_t delay = fired.rule->delay < INT64_MAX ? fired.rule->delay : INT64_MAX;
	return (struct snd_pending_fault){fired, fired.rule->action == SNDL_FAULT_DELAY ? snd_deadline((int64_t)delay) : 0, false};
}

/* delay_is_over ends a delay when its time has come. */
static bool delay_is_over(struct snd_pending_fault *p)
{
	p->done = p->done || snd_clock() >= p->until;
	return p->done;
}

static int32_t peer_rank(const struct snd_endpoint *ep) { return ep->conn == NULL ? -1 : snd_rank_of(ep->object.fabric, ep->conn->peer.id); }

static uint32_t operation_of(const struct snd_send_request *r)
{
	switch (r->kind) {
	case SND_REQUEST_SEND: return r->invalidate ? SNDL_FAULT_SEND_AND_INVALIDATE : SNDL_FAULT_SEND;
	case SND_REQUEST_READ: return SNDL_FAULT_READ;
	case SND_REQUEST_WRITE: return SNDL_FAULT_WRITE;
	case SND_REQUEST_BIND: return SNDL_FAULT_BIND;
	case SND_REQUEST_INVALIDATE: return snd_is_region(r->object) ? SNDL_FAULT_INVALIDATE_REGION : SNDL_FAULT_INVALIDATE;
	case SND_REQUEST_FAST_REGISTER: return SNDL_FAULT_FAST_REGISTER;
	case SND_REQUEST_FETCH_AND_ADD:
	case SND_REQUEST_COMPARE_AND_SWAP:
	case SND_REQUEST_SWAP: return SNDL_FAULT_ATOMIC;
	default: return 63; /* no rule has this bit */
	}
}

/* brings reports whether a request stores bytes of the peer here: a Read, or the old value of an atomic. */
static bool brings(const struct snd_send_request *r) { return r->kind == SND_REQUEST_READ || snd_is_atomic(r); }

/* ask asks the plan about a request. It asks once in each phase. */
static struct snd_fired ask(struct snd_endpoint *ep, const struct snd_send_request *r, uint32_t phase)
{
	struct snd_request_fault *q = state_of(ep, r);
	if ((q->asked >> phase & 1) != 0)
		return (struct snd_fired){NULL, 0};
	q->asked |= (uint8_t)(1u << phase);
	return snd_next_fault(ep->object.fabric, &(struct snd_fault_event){operation_of(r), phase, peer_rank(ep), ep->number, q->window, r->total});
}

void snd_signal_self(const struct snd_fired *fired)
{
	if (fired->rule->action != SNDL_FAULT_STOP && fired->rule->action != SNDL_FAULT_KILL)
		return;
	/* To this thread: it runs no further instruction of the program. A process may always signal itself. */
	(void)syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), fired->rule->action == SNDL_FAULT_STOP ? SIGSTOP : SIGKILL);
}

/* disrupt runs an action that does not concern a single request: it ends the process, the connection or the queue. */
static void disrupt(struct snd_endpoint *ep, const struct snd_fired *fired, const char *op, struct snd_cq *q)
{
	switch (fired->rule->action) {
	case SNDL_FAULT_DROP: snd_terminate(ep, SND_CONNECTION_ABORTED, "%s: %s has dropped the connection: %s", op, snd_describe_fault(fired).text, next_step); break;
	case SNDL_FAULT_OVERRUN: snd_cq_overrun(q); break;
	default: snd_signal_self(fired);
	}
}

snd_status snd_fault_at_post(struct snd_endpoint *ep, struct snd_send_request *r)
{
	const char *op = snd_request_name(r);
	*state_of(ep, r) = (struct snd_request_fault){.window = snd_fault_window(ep->object.fabric, r->remote_token, r->object)};
	struct snd_fired fired = ask(ep, r, SNDL_FAULT_AT_POST);
	if (fired.rule == NULL)
		return SND_SUCCESS;
	if (fired.rule->action == SNDL_FAULT_FAIL) {
		snd_cancel_preparation(r);
		return snd_fail(fired.rule->status, "%s: %s: %s", op, snd_describe_fault(&fired).text, next_step);
	}
	disrupt(ep, &fired, op, ep->initiator_cq);
	r->posted_after_end = !snd_takes_requests(ep);
	return SND_SUCCESS;
}

/* stage_corrupted copies the data of a Send or Write, with a wrong byte. The request then transfers the copy, as a request
 * with SND_INLINE does. It returns false if it has rejected r. */
static bool stage_corrupted(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_request_fault *q = state_of(ep, r);
	const struct snd_fault_rule *rule = q->pending.fired.rule; /* it matches only requests that have the byte */
	unsigned char *copy = malloc(r->total);
	if (copy == NULL) {
		(void)snd_reject(ep, r, SND_INTERNAL_ERROR, "%s: no private memory for the wrong data", snd_describe_fault(&q->pending.fired).text);
		return false;
	}
	if (!snd_gather_payload(ep, r, copy)) {
		free(copy);
		return false;
	}
	copy[rule->offset] ^= (unsigned char)rule->flip;
	q->copy = r->inline_data = copy;
	r->flags |= SND_INLINE;
	r->entries[0] = (struct snd_entry){0, (uint32_t)r->total, 0};
	r->count = 1;
	return true;
}

bool snd_fault_before_execute(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out)
{
	struct snd_request_fault *q = state_of(ep, r);
	struct snd_pending_fault *p = &q->pending;
	struct snd_fired fired = ask(ep, r, SNDL_FAULT_AT_EXECUTE);
	if (fired.rule != NULL) {
		*p = begin(fired);
		r->in_order = true;
	}
	if (p->fired.rule == NULL || snd_until_rule(ep, r, 1) == 1 || r->bounce_index >= 0) /* the bytes before the fault are in a bounce buffer */
		return false;
	const struct snd_fault_rule *rule = p->fired.rule;
	const bool one = rule->action == SNDL_FAULT_CORRUPT || rule->action == SNDL_FAULT_FAIL || rule->action == SNDL_FAULT_INVALIDATE_NOW;
	*out = SND_BLOCKED;
	if (rule->after > 0 && r->needs_ack && r->end_entry != 0 && (int64_t)(snd_load_released(&ep->conn->out) - r->end_entry) < 0)
		return true; /* the peer has yet to copy the bytes before the fault */
	if (rule->action == SNDL_FAULT_DELAY)
		return !delay_is_over(p);
	if (!one && ep->completed != ep->next)
		return true; /* until the earlier requests are complete: else chance would decide which of them succeed */
	p->done = true;
	const struct snd_fault_text text = snd_describe_fault(&p->fired);
	switch (rule->action) {
	case SNDL_FAULT_CORRUPT:
		*out = SND_EXECUTED;
		return !stage_corrupted(ep, r);
	case SNDL_FAULT_FAIL:
		snd_cancel_preparation(r);
		*out = snd_reject(ep, r, rule->status, "%s, after %" PRIu64 " bytes", text.text, rule->after);
		return true;
	case SNDL_FAULT_INVALIDATE_NOW:
		*out = snd_reject(ep, r, SND_ACCESS_VIOLATION, "%s has invalidated the token after %" PRIu64 " bytes", text.text, rule->after);
		return true;
	default:
		if (rule->action == SNDL_FAULT_DROP && ep->numbered) { /* as on a card: the request does not reach the peer, which hears nothing */
			snd_cancel_preparation(r);
			*out = snd_reject(ep, r, SND_CONNECTION_ABORTED, "%s has dropped the connection after %" PRIu64 " bytes", text.text, rule->after);
			return true;
		}
		disrupt(ep, &p->fired, snd_request_name(r), ep->initiator_cq);
		return ep->state != SND_QP_CONNECTED || snd_has_overrun(ep);
	}
}

uint64_t snd_until_rule(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n)
{
	const struct snd_pending_fault *p = &state_of(ep, r)->pending;
	if (p->fired.rule == NULL || p->done || (brings(r) && is(p, SNDL_FAULT_CORRUPT))) /* snd_corrupt_sink acts when the data has arrived */
		return n;
	if (snd_is_atomic(r) || (r->kind == SND_REQUEST_SEND && r->total <= snd_room(r)))
		return 0; /* the request runs, or the message travels, whole, so the action comes before it */
	const uint64_t after = p->fired.rule->after, left = after > r->transferred ? after - r->transferred : 0;
	return n < left ? n : left;
}

bool snd_has_rule_within(struct snd_endpoint *ep, const struct snd_send_request *r)
{
	const struct snd_fired *fired = &state_of(ep, r)->pending.fired;
	return fired->rule != NULL && fired->rule->after > 0;
}

/* corrupt changes a byte of local memory, if its token still allows that. */
static void corrupt(struct snd_endpoint *ep, const struct snd_entry *entries, uint32_t count, const struct snd_fault_rule *rule)
{
	const struct snd_entry e = snd_entry_at(entries, count, rule->offset);
	unsigned char byte;
	enum snd_fault here, there;
	const struct snd_operand plain = {.memory = &byte};
	struct snd_operand own = {.address = e.address, .token = e.token, .rights = SNDL_RIGHT_LOCAL | SNDL_RIGHT_READ};
	if (e.length == 0 || !snd_copy(&ep->guard, &plain, &own, 1, &here, &there))
		return;
	byte ^= (unsigned char)rule->flip;
	own.rights = SNDL_RIGHT_LOCAL | SNDL_RIGHT_WRITE;
	snd_copy(&ep->guard, &own, &plain, 1, &here, &there);
}

void snd_corrupt_sink(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_pending_fault *p = &state_of(ep, r)->pending;
	if (!brings(r) || r->status != SND_SUCCESS || !is(p, SNDL_FAULT_CORRUPT) || p->done)
		return;
	p->done = true;
	corrupt(ep, r->entries, r->count, p->fired.rule);
}

bool snd_fault_before_complete(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_pending_fault *p = &state_of(ep, r)->pending;
	if (r->status != SND_SUCCESS) /* a Read with wrong data has not succeeded */
		return true;
	struct snd_fired fired = ask(ep, r, SNDL_FAULT_AT_COMPLETE);
	if (fired.rule != NULL)
		*p = begin(fired);
	if (p->fired.rule == NULL || p->fired.rule->phase != SNDL_FAULT_AT_COMPLETE || p->done)
		return true;
	if (is(p, SNDL_FAULT_DELAY))
		return delay_is_over(p);
	p->done = true;
	if (is(p, SNDL_FAULT_FAIL)) {
		(void)snd_reject(ep, r, p->fired.rule->status, "%s", snd_describe_fault(&p->fired).text);
		return true;
	}
	disrupt(ep, &p->fired, snd_request_name(r), ep->initiator_cq);
	return ep->state == SND_QP_CONNECTED || ep->state == SND_QP_PEER_DISCONNECTED;
}

void snd_end_fault(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_request_fault *q = state_of(ep, r);
	if (q->copy != NULL)
		r->inline_data = ep->inline_memory + (size_t)(r - ep->requests) * ep->inline_size;
	free(q->copy);
	*q = (struct snd_request_fault){0};
}

static bool is_delaying(const struct snd_pending_fault *p) { return is(p, SNDL_FAULT_DELAY) && !p->done; }

bool snd_is_delayed(struct snd_endpoint *ep)
{
	for (uint64_t i = ep->completed; i != ep->submitted && (int64_t)(ep->next - i) >= 0; i++)
		if (is_delaying(&state_of(ep, snd_request_at(ep, i))->pending))
			return true;
	return is_delaying(&ep->message_fault);
}

static struct snd_fired ask_about_receive(struct snd_endpoint *ep, uint32_t phase, uint64_t size)
{
	return snd_next_fault(ep->object.fabric, &(struct snd_fault_event){SNDL_FAULT_RECEIVE, phase, peer_rank(ep), ep->number, 0, size});
}

snd_status snd_fault_at_receive(struct snd_endpoint *ep, const struct snd_receive *r)
{
	struct snd_fired fired = ask_about_receive(ep, SNDL_FAULT_AT_POST, r->capacity);
	if (fired.rule == NULL)
		return SND_SUCCESS;
	if (fired.rule->action == SNDL_FAULT_FAIL)
		return snd_fail(fired.rule->status, "receive: %s: %s", snd_describe_fault(&fired).text, next_step);
	disrupt(ep, &fired, "receive", ep->receive_cq);
	return SND_SUCCESS;
}

snd_status snd_fault_at_shared_receive(struct snd_fabric *f, uint64_t size)
{
	struct snd_fired fired = snd_next_fault(f, &(struct snd_fault_event){SNDL_FAULT_RECEIVE, SNDL_FAULT_AT_POST, -1, 0, 0, size});
	if (fired.rule == NULL)
		return SND_SUCCESS;
	if (fired.rule->action == SNDL_FAULT_FAIL)
		return snd_fail(fired.rule->status, "receive: %s: %s", snd_describe_fault(&fired).text, next_step);
	snd_signal_self(&fired);
	return SND_SUCCESS;
}

bool snd_fault_before_receive(struct snd_endpoint *ep, struct snd_receive *r, enum snd_outcome *out)
{
	struct snd_pending_fault *p = &ep->message_fault;
	if (ep->in_entry.kind == SNDL_KIND_SEND_FAILED)
		return false; /* there is no message */
	if (!ep->message_asked) {
		ep->message_asked = true;
		struct snd_fired fired = ask_about_receive(ep, SNDL_FAULT_AT_EXECUTE,
			ep->in_entry.kind == SNDL_KIND_SEND_IN_ENTRY ? ep->in_entry.payload_length : ep->in_entry.request_length);
		if (fired.rule != NULL)
			*p = begin(fired);
	}
	if (p->fired.rule == NULL || p->done || is(p, SNDL_FAULT_CORRUPT)) /* snd_corrupt_message changes the byte */
		return false;
	*out = SND_BLOCKED;
	if (is(p, SNDL_FAULT_DELAY))
		return !delay_is_over(p);
	p->done = true;
	if (is(p, SNDL_FAULT_FAIL)) {
		const snd_status s = p->fired.rule->status;
		const struct snd_fault_text text = snd_describe_fault(&p->fired);
		snd_complete_receive(ep, r, s, 0, 0);
		snd_fail_serving(ep, SND_REMOTE_ERROR, s, "serve: %s", text.text);
		*out = SND_EXECUTED;
		return true;
	}
	disrupt(ep, &p->fired, "receive", ep->receive_cq);
	return ep->state == SND_QP_FAILED || snd_has_overrun(ep);
}

void snd_corrupt_message(struct snd_endpoint *ep, struct snd_receive *r, uint64_t bytes)
{
	struct snd_pending_fault *p = &ep->message_fault;
	if (!is(p, SNDL_FAULT_CORRUPT) || p->done || p->fired.rule->offset >= bytes)
		return;
	p->done = true;
	corrupt(ep, snd_entries_of(r), r->count, p->fired.rule);
}

void snd_fault_at_receive_end(struct snd_endpoint *ep, struct snd_receive *r, snd_status s, uint64_t bytes)
{
	if (s == SND_SUCCESS)
		snd_corrupt_message(ep, r, bytes);
	ep->message_fault = (struct snd_pending_fault){.fired = {NULL, 0}};
	ep->message_asked = false;
}

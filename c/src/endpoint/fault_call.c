/* The effect of fault rules on calls. endpoint/internal/mode/fault does the same. TWIN endpoint/internal/mode/fault/calls.go. */
#include <inttypes.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cm_ports.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/fault.h"
#include "endpoint/progress_wait.h"

/* late_call is a call whose delay ends early if another thread closes o, or cancels the calls of connector o. */
struct late_call {
	struct snd_object *o;
	uint32_t cancels; /* when it began */
};

static uint32_t cancels_of(struct snd_object *o) { return o->type == SND_TYPE_CONNECTOR ? SND_OF(o, struct snd_connector, object)->cancels : 0; }

static bool is_canceled(void *arg)
{
	struct late_call *l = arg;
	return snd_is_closed(l->o) || cancels_of(l->o) != l->cancels;
}

/* delay lets a call begin later. */
static snd_status delay(struct snd_object *o, const char *op, uint64_t nanoseconds, int64_t *timeout)
{
	const int64_t whole = nanoseconds < INT64_MAX ? (int64_t)nanoseconds : INT64_MAX;
	const bool late = timeout != NULL && *timeout >= 0 && *timeout < whole;
	struct late_call l = {o, cancels_of(o)};
	snd_hold(o);
	snd_status s = snd_wait(snd_fabric_of(o), late ? *timeout : whole, is_canceled, NULL, &l, &(struct snd_call){.op = op});
	if (snd_is_closed(o))
		s = snd_fail(SND_CANCELED, "%s: another thread has closed the handle meanwhile", op);
	else if (is_canceled(&l))
		s = snd_fail(SND_CANCELED, "%s: the call was cancelled", op);
	else if (s != SND_IO_TIMEOUT)
		s = snd_fail(SND_CANCELED, "%s: the fabric was closed", op);
	else if (late)
		s = snd_fail(SND_IO_TIMEOUT, "%s: a fault rule has delayed the call beyond its timeout", op);
	else
		s = SND_SUCCESS;
	snd_let_go(o);
	if (s == SND_SUCCESS && timeout != NULL && *timeout >= 0)
		*timeout -= whole;
	return s;
}

snd_status snd_fault_in_call(struct snd_object *o, const char *op, struct snd_fault_event e, int64_t *timeout)
{
	struct snd_fabric *f = snd_fabric_of(o);
	if (f->faults == NULL)
		return SND_SUCCESS;
	e.phase = SNDL_FAULT_AT_POST;
	const struct snd_fired fired = snd_next_fault(f, &e);
	if (fired.rule == NULL)
		return SND_SUCCESS;
	const char *why = ": the fault plan asks for it: change the rule if you do not want it";
	switch (fired.rule->action) {
	case SNDL_FAULT_FAIL: return snd_fail(fired.rule->status, "%s: %s%s", op, snd_describe_fault(&fired).text, why);
	case SNDL_FAULT_REFUSE: return snd_fail(SND_CONNECTION_REFUSED, "%s: %s%s", op, snd_describe_fault(&fired).text, why);
	case SNDL_FAULT_EXHAUST: return snd_fail(SND_NO_MEMORY, "%s: %" PRIu64 " bytes: %s%s", op, e.size, snd_describe_fault(&fired).text, why);
	case SNDL_FAULT_DELAY: return delay(o, op, fired.rule->delay, timeout);
	default: snd_signal_self(&fired); return SND_SUCCESS;
	}
}

snd_status snd_fault_in_connect(struct snd_connector *c, const char *op, struct snd_endpoint *ep, snd_address to, int64_t *timeout)
{
	struct snd_fabric *f = c->object.fabric;
	struct snd_peer peer;
	bool known;
	if (f->faults == NULL || to.port == 0) /* no process listens at port 0: with it a job checks that a rank of another host has not left */
		return SND_SUCCESS;
	const bool found = snd_peer_at(f, to.host, &peer, &known);
	snd_status s = snd_fault_in_call(&c->object, op, (struct snd_fault_event){.operation = SNDL_FAULT_CONNECT, .peer = found ? snd_rank_of(f, peer.id) : -1,
		.endpoint = snd_belongs(f, ep, SND_TYPE_ENDPOINT) ? ep->number : 0}, timeout);
	const bool unbinds = s == SND_CONNECTION_REFUSED || s == SND_NETWORK_UNREACHABLE || s == SND_HOST_UNREACHABLE || s == SND_IO_TIMEOUT;
	if (unbinds && !snd_is_closed(&c->object) && c->phase == SND_PHASE_NEW)
		snd_release_address(c);
	return s;
}

snd_status snd_fault_in_phase(struct snd_connector *c, const char *op, uint32_t operation, struct snd_endpoint *ep, int64_t *timeout)
{
	struct snd_fabric *f = c->object.fabric;
	const enum snd_phase want = operation == SNDL_FAULT_ACCEPT ? SND_PHASE_REQUESTED : operation == SNDL_FAULT_DISCONNECT ? SND_PHASE_CONNECTED : SND_PHASE_ACCEPTED;
	if (f->faults == NULL || c->phase != want)
		return SND_SUCCESS; /* in another phase the call fails by itself */
	snd_status s = snd_fault_in_call(&c->object, op, (struct snd_fault_event){.operation = operation, .peer = snd_rank_of(f, c->conn->peer.id),
		.endpoint = snd_belongs(f, ep, SND_TYPE_ENDPOINT) ? ep->number : 0}, timeout);
	const bool ends = s == SND_CONNECTION_ABORTED || s == SND_CONNECTION_REFUSED || s == SND_IO_TIMEOUT;
	if (!ends || snd_is_closed(&c->object) || c->phase != want)
		return s;
	if (operation == SNDL_FAULT_ACCEPT) {
		snd_refuse(c->conn);
		snd_change_phase(c, SND_EVENT_ENDS);
	} else if (operation == SNDL_FAULT_COMPLETE_CONNECT) {
		(void)snd_withdraw(c, NULL, 0);
	} else if (c->ep != NULL) {
		snd_terminate(c->ep, SND_CONNECTION_ABORTED, "%s: a fault rule has ended the disconnect", op);
	}
	return s;
}

bool snd_fault_refuses(const struct snd_connection *c)
{
	struct snd_fabric *f = c->fabric;
	if (f->faults == NULL)
		return false;
	const struct snd_fired fired = snd_next_fault(f, &(struct snd_fault_event){SNDL_FAULT_CONNECTION_REQUEST, SNDL_FAULT_AT_POST, snd_rank_of(f, c->peer.id), 0, 0, 0});
	if (fired.rule == NULL)
		return false;
	snd_signal_self(&fired);
	return fired.rule->action == SNDL_FAULT_REFUSE;
}

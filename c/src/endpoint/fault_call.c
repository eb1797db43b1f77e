/* The effect of fault rules on calls. endpoint/internal/mode/fault does the same. TWIN endpoint/internal/mode/fault/calls.go. */
#include <inttypes.h>
#include <string.h>

#include "endpoint/cm_connector.h"
#include "endpoint/fault.h"
#include "endpoint/hook.h"
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

static uint32_t operation_of(const char *op)
{
	static const struct {
		const char *op;
		uint32_t operation;
	} calls[] = {{"connect", SNDL_FAULT_CONNECT}, {"complete connect", SNDL_FAULT_COMPLETE_CONNECT}, {"accept", SNDL_FAULT_ACCEPT},
		{"disconnect", SNDL_FAULT_DISCONNECT}, {"listen", SNDL_FAULT_LISTEN}, {"notify", SNDL_FAULT_NOTIFY}, {"allocate memory region", SNDL_FAULT_ALLOCATE},
		{"register", SNDL_FAULT_REGISTER}, {"create window", SNDL_FAULT_CREATE_WINDOW}, {"create completion queue", SNDL_FAULT_CREATE_QUEUE},
		{"create endpoint", SNDL_FAULT_CREATE_ENDPOINT}};
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
		if (strcmp(calls[i].op, op) == 0)
			return calls[i].operation;
	return SNDL_FAULT_CREATE_ENDPOINT + 1; /* no rule is about it */
}

snd_status snd_fault_before_call(const struct snd_new_call *c)
{
	const char *op = c->op;
	const struct snd_fired fired = snd_next_fault(snd_fabric_of(c->object),
		&(struct snd_fault_event){operation_of(op), SNDL_FAULT_AT_POST, c->peer, c->endpoint, 0, c->size});
	if (fired.rule == NULL)
		return SND_SUCCESS;
	const char *why = ": the fault plan asks for it: change the rule if you do not want it";
	switch (fired.rule->action) {
	case SNDL_FAULT_FAIL: return snd_fail(fired.rule->status, "%s: %s%s", op, snd_describe_fault(&fired).text, why);
	case SNDL_FAULT_REFUSE: return snd_fail(SND_CONNECTION_REFUSED, "%s: %s%s", op, snd_describe_fault(&fired).text, why);
	case SNDL_FAULT_EXHAUST: return snd_fail(SND_NO_MEMORY, "%s: %" PRIu64 " bytes: %s%s", op, c->size, snd_describe_fault(&fired).text, why);
	case SNDL_FAULT_DELAY: return delay(c->object, op, fired.rule->delay, c->timeout);
	default: snd_signal_self(&fired); return SND_SUCCESS;
	}
}

bool snd_fault_refuses(const struct snd_connection *c)
{
	struct snd_fabric *f = c->fabric;
	const struct snd_fired fired = snd_next_fault(f, &(struct snd_fault_event){SNDL_FAULT_CONNECTION_REQUEST, SNDL_FAULT_AT_POST, snd_rank_of(f, c->peer.id), 0, 0, 0});
	if (fired.rule == NULL)
		return false;
	snd_signal_self(&fired);
	return fired.rule->action == SNDL_FAULT_REFUSE;
}

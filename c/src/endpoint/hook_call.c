/* Calls that the hook of a fabric is asked about. TWIN endpoint/hook_call.go. */
#include "endpoint/cm_connection.h"
#include "endpoint/cm_connector.h"
#include "endpoint/cm_ports.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/hook.h"

static snd_status ask(struct snd_connector *c, const char *op, int32_t peer, struct snd_endpoint *ep, int64_t *timeout)
{
	struct snd_fabric *f = c->object.fabric;
	return f->call_hook->before(&(struct snd_new_call){&c->object, op, peer, 0, snd_belongs(f, ep, SND_TYPE_ENDPOINT) ? ep->number : 0, timeout});
}

snd_status snd_before_connect(struct snd_connector *c, const char *op, struct snd_endpoint *ep, snd_address to, int64_t *timeout)
{
	struct snd_fabric *f = c->object.fabric;
	struct snd_peer peer;
	bool known;
	if (f->call_hook == NULL || to.port == 0) /* no process listens at port 0: with it a job checks that a rank of another host has not left */
		return SND_SUCCESS;
	const snd_status s = ask(c, op, snd_peer_at(f, to.host, &peer, &known) ? snd_rank_of(f, peer.id) : -1, ep, timeout);
	const bool unbinds = s == SND_CONNECTION_REFUSED || s == SND_NETWORK_UNREACHABLE || s == SND_HOST_UNREACHABLE || s == SND_IO_TIMEOUT;
	if (unbinds && !snd_is_closed(&c->object) && c->phase == SND_PHASE_NEW)
		snd_release_address(c);
	return s;
}

snd_status snd_before_phase_call(struct snd_connector *c, const char *op, enum snd_phase want, struct snd_endpoint *ep, int64_t *timeout)
{
	struct snd_fabric *f = c->object.fabric;
	if (f->call_hook == NULL || c->phase != want)
		return SND_SUCCESS; /* in another phase the call fails by itself */
	const snd_status s = ask(c, op, snd_rank_of(f, c->conn->peer.id), ep, timeout);
	const bool ends = s == SND_CONNECTION_ABORTED || s == SND_CONNECTION_REFUSED || s == SND_IO_TIMEOUT;
	if (!ends || snd_is_closed(&c->object) || c->phase != want)
		return s;
	if (want == SND_PHASE_REQUESTED) {
		snd_refuse(c->conn);
		snd_change_phase(c, SND_EVENT_ENDS);
	} else if (want == SND_PHASE_ACCEPTED) {
		(void)snd_withdraw(c, NULL, 0);
	} else if (c->ep != NULL) {
		snd_terminate(c->ep, SND_CONNECTION_ABORTED, "%s: a fault rule has ended the disconnect", op);
	}
	return s;
}

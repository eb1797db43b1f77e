/* The active side withdraws a connect that the passive side has accepted, and its endpoint sends a message to another peer before
 * the first peer notices. The first peer does not take it from the ring that it has attached to. */
#include "two_members.h"

static snd_connector *connector_of(snd_adapter *adapter)
{
	snd_connector *c;
	OK(snd_connector_create(adapter, &c));
	return c;
}

static void finish(snd_connector *c)
{
	snd_status s;
	while ((s = snd_connector_finish(c)) == SND_DEVICE_BUSY)
		;
	OK(s);
}

/* accept_with begins to accept the next request with a new endpoint, which has a receive of the context. */
static snd_endpoint *accept_with(uint64_t context)
{
	snd_endpoint *ep;
	OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq}, &ep));
	OK(snd_endpoint_receive(ep, context, NULL, 0));
	OK(snd_listener_request(listener, 10 * SECOND, &b.connector));
	OK(snd_connector_start_accept(b.connector, ep, NULL));
	return ep;
}

int main(void)
{
	snd_address to;
	open_members_with((snd_fabric_options){.progress = SND_PROGRESS_MANUAL});
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_cq_create(b.adapter, 64, &b.cq));
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq}, &a.ep));
	OK(snd_listener_address(listener, &to));
	a.connector = connector_of(a.adapter);
	OK(snd_connector_start_connect(a.connector, a.ep, to, NULL));
	accept_with(7);
	snd_connector *first = b.connector;
	OK(snd_connector_close(a.connector));

	a.connector = connector_of(a.adapter);
	OK(snd_connector_start_connect(a.connector, a.ep, to, NULL));
	accept_with(8);
	finish(a.connector);
	OK(snd_connector_complete(a.connector));
	finish(b.connector);
	OK(snd_endpoint_send(a.ep, 1, NULL, 0, 0));
	WANT(a.cq, SND_REQUEST_SEND, 1, SND_SUCCESS);

	CHECK(snd_connector_finish(first) == SND_CONNECTION_REFUSED);
	WANT(b.cq, SND_REQUEST_RECEIVE, 7, SND_CANCELED);
	WANT(b.cq, SND_REQUEST_RECEIVE, 8, SND_SUCCESS);
	close_members();
	return 0;
}

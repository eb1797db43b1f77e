/* A connector after calls that failed. */
#include "two_members.h"

enum { PORT = 77 };

static void bind_port(void) { OK(snd_connector_bind(a.connector, (snd_address){0, PORT, 0})); }

/* fails_unbound: the connect fails and leaves the connector without an address, so that the same port can be bound, here and by another one. */
static void fails_unbound(snd_address to, int64_t timeout, snd_status want)
{
	snd_address local;
	snd_connector *other;
	bind_port();
	bind_port(); /* nothing changes */
	CHECK(snd_connector_connect(a.connector, a.ep, to, NULL, timeout) == want);
	CHECK(snd_connector_local_address(a.connector, &local) == SND_CONNECTION_INVALID);
	OK(snd_connector_create(a.adapter, &other));
	OK(snd_connector_bind(other, (snd_address){0, PORT, 0}));
	CHECK(snd_connector_bind(a.connector, (snd_address){0, PORT, 0}) == SND_SHARING_VIOLATION);
	OK(snd_connector_close(other));
}

static void test_failed_connects(void)
{
	snd_address to;
	open_members(SND_EXECUTOR_AUTO);
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq}, &a.ep));
	OK(snd_connector_create(a.adapter, &a.connector));
	OK(snd_listener_address(listener, &to));
	fails_unbound(to, SECOND / 100, SND_IO_TIMEOUT); /* nothing answers */
	fails_unbound((snd_address){to.host + 9, to.port, 0}, SECOND, SND_HOST_UNREACHABLE);
	fails_unbound((snd_address){5, to.port, 0}, SECOND, SND_NETWORK_UNREACHABLE);
	OK(snd_listener_close(listener));
	fails_unbound(to, 10 * SECOND, SND_CONNECTION_REFUSED);
	OK(snd_connector_close(a.connector));
	OK(snd_endpoint_close(a.ep));
	OK(snd_cq_close(a.cq));
	close_members();
}

/* With a weak order, an adapter takes less private data, of each call that passes some. */
static void test_private_data(void)
{
	static const char data[512];
	snd_adapter_info info;
	snd_address to;
	open_members_with((snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO, .weak_order = 1});
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq}, &a.ep));
	OK(snd_connector_create(a.adapter, &a.connector));
	OK(snd_listener_address(listener, &to));
	OK(snd_connector_start_connect(a.connector, a.ep, to, NULL));
	OK(snd_listener_request(listener, 10 * SECOND, &b.connector));
	OK(snd_adapter_query(b.adapter, &info));
	CHECK(info.max_callee_data < sizeof data);
	CHECK(snd_connector_reject(b.connector, data, info.max_callee_data + 1) == SND_INVALID_BUFFER_SIZE);
	OK(snd_connector_reject(b.connector, data, info.max_callee_data)); /* the connector can still be used */
	snd_status s;
	while ((s = snd_connector_finish(a.connector)) == SND_DEVICE_BUSY)
		;
	CHECK(s == SND_CONNECTION_REFUSED);
	OK(snd_connector_close(a.connector));
	OK(snd_connector_close(b.connector));
	OK(snd_endpoint_close(a.ep));
	OK(snd_cq_close(a.cq));
	OK(snd_listener_close(listener));
	close_members();
}

int main(void)
{
	test_failed_connects();
	test_private_data();
	return 0;
}

/* The end of a connection at the other side: after a disconnect, and after a close. */
#include <stdbool.h>

#include "two_members.h"

static void says(snd_endpoint *ep, snd_status want, const char *part)
{
	CHECK(snd_endpoint_error(ep) == want);
	if (strstr(snd_last_error(), part) == NULL) {
		fprintf(stderr, "wanted \"%s\": %s\n", part, snd_last_error());
		exit(1);
	}
}

static void *disconnect_a(void *status)
{
	*(snd_status *)status = snd_connector_disconnect(a.connector, 10 * SECOND);
	return NULL;
}

/* begin_disconnect connects, posts two receives at b, sends one message, and lets a disconnect in a thread. */
static pthread_t begin_disconnect(snd_status *ended)
{
	pthread_t thread;
	connect_members(NULL);
	OK(snd_endpoint_receive(b.ep, 1, NULL, 0));
	OK(snd_endpoint_receive(b.ep, 2, NULL, 0));
	OK(snd_endpoint_send(a.ep, 3, NULL, 0, 0));
	WANT(a.cq, SND_REQUEST_SEND, 3, SND_SUCCESS);
	CHECK(pthread_create(&thread, NULL, disconnect_a, ended) == 0);
	return thread;
}

/* The messages of a peer come before its disconnect. Then a wait has nothing, and snd_endpoint_error says why. The receive
 * that is left gets its result when this side disconnects, too. */
static void test_disconnect(void)
{
	snd_status ended;
	pthread_t thread = begin_disconnect(&ended);
	WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
	snd_result r;
	uint32_t n;
	while (snd_cq_wait(b.cq, &r, 1, SECOND / 100, &n) == SND_IO_TIMEOUT && snd_endpoint_error(b.ep) == SND_SUCCESS)
		;
	says(b.ep, SND_CONNECTION_DISCONNECTED, "the peer has disconnected");
	CHECK(snd_cq_poll(b.cq, &r, 1) == 0);
	OK(snd_connector_wait_disconnect(b.connector, 10 * SECOND));
	OK(snd_connector_disconnect(b.connector, 10 * SECOND));
	says(b.ep, SND_CONNECTION_DISCONNECTED, "both sides have disconnected");
	CHECK(pthread_join(thread, NULL) == 0);
	OK(ended);
	WANT(b.cq, SND_REQUEST_RECEIVE, 2, SND_CANCELED);
	disconnect_members();
}

/* A side that closes instead ends the peer's call, and the peer's cause stays the disconnect. */
static void test_close_instead(void)
{
	snd_status ended;
	pthread_t thread = begin_disconnect(&ended);
	OK(snd_connector_wait_disconnect(b.connector, 10 * SECOND));
	OK(snd_endpoint_close(b.ep));
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(ended == SND_CONNECTION_ABORTED);
	says(a.ep, SND_CONNECTION_DISCONNECTED, "disconnected gracefully");
	OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq}, &b.ep)); /* for the end */
	disconnect_members();
}

/* A close says whether the closing side had requests outstanding. */
static void test_close(bool whole)
{
	connect_members(NULL);
	OK(snd_endpoint_receive(a.ep, 1, NULL, 0));
	OK(snd_endpoint_send(b.ep, 2, NULL, 0, SND_SILENT_SUCCESS));
	WANT(a.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
	if (!whole)
		OK(snd_endpoint_send(b.ep, 3, NULL, 0, 0)); /* no receive is posted for it */
	OK(snd_connector_close(b.connector));
	OK(snd_connector_wait_disconnect(a.connector, 10 * SECOND));
	says(a.ep, SND_CONNECTION_ABORTED, whole ? "close: the connector was closed" : "close: requests were outstanding (1) when the connector was closed");
	OK(snd_connector_create(b.adapter, &b.connector)); /* for the end */
	disconnect_members();
}

/* A side that has not disconnected when the time of the peer is over cannot do so, and its cause does not advise it to. */
static void test_too_late(void)
{
	snd_status ended;
	pthread_t thread = begin_disconnect(&ended);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(ended == SND_IO_TIMEOUT);
	WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
	WANT(b.cq, SND_REQUEST_RECEIVE, 2, SND_CANCELED);
	says(b.ep, SND_CONNECTION_DISCONNECTED, "the peer has disconnected, and the connection ended before this side did: connect a new endpoint");
	CHECK(snd_connector_disconnect(b.connector, SECOND) == SND_CONNECTION_ABORTED);
	disconnect_members();
}

int main(void)
{
	for (int i = 0; i < 2; i++) {
		open_members_with((snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO,
			.executor = i == 0 ? SND_EXECUTOR_AUTO : SND_EXECUTOR_TARGET});
		set_timeouts(SND_FOREVER, SND_DEFAULT_TIMEOUT);
		test_disconnect();
		test_close_instead();
		test_close(true);
		test_close(false);
		close_members();
	}
	open_members_with((snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO});
	set_timeouts(SND_DEFAULT_TIMEOUT, SECOND / 20);
	test_too_late();
	close_members();
	puts("ends: ok");
	return 0;
}

/* A wait for a free slot of the initiator queue. The tests of endpoint/qp_slot_test.go are the same in Go. */
#include <unistd.h>

#include "shm/fabric.h"
#include "two_members.h"

enum { DEPTH = 64 };

/* fill_queue posts Sends until the queue is full, and connects before. */
static void fill_queue(uint32_t flags)
{
	int n = 0;
	connect_members(NULL);
	while (snd_endpoint_send(a.ep, 1, NULL, 0, flags) == SND_SUCCESS)
		n++;
	CHECK(n == DEPTH && snd_endpoint_send(a.ep, 1, NULL, 0, flags) == SND_NO_MORE_ENTRIES);
}

static void receive(int n)
{
	while (n-- > 0)
		OK(snd_endpoint_receive(b.ep, 1, NULL, 0));
}

static _Atomic snd_status status;

static void *wait_slot(void *unused)
{
	(void)unused;
	status = snd_endpoint_wait_slot(a.ep, 10 * SECOND);
	return NULL;
}

static pthread_t start(void)
{
	pthread_t t;
	status = SND_INTERNAL_ERROR;
	CHECK(pthread_create(&t, NULL, wait_slot, NULL) == 0);
	return t;
}

/* await_wait returns when the call of the thread waits, which keeps the fabric. */
static void await_wait(void)
{
	for (bool waits = false; !waits;) {
		usleep(1000);
		snd_lock(a.fabric);
		waits = a.fabric->calls > 0;
		snd_unlock(a.fabric);
	}
}

static void want(pthread_t t, snd_status s)
{
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(status == s);
}

/* The wait ends when another thread takes a result, whether it spins or sleeps then. */
static void test_result_taken(useconds_t pause)
{
	fill_queue(0);
	CHECK(snd_endpoint_wait_slot(a.ep, 0) == SND_IO_TIMEOUT);
	receive(DEPTH);
	CHECK(snd_endpoint_wait_slot(a.ep, SECOND / 100) == SND_IO_TIMEOUT && strstr(snd_last_error(), "take results") != NULL);
	const pthread_t t = start();
	usleep(pause);
	WANT(a.cq, SND_REQUEST_SEND, 1, SND_SUCCESS);
	want(t, SND_SUCCESS);
	OK(snd_endpoint_wait_slot(a.ep, 0));
	OK(snd_endpoint_send(a.ep, 1, NULL, 0, 0));
	CHECK(snd_endpoint_send(a.ep, 1, NULL, 0, 0) == SND_NO_MORE_ENTRIES);
	disconnect_members();
}

/* A request without a result frees its slot when it succeeds. No thread of the program polls. */
static void test_silent_success(void)
{
	fill_queue(SND_SILENT_SUCCESS);
	const pthread_t t = start();
	await_wait();
	usleep(20000);
	CHECK(status == SND_INTERNAL_ERROR);
	receive(1);
	want(t, SND_SUCCESS);
	disconnect_members();
}

/* The wait submits deferred requests, which would never free their slots. */
static void test_deferred(void)
{
	connect_members(NULL);
	receive(1);
	for (int i = 0; i < DEPTH; i++)
		OK(snd_endpoint_send(a.ep, 1, NULL, 0, SND_DEFER | SND_SILENT_SUCCESS));
	OK(snd_endpoint_wait_slot(a.ep, 10 * SECOND));
	disconnect_members();
}

static void test_close(void)
{
	fill_queue(0);
	const pthread_t t = start();
	await_wait();
	usleep(20000);
	CHECK(status == SND_INTERNAL_ERROR);
	OK(snd_endpoint_close(a.ep));
	want(t, SND_CANCELED);
	CHECK(snd_endpoint_wait_slot(a.ep, 0) == SND_INVALID_HANDLE);
	OK(snd_endpoint_close(b.ep));
	OK(snd_connector_close(a.connector));
	OK(snd_connector_close(b.connector));
	OK(snd_cq_close(a.cq));
	OK(snd_cq_close(b.cq));
}

int main(void)
{
	open_members(SND_EXECUTOR_AUTO);
	set_timeouts(SND_FOREVER, SND_DEFAULT_TIMEOUT);
	test_result_taken(0);
	test_result_taken(50000);
	test_silent_success();
	test_deferred();
	test_close();
	close_members();
	return 0;
}

/* The time that a disconnect gives the peer: 10 s if the options name none, and no end with SND_FOREVER. The clock of this program can
 * jump, so that the test need not wait. */
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "shm/fabric.h"
#include "two_members.h"

static _Atomic time_t jump; /* in seconds, of all clocks */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	const int result = __real_clock_gettime(clock, t);
	if (result == 0)
		t->tv_sec += jump;
	return result;
}

static _Atomic bool returned;

static char text[256];

static void *disconnect(void *status)
{
	*(snd_status *)status = snd_connector_disconnect(a.connector, SND_FOREVER);
	snprintf(text, sizeof text, "%s", snd_last_error());
	returned = true;
	return NULL;
}

static void pause_for_ms(long ms) { nanosleep(&(struct timespec){0, ms * 1000000}, NULL); }

/* begin_disconnect lets a disconnect, and a peer that does not, until the clock has jumped. */
static pthread_t begin_disconnect(int64_t limit, snd_executor executor, snd_status *status)
{
	pthread_t thread;
	returned = false;
	open_members_with((snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO, .executor = executor});
	set_timeouts(SND_DEFAULT_TIMEOUT, limit);
	connect_members(NULL);
	CHECK(pthread_create(&thread, NULL, disconnect, status) == 0);
	OK(snd_connector_wait_disconnect(b.connector, SND_FOREVER)); /* the disconnect has begun */
	pause_for_ms(50);
	CHECK(!returned);
	jump += 3600;
	return thread;
}

static void end_disconnect(pthread_t thread)
{
	CHECK(pthread_join(thread, NULL) == 0);
	disconnect_members();
	OK(snd_listener_close(listener));
	close_members();
}

static void test_limit(int64_t limit, snd_executor executor, const char *within)
{
	snd_status status = SND_SUCCESS;
	const pthread_t thread = begin_disconnect(limit, executor, &status);
	while (!returned)
		pause_for_ms(1);
	end_disconnect(thread);
	CHECK(status == SND_IO_TIMEOUT && strstr(text, within) != NULL);
}

static void test_forever(snd_executor executor)
{
	snd_status status = SND_IO_TIMEOUT;
	const pthread_t thread = begin_disconnect(SND_FOREVER, executor, &status);
	for (int i = 0; i < 20; i++) { /* calls at both sides check limits */
		OK(snd_fabric_progress(a.fabric));
		OK(snd_fabric_progress(b.fabric));
		pause_for_ms(10);
	}
	CHECK(!returned);
	OK(snd_connector_disconnect(b.connector, SND_FOREVER));
	end_disconnect(thread);
	CHECK(status == SND_SUCCESS);
}

/* An endpoint that is closed during a disconnect aborts it, also if its memory is freed before the disconnect is finished. */
static void test_closed_endpoint(bool is_freed)
{
	open_members(SND_EXECUTOR_AUTO);
	connect_members(NULL);
	OK(snd_connector_start_disconnect(a.connector));
	OK(snd_endpoint_close(a.ep));
	OK(snd_connector_wait_disconnect(b.connector, SND_FOREVER));
	if (is_freed)
		OK(snd_endpoint_close(b.ep)); /* then nothing refers to the endpoint of a */
	for (bool freed = !is_freed; !freed;) {
		OK(snd_fabric_progress(a.fabric));
		snd_lock(a.fabric);
		freed = snd_list_is_empty(&a.fabric->closing);
		snd_unlock(a.fabric);
	}
	CHECK(snd_connector_finish(a.connector) == SND_CONNECTION_ABORTED);
	if (!is_freed)
		OK(snd_endpoint_close(b.ep));
	OK(snd_connector_close(a.connector));
	OK(snd_connector_close(b.connector));
	OK(snd_listener_close(listener));
	close_members();
}

/* After the messages that the peer has sent before it disconnects, a wait with the endpoint ends, although a receive is outstanding. */
static void test_wait_one(snd_executor executor)
{
	snd_mr *source, *sink;
	open_members(executor);
	OK(snd_mr_allocate(a.adapter, 8, 0, &source));
	OK(snd_mr_allocate(b.adapter, 8, SND_ALLOW_LOCAL_WRITE, &sink));
	connect_members(NULL);
	const snd_sge from = {snd_mr_buffer(source), 8, snd_mr_local_token(source)}, to = {snd_mr_buffer(sink), 8, snd_mr_local_token(sink)};
	OK(snd_endpoint_receive(b.ep, 1, &to, 1));
	OK(snd_endpoint_receive(b.ep, 2, &to, 1));
	CHECK(snd_cq_wait_one(b.cq, a.ep, 0, NULL) == SND_INVALID_HANDLE); /* of another fabric */
	CHECK(snd_cq_wait_one(b.cq, b.ep, SECOND / 100, NULL) == SND_IO_TIMEOUT);
	OK(snd_endpoint_send(a.ep, 1, &from, 1, 0));
	OK(snd_cq_wait_one(a.cq, a.ep, SND_FOREVER, NULL));
	OK(snd_connector_start_disconnect(a.connector));
	OK(snd_cq_wait_one(b.cq, b.ep, SND_FOREVER, NULL));
	CHECK(snd_cq_wait_one(b.cq, b.ep, SND_FOREVER, NULL) == SND_CONNECTION_DISCONNECTED && strstr(snd_last_error(), "the peer has disconnected") != NULL);
	OK(snd_connector_disconnect(b.connector, SND_FOREVER));
	WANT(b.cq, SND_REQUEST_RECEIVE, 2, SND_CANCELED);
	CHECK(snd_cq_wait_one(b.cq, b.ep, SND_FOREVER, NULL) == SND_CONNECTION_DISCONNECTED);
	OK(snd_connector_finish(a.connector));
	disconnect_members();
	OK(snd_mr_close(source, SND_FOREVER));
	OK(snd_mr_close(sink, SND_FOREVER));
	OK(snd_listener_close(listener));
	close_members();
}

static void *wait_one(void *status)
{
	*(snd_status *)status = snd_cq_wait_one(a.cq, a.ep, SND_FOREVER, NULL);
	return NULL;
}

/* The wait also ends when another thread closes the endpoint. */
static void test_wait_one_of_closed(void)
{
	pthread_t thread;
	snd_status status = SND_SUCCESS;
	open_members(SND_EXECUTOR_AUTO);
	connect_members(NULL);
	CHECK(pthread_create(&thread, NULL, wait_one, &status) == 0);
	pause_for_ms(20); /* else it begins after the close, with an invalid handle */
	OK(snd_endpoint_close(a.ep));
	CHECK(pthread_join(thread, NULL) == 0 && (status == SND_CANCELED || status == SND_INVALID_HANDLE));
	OK(snd_endpoint_close(b.ep));
	OK(snd_connector_close(a.connector));
	OK(snd_connector_close(b.connector));
	OK(snd_listener_close(listener));
	close_members();
}

int main(void)
{
	alarm(100); /* a hang ends the test */
	test_wait_one(SND_EXECUTOR_AUTO);
	test_wait_one(SND_EXECUTOR_TARGET);
	test_wait_one_of_closed();
	test_closed_endpoint(false);
	test_closed_endpoint(true);
	for (int i = 0; i < 2; i++) {
		const snd_executor executor = i == 0 ? SND_EXECUTOR_AUTO : SND_EXECUTOR_TARGET;
		test_limit(SND_DEFAULT_TIMEOUT, executor, "within 10 s");
		test_limit(3000 * SECOND, executor, "within 3000 s");
		test_forever(executor);
	}
	puts("ok");
	return 0;
}

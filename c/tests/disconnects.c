/* The time that a disconnect gives the peer: 10 s if the options name none, and no end with SND_FOREVER. The clock of this program can
 * jump, so that the test need not wait. */
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

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

int main(void)
{
	alarm(100); /* a hang ends the test */
	for (int i = 0; i < 2; i++) {
		const snd_executor executor = i == 0 ? SND_EXECUTOR_AUTO : SND_EXECUTOR_TARGET;
		test_limit(SND_DEFAULT_TIMEOUT, executor, "within 10 s");
		test_limit(3000 * SECOND, executor, "within 3000 s");
		test_forever(executor);
	}
	puts("ok");
	return 0;
}

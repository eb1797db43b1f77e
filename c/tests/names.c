/* Names of addresses in a fabric. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { MOST = 16, LONGEST = 64 };
#define SHORT INT64_C(1000000)
#define LONG INT64_C(60000000000)

static snd_address of(uint16_t port) { return (snd_address){0x7f4d0001, port, 0}; }

static void want(snd_fabric *f, const char *name, uint16_t port)
{
	snd_address a;
	OK(snd_fabric_lookup(f, name, LONG, &a));
	CHECK(a.host == 0x7f4d0001 && a.port == port && a.reserved == 0);
}

static void want_none(snd_fabric *f, const char *name, int64_t timeout)
{
	snd_address a = of(1);
	CHECK(snd_fabric_lookup(f, name, timeout, &a) == SND_IO_TIMEOUT);
	CHECK(a.host == 0 && a.port == 0);
}

static void test_two_members(const snd_fabric_options *options)
{
	snd_fabric *f, *g;
	char longest[LONGEST + 2] = {0}, name[16];
	memset(longest, 'x', LONGEST + 1);
	OK(snd_fabric_create(0, UINT64_C(1) << 28, options, &f));
	OK(snd_fabric_attach(snd_fabric_descriptor(f), -1, options, &g));
	want_none(f, "server", 0);
	want_none(f, "server", SHORT);
	OK(snd_fabric_publish(f, "server", of(1)));
	CHECK(snd_fabric_publish(f, longest, of(2)) == SND_INVALID_PARAMETER);
	longest[LONGEST] = 0;
	OK(snd_fabric_publish(f, longest, of(2)));
	CHECK(snd_fabric_publish(f, "server", of(3)) == SND_SHARING_VIOLATION);
	CHECK(snd_fabric_publish(g, "server", of(3)) == SND_SHARING_VIOLATION);
	OK(snd_fabric_publish(g, longest + 1, of(3)));
	want(f, longest + 1, 3);
	want(g, longest, 2);
	want(g, "server", 1);
	CHECK(snd_fabric_withdraw(g, "server") == SND_INVALID_PARAMETER);
	OK(snd_fabric_withdraw(f, "server"));
	CHECK(snd_fabric_withdraw(f, "server") == SND_INVALID_PARAMETER);
	want_none(g, "server", 0);
	for (int i = 0; i < MOST - 1; i++) {
		snprintf(name, sizeof name, "more-%d", i);
		OK(snd_fabric_publish(g, name, of(5)));
	}
	CHECK(snd_fabric_publish(g, "too-many", of(5)) == SND_INSUFFICIENT_RESOURCES);
	CHECK(snd_fabric_publish(f, "other", of(0)) == SND_INVALID_ADDRESS);
	CHECK(snd_fabric_publish(f, "other", (snd_address){0, 1, 0}) == SND_INVALID_ADDRESS);
	CHECK(snd_fabric_publish(f, "a b", of(1)) == SND_INVALID_PARAMETER && snd_fabric_publish(f, NULL, of(1)) == SND_INVALID_PARAMETER);
	OK(snd_fabric_close(g));
	want_none(f, longest + 1, 0);
	want(f, longest, 2);
	OK(snd_fabric_close(f));
}

/* test_processes: a client that looks first finds the listener of a server, and its name ends when the server is killed. */
static void test_processes(void)
{
	snd_fabric *f;
	char name[64];
	snd_address a;
	snprintf(name, sizeof name, "names-%d", (int)getpid());
	const pid_t server = fork();
	CHECK(server >= 0);
	if (server == 0) {
		snd_adapter *adapter;
		snd_listener *listener;
		OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, NULL, &f));
		OK(snd_adapter_open(f, &adapter));
		OK(snd_listener_create(adapter, &listener));
		OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
		OK(snd_listener_listen(listener, 0));
		OK(snd_listener_address(listener, &a));
		nanosleep(&(struct timespec){0, 50000000}, NULL); /* let the client look in vain */
		OK(snd_fabric_publish(f, "server", a));
		for (;;)
			pause();
	}
	OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, NULL, &f));
	OK(snd_fabric_lookup(f, "server", LONG, &a));
	CHECK(a.host != 0 && a.host != snd_fabric_address(f).host && a.port != 0);
	CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
	while (snd_fabric_lookup(f, "server", 0, &a) == SND_SUCCESS) { /* until the kernel has unlocked the member */
	}
	OK(snd_fabric_publish(f, "server", of(9)));
	want(f, "server", 9);
	OK(snd_fabric_close(f));
}

int main(void)
{
	test_processes(); /* first: a forked child cannot use what its parent has used */
	test_two_members(MANUAL);
	test_two_members(NULL);
	return 0;
}

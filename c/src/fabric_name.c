/* Joining a named fabric: the joiner's side of the protocol in shm/fabric_protocol.go. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "error.h"
#include "fabric.h"
#include "unix_socket.h"

enum { RECORD = 64, HELLO = 1, WELCOME = 2, WRONG_VERSION = 3, WRONG_USER = 4, PROTOCOL = 1, TIMEOUT_MS = 2000, TRIES = 5 };
#define FABRIC_MAGIC UINT64_C(0x4246444e54464f53) /* "SOFTNDFB" in memory order */

static void put(unsigned char *to, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		to[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t get(const unsigned char *from, int bytes)
{
	uint64_t v = 0;
	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)from[i] << (8 * i);
	return v;
}

/* ask asks a member for the arena. It returns its descriptor, or -1; again says whether to repeat the attempt. */
static int ask(const char *at, uint64_t id[2], bool *again, const char *op)
{
	*again = false;
	int s = snd_unix_dial(at, TIMEOUT_MS);
	if (s < 0) {
		*again = errno == EAGAIN;
		(void)snd_fail(SND_HOST_UNREACHABLE, errno == ECONNREFUSED ? "%s: no process holds this name in this network namespace (%s)" : "%s: %s", op, strerror(errno));
		return -1;
	}
	if (!snd_unix_peer_is_us(s)) {
		close(s);
		(void)snd_fail(SND_CONNECTION_REFUSED, "%s: the name belongs to another user", op);
		return -1;
	}
	unsigned char b[RECORD + 1] = {0};
	put(b, FABRIC_MAGIC, 8);
	put(b + 8, PROTOCOL, 4);
	put(b + 12, HELLO, 4);
	put(b + 16, SNDL_LAYOUT_VERSION, 4);
	put(b + 20, (uint64_t)geteuid(), 4);
	put(b + 24, SNDL_LAYOUT_HASH, 8);
	snprintf((char *)b + 48, 16, "libsoftnd %s", SOFTND_VERSION);
	int fds[2];
	size_t count = 0;
	ssize_t n = send(s, b, RECORD, MSG_NOSIGNAL) == RECORD ? snd_unix_receive(s, b, sizeof b, fds, 2, &count) : -1;
	*again = n <= 0;
	close(s);
	uint64_t status = n == RECORD && get(b, 8) == FABRIC_MAGIC && get(b + 8, 4) == PROTOCOL ? get(b + 12, 4) : 0;
	if (status == WELCOME && count == 2) {
		id[0] = get(b + 32, 8);
		id[1] = get(b + 40, 8);
		/* The second descriptor is the listening socket. This library does not answer later joiners yet. */
		close(fds[1]);
		return fds[0];
	}
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	if (status == WRONG_VERSION)
		(void)snd_fail(SND_NOT_SUPPORTED, "%s: the members of the fabric have another layout: build all programs with one release of softnd", op);
	else if (status == WRONG_USER)
		(void)snd_fail(SND_CONNECTION_REFUSED, "%s: the fabric belongs to another user", op);
	else
		(void)snd_fail(SND_HOST_UNREACHABLE, "%s: the process that holds the name did not answer as a member", op);
	return -1;
}

static bool is_valid_name(const char *name)
{
	size_t n = strlen(name);
	return n >= 1 && n <= 64 && strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

snd_status snd_fabric_open(const char *name, int32_t rank, const snd_fabric_options *options, snd_fabric **fabric)
{
	const char *op = "open fabric";
	if (fabric == NULL || name == NULL || !is_valid_name(name))
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s", op, fabric == NULL ? "fabric is NULL" : "want a name of 1 to 64 of A-Z a-z 0-9 . _ -");
	*fabric = NULL;
	struct snd_fabric *f;
	snd_status s = snd_fabric_begin(options, &f, op);
	if (s != SND_SUCCESS)
		return s;
	char at[100];
	snprintf(at, sizeof at, "softnd-fabric-%lu-%s", (unsigned long)geteuid(), name);
	uint64_t id[2] = {0, 0};
	bool again = true;
	int fd = -1;
	for (int i = 0; i < TRIES && again && fd < 0; i++)
		fd = ask(at, id, &again, op);
	if (fd < 0) {
		s = SND_HOST_UNREACHABLE; /* the text is that of ask */
	} else {
		s = snd_arena_attach(&f->arena, fd, snd_clock() + INT64_C(10000000000), op);
		close(fd);
		if (s == SND_SUCCESS && (f->arena.id[0] != id[0] || f->arena.id[1] != id[1]))
			s = snd_fail(SND_INVALID_PARAMETER, "%s: the arena in the reply is not the announced one", op);
	}
	return snd_fabric_finish(f, s, rank, fabric, op);
}

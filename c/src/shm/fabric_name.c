/* Named fabrics: both sides of the protocol in shm/fabric_protocol.go. TWIN shm/fabric_protocol.go. */
#include "shm/fabric_name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "encoding.h"
#include "linux/clock.h"
#include "linux/fork.h"
#include "linux/unix_socket.h"

enum { RECORD = 64, HELLO = 1, WELCOME = 2, WRONG_VERSION = 3, WRONG_USER = 4, PROTOCOL = 1, TIMEOUT_MS = 500, MOST_ACCEPTED = 256, STRANGER = SND_JOINERS - 1 /* the place of another user */ };
#define FABRIC_MAGIC UINT64_C(0x4246444e54464f53) /* "SOFTNDFB" in memory order */

/* fill makes a record of this process. */
static void fill(unsigned char b[RECORD], uint64_t status)
{
	memset(b, 0, RECORD);
	snd_put_number(b, FABRIC_MAGIC, 8);
	snd_put_number(b + 8, PROTOCOL, 4);
	snd_put_number(b + 12, status, 4);
	snd_put_number(b + 16, SNDL_LAYOUT_VERSION, 4);
	snd_put_number(b + 20, (uint64_t)geteuid(), 4);
	snd_put_number(b + 24, SNDL_LAYOUT_HASH, 8);
	snprintf((char *)b + 48, 16, "%s", SOFTND_BUILD);
}

/* is_listener reports whether a descriptor is a listening socket under this name. */
static bool is_listener(int fd, const char *name)
{
	struct sockaddr_un at = {0};
	socklen_t n = sizeof at, size = sizeof(int);
	int listens = 0, type = 0;
	size_t length = strlen(name);
	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
		type == SOCK_SEQPACKET && getsockname(fd, (struct sockaddr *)&at, &n) == 0 && at.sun_family == AF_UNIX &&
		n == offsetof(struct sockaddr_un, sun_path) + 1 + length && at.sun_path[0] == 0 && memcmp(at.sun_path + 1, name, length) == 0;
}

/* listen_as takes the name, so that only one of several processes creates an arena; the others wait in the queue of the
 * socket. It returns -1 with errno. */
static int listen_as(const char *name)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	memcpy(at.sun_path + 1, name, strlen(name));
	int s = snd_unix_socket(SOCK_NONBLOCK);
	if (s >= 0 && (bind(s, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) != 0 || listen(s, SOMAXCONN) != 0)) {
		int e = errno;
		snd_fork_close(s);
		errno = e;
		return -1;
	}
	return s;
}

/* ask asks a member for the arena and the listening socket. It returns SND_IO_TIMEOUT if the attempt should be repeated, and
 * SND_HOST_UNREACHABLE if no process holds the name. */
static snd_status ask(const char *at, int fds[2], uint64_t id[2], const char *op)
{
	int s = snd_unix_dial(at, TIMEOUT_MS);
	if (s < 0 && (errno == EMFILE || errno == ENFILE))
		return snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: socket: %s", op, snd_errno_text(errno));
	if (s < 0 && errno == ECONNREFUSED)
		return SND_HOST_UNREACHABLE; /* not a failure: find creates the fabric */
	if (s < 0)
		return snd_fail(SND_IO_TIMEOUT, "%s: connect to a member: %s", op, snd_errno_text(errno));
	if (!snd_unix_peer_is_us(s)) {
		snd_fork_close(s);
		return snd_fail(SND_CONNECTION_REFUSED, "%s: the name belongs to another user", op);
	}
	unsigned char b[RECORD + 1];
	size_t count = 0;
	fill(b, HELLO);
	ssize_t n = send(s, b, RECORD, MSG_NOSIGNAL) == RECORD ? snd_unix_receive(s, b, sizeof b, fds, 2, &count) : -1;
	snd_fork_close(s);
	const bool member = n >= 12 && snd_get_number(b, 8) == FABRIC_MAGIC, known = member && n == RECORD && snd_get_number(b + 8, 4) == PROTOCOL;
	const uint64_t status = known ? snd_get_number(b + 12, 4) : 0;
	if (status == WELCOME && count == 2 && is_listener(fds[1], at)) {
		id[0] = snd_get_number(b + 32, 8);
		id[1] = snd_get_number(b + 40, 8);
		return SND_SUCCESS;
	}
	for (size_t i = 0; i < count; i++)
		snd_fork_close(fds[i]);
	char why[160];
	if (status == WRONG_VERSION) {
		snprintf(why, sizeof why, "their layout has version %" PRIu64 " and hash %#" PRIx64 ", this program's %u and %#" PRIx64, snd_get_number(b + 16, 4), snd_get_number(b + 24, 8), SNDL_LAYOUT_VERSION,
			(uint64_t)SNDL_LAYOUT_HASH);
		return snd_other_version("the members of the fabric contain", (const char *)b + 48, 16, why, op);
	}
	if (member && snd_get_number(b + 8, 4) != PROTOCOL) {
		snprintf(why, sizeof why, "another version of the fabric protocol: version %" PRIu64 ", this program uses %d", snd_get_number(b + 8, 4), PROTOCOL);
		return snd_other_version("the members of the fabric contain", "", 0, why, op);
	}
	if (status == WRONG_USER)
		return snd_fail(SND_CONNECTION_REFUSED, "%s: the fabric belongs to another user", op);
	if (n <= 0) /* the member has ended, or is stopped */
		return snd_fail(SND_IO_TIMEOUT, "%s: no member has answered", op);
	return snd_fail(SND_CONNECTION_REFUSED, "%s: the process that holds the name did not answer as a member", op);
}

static bool is_valid_name(const char *name)
{
	/* It reads no byte after one that is not allowed: a string of Fortran may have no end. */
	size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
	return n >= 1 && n <= 64 && name[n] == 0;
}

/* reply answers one joiner. It returns false if the joiner has not said anything yet. */
static bool reply(struct snd_fabric *f, int s)
{
	unsigned char b[RECORD + 1];
	ssize_t n = recv(s, b, sizeof b, MSG_DONTWAIT); /* the kernel discards descriptors that the joiner sends */
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 12 || snd_get_number(b, 8) != FABRIC_MAGIC)
		return true;
	const bool known = snd_get_number(b + 8, 4) == PROTOCOL;
	if (known && (n != RECORD || snd_get_number(b + 12, 4) != HELLO))
		return true;
	uint64_t status = WELCOME;
	if (!known || snd_get_number(b + 16, 4) != SNDL_LAYOUT_VERSION || snd_get_number(b + 24, 8) != SNDL_LAYOUT_HASH)
		status = WRONG_VERSION;
	if (known && !snd_unix_peer_is_us(s))
		status = WRONG_USER;
	fill(b, status);
	int fds[2] = {f->arena.fd, f->socket};
	union {
		char bytes[CMSG_SPACE(sizeof fds)];
		struct cmsghdr align;
	} control = {{0}};
	struct iovec data = {b, RECORD};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
	if (status == WELCOME && !(snd_arena_is_ours(&f->arena) && snd_is_still(f->socket, &f->socket_identity)))
		return true; /* the program has closed them; the joiner asks another member */
	if (status == WELCOME) {
		snd_put_number(b + 32, f->arena.id[0], 8);
		snd_put_number(b + 40, f->arena.id[1], 8);
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof fds);
		memcpy(CMSG_DATA(c), fds, sizeof fds);
	}
	(void)sendmsg(s, &m, MSG_NOSIGNAL | MSG_DONTWAIT); /* after a failure the joiner connects again */
	return true;
}

static void end_joiner(struct snd_joiner *j)
{
	close(j->socket);
	j->socket = -1;
}

/* accept_joiners reports whether there are any. If no place is free, the oldest joiner ends, so that silent ones do not keep out
 * the others. Those of other users share one place. */
static bool accept_joiners(struct snd_fabric *f, int64_t now)
{
	bool any = false;
	for (int i = 0; i < MOST_ACCEPTED; i++) {
		const int s = snd_above_standard(accept4(f->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
		if (s < 0)
			break;
		any = true;
		if (reply(f, s)) {
			close(s);
			continue;
		}
		struct snd_joiner *j = &f->joiners[snd_unix_peer_is_us(s) ? f->next_joiner++ % STRANGER : STRANGER];
		if (j->socket >= 0) {
			(void)reply(f, j->socket);
			end_joiner(j);
		}
		*j = (struct snd_joiner){s, now + INT64_C(2000000000)};
	}
	return any;
}

bool snd_serve_joiners(struct snd_fabric *f, int64_t now)
{
	bool any = false;
	if (f->socket < 0)
		return false;
	if (snd_is_still(f->socket, &f->socket_identity))
		any = accept_joiners(f, now);
	for (int i = 0; i < SND_JOINERS; i++) {
		struct snd_joiner *j = &f->joiners[i];
		any = any || j->socket >= 0;
		if (j->socket >= 0 && (reply(f, j->socket) || now > j->deadline))
			end_joiner(j);
	}
	return any;
}

/* snd_stop_serving closes the sockets. */
void snd_stop_serving(struct snd_fabric *f)
{
	for (int i = 0; i < SND_JOINERS; i++) {
		if (f->joiners[i].socket >= 0)
			end_joiner(&f->joiners[i]);
	}
	if (f->socket >= 0)
		snd_fork_close(f->socket);
	f->socket = -1;
}

/* name_socket stores the name of the socket of a fabric. */
enum { SOCKET_NAME = 100 };
static void name_socket(const char *name, char at[SOCKET_NAME]) { snprintf(at, SOCKET_NAME, "softnd-fabric-%lu-%s", (unsigned long)geteuid(), name); }

/* attach_answer attaches the arena that a member has sent, and closes its descriptor. */
static snd_status attach_answer(struct snd_arena *a, int fd, const uint64_t id[2], int64_t deadline, const char *op)
{
	snd_status s = snd_arena_attach(a, fd, deadline, op);
	snd_fork_close(fd);
	if (s == SND_SUCCESS && (a->id[0] != id[0] || a->id[1] != id[1])) {
		snd_arena_close(a);
		s = snd_fail(SND_INVALID_PARAMETER, "%s: the arena in the reply is not the announced one", op);
	}
	return s;
}

snd_status snd_find_arena(struct snd_arena *a, const char *name, const char *op)
{
	char at[SOCKET_NAME];
	int fds[2];
	uint64_t id[2];
	name_socket(name, at);
	const snd_status s = ask(at, fds, id, op);
	if (s != SND_SUCCESS)
		return s;
	snd_fork_close(fds[1]);
	return attach_answer(a, fds[0], id, snd_clock() + TIMEOUT_MS * INT64_C(1000000), op);
}

/* find opens or creates the arena of a name. */
snd_status snd_find_fabric(struct snd_fabric *f, const char *name, uint32_t ranks, uint32_t host, uint64_t size, int64_t deadline, const char *op)
{
	char at[SOCKET_NAME];
	name_socket(name, at);
	snd_status s;
	for (;;) {
		int fds[2];
		uint64_t id[2] = {0, 0};
		s = ask(at, fds, id, op);
		if (s == SND_SUCCESS) {
			s = attach_answer(&f->arena, fds[0], id, deadline, op);
			if (s == SND_SUCCESS && ranks != 0 && ranks != f->arena.ranks)
				s = snd_fail(SND_INVALID_PARAMETER, "%s: the fabric is for %" PRIu32 " ranks (asked %" PRIu32 "): pass the number of its creator", op, f->arena.ranks, ranks);
			if (s == SND_SUCCESS && host != f->arena.host)
				s = snd_fail(SND_INVALID_PARAMETER, "%s: the fabric is that of host %" PRIu32 ", not %" PRIu32, op, f->arena.host, host);
			if (s == SND_SUCCESS) {
				f->socket = fds[1];
				(void)snd_identify(f->socket, &f->socket_identity);
				(void)fcntl(f->socket, F_SETFL, O_NONBLOCK);
			} else {
				snd_fork_close(fds[1]);
			}
			return s;
		}
		if (s == SND_HOST_UNREACHABLE) {
			if ((f->socket = listen_as(at)) >= 0 && snd_identify(f->socket, &f->socket_identity))
				return snd_arena_create(&f->arena, ranks, host, size, op);
			if (errno != EADDRINUSE) /* else another process was faster */
				return snd_fail(errno == ENOMEM ? SND_NO_MEMORY : SND_UNSUCCESSFUL, "%s: take the name: %s", op, snd_errno_text(errno));
		} else if (s != SND_IO_TIMEOUT) {
			return s;
		}
		if (snd_time_left(deadline) == 0)
			return s == SND_HOST_UNREACHABLE ? snd_fail(s, "%s: the processes that take the name end before they answer", op) : s;
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	}
}

/* It quotes the beginning of a refused name. One that a Fortran program has not ended goes on with blanks and foreign bytes. */
snd_status snd_check_name(const char *name, const char *op)
{
	if (name != NULL && is_valid_name(name))
		return SND_SUCCESS;
	char quoted[33];
	size_t n = 0;
	for (; name != NULL && name[n] != 0 && n < sizeof quoted - 1; n++)
		quoted[n] = (char)(name[n] >= ' ' && name[n] <= '~' ? name[n] : '?');
	quoted[n] = 0;
	return snd_fail(SND_INVALID_PARAMETER, "%s: name \"%s\": want 1 to 64 of A-Z a-z 0-9 . _ -; in Fortran, pass trim(name) // c_null_char", op, quoted);
}

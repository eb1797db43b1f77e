/* TWIN internal/meet/rendezvous/tcp.go. */
#include "meet/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "linux/fork.h"
#include "linux/socket.h"
#include "meet/relay.h"

#define SECOND INT64_C(1000000000)

enum {
	MAX_HOST = 255,
	MAX_KEEP_IDLE = 32767,       /* in seconds; limit of the kernel */
	MIN_USER_TIMEOUT_MS = 2000 /* leaves time for a probe and for repeating a lost segment */
};

/* split copies the host of host:port or [address]:port, and the port. It returns what is wrong, or NULL. */
static const char *split(const char *text, char host[MAX_HOST + 1], const char **port)
{
	const char *colon = strrchr(text, ':');
	if (colon == NULL || colon == text)
		return "want host:port";
	char *end;
	const unsigned long n = strtoul(colon + 1, &end, 10);
	if (colon[1] < '0' || colon[1] > '9' || *end != 0 || n == 0 || n > UINT16_MAX)
		return "want host:port with a port from 1 to 65535";
	size_t length = (size_t)(colon - text);
	if (*text == '[') {
		if (length < 3 || colon[-1] != ']')
			return "want [address]:port";
		text++;
		length -= 2;
	}
	if (length > MAX_HOST)
		return "the name of the host is too long";
	memcpy(host, text, length);
	host[length] = 0;
	*port = colon + 1;
	return NULL;
}

/* unusable returns why other hosts cannot connect to an address, or NULL. */
static const char *unusable(const struct snd_tcp_address *a)
{
	const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&a->storage;
	if (a->storage.ss_family == AF_INET)
		return ((const struct sockaddr_in *)&a->storage)->sin_addr.s_addr != INADDR_ANY ? NULL : "it is not an address to which other hosts can connect";
	if (IN6_IS_ADDR_UNSPECIFIED(&in->sin6_addr))
		return "it is not an address to which other hosts can connect";
	if (IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr))
		return "it is a link-local address, which each host needs a zone of its own for: use a global address";
	return in->sin6_scope_id == 0 ? NULL : "it has a zone, which is valid at this host only: use an address without one";
}

static bool is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
}

void snd_tcp_instead(const char *name, struct snd_tcp_address *a, char choice[SND_TCP_CHOICE], const char *op)
{
	const size_t length = strlen(name);
	const char *const local = "localhost";
	char better[SND_IP_ADDRESS], text[SND_TCP_TEXT];
	*choice = 0;
	if (!is_loopback((const struct sockaddr *)&a->storage) || strcmp(name, local) == 0 || (length > 10 && strcmp(name + length - 10, ".localhost") == 0))
		return;
	if (snd_host_address("", better, op) != SND_SUCCESS)
		return; /* no interface but that of loopback: the ranks run on this host */
	const in_port_t port = ((const struct sockaddr_in *)&a->storage)->sin_port; /* in the same place in both families */
	snd_tcp_text(a, false, text);
	snprintf(choice, SND_TCP_CHOICE, "%.200s is %s here, at which other hosts cannot connect; using %s: name an IP address to use another", name, text, better);
	memset(a, 0, sizeof *a);
	if (strchr(better, ':') != NULL) {
		struct sockaddr_in6 *in = (struct sockaddr_in6 *)&a->storage;
		in->sin6_family = AF_INET6;
		in->sin6_port = port;
		a->length = sizeof *in;
		(void)inet_pton(AF_INET6, better, &in->sin6_addr); /* snd_host_address has written it */
		return;
	}
	struct sockaddr_in *in = (struct sockaddr_in *)&a->storage;
	in->sin_family = AF_INET;
	in->sin_port = port;
	a->length = sizeof *in;
	(void)inet_pton(AF_INET, better, &in->sin_addr);
}

snd_status snd_tcp_resolve(const char *text, struct snd_tcp_address *a, char choice[SND_TCP_CHOICE], const char *op)
{
	char host[MAX_HOST + 1];
	*choice = 0;
	const char *port, *wrong = split(text, host, &port);
	if (wrong != NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_ROOT=\"%.300s\": %s", op, text, wrong);
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *all = NULL;
	int e = getaddrinfo(host, port, &hints, &all);
	if (e == EAI_NONAME) {
		hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
		e = getaddrinfo(host, port, &hints, &all);
	}
	if (e != 0 || all == NULL)
		return snd_fail(SND_BAD_NETWORK_NAME, "%s: SOFTND_ROOT=\"%.300s\": no address of \"%s\" is known (%s): use an IP address", op, text, host, e == EAI_SYSTEM ? snd_errno_text(errno) : gai_strerror(e));
	const struct addrinfo *one = all;
	for (const struct addrinfo *other = all; other != NULL; other = other->ai_next)
		if (!is_loopback(other->ai_addr)) {
			one = other;
			break;
		}
	memset(a, 0, sizeof *a);
	memcpy(&a->storage, one->ai_addr, one->ai_addrlen);
	a->length = one->ai_addrlen;
	freeaddrinfo(all);
	if ((hints.ai_flags & AI_NUMERICHOST) == 0)
		snd_tcp_instead(host, a, choice, op);
	if ((wrong = unusable(a)) != NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_ROOT=\"%.300s\": %s", op, text, wrong);
	return SND_SUCCESS;
}

void snd_tcp_text(const struct snd_tcp_address *a, bool with_port, char text[SND_TCP_TEXT])
{
	char address[INET6_ADDRSTRLEN] = "?";
	if (a->storage.ss_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&a->storage;
		(void)inet_ntop(AF_INET6, &in->sin6_addr, address, sizeof address);
		snprintf(text, SND_TCP_TEXT, with_port ? "[%s]:%u" : "%s", address, ntohs(in->sin6_port));
		return;
	}
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a->storage;
	(void)inet_ntop(AF_INET, &in->sin_addr, address, sizeof address);
	snprintf(text, SND_TCP_TEXT, with_port ? "%s:%u" : "%s", address, ntohs(in->sin_port));
}

static struct snd_tcp_address end_of(int socket, int (*name)(int, struct sockaddr *, socklen_t *))
{
	struct snd_tcp_address a = {.length = sizeof a.storage};
	(void)name(socket, (struct sockaddr *)&a.storage, &a.length);
	return a;
}

struct snd_tcp_address snd_tcp_own(int socket) { return end_of(socket, getsockname); }
struct snd_tcp_address snd_tcp_peer(int socket) { return end_of(socket, getpeername); }

static int new_socket(int family)
{
	snd_fork_hold();
	const int s = snd_fork_closes(snd_above_standard(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))), e = errno;
	snd_fork_release();
	errno = e;
	return s;
}

/* failed closes a socket, and returns -1 with errno. */
static int failed(int socket, int e)
{
	snd_fork_close(socket);
	errno = e;
	return -1;
}

int snd_tcp_listen(const struct snd_tcp_address *a)
{
	const int s = new_socket(a->storage.ss_family), one = 1;
	if (s < 0)
		return s;
	/* An earlier job may have used the port a moment ago. */
	if (setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 || bind(s, (const struct sockaddr *)&a->storage, a->length) != 0 || listen(s, SOMAXCONN) != 0)
		return failed(s, errno);
	return s;
}

int snd_tcp_accept(int listener)
{
	snd_fork_hold();
	const int s = snd_fork_closes(snd_above_standard(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK))), e = errno;
	snd_fork_release();
	errno = e;
	return s;
}

int snd_tcp_dial(const struct snd_tcp_address *a, int64_t deadline)
{
	int s = new_socket(a->storage.ss_family), e = 0;
	socklen_t size = sizeof e;
	if (s < 0)
		return s;
	if (connect(s, (const struct sockaddr *)&a->storage, a->length) != 0 && errno != EINPROGRESS && errno != EINTR)
		return failed(s, errno);
	if (!snd_socket_await(s, POLLOUT, deadline) || getsockopt(s, SOL_SOCKET, SO_ERROR, &e, &size) != 0)
		return failed(s, errno);
	if (e != 0)
		return failed(s, e);
	/* If nothing listens at a port from which the kernel takes the ports of sockets that connect, it may connect the socket with
	 * itself. Reset it: otherwise rank 0 could not listen at the port for a minute. */
	const struct snd_tcp_address own = snd_tcp_own(s), peer = snd_tcp_peer(s);
	char from[SND_TCP_TEXT], to[SND_TCP_TEXT];
	snd_tcp_text(&own, true, from);
	snd_tcp_text(&peer, true, to);
	if (strcmp(from, to) == 0) {
		const struct linger now = {.l_onoff = 1};
		(void)setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof now);
		return failed(s, ECONNREFUSED);
	}
	return s;
}

static int clamp(int64_t n, int low, int high) { return n < low ? low : n > high ? high : (int)n; }

bool snd_tcp_tune(int socket, int64_t silence)
{
	const struct {
		int level, name, value;
	} options[] = {
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, clamp(silence / 2 / SECOND, 1, MAX_KEEP_IDLE)},
		{IPPROTO_TCP, TCP_KEEPINTVL, clamp(silence / 8 / SECOND, 1, MAX_KEEP_IDLE)},
		{IPPROTO_TCP, TCP_USER_TIMEOUT, clamp(silence / 1000000, MIN_USER_TIMEOUT_MS, INT_MAX)}, /* it ends the connection, whatever TCP_KEEPCNT is */
		{IPPROTO_TCP, TCP_NODELAY, 1},
	};
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
		if (setsockopt(socket, options[i].level, options[i].name, &options[i].value, sizeof options[i].value) != 0)
			return false;
	return true;
}

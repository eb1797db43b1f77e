/* Ports and connections, as Unix sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cm.h"
#include "error.h"
#include "linux/descriptor.h"

/* The ports that a program gets if it asks for none. */
enum { FIRST_PORT = 32768, PORTS = 28232 };

/* fabric_hash returns a number for the fabric of the process. Programs of different fabrics could agree on a connection, but not make it. */
static uint64_t fabric_hash(void)
{
	static const char *const names[] = {"SOFTND_CONTROL", "SOFTND_VERBS_FABRIC"}; /* of the job, or else of the named fabric */
	const char *text = NULL;
	for (size_t i = 0; i < 2 && (text == NULL || *text == '\0'); i++)
		text = getenv(names[i]);
	struct stat arena;
	const char *fd = getenv("SOFTND_ARENA_FD");
	uint64_t h = UINT64_C(14695981039346656037);
	if (fd != NULL && getenv(names[0]) == NULL && fstat(atoi(fd), &arena) == 0)
		return h ^ arena.st_ino;
	for (text = text == NULL || *text == '\0' ? "verbs" : text; *text != '\0'; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
	return h;
}

socklen_t address_size(const struct sockaddr *address)
{
	switch (address->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	}
	return 0;
}

static in_port_t *port_at(const struct sockaddr *address)
{
	return address->sa_family == AF_INET ? &((struct sockaddr_in *)(void *)address)->sin_port : &((struct sockaddr_in6 *)(void *)address)->sin6_port;
}

/* name writes the name of a port. It returns its size. */
static socklen_t name(const struct sockaddr *address, struct sockaddr_un *un)
{
	char text[INET6_ADDRSTRLEN];
	const void *bytes = address->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr
		: (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
	if (inet_ntop(address->sa_family, bytes, text, sizeof text) == NULL)
		text[0] = '\0';
	un->sun_family = AF_UNIX;
	un->sun_path[0] = '\0';
	const int n = snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "softnd-cm-%u-%016llx-%s-%u", (unsigned)geteuid(), (unsigned long long)fabric_hash(), text,
		(unsigned)ntohs(*port_at(address)));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

bool is_local(const struct sockaddr *address)
{
	SND_UNCANCELED;
	struct sockaddr_storage any = {0};
	memcpy(&any, address, address_size(address));
	*port_at((struct sockaddr *)&any) = 0;
	const int fd = snd_above_standard(socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return false;
	const bool local = bind(fd, (struct sockaddr *)&any, address_size(address)) == 0; /* the kernel knows the addresses of the host */
	(void)close(fd);
	return local;
}

int reserve_port(struct id *id)
{
	struct sockaddr *address = &id->public.route.addr.src_addr;
	in_port_t *port = port_at(address);
	const bool choose = *port == 0;
	uint32_t at = 0;
	if (choose && getrandom(&at, sizeof at, GRND_NONBLOCK) < 0)
		at = (uint32_t)getpid();
	const int fd = snd_above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return errno;
	for (uint32_t i = 0; i < PORTS; i++) {
		if (choose)
			*port = htons((uint16_t)(FIRST_PORT + (at + i) % PORTS));
		struct sockaddr_un un;
		const socklen_t size = name(address, &un);
		if (bind(fd, (struct sockaddr *)&un, size) == 0) {
			id->port = fd;
			return 0;
		}
		if (!choose || errno != EADDRINUSE)
			break;
	}
	const int error = errno;
	(void)close(fd);
	if (choose)
		*port = 0;
	return error;
}

/* is_own reports whether the process at the other end has the same user: anyone can take a name. */
static bool is_own(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static bool connect_to(int fd, const struct sockaddr *address)
{
	struct sockaddr_un un;
	const socklen_t size = name(address, &un);
	return connect(fd, (struct sockaddr *)&un, size) == 0;
}

int reach(const struct sockaddr *address)
{
	const int fd = snd_above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return -1;
	/* A listener may have taken the port of all addresses, and one of IPv6 those of IPv4, too. */
	const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = *port_at(address)};
	const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = *port_at(address)};
	bool found = connect_to(fd, address);
	if (!found && errno == ECONNREFUSED && address->sa_family == AF_INET)
		found = connect_to(fd, (const struct sockaddr *)&any);
	if (!found && errno == ECONNREFUSED)
		found = connect_to(fd, (const struct sockaddr *)&any6);
	if (found && is_own(fd))
		return fd;
	const int error = found ? ECONNREFUSED : errno;
	(void)close(fd);
	return fail(error);
}

int take_peer(int listener)
{
	const int fd = snd_above_standard(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	if (fd >= 0 && !is_own(fd)) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

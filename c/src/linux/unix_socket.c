/* TWIN internal/meet/unixsock/unixsock.go. */
#include "linux/unix_socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "linux/descriptor.h"
#include "linux/fork.h"

int snd_unix_socket(int flags)
{
	snd_fork_hold();
	int s = snd_fork_closes(snd_above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0))), e = errno;
	snd_fork_release();
	errno = e;
	return s;
}

int snd_unix_dial(const char *name, int timeout_ms)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	size_t n = strlen(name);
	if (n + 1 > sizeof at.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(at.sun_path + 1, name, n);
	int s = snd_unix_socket(0);
	if (s < 0)
		return -1;
	struct timeval t = {timeout_ms / 1000, (timeout_ms % 1000) * 1000L};
	(void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	(void)setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
	int r;
	do
		r = connect(s, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
	while (r != 0 && errno == EINTR);
	if (r != 0) {
		int e = errno;
		snd_fork_close(s);
		errno = e;
		return -1;
	}
	return s;
}

bool snd_unix_peer_is_us(int socket)
{
	struct ucred c;
	socklen_t n = sizeof c;
	return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 && c.uid == geteuid();
}

ssize_t snd_unix_receive(int socket, void *buffer, size_t size, int *descriptors, size_t most, size_t *count)
{
	enum { PASSED = 253 }; /* Linux passes at most this many in a message */
	union {
		char bytes[CMSG_SPACE(PASSED * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec data = {buffer, size};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	struct timeval limit = {0, 0};
	socklen_t length = sizeof limit;
	(void)getsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, &length);
	const int timeout = limit.tv_sec == 0 && limit.tv_usec == 0 ? -1 : (int)(limit.tv_sec * 1000 + limit.tv_usec / 1000);
	ssize_t n;
	int held[3];
	*count = 0;
	for (;;) {
		struct pollfd p = {.fd = socket, .events = POLLIN};
		int ready = poll(&p, 1, timeout);
		if (ready == 0)
			errno = EAGAIN;
		if (ready == 0 || (ready < 0 && errno != EINTR))
			return -1;
		snd_fork_hold(); /* until the descriptors are noted */
		snd_occupy_standard(held);
		n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		snd_vacate_standard(held);
		if (n >= 0)
			break;
		int e = errno;
		snd_fork_release();
		errno = e;
		if (e != EINTR && e != EAGAIN)
			return -1;
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t passed = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < passed; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (*count == most)
				(void)close(fd);
			else if ((fd = snd_fork_closes(snd_above_standard(fd))) >= 0)
				descriptors[(*count)++] = fd;
		}
	}
	snd_fork_release();
	return n;
}

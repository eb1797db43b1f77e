

#include "linux/socket.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>

#include "linux/clock.h"

bool snd_socket_await(int socket, short events, int64_t deadline)
{
	for (;;) {
		struct pollfd p = {socket, events, 0};
		const int64_t left = deadline < 0 ? -1 : (snd_time_left(deadline) + 999999) / 1000000;
		const int n = poll(&p, 1, left > INT_MAX ? INT_MAX : (int)left);
		if (n > 0)
			return true;
		if (n == 0 && deadline >= 0 && snd_clock() >= deadline) {
			errno = ETIMEDOUT;
			return false;
		}
		if (n < 0 && errno != EINTR)
			return false;
	}
}

bool snd_socket_send(int socket, const void *data, size_t length, int64_t deadline)
{
	const char *at = data;
	while (length > 0) {
		const ssize_t sent = send(socket, at, length, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent > 0) {
			at += sent;
			length -= (size_t)sent;
		} else if (errno != EINTR && (errno != EAGAIN || !snd_socket_await(socket, POLLOUT, deadline))) {
			return false;
		}
	}
	return true;
}

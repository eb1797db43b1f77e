/* Waiting for stream sockets. Deadlines are in the time of snd_clock; a negative one is none. */
#ifndef SND_SOCKET_H
#define SND_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* snd_socket_await blocks until the socket is ready for events of poll. It returns false with errno: ETIMEDOUT after the deadline. */
bool snd_socket_await(int socket, short events, int64_t deadline);
/* snd_socket_send sends all bytes, and waits if the other end does not take them. It returns false with errno. */
bool snd_socket_send(int socket, const void *data, size_t length, int64_t deadline);

#endif

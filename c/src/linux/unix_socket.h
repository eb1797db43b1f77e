/* Abstract Unix sockets of type SOCK_SEQPACKET, which pass descriptors. Forked children close all these descriptors:
 * snd_fork_close closes them in this process. */
#ifndef SND_UNIX_SOCKET_H
#define SND_UNIX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* snd_unix_socket makes a socket; it returns -1 with errno. */
int snd_unix_socket(int flags);
/* snd_unix_dial connects to an abstract name (without @), with a time-out in milliseconds for each operation. It returns
 * -1 with errno. */
int snd_unix_dial(const char *name, int timeout_ms);
/* snd_unix_peer_is_us reports whether the process at the other end runs as this user. */
bool snd_unix_peer_is_us(int socket);
/* snd_unix_receive receives a packet and up to most descriptors, and stores their number. It returns the length, or -1.
 * It closes descriptors beyond most. */
ssize_t snd_unix_receive(int socket, void *buffer, size_t size, int *descriptors, size_t most, size_t *count);

#endif

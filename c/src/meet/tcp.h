/* TCP connections of ranks that meet without a launcher. Forked children close them: snd_fork_close closes them in this
 * process. */
#ifndef SND_TCP_H
#define SND_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "softnd/softnd.h"

/* snd_tcp_address is an IP address with a port. */
struct snd_tcp_address {
	struct sockaddr_storage storage;
	socklen_t length;
};
enum { SND_TCP_TEXT = 64, SND_TCP_CHOICE = 500 };

/* snd_tcp_resolve finds the address of host:port. Debian gives a host's own name the address 127.0.1.1 in /etc/hosts, at which no
 * other host can connect. If the name has only such addresses, snd_tcp_resolve takes another one of this host, and choice says so.
 * snd_tcp_instead is that part of it. */
snd_status snd_tcp_resolve(const char *text, struct snd_tcp_address *a, char choice[SND_TCP_CHOICE], const char *op);
void snd_tcp_instead(const char *name, struct snd_tcp_address *a, char choice[SND_TCP_CHOICE], const char *op);
/* snd_tcp_text writes an address for people, with its port or without. */
void snd_tcp_text(const struct snd_tcp_address *a, bool with_port, char text[SND_TCP_TEXT]);
/* snd_tcp_own and snd_tcp_peer return the addresses of the ends of a connection. */
struct snd_tcp_address snd_tcp_own(int socket);
struct snd_tcp_address snd_tcp_peer(int socket);

/* snd_tcp_listen listens at an address, snd_tcp_accept takes a connection without waiting, and snd_tcp_dial connects until a
 * deadline in the time of snd_clock. They return a socket that does not block, or -1 with errno. */
int snd_tcp_listen(const struct snd_tcp_address *a);
int snd_tcp_accept(int listener);
int snd_tcp_dial(const struct snd_tcp_address *a, int64_t deadline);
/* snd_tcp_tune lets the kernel end a connection when the other host has been silent for so many nanoseconds, and for two seconds at
 * least. It returns false with errno. */
bool snd_tcp_tune(int socket, int64_t silence);

#endif

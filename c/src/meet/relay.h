/* The process ndrelay, which carries a job's connections to other hosts. docs/hosts.md describes its lines of JSON. */
#ifndef SND_RELAY_H
#define SND_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "softnd/softnd.h"

#include "linux/descriptor.h"

struct snd_hosts;

enum { SND_RELAY_LINE = 4096, SND_RELAY_ADDRESS = 80 };

struct snd_relay {
	int socket; /* its standard input and output; -1 = none. Its end lets the relay end */
	bool has_launcher;
	struct snd_identity identity;
	char line[SND_RELAY_LINE]; /* the last answer */
};

/* snd_relay_start starts the relay of a host, a member of the arena behind a descriptor, and returns when it listens. If a rank
 * dies, the relay has the launcher end the job, over the connection launcher. It does not if that is -1. control is the address
 * for the other relays. */
snd_status snd_relay_start(struct snd_relay *r, int arena, int launcher, const struct snd_hosts *h, const char *address, char control[SND_RELAY_ADDRESS], int64_t deadline, const char *op);
/* snd_relay_connect passes the addresses of all relays as a list of JSON strings, and returns when the relay is connected with
 * them. */
snd_status snd_relay_connect(struct snd_relay *r, uint32_t host, const char *relays, int64_t deadline, const char *op);
/* snd_relay_finalize has the relay tell the launcher that its leader ends well, when no rank of this host is left. Until then the
 * relay can have the launcher end the job. It returns false if the relay has no connection with a launcher, or has ended. */
bool snd_relay_finalize(struct snd_relay *r);
/* snd_relay_release lets the relay end when no rank of this host is left. */
void snd_relay_release(struct snd_relay *r);

/* address.c: snd_host_address writes the address at which the other hosts reach this one: that of SOFTND_HOST_ADDRESS, else the
 * known one if it is not empty, else that of an interface. */
enum { SND_IP_ADDRESS = 64 };
snd_status snd_host_address(const char *known, char text[SND_IP_ADDRESS], const char *op);

#endif

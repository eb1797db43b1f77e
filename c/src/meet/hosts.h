/* A job over several hosts, see docs/hosts.md. The first rank of each host is its leader. It starts the host's relay, and takes part in
 * collective calls for the host. TWIN hosts.go, internal/meet/bootstrap/hosts.go. */
#ifndef SND_HOSTS_H
#define SND_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "meet/relay.h"

enum { SND_HOSTS = 17, SND_SECRET = 32, SND_JOB_DIGITS = 32, SND_NOTICE = 1024 };

struct snd_hosts {
	uint32_t number, count; /* of this host; of all hosts */
	uint32_t size;          /* ranks of the job */
	uint32_t local, group;  /* number of this rank among those of its host; their number */
	uint32_t *of;           /* number of the host of each rank */
	uint32_t *position;     /* of each rank among those of its host */
	uint32_t *addresses;    /* of each rank, when Init has returned */
	char job[SND_JOB_DIGITS + 1]; /* hexadecimal digits, the same at all ranks */
	unsigned char secret[SND_SECRET];
	char known[SND_IP_ADDRESS]; /* an address of this host; empty if none is known */

	/* Of a leader. */
	struct snd_relay relay;
	uint64_t notice; /* memory for the reason of a failure */
	uint32_t failed; /* status of the failure to connect the relay, and why */
	char why[512];
};

/* snd_hosts_new returns hosts of a job without a table; NULL if there is no memory. */
struct snd_hosts *snd_hosts_new(uint32_t size);
void snd_hosts_free(struct snd_hosts *h);
/* snd_hosts_place numbers the ranks of each host, when of and number are known. */
void snd_hosts_place(struct snd_hosts *h, uint32_t rank);
static inline bool snd_is_leader(const struct snd_hosts *h) { return h->local == 0; }
/* snd_first_of returns the first rank of a host. */
uint32_t snd_first_of(const struct snd_hosts *h, uint32_t host);

#endif

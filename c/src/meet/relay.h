/* The process ndrelay, which carries a job's connections to other hosts, and matches the collective calls of all hosts. docs/hosts.md
 * describes its lines of JSON and its messages. */
#ifndef SND_RELAY_H
#define SND_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "softnd/softnd.h"

#include "linux/descriptor.h"

struct snd_hosts;
struct snd_place;

enum { SND_RELAY_LINE = 4096, SND_RELAY_ADDRESS = 80, SND_CALL_HEADER = 24 };

/* snd_call_kind is the kind of a message to the relay. All hosts make barriers and exchanges together. After a failure, this host takes
 * part in no further call. */
enum snd_call_kind { SND_CALL_BARRIER = 1, SND_CALL_EXCHANGE = 2, SND_CALL_FAILED = 3, SND_CALL_FINALIZE = 4 };

/* snd_call_outcome is what becomes of a call. */
enum snd_call_outcome {
	SND_CALL_MET = 1,       /* the bytes are the packs of all hosts, each behind its length in 8 bytes */
	SND_CALL_FAILED_AT = 2, /* at host, with status; the bytes are text */
	SND_CALL_ANOTHER = 3,   /* host makes another call */
	SND_CALL_TOO_LONG = 4,  /* the pack of host is longer than the limit of the relay */
	SND_CALL_LOST = 5,      /* host takes part in no further call */
};

struct snd_answer {
	uint32_t outcome, host, status;
	unsigned char *bytes; /* of malloc: one byte for the caller, and then length bytes */
	uint64_t length;
};

struct snd_relay {
	int socket; /* its standard input and output; -1 = none. Its end lets the relay end */
	bool has_launcher;
	struct snd_identity identity;
	char line[SND_RELAY_LINE]; /* the last answer */

	/* The messages after the lines. */
	uint64_t number;       /* of the last call */
	unsigned char *unsent; /* of malloc: length bytes, of which sent are sent */
	size_t length, sent;
	unsigned char header[SND_CALL_HEADER]; /* of an answer, of which, with its bytes, got have arrived */
	size_t got;
	unsigned char *bytes; /* of malloc */
};

/* snd_relay_start starts the relay of a host, a member of the arena behind a descriptor, and returns when it listens. If a rank
 * dies, the relay has the launcher end the job, over the connection launcher. It does not if that is -1. The packs of exchanges have
 * at most pack bytes. control is the address for the other relays. */
snd_status snd_relay_start(struct snd_relay *r, int arena, int launcher, const struct snd_hosts *h, uint64_t pack, const char *address, char control[SND_RELAY_ADDRESS], int64_t deadline, const char *op);
/* snd_relay_connect passes the addresses of all relays as a list of JSON strings, and returns when the relay is connected with
 * them. It fails with SND_CONNECTION_ABORTED if another rank ends the job meanwhile, and no launcher ends this process. */
snd_status snd_relay_connect(struct snd_relay *r, const struct snd_place *place, uint32_t host, const char *relays, int64_t deadline, const char *op);
/* snd_relay_post sends a message, of which a part may stay here until snd_relay_poll sends it. It fails if there is no memory. */
bool snd_relay_post(struct snd_relay *r, enum snd_call_kind kind, uint32_t status, const void *pack, uint64_t length);
/* snd_relay_poll takes the answer to the latest message, of at most limit bytes. The relay rings the doorbell of this process when there
 * may be something to do. It returns 1 if there is an answer, 0 if it has not arrived, and -1 if the relay has ended, or answers what no
 * relay answers. The caller frees the bytes. */
int snd_relay_poll(struct snd_relay *r, uint64_t limit, struct snd_answer *answer);
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

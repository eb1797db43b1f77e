/* A connection of ranks that meet at SOFTND_ROOT: its handshake and its messages, which package internal/meet/rendezvous of the Go library
 * describes. C and Go ranks meet. */
#ifndef SND_ROOT_CHANNEL_H
#define SND_ROOT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "linux/descriptor.h"
#include "meet/control_channel.h"
#include "meet/pmi.h"
#include "sha256.h"

enum {
	SND_ROOT_GREETING = 48,                             /* bytes: magic, version, nonce */
	SND_ROOT_GREETINGS = 2 * SND_ROOT_GREETING,         /* that of the rank, and that of rank 0 */
	SND_ROOT_ANSWER = SND_ROOT_GREETING + SND_SHA256,
	SND_ROOT_MESSAGE = 4096,                            /* most bytes of an object of JSON */
	SND_ROOT_PACKET = 4 + SND_ROOT_MESSAGE + SND_SHA256,
	SND_ROOT_REASON = SND_MAX_REASON
};

/* snd_root_message is a message of either side. A key or value that is too long has one character too many. */
struct snd_root_message {
	char kind[12];
	int64_t rank, size, code;
	char key[SND_PMI_KEY + 2], value[SND_PMI_VALUE + 2], text[SND_ROOT_REASON + 1];
};

struct snd_root_channel {
	int socket; /* set by snd_root_open */
	struct snd_identity identity; /* of socket: the program may close it, and open something else */
	unsigned char in_key[SND_SHA256], out_key[SND_SHA256];
	uint64_t in, out; /* number of messages */
	const char *why;  /* what went wrong */
	size_t filled;    /* bytes of packet */
	unsigned char packet[SND_ROOT_PACKET];
};

/* snd_root_open makes c a channel over a socket. It returns false with errno. */
bool snd_root_open(struct snd_root_channel *c, int socket);
/* snd_root_is_open fails, with why, if the program has closed the socket. */
bool snd_root_is_open(struct snd_root_channel *c);
/* snd_root_fill receives what has arrived, until the packet has as many bytes as wanted. It returns 1 then, 0 if more have to arrive,
 * and -1 with why if the connection has ended. */
int snd_root_fill(struct snd_root_channel *c, size_t wanted);
/* snd_root_receive is snd_root_fill for a message, which it checks. */
int snd_root_receive(struct snd_root_channel *c, struct snd_root_message *m);
/* snd_root_pack writes the next message to be sent, and returns its length. */
size_t snd_root_pack(struct snd_root_channel *c, const struct snd_root_message *m, unsigned char packet[SND_ROOT_PACKET]);

/* snd_root_greet writes the first message of a side; false if there are no random numbers. */
bool snd_root_greet(unsigned char greeting[SND_ROOT_GREETING]);
/* snd_root_check returns what is wrong with the greeting of the other side, or NULL. */
extern const char snd_root_ended[], snd_root_stranger[], snd_root_version[], snd_root_secret[], snd_root_length[];
const char *snd_root_check(const unsigned char greeting[SND_ROOT_GREETING]);
/* snd_root_prove computes the proof that rank 0 knows the secret. */
void snd_root_prove(const struct snd_bytes *secret, const unsigned char greetings[SND_ROOT_GREETINGS], unsigned char proof[SND_SHA256]);
/* snd_root_begin derives the keys of both directions. */
void snd_root_begin(struct snd_root_channel *c, const struct snd_bytes *secret, const unsigned char greetings[SND_ROOT_GREETINGS], bool is_root);
/* snd_root_same compares two values in a time that does not depend on them. */
bool snd_root_same(const unsigned char a[SND_SHA256], const unsigned char b[SND_SHA256]);

#endif

/* TWIN internal/meet/rendezvous/wire.go. */
#include "meet/root_channel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "encoding.h"
#include "error.h"

enum { VERSION = 2, NONCE = 16 /* its place in a greeting */, HEAD = 4 /* bytes of the length */ };

static const unsigned char magic[8] = {'S', 'N', 'D', '-', 'R', 'O', 'O', 'T'};

const char snd_root_stranger[] = "the process at the other end does not speak the protocol of SOFTND_ROOT";
const char snd_root_version[] = "the other process contains another version of softnd: build all ranks with one release";
const char snd_root_ended[] = "the connection has ended";
const char snd_root_secret[] = "the process there does not know the secret of this job: give all ranks the same secret, and each job a port of its own";
const char snd_root_length[] = "a message is too long";

bool snd_root_open(struct snd_root_channel *c, int socket)
{
	memset(c, 0, sizeof *c);
	c->socket = socket;
	return snd_identify(socket, &c->identity);
}

bool snd_root_is_open(struct snd_root_channel *c)
{
	if (snd_is_still(c->socket, &c->identity))
		return true;
	c->why = "the program has closed the connection of the library";
	return false;
}

int snd_root_fill(struct snd_root_channel *c, size_t wanted)
{
	if (!snd_root_is_open(c))
		return -1;
	while (c->filled < wanted) {
		const ssize_t n = recv(c->socket, c->packet + c->filled, wanted - c->filled, MSG_DONTWAIT);
		if (n > 0) {
			c->filled += (size_t)n;
		} else if (n == 0) {
			c->why = snd_root_ended;
			return -1;
		} else if (errno == EAGAIN) {
			return 0;
		} else if (errno != EINTR) {
			c->why = snd_errno_text(errno);
			return -1;
		}
	}
	return 1;
}

/* authenticate computes the HMAC of a message with its number. */
static void authenticate(const unsigned char key[SND_SHA256], uint64_t number, const unsigned char *packet, size_t length, unsigned char mac[SND_SHA256])
{
	unsigned char n[8];
	snd_put_number(n, number, sizeof n);
	snd_hmac_sha256(key, SND_SHA256, (const struct snd_bytes[]){{n, sizeof n}, {packet, length}}, 2, mac);
}

/* parse reads the object in JSON. Members that are missing are 0 or empty. */
static void parse(const char *json, struct snd_root_message *m)
{
	static const struct {
		const char *name;
		size_t place, size;
	} texts[] = {
		{"kind", offsetof(struct snd_root_message, kind), sizeof m->kind},
		{"key", offsetof(struct snd_root_message, key), sizeof m->key},
		{"value", offsetof(struct snd_root_message, value), sizeof m->value},
		{"text", offsetof(struct snd_root_message, text), sizeof m->text},
	}, numbers[] = {
		{"rank", offsetof(struct snd_root_message, rank), 0},
		{"size", offsetof(struct snd_root_message, size), 0},
		{"code", offsetof(struct snd_root_message, code), 0},
	};
	memset(m, 0, sizeof *m);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		char *to = (char *)m + texts[i].place;
		if (!snd_json_text(json, texts[i].name, to, texts[i].size))
			*to = 0;
	}
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		(void)snd_json_number(json, numbers[i].name, (int64_t *)(void *)((char *)m + numbers[i].place));
}

int snd_root_receive(struct snd_root_channel *c, struct snd_root_message *m)
{
	unsigned char mac[SND_SHA256];
	int got = snd_root_fill(c, HEAD);
	if (got <= 0)
		return got;
	const uint64_t n = snd_get_number(c->packet, HEAD);
	if (n > SND_ROOT_MESSAGE) {
		c->why = snd_root_length;
		return -1;
	}
	if ((got = snd_root_fill(c, HEAD + n + SND_SHA256)) <= 0)
		return got;
	authenticate(c->in_key, c->in, c->packet, HEAD + n, mac);
	if (!snd_root_same(mac, c->packet + HEAD + n)) {
		c->why = snd_root_secret;
		return -1;
	}
	c->in++;
	c->filled = 0;
	c->packet[HEAD + n] = 0;
	parse((const char *)c->packet + HEAD, m);
	return 1;
}

/* json is a text that is being written. A member that does not fit is left out: no message of the library is so long. */
struct json {
	char *at;
	size_t length, size;
};

static void add_text(struct json *j, const char *name, const char *value)
{
	char quoted[6 * SND_ROOT_REASON + 3]; /* also of a value: those have no control characters, and other characters become two at most */
	if (*value == 0)
		return;
	snd_json_quote(value, quoted, sizeof quoted);
	const int n = snprintf(j->at + j->length, j->size - j->length, "%s\"%s\":%s", j->length > 1 ? "," : "", name, quoted);
	if (n > 0 && (size_t)n < j->size - j->length)
		j->length += (size_t)n;
}

static void add_number(struct json *j, const char *name, int64_t value)
{
	if (value != 0)
		j->length += (size_t)snprintf(j->at + j->length, j->size - j->length, ",\"%s\":%" PRId64, name, value);
}

size_t snd_root_pack(struct snd_root_channel *c, const struct snd_root_message *m, unsigned char packet[SND_ROOT_PACKET])
{
	struct json j = {(char *)packet + HEAD, 1, SND_ROOT_MESSAGE};
	j.at[0] = '{';
	add_text(&j, "kind", m->kind);
	add_number(&j, "rank", m->rank);
	add_number(&j, "size", m->size);
	add_text(&j, "key", m->key);
	add_text(&j, "value", m->value);
	add_number(&j, "code", m->code);
	add_text(&j, "text", m->text);
	j.at[j.length++] = '}';
	snd_put_number(packet, j.length, HEAD);
	authenticate(c->out_key, c->out++, packet, HEAD + j.length, packet + HEAD + j.length);
	return HEAD + j.length + SND_SHA256;
}

bool snd_root_greet(unsigned char greeting[SND_ROOT_GREETING])
{
	memcpy(greeting, magic, sizeof magic);
	snd_put_number(greeting + 8, VERSION, 8);
	return getrandom(greeting + NONCE, SND_ROOT_GREETING - NONCE, 0) == SND_ROOT_GREETING - NONCE;
}

const char *snd_root_check(const unsigned char greeting[SND_ROOT_GREETING])
{
	if (memcmp(greeting, magic, sizeof magic) != 0)
		return snd_root_stranger;
	return snd_get_number(greeting + 8, 8) == VERSION ? NULL : snd_root_version;
}

/* derive computes an HMAC of a word and both greetings. */
static void derive(const struct snd_bytes *secret, const char *word, const unsigned char greetings[SND_ROOT_GREETINGS], unsigned char mac[SND_SHA256])
{
	snd_hmac_sha256(secret->data, secret->length, (const struct snd_bytes[]){{word, strlen(word)}, {greetings, SND_ROOT_GREETINGS}}, 2, mac);
}

void snd_root_prove(const struct snd_bytes *secret, const unsigned char greetings[SND_ROOT_GREETINGS], unsigned char proof[SND_SHA256])
{
	derive(secret, "root", greetings, proof);
}

void snd_root_begin(struct snd_root_channel *c, const struct snd_bytes *secret, const unsigned char greetings[SND_ROOT_GREETINGS], bool is_root)
{
	derive(secret, "to root", greetings, is_root ? c->in_key : c->out_key);
	derive(secret, "to rank", greetings, is_root ? c->out_key : c->in_key);
}

bool snd_root_same(const unsigned char a[SND_SHA256], const unsigned char b[SND_SHA256])
{
	unsigned different = 0;
	for (size_t i = 0; i < SND_SHA256; i++)
		different |= a[i] ^ b[i];
	return different == 0;
}

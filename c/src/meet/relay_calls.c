/* The messages between the leader of a host and its relay: a header, and then bytes. Neither side blocks the leader.
 * TWIN internal/meet/relayclient/calls.go. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "encoding.h"
#include "linux/fork.h"
#include "meet/relay.h"

enum { MOST = 128 << 10 /* bytes that are received at once */, FINISH_LIMIT = 1000 /* ms for which finalize waits */ };

/* flush sends what the socket takes. It fails if the relay has ended, or the program has closed the socket. */
static bool flush(struct snd_relay *r)
{
	if (!snd_is_still(r->socket, &r->identity))
		return false;
	while (r->sent < r->length) {
		const ssize_t n = send(r->socket, r->unsent + r->sent, r->length - r->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		r->sent += (size_t)n;
	}
	free(r->unsent);
	r->unsent = NULL;
	r->length = r->sent = 0;
	return true;
}

bool snd_relay_post(struct snd_relay *r, enum snd_call_kind kind, uint32_t status, const void *pack, uint64_t length)
{
	unsigned char *b = realloc(r->unsent, r->length + SND_CALL_HEADER + length);
	if (b == NULL)
		return false;
	r->unsent = b;
	b += r->length;
	snd_put_number(b, (uint64_t)kind, 4);
	snd_put_number(b + 4, status, 4);
	snd_put_number(b + 8, ++r->number, 8);
	snd_put_number(b + 16, length, 8);
	if (length > 0)
		memcpy(b + SND_CALL_HEADER, pack, length);
	r->length += SND_CALL_HEADER + length;
	(void)flush(r); /* the next poll finds the end of the relay, too */
	return true;
}

/* take receives at most n bytes. It returns 0 if there are none now, and -1 if the relay has ended. */
static ssize_t take(const struct snd_relay *r, void *to, uint64_t n)
{
	for (;;) {
		const ssize_t got = recv(r->socket, to, n < MOST ? n : MOST, MSG_DONTWAIT);
		if (got > 0)
			return got;
		if (got == 0 || (errno != EINTR && errno != EAGAIN))
			return -1;
		if (errno == EAGAIN)
			return 0;
	}
}

int snd_relay_poll(struct snd_relay *r, uint64_t limit, struct snd_answer *answer)
{
	const bool lives = flush(r);
	if (!lives && !snd_is_still(r->socket, &r->identity))
		return -1;
	for (;;) {
		ssize_t n;
		if (r->got < SND_CALL_HEADER) {
			if ((n = take(r, r->header + r->got, SND_CALL_HEADER - r->got)) <= 0)
				return lives ? (int)n : -1;
			r->got += (size_t)n;
			continue;
		}
		const uint64_t length = snd_get_number(r->header + 16, 8);
		if (length > limit || (r->bytes == NULL && (r->bytes = malloc(length + 1)) == NULL))
			return -1;
		const uint64_t missing = SND_CALL_HEADER + length - r->got;
		if (missing > 0) {
			if ((n = take(r, r->bytes + 1 + (r->got - SND_CALL_HEADER), missing)) <= 0)
				return lives ? (int)n : -1;
			r->got += (size_t)n;
			continue;
		}
		const bool latest = snd_get_number(r->header + 8, 8) == r->number; /* else it is to a call that this rank has given up */
		unsigned char *bytes = r->bytes;
		r->got = 0;
		r->bytes = NULL;
		if (latest) {
			*answer = (struct snd_answer){(uint32_t)snd_get_number(r->header, 2), (uint32_t)snd_get_number(r->header + 2, 2), (uint32_t)snd_get_number(r->header + 4, 4), bytes, length};
			return 1;
		}
		free(bytes);
	}
}

bool snd_relay_finalize(struct snd_relay *r)
{
	if (r->socket < 0 || !r->has_launcher || !snd_relay_post(r, SND_CALL_FINALIZE, 0, NULL, 0))
		return false;
	struct pollfd p = {r->socket, POLLOUT, 0};
	int ready;
	while (r->length > 0 && ((ready = poll(&p, 1, FINISH_LIMIT)) > 0 || (ready < 0 && errno == EINTR)) && flush(r))
		;
	return r->length == 0;
}

void snd_relay_release(struct snd_relay *r)
{
	if (r->socket >= 0)
		snd_fork_close(r->socket);
	r->socket = -1;
	free(r->unsent);
	free(r->bytes);
	r->unsent = r->bytes = NULL;
}

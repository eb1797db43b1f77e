/* TWIN internal/meet/controlchannel/client.go. */
#include "meet/control_channel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "encoding.h"
#include "error.h"
#include "linux/fork.h"
#include "linux/unix_socket.h"
#include "shm/arena.h"

enum { TIMEOUT_MS = 10000, NAME = 100, DIGITS = 32 };

/* parse splits name:secret:identity. */
static bool parse(const char *address, char name[NAME + 1], char secret[DIGITS + 1], uint64_t id[2])
{
	const char *first = strchr(address, ':');
	if (first == NULL || first - address > NAME || strncmp(address, "softnd-job-", 11) != 0 || strlen(first) != 1 + DIGITS + 1 + DIGITS || first[1 + DIGITS] != ':')
		return false;
	memcpy(name, address, (size_t)(first - address));
	name[first - address] = 0;
	memcpy(secret, first + 1, DIGITS);
	secret[DIGITS] = 0;
	const char *digits = "0123456789abcdef", *at = first + 2 + DIGITS;
	if (strspn(secret, digits) != DIGITS || strspn(at, digits) != DIGITS)
		return false;
	for (size_t i = 0; i < 2; i++) {
		char half[17] = {0};
		memcpy(half, at + 16 * i, 16);
		id[i] = strtoull(half, NULL, 16);
	}
	return true;
}

bool snd_control_is_address(const char *text)
{
	char name[NAME + 1], secret[DIGITS + 1];
	uint64_t id[2];
	return parse(text, name, secret, id);
}

bool snd_control_names(const char *address, const uint64_t id[2])
{
	char name[NAME + 1], secret[DIGITS + 1];
	uint64_t want[2];
	return parse(address, name, secret, want) && want[0] == id[0] && want[1] == id[1];
}

static bool send_text(int channel, const char *text)
{
	size_t n = strlen(text);
	return send(channel, text, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* is_kind reports whether a message of the launcher is of a kind. The launcher marshals the kind first. */
static bool is_kind(const char *message, const char *kind)
{
	char want[40];
	snprintf(want, sizeof want, "{\"kind\":\"%s\"", kind);
	return strncmp(message, want, strlen(want)) == 0;
}

int snd_control_dial(const char *address, uint32_t rank, int *file, const char *op)
{
	char name[NAME + 1], secret[DIGITS + 1], message[4097], why[301];
	uint64_t id[2];
	if (!parse(address, name, secret, id)) {
		(void)snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_CONTROL is malformed: start the program with ndrun, or unset it", op);
		return -1;
	}
	int s = snd_unix_dial(name, TIMEOUT_MS);
	if (s < 0) {
		(void)snd_fail(SND_HOST_UNREACHABLE, "%s: connect to launcher: %s: check that it runs, and in the same network namespace", op, snd_errno_text(errno));
		return -1;
	}
	snprintf(message, sizeof message, "{\"kind\":\"hello\",\"version\":1,\"build\":\"" SOFTND_BUILD "\",\"secret\":\"%s\",\"rank\":%" PRIu32 "%s}",
		secret, rank, file != NULL ? ",\"file\":true" : "");
	int passed = -1;
	size_t count = 0;
	ssize_t n = -1;
	if (snd_unix_peer_is_us(s) && send_text(s, message))
		n = snd_unix_receive(s, message, sizeof message - 1, &passed, 1, &count);
	message[n > 0 ? n : 0] = 0;
	if (n <= 0 || !is_kind(message, "welcome") || (file != NULL) != (count == 1)) {
		if (n <= 0)
			snprintf(why, sizeof why, "no answer, or it runs as another user");
		else if (!snd_json_text(message, "text", why, sizeof why))
			snprintf(why, sizeof why, "unexpected answer");
		(void)snd_fail(SND_CONNECTION_REFUSED, "%s: connect to launcher: %s", op, why);
		if (count == 1)
			snd_fork_close(passed);
		snd_fork_close(s);
		return -1;
	}
	if (file != NULL)
		*file = passed;
	return s;
}

void snd_control_leave(int channel)
{
	(void)send_text(channel, "{\"kind\":\"leave\"}");
	snd_fork_close(channel);
}

bool snd_control_abort(int channel, int code, const char *reason)
{
	char text[2 * SND_MAX_REASON + 100], quoted[2 * SND_MAX_REASON + 3];
	snd_json_quote(reason, quoted, sizeof quoted);
	snprintf(text, sizeof text, "{\"kind\":\"abort\",\"code\":%d,\"text\":%s}", code, quoted);
	char answer[256];
	size_t count;
	ssize_t got = send_text(channel, text) ? snd_unix_receive(channel, answer, sizeof answer - 1, NULL, 0, &count) : -1;
	answer[got > 0 ? got : 0] = 0;
	return is_kind(answer, "welcome");
}

/* TWIN internal/meet/pmi/client.go, internal/meet/pmi/wire.go. */
#include "meet/pmi.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "error.h"
#include "linux/clock.h"
#include "linux/descriptor.h"
#include "linux/socket.h"
#include "settings.h"

extern int MPI_Initialized(int *flag) __attribute__((weak)); /* NULL in programs without MPI */

enum { ABORT_MS = 1000 };

const char *snd_pmi_value(const struct snd_pmi_answer *a, const char *name)
{
	for (int i = 1; i < a->count; i++)
		if (strcmp(a->names[i], name) == 0)
			return a->values[i];
	return NULL;
}

const char *snd_pmi_parse(char *line, struct snd_pmi_answer *a)
{
	char *rest = NULL;
	a->count = 0;
	for (char *word = strtok_r(line, " \t\r\v\f", &rest); word != NULL; word = strtok_r(NULL, " \t\r\v\f", &rest)) {
		char *equals = strchr(word, '=');
		if (equals == NULL || equals == word || a->count == SND_PMI_WORDS || (a->count == 0 && strncmp(word, "cmd=", 4) != 0))
			return "want name=value pairs that begin with cmd=";
		*equals = 0;
		if (snd_pmi_value(a, word) != NULL && a->count > 0)
			return "a name is given twice";
		a->names[a->count] = word;
		a->values[a->count++] = equals + 1;
	}
	return a->count == 0 || a->values[0][0] == 0 ? "want name=value pairs that begin with cmd=" : NULL;
}

/* what_failed returns what went wrong with the connection. */
static const char *what_failed(void) { return errno == ETIMEDOUT ? "the launcher has not answered in time" : snd_errno_text(errno); }

/* read_line leaves the next line at *line, without its end. It returns what went wrong, or NULL. */
static const char *read_line(struct snd_pmi *c, int64_t deadline, char **line)
{
	memmove(c->line, c->line + c->used, c->filled - c->used);
	c->filled -= c->used;
	c->used = 0;
	for (;;) {
		char *end = memchr(c->line, '\n', c->filled);
		if (end != NULL) {
			*end = 0;
			*line = c->line;
			c->used = (size_t)(end - c->line) + 1;
			return memchr(c->line, 0, c->used - 1) == NULL ? NULL : "the answer contains a zero byte";
		}
		if (c->filled == SND_PMI_LINE)
			return "line is too long";
		ssize_t n = recv(c->socket, c->line + c->filled, SND_PMI_LINE - c->filled, MSG_DONTWAIT);
		if (n > 0)
			c->filled += (size_t)n;
		else if (n == 0)
			return c->filled > 0 ? "the launcher closed the connection within a line" : "the launcher closed the connection";
		else if (errno == EAGAIN) {
			if (!snd_socket_await(c->socket, POLLIN, deadline))
				return what_failed();
		} else if (errno != EINTR)
			return what_failed();
	}
}

/* ask sends a command and reads the answer, which must be the wanted one and report success. */
static snd_status ask(struct snd_pmi *c, const char *command, const char *pairs, const char *want, struct snd_pmi_answer *a, int64_t deadline, const char *op)
{
	char request[SND_PMI_LINE], *line = NULL;
	int n = snprintf(request, sizeof request, "cmd=%s%s\n", command, pairs);
	errno = 0;
	const char *wrong = snd_socket_send(c->socket, request, (size_t)n, deadline) ? read_line(c, deadline, &line) : what_failed();
	if (wrong != NULL)
		return snd_fail(errno == ETIMEDOUT ? SND_IO_TIMEOUT : SND_UNSUCCESSFUL, "%s: pmi: %s: %s", op, command, wrong);
	char shown[81];
	snprintf(shown, sizeof shown, "%.80s", line);
	if ((wrong = snd_pmi_parse(line, a)) != NULL)
		return snd_fail(SND_UNSUCCESSFUL, "%s: pmi: %s: malformed answer \"%s\": %s", op, command, shown, wrong);
	const char *rc = snd_pmi_value(a, "rc"), *message = snd_pmi_value(a, "msg");
	if (rc != NULL && strcmp(rc, "0") != 0)
		return snd_fail(SND_UNSUCCESSFUL, "%s: pmi: %s: refused by the launcher: rc=%s %s", op, command, rc, message != NULL ? message : "");
	if (strcmp(a->values[0], want) != 0)
		return snd_fail(SND_UNSUCCESSFUL, "%s: pmi: %s: unexpected answer \"%s\": want %s", op, command, shown, want);
	return SND_SUCCESS;
}

/* inherit takes the inherited descriptor. A descriptor that this process has opened has close-on-exec set, an inherited one
 * has not. So if a wrapper has closed it, another file that now has its number is not taken for it. */
static snd_status inherit(int fd, const char *op)
{
	int flags = fcntl(fd, F_GETFD), type;
	socklen_t size = sizeof type;
	if (flags < 0 || (flags & FD_CLOEXEC) != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: descriptor %d (PMI_FD): not inherited: check that no wrapper closes it, and that this process uses PMI once", op, fd);
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: descriptor %d (PMI_FD): not a socket: %s: check that no wrapper replaces it", op, fd, snd_errno_text(errno));
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* programs that this one starts must not use PMI */
	return SND_SUCCESS;
}

static const char *shown(const char *name)
{
	const char *text = getenv(name);
	return text != NULL ? text : "";
}

snd_status snd_pmi_dial(struct snd_pmi *c, int64_t deadline, const char *op)
{
	memset(c, 0, sizeof *c);
	c->socket = -1;
	const int64_t fd = snd_number_in("PMI_FD"), rank = snd_number_in("PMI_RANK"), size = snd_number_in("PMI_SIZE");
	if (fd < 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: PMI_FD=\"%s\": not a descriptor number: start the program with a launcher that speaks PMI, or unset it", op, shown("PMI_FD"));
	if (rank < 0 || size < 0 || rank >= size)
		return snd_fail(SND_INVALID_PARAMETER, "%s: PMI_RANK=\"%s\" (PMI_SIZE=\"%s\"): not a valid rank: start the program with a launcher that speaks PMI, or unset PMI_FD",
			op, shown("PMI_RANK"), shown("PMI_SIZE"));
	snd_status s = inherit((int)fd, op);
	if (s != SND_SUCCESS)
		return s;
	c->inherited = (int)fd;
	if ((c->socket = snd_duplicate(c->inherited)) < 0)
		return snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: descriptor %d (PMI_FD): dup: %s", op, c->inherited, snd_errno_text(errno));
	c->rank = (uint32_t)rank;
	c->size = (uint32_t)size;
	struct snd_pmi_answer a;
	const char *version, *name;
	s = ask(c, "init", " pmi_version=1 pmi_subversion=1", "response_to_init", &a, deadline, op);
	if (s == SND_SUCCESS && ((version = snd_pmi_value(&a, "pmi_version")) == NULL || strcmp(version, "1") != 0))
		s = snd_fail(SND_NOT_SUPPORTED, "%s: pmi: init: unsupported version \"%s\" of the launcher: want 1", op, version != NULL ? version : "");
	if (s == SND_SUCCESS)
		s = ask(c, "get_my_kvsname", "", "my_kvsname", &a, deadline, op);
	if (s == SND_SUCCESS && ((name = snd_pmi_value(&a, "kvsname")) == NULL || *name == 0 || strlen(name) > SND_PMI_NAME))
		s = snd_fail(SND_UNSUCCESSFUL, "%s: pmi: get_my_kvsname: the launcher's answer has no name", op);
	else if (s == SND_SUCCESS)
		memcpy(c->name, name, strlen(name) + 1);
	if (s != SND_SUCCESS)
		snd_pmi_hang_up(c);
	return s;
}

/* is_word reports whether text has at most this many characters, all of them printable. */
static bool is_word(const char *text, size_t most)
{
	size_t n = strlen(text);
	for (size_t i = 0; i < n; i++)
		if (text[i] < '!' || text[i] > '~')
			return false;
	return n <= most;
}

snd_status snd_pmi_put(struct snd_pmi *c, const char *key, const char *value, int64_t deadline, const char *op)
{
	if (*key == 0 || !is_word(key, SND_PMI_KEY) || !is_word(value, SND_PMI_VALUE))
		return snd_fail(SND_INVALID_PARAMETER, "%s: pmi: put \"%.80s\": invalid key or value: want 1 to %d and at most %d printable characters", op, key, SND_PMI_KEY, SND_PMI_VALUE);
	char pairs[SND_PMI_NAME + SND_PMI_KEY + SND_PMI_VALUE + 40];
	struct snd_pmi_answer a;
	snprintf(pairs, sizeof pairs, " kvsname=%s key=%s value=%s", c->name, key, value);
	return ask(c, "put", pairs, "put_result", &a, deadline, op);
}

snd_status snd_pmi_get(struct snd_pmi *c, const char *key, char value[SND_PMI_VALUE + 1], int64_t deadline, const char *op)
{
	char pairs[SND_PMI_NAME + SND_PMI_KEY + 40];
	struct snd_pmi_answer a;
	snprintf(pairs, sizeof pairs, " kvsname=%s key=%.64s", c->name, key);
	snd_status s = ask(c, "get", pairs, "get_result", &a, deadline, op);
	const char *got = s == SND_SUCCESS ? snd_pmi_value(&a, "value") : NULL;
	if (s == SND_SUCCESS && (got == NULL || strlen(got) > SND_PMI_VALUE))
		return snd_fail(SND_UNSUCCESSFUL, "%s: pmi: get %s: the launcher's answer has no value", op, key);
	if (s == SND_SUCCESS)
		memcpy(value, got, strlen(got) + 1);
	return s;
}

snd_status snd_pmi_barrier(struct snd_pmi *c, int64_t deadline, const char *op)
{
	struct snd_pmi_answer a;
	return ask(c, "barrier_in", "", "barrier_out", &a, deadline, op);
}

bool snd_pmi_abort(struct snd_pmi *c, int code)
{
	char text[40];
	int n = snprintf(text, sizeof text, "cmd=abort exitcode=%d\n", code);
	return snd_socket_send(c->socket, text, (size_t)n, snd_clock() + ABORT_MS * INT64_C(1000000)); /* the launcher may not read */
}

bool snd_pmi_ends_job(const struct snd_pmi *c) { return strncmp(c->name, "kvs_", 4) == 0; /* Hydra's names of jobs */ }

bool snd_pmi_is_shared(void)
{
	int initialized = 0;
	return MPI_Initialized != NULL && MPI_Initialized(&initialized) == 0 && initialized != 0;
}

snd_status snd_pmi_finalize(struct snd_pmi *c, int64_t deadline, const char *op)
{
	struct snd_pmi_answer a;
	snd_status s = snd_pmi_is_shared() ? SND_SUCCESS : ask(c, "finalize", "", "finalize_ack", &a, deadline, op);
	snd_pmi_hang_up(c);
	return s;
}

void snd_pmi_hang_up(struct snd_pmi *c)
{
	if (c->socket < 0)
		return;
	close(c->socket);
	if (!snd_pmi_is_shared())
		close(c->inherited);
	c->socket = -1;
}

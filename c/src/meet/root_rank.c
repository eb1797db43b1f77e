/* TWIN internal/meet/rendezvous/rank.go. */
#include "meet/root_rank.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "atomic.h"
#include "error.h"
#include "linux/clock.h"
#include "linux/fork.h"
#include "linux/memory_limit.h"
#include "linux/socket.h"
#include "linux/thread.h"
#include "meet/root_channel.h"
#include "meet/root_service.h"

#define SECOND INT64_C(1000000000)
#define HANDSHAKE_LIMIT (5 * SECOND)
#define IDLE_LIMIT (2 * SECOND)
#define WRITE_LIMIT (2 * SECOND) /* of a message, and of the answers to the last ones */

enum { ANSWERS = 4, MIN_PAUSE_MS = 10, MAX_PAUSE_MS = 500 };

static const char thread_of_rank[] = "softnd-meeting";

struct snd_root {
	struct snd_root_service *service; /* of rank 0 */
	struct snd_tcp_address local;
	snd_half quit; /* of the thread */
	char name[SND_ROOT_REASON + 1];
	pthread_t thread;
	struct snd_root_channel channel; /* the thread receives, holders of out send */
	pthread_mutex_t out;

	pthread_mutex_t mutex; /* guards the rest */
	pthread_cond_t changed;
	struct snd_root_message answers[ANSWERS];
	uint32_t first, count;
	bool left;           /* or aborted: the end of the connection is expected */
	bool closed;         /* the connection has ended */
	bool job_ended;      /* because of another rank */
	int code;            /* of Abort; 1 after a death */
	char why[SND_ROOT_REASON + 80];
	void (*ended)(void *arg, int code, const char *why);
	void *arg;
};

const char *snd_root_name(const struct snd_root *r) { return r->name; }
void snd_root_local(const struct snd_root *r, char text[SND_TCP_TEXT]) { snd_tcp_text(&r->local, false, text); }

/* close_connection records why the connection has ended. If another rank has ended the job, it calls the function of snd_root_watch. */
static void close_connection(struct snd_root *r, const char *why, bool job_ended, int code)
{
	pthread_mutex_lock(&r->mutex);
	snprintf(r->why, sizeof r->why, "%s", why);
	r->closed = true;
	r->job_ended = job_ended && !r->left;
	r->code = code;
	void (*const ended)(void *, int, const char *) = r->job_ended ? r->ended : NULL;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->mutex);
	if (ended != NULL)
		ended(r->arg, code, r->why);
}

/* take keeps an answer. It returns false if there are more answers than requests. */
static bool take(struct snd_root *r, const struct snd_root_message *m)
{
	pthread_mutex_lock(&r->mutex);
	const bool fits = r->count < ANSWERS;
	if (fits)
		r->answers[(r->first + r->count++) % ANSWERS] = *m;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->mutex);
	return fits;
}

/* listen_to_root takes the messages of rank 0 until the connection ends. */
static void *listen_to_root(void *arg)
{
	struct snd_root *r = arg;
	struct snd_root_message m;
	char why[sizeof r->why];
	snd_thread_name(thread_of_rank);
	while (snd_load32(&r->quit) == 0) {
		const int got = snd_root_receive(&r->channel, &m);
		if (got == 0) { /* a limit: if the program closes the socket, nothing else ends the wait */
			(void)snd_socket_await(r->channel.socket, POLLIN, snd_deadline(IDLE_LIMIT));
			continue;
		}
		if (got < 0) {
			snprintf(why, sizeof why, "rank 0 has died, or has ended without leaving the job (%s)", r->channel.why);
			close_connection(r, why, true, 1);
			return NULL;
		}
		if (strcmp(m.kind, "end") == 0) {
			const int code = m.code < 1 || m.code > 255 ? 1 : (int)m.code;
			if (m.code != 0)
				snprintf(why, sizeof why, "rank %" PRId64 " has aborted the job with code %d: %s", m.rank, code, m.text);
			else
				snprintf(why, sizeof why, "%s", m.text);
			close_connection(r, why, true, code);
			return NULL;
		}
		if (!take(r, &m))
			break;
	}
	close_connection(r, snd_root_stranger, false, 1); /* if this process has not ended the connection itself */
	return NULL;
}

/* is_open reports whether the program has left the socket open. Unlike snd_root_is_open, any thread may call it. */
static bool is_open(const struct snd_root *r) { return snd_is_still(r->channel.socket, &r->channel.identity); }

static bool send_request(struct snd_root *r, const struct snd_root_message *m)
{
	unsigned char packet[SND_ROOT_PACKET];
	pthread_mutex_lock(&r->out);
	const size_t n = snd_root_pack(&r->channel, m, packet);
	const bool sent = is_open(r) && snd_socket_send(r->channel.socket, packet, n, snd_deadline(WRITE_LIMIT));
	pthread_mutex_unlock(&r->out);
	return sent;
}

/* wait_changed waits until another thread has changed something; false after a deadline. The caller holds the mutex. */
static bool wait_changed(struct snd_root *r, int64_t deadline)
{
	if (deadline < 0 || deadline == INT64_MAX) {
		pthread_cond_wait(&r->changed, &r->mutex);
		return true;
	}
	const struct timespec t = {(time_t)(deadline / SECOND), (long)(deadline % SECOND)};
	return pthread_cond_timedwait(&r->changed, &r->mutex, &t) != ETIMEDOUT;
}

/* await_answer waits for the answer to a request. */
static snd_status await_answer(struct snd_root *r, const char *kind, struct snd_root_message *answer, int64_t deadline, const char *op)
{
	snd_status s = SND_SUCCESS;
	pthread_mutex_lock(&r->mutex);
	while (r->count == 0 && !r->closed && s == SND_SUCCESS)
		if (!wait_changed(r, deadline) && r->count == 0 && !r->closed)
			s = snd_fail(SND_IO_TIMEOUT, "%s: SOFTND_ROOT: %s: rank 0 has not answered within the time limit of the call: check that its host and the network are not overloaded", op, kind);
	if (s == SND_SUCCESS && r->count == 0)
		s = snd_fail(SND_CONNECTION_ABORTED, "%s: SOFTND_ROOT: %s: %s", op, kind, r->why);
	if (s == SND_SUCCESS) {
		*answer = r->answers[r->first];
		r->first = (r->first + 1) % ANSWERS;
		r->count--;
	}
	pthread_mutex_unlock(&r->mutex);
	if (s == SND_SUCCESS && strcmp(answer->kind, "refusal") == 0)
		return snd_fail(SND_UNSUCCESSFUL, "%s: SOFTND_ROOT: %s: refused by rank 0: %s", op, kind, answer->text);
	return s;
}

static snd_status ask(struct snd_root *r, const struct snd_root_message *request, struct snd_root_message *answer, int64_t deadline, const char *op)
{
	if (!send_request(r, request)) { /* the thread notices at once why, or the connection has not ended */
		const int e = errno;
		snd_status s = await_answer(r, request->kind, answer, snd_deadline(WRITE_LIMIT), op);
		return s == SND_CONNECTION_ABORTED ? s : snd_fail(SND_CONNECTION_ABORTED, "%s: SOFTND_ROOT: %s: %s", op, request->kind, snd_errno_text(e));
	}
	return await_answer(r, request->kind, answer, deadline, op);
}

snd_status snd_root_put(struct snd_root *r, const char *key, const char *value, int64_t deadline, const char *op)
{
	struct snd_root_message m = {.kind = "put"}, answer;
	snprintf(m.key, sizeof m.key, "%s", key);
	snprintf(m.value, sizeof m.value, "%s", value);
	return ask(r, &m, &answer, deadline, op);
}

snd_status snd_root_get(struct snd_root *r, const char *key, char value[SND_PMI_VALUE + 1], int64_t deadline, const char *op)
{
	struct snd_root_message m = {.kind = "get"}, answer;
	snprintf(m.key, sizeof m.key, "%s", key);
	snd_status s = ask(r, &m, &answer, deadline, op);
	if (s == SND_SUCCESS && (strcmp(answer.kind, "value") != 0 || strlen(answer.value) > SND_PMI_VALUE))
		return snd_fail(SND_UNSUCCESSFUL, "%s: SOFTND_ROOT: get %s: rank 0 has answered \"%s\": build all ranks with one release", op, key, answer.kind);
	if (s == SND_SUCCESS)
		snprintf(value, SND_PMI_VALUE + 1, "%.*s", SND_PMI_VALUE, answer.value);
	return s;
}

snd_status snd_root_barrier(struct snd_root *r, int64_t deadline, const char *op)
{
	struct snd_root_message barrier = {.kind = "barrier"}, absent = {.kind = "absent"}, answer;
	snd_status s = ask(r, &barrier, &answer, deadline, op);
	if (s != SND_IO_TIMEOUT)
		return s;
	if (ask(r, &absent, &answer, snd_deadline(WRITE_LIMIT), op) == SND_SUCCESS && strcmp(answer.kind, "absent") == 0 && answer.text[0] != 0)
		return snd_fail(s, "%s: SOFTND_ROOT: not all ranks have arrived within the time limit of the call; missing: %s", op, answer.text);
	return snd_fail(s, "%s: SOFTND_ROOT: not all ranks have arrived within the time limit of the call", op);
}

/* receive_until is snd_root_fill that waits. It returns NULL, or what went wrong. */
static const char *receive_until(struct snd_root_channel *c, size_t wanted, int64_t deadline)
{
	int got;
	while ((got = snd_root_fill(c, wanted)) == 0)
		if (!snd_socket_await(c->socket, POLLIN, deadline))
			return snd_errno_text(errno);
	return got < 0 ? c->why : NULL;
}

/* exchange_nonces runs the rank's side of the handshake. It returns NULL, or what went wrong. */
static const char *exchange_nonces(struct snd_root_channel *c, const struct snd_bytes *secret, int64_t deadline)
{
	unsigned char greetings[SND_ROOT_GREETINGS], proof[SND_SHA256];
	if (!snd_root_greet(greetings) || !snd_socket_send(c->socket, greetings, SND_ROOT_GREETING, deadline))
		return snd_errno_text(errno);
	const char *wrong = receive_until(c, SND_ROOT_ANSWER, deadline);
	if (wrong == NULL)
		wrong = snd_root_check(c->packet);
	if (wrong != NULL)
		return wrong;
	memcpy(greetings + SND_ROOT_GREETING, c->packet, SND_ROOT_GREETING);
	snd_root_prove(secret, greetings, proof);
	if (!snd_root_same(proof, c->packet + SND_ROOT_GREETING))
		return snd_root_secret;
	snd_root_begin(c, secret, greetings, false);
	c->filled = 0;
	return NULL;
}

/* say_hello registers this rank. It returns NULL, or what went wrong. */
static const char *say_hello(struct snd_root_channel *c, const struct snd_root_config *config, struct snd_root_message *answer, int64_t deadline)
{
	const struct snd_root_message hello = {.kind = "hello", .rank = config->rank, .size = config->size};
	unsigned char packet[SND_ROOT_PACKET];
	int got;
	if (!snd_socket_send(c->socket, packet, snd_root_pack(c, &hello, packet), deadline))
		return snd_errno_text(errno);
	while ((got = snd_root_receive(c, answer)) == 0)
		if (!snd_socket_await(c->socket, POLLIN, deadline))
			return snd_errno_text(errno);
	return got < 0 ? c->why : NULL;
}

/* try_once tries to connect. Another attempt makes sense if the status is SND_HOST_UNREACHABLE. */
static snd_status try_once(struct snd_root *r, const struct snd_root_config *config, int64_t deadline, const char *op)
{
	struct snd_root_message answer;
	char at[SND_TCP_TEXT];
	const int64_t limit = snd_deadline(HANDSHAKE_LIMIT);
	if (deadline < 0 || limit < deadline)
		deadline = limit;
	snd_tcp_text(&config->at, true, at);
	const int socket = snd_tcp_dial(&config->at, deadline);
	if (socket < 0)
		return snd_fail(errno == EMFILE || errno == ENFILE ? SND_INSUFFICIENT_RESOURCES : SND_HOST_UNREACHABLE, "%s: SOFTND_ROOT: connect to rank 0 at %s: %s", op, at, snd_errno_text(errno));
	const char *wrong = snd_root_open(&r->channel, socket) && snd_tcp_tune(r->channel.socket, config->silence) ? exchange_nonces(&r->channel, &config->secret, deadline) : snd_errno_text(errno);
	if (wrong == NULL)
		wrong = say_hello(&r->channel, config, &answer, deadline);
	if (wrong == NULL && strcmp(answer.kind, "welcome") == 0) {
		snprintf(r->name, sizeof r->name, "%s", answer.text);
		r->local = snd_tcp_own(r->channel.socket);
		return SND_SUCCESS;
	}
	snd_fork_close(r->channel.socket);
	r->channel.socket = -1;
	if (wrong == snd_root_secret)
		return snd_fail(SND_CONNECTION_REFUSED, "%s: SOFTND_ROOT: connect to rank 0 at %s: %s", op, at, wrong);
	if (wrong == snd_root_stranger || wrong == snd_root_version || wrong == snd_root_length)
		return snd_fail(SND_NOT_SUPPORTED, "%s: SOFTND_ROOT: connect to rank 0 at %s: %s", op, at, wrong);
	if (wrong != NULL)
		return snd_fail(SND_HOST_UNREACHABLE, "%s: SOFTND_ROOT: connect to rank 0 at %s: %s", op, at, wrong);
	return snd_fail(SND_CONNECTION_REFUSED, "%s: SOFTND_ROOT: rank 0 at %s refuses rank %" PRIu32 ": %s", op, at, config->rank, answer.text);
}

/* connect_until tries again if rank 0 does not listen yet. */
static snd_status connect_until(struct snd_root *r, const struct snd_root_config *config, int64_t deadline, const char *op)
{
	char last[400];
	for (long pause = MIN_PAUSE_MS;; pause = 2 * pause < MAX_PAUSE_MS ? 2 * pause : MAX_PAUSE_MS) {
		snd_status s = try_once(r, config, deadline, op);
		if (s != SND_HOST_UNREACHABLE)
			return s;
		snprintf(last, sizeof last, "%s", snd_last_error());
		const int64_t left = snd_time_left(deadline);
		const int64_t sleep = left >= 0 && left < pause * 1000000 ? left : pause * 1000000;
		nanosleep(&(struct timespec){0, (long)sleep}, NULL);
		if (snd_time_left(deadline) == 0) /* one more attempt would only say that the time is over */
			return snd_fail(SND_IO_TIMEOUT, "%s: check that rank 0 runs, that no earlier job has this address, and that a firewall lets it be reached", last);
	}
}

static void free_root(struct snd_root *r)
{
	if (r->channel.socket >= 0)
		snd_fork_close(r->channel.socket);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->mutex);
	pthread_mutex_destroy(&r->out);
	free(r);
}

snd_status snd_root_join(struct snd_root **root, const struct snd_root_config *config, int64_t deadline, const char *op)
{
	struct snd_root *r = calloc(1, sizeof *r);
	pthread_condattr_t monotonic;
	if (r == NULL)
		return snd_no_memory(sizeof *r, "private memory", op);
	r->channel.socket = -1;
	pthread_mutex_init(&r->out, NULL);
	pthread_mutex_init(&r->mutex, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&r->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	snd_status s = SND_SUCCESS;
	if (config->rank == 0)
		s = snd_root_serve(&r->service, &config->at, &config->secret, config->size, config->silence, op);
	if (s == SND_SUCCESS)
		s = connect_until(r, config, deadline, op);
	if (s == SND_SUCCESS)
		s = snd_thread_start(&r->thread, listen_to_root, r, thread_of_rank, op);
	if (s == SND_SUCCESS) {
		*root = r;
		return s;
	}
	if (r->service != NULL)
		snd_root_stop(r->service, NULL);
	free_root(r);
	return s;
}

void snd_root_watch(struct snd_root *r, void (*ended)(void *arg, int code, const char *why), void *arg)
{
	pthread_mutex_lock(&r->mutex);
	r->ended = ended;
	r->arg = arg;
	const bool at_once = r->job_ended;
	pthread_mutex_unlock(&r->mutex);
	if (at_once)
		ended(arg, r->code, r->why);
}

snd_status snd_root_has_ended(struct snd_root *r, const char *op)
{
	pthread_mutex_lock(&r->mutex);
	const snd_status s = r->job_ended ? snd_fail(SND_CONNECTION_ABORTED, "%s: SOFTND_ROOT: %s", op, r->why) : SND_SUCCESS;
	pthread_mutex_unlock(&r->mutex);
	return s;
}

/* expect_end records that the end of the connection is expected. It returns false if the connection has ended already. */
static bool expect_end(struct snd_root *r)
{
	pthread_mutex_lock(&r->mutex);
	r->left = true;
	const bool open = !r->closed;
	pthread_mutex_unlock(&r->mutex);
	return open;
}

/* stop_listening ends the thread. */
static void stop_listening(struct snd_root *r)
{
	snd_release32(&r->quit, 1);
	if (is_open(r))
		(void)shutdown(r->channel.socket, SHUT_RDWR); /* which wakes the thread at once */
	snd_thread_join(r->thread);
}

snd_status snd_root_leave(struct snd_root *r, const char *op)
{
	struct snd_root_message leave = {.kind = "leave"}, answer;
	snd_status s = SND_SUCCESS;
	if (expect_end(r))
		s = ask(r, &leave, &answer, r->service != NULL ? -1 : snd_deadline(WRITE_LIMIT), op);
	return r->service != NULL ? snd_root_await_end(r->service, op) : s;
}

/* close_root ends the threads, and frees r. If died is not NULL, rank 0 tells the other ranks before that it ends the job. */
static void close_root(struct snd_root *r, const char *died)
{
	stop_listening(r);
	if (r->service != NULL)
		snd_root_stop(r->service, died);
	free_root(r);
}

void snd_root_close(struct snd_root *r) { close_root(r, NULL); }

void snd_root_hang_up(struct snd_root *r)
{
	(void)expect_end(r);
	close_root(r, "rank 0 has ended without leaving the job");
}

bool snd_root_abort(struct snd_root *r, int code, const char *reason)
{
	struct snd_root_message m = {.kind = "abort", .code = code};
	const int64_t deadline = snd_deadline(WRITE_LIMIT);
	snprintf(m.text, sizeof m.text, "%s", reason);
	if (!expect_end(r) || !send_request(r, &m))
		return false;
	pthread_mutex_lock(&r->mutex);
	while (!r->closed && wait_changed(r, deadline)) /* rank 0 closes the connection when it has told the others */
		;
	const bool told = r->closed;
	pthread_mutex_unlock(&r->mutex);
	return told;
}

/* TWIN internal/meet/rendezvous/root.go. */
#include "meet/root_service.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "atomic.h"
#include "encoding.h"
#include "error.h"
#include "linux/clock.h"
#include "linux/fork.h"
#include "linux/memory_limit.h"
#include "linux/thread.h"
#include "meet/key_values.h"
#include "meet/root_channel.h"

#define SECOND INT64_C(1000000000)
#define HANDSHAKE_LIMIT (5 * SECOND) /* from the connection of a process to its hello */

enum { MAX_STRANGERS = 64 /* one more ends the oldest */, IDLE_MS = 2000, NAMED = 8 };

static const char thread_of_service[] = "softnd-root";

/* peer is a connection. */
struct peer {
	struct snd_root_channel channel;
	enum { GREETING, HELLO, RANK } state;
	int64_t deadline; /* of the handshake */
	int64_t rank;
	bool met;     /* it has made a request, so it has its welcome */
	bool left, arrived;
	bool broken; /* its connection has to be closed */
	char at[SND_TCP_TEXT];
};

struct snd_root_service {
	unsigned char *secret;
	size_t secret_length;
	uint32_t size;
	int64_t silence;
	int listener;
	struct snd_identity identity; /* of listener */
	pthread_t thread;
	char name[40];
	snd_half quit;
	const char *died; /* set before quit */

	/* Of the thread alone. */
	struct peer **peers; /* strangers, in the order of their arrival, and ranks */
	struct pollfd *polled;
	size_t count, capacity;
	struct peer **of; /* by rank; those that have left stay */
	uint32_t arrived, leaves;
	bool starved; /* a connection could not be accepted, and this was printed */
	unsigned long refused; /* strangers */
	unsigned long other_secrets; /* processes with another secret */
	struct snd_key_values values;

	pthread_mutex_t mutex; /* guards the rest */
	pthread_cond_t changed;
	bool over; /* the job has ended, or all ranks have left */
	char ending[SND_ROOT_REASON + 80]; /* why the job has ended; empty if it has not */
};

static void send_message(struct peer *p, const struct snd_root_message *m)
{
	unsigned char packet[SND_ROOT_PACKET];
	const size_t n = snd_root_pack(&p->channel, m, packet);
	/* A rank has few messages to take, so one that leaves no room for another does not take any. */
	if (!snd_root_is_open(&p->channel) || send(p->channel.socket, packet, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
		p->broken = true;
}

static void answer(struct peer *p, const char *kind, const char *text)
{
	struct snd_root_message m = {0};
	snprintf(m.kind, sizeof m.kind, "%s", kind);
	snprintf(m.text, sizeof m.text, "%s", text);
	send_message(p, &m);
}

/* finish wakes the threads in snd_root_await_end. */
static void finish(struct snd_root_service *s, const char *why)
{
	pthread_mutex_lock(&s->mutex);
	s->over = true;
	snprintf(s->ending, sizeof s->ending, "%s", why);
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mutex);
}

/* end_job tells all ranks but from that the job ends, rank 0 last: its process ends then, and this thread with it. */
static void end_job(struct snd_root_service *s, const struct peer *from, int64_t rank, int64_t code, const char *text)
{
	struct snd_root_message m = {.kind = "end", .rank = rank, .code = code};
	char why[sizeof s->ending];
	if (s->over) /* only this thread sets it */
		return;
	snprintf(m.text, sizeof m.text, "%s", text);
	if (code != 0)
		snprintf(why, sizeof why, "rank %" PRId64 " has aborted the job with code %" PRId64 ": %s", rank, code, text);
	else
		snprintf(why, sizeof why, "%s", text);
	finish(s, why);
	for (uint32_t i = s->size; i-- > 0;)
		if (s->of[i] != NULL && s->of[i] != from && !s->of[i]->left)
			send_message(s->of[i], &m);
}

/* put stores a value, or answers why it cannot. */
static void put(struct snd_root_service *s, struct peer *p, const struct snd_root_message *m)
{
	char why[200];
	const bool stored = snd_key_values_put(&s->values, m->key, m->value, why, sizeof why);
	answer(p, stored ? "ok" : "refusal", stored ? "" : why);
}

static void get(struct snd_root_service *s, struct peer *p, const struct snd_root_message *m)
{
	char why[120];
	struct snd_root_message value = {.kind = "value"};
	const char *text = snd_key_values_get(&s->values, m->key);
	if (text == NULL) {
		snprintf(why, sizeof why, "key \"%.64s\" has no value", m->key);
		answer(p, "refusal", why);
		return;
	}
	snprintf(value.value, sizeof value.value, "%s", text);
	send_message(p, &value);
}

/* arrive records that a rank has reached the barrier. The last one releases all. */
static void arrive(struct snd_root_service *s, struct peer *p)
{
	s->arrived += !p->arrived;
	p->arrived = true;
	if (s->arrived < s->size)
		return;
	s->arrived = 0;
	for (uint32_t i = 0; i < s->size; i++) {
		s->of[i]->arrived = false;
		answer(s->of[i], "ok", "");
	}
}

/* name_absent answers which ranks have not reached the barrier. */
static void name_absent(struct snd_root_service *s, struct peer *p)
{
	char text[200];
	size_t n = 0;
	uint32_t absent = 0;
	text[0] = 0;
	for (uint32_t i = 0; i < s->size; i++)
		if ((s->of[i] == NULL || !s->of[i]->arrived) && ++absent <= NAMED)
			n += (size_t)snprintf(text + n, sizeof text - n, "%srank %" PRIu32, n > 0 ? ", " : "", i);
	if (absent > NAMED)
		snprintf(text + n, sizeof text - n, ", and %" PRIu32 " more", absent - NAMED);
	answer(p, "absent", text);
}

/* handle answers a message of a rank. */
static void handle(struct snd_root_service *s, struct peer *p, const struct snd_root_message *m)
{
	p->met = true;
	if (strcmp(m->kind, "put") == 0) {
		put(s, p, m);
	} else if (strcmp(m->kind, "get") == 0) {
		get(s, p, m);
	} else if (strcmp(m->kind, "barrier") == 0) {
		arrive(s, p);
	} else if (strcmp(m->kind, "absent") == 0) {
		name_absent(s, p);
	} else if (strcmp(m->kind, "leave") == 0) {
		p->left = true;
		answer(p, "ok", ""); /* before the service may end */
		if (++s->leaves == s->size && !s->over)
			finish(s, "");
	} else if (strcmp(m->kind, "abort") == 0) {
		answer(p, "ok", "");
		end_job(s, p, p->rank, m->code < 1 ? 1 : m->code > 255 ? 255 : m->code, m->text);
		p->broken = true;
	} else {
		char why[60];
		snprintf(why, sizeof why, "unknown message \"%.12s\"", m->kind);
		answer(p, "refusal", why);
	}
}

static const char other_secret[] = "it ended the connection when rank 0 had proved that it knows the secret: it has another one, or belongs to another job: give all ranks the same secret";

/* refuse counts a stranger, and prints the first one. A process with another secret is the user's mistake, which strangers must not
 * hide. */
static void refuse(struct snd_root_service *s, struct peer *p, const char *why)
{
	p->broken = true;
	if ((*(why == other_secret ? &s->other_secrets : &s->refused))++ == 0)
		dprintf(STDERR_FILENO, "softnd: rank 0: refused a connection to SOFTND_ROOT from %s: %s; further refusals are only counted\n", p->at, why);
}

/* greet answers the greeting of a process, and proves that this process knows the secret. */
static void greet(struct snd_root_service *s, struct peer *p)
{
	unsigned char greetings[SND_ROOT_GREETINGS], reply[SND_ROOT_ANSWER];
	const char *wrong = snd_root_check(p->channel.packet);
	if (wrong == snd_root_stranger) {
		refuse(s, p, wrong);
		return;
	}
	if (!snd_root_greet(reply)) {
		refuse(s, p, "there are no random numbers");
		return;
	}
	memcpy(greetings, p->channel.packet, SND_ROOT_GREETING);
	memcpy(greetings + SND_ROOT_GREETING, reply, SND_ROOT_GREETING);
	const struct snd_bytes secret = {s->secret, s->secret_length};
	snd_root_prove(&secret, greetings, reply + SND_ROOT_GREETING);
	snd_root_begin(&p->channel, &secret, greetings, true);
	p->channel.filled = 0;
	p->state = HELLO;
	if (!snd_root_is_open(&p->channel) || send(p->channel.socket, reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof reply)
		refuse(s, p, "the connection has ended");
	else if (wrong != NULL) /* a rank of another version learns of it by the answer */
		refuse(s, p, wrong);
}

/* register_rank makes a process that knows the secret a rank, or tells it why it cannot be one. */
static void register_rank(struct snd_root_service *s, struct peer *p, const struct snd_root_message *m)
{
	char why[300] = "";
	struct peer *other = m->rank >= 0 && m->rank < (int64_t)s->size ? s->of[m->rank] : NULL;
	p->rank = m->rank;
	if (other != NULL && other->left) { /* it tries again until it finds the next service at this address */
		p->broken = true;
		return;
	}
	if (strcmp(m->kind, "hello") != 0)
		snprintf(why, sizeof why, "its first message is \"%.12s\"", m->kind);
	else if (m->size != (int64_t)s->size)
		snprintf(why, sizeof why, "it has %" PRId64 " as the number of ranks, rank 0 has %" PRIu32 ": set the same SOFTND_SIZE for all", m->size, s->size);
	else if (m->rank < 0 || m->rank >= (int64_t)s->size)
		snprintf(why, sizeof why, "the job has ranks 0 to %" PRIu32, s->size - 1);
	else if (other != NULL)
		snprintf(why, sizeof why, "a process at %s is this rank already: give each process a number of its own in SOFTND_RANK", other->at);
	else if (s->over)
		snprintf(why, sizeof why, "the job has ended");
	else if (!snd_tcp_tune(p->channel.socket, s->silence))
		snprintf(why, sizeof why, "the options of its connection cannot be set: %s", snd_errno_text(errno));
	if (why[0] != 0) {
		dprintf(STDERR_FILENO, "softnd: rank 0: refused rank %" PRId64 " from %s: %s\n", m->rank, p->at, why);
		answer(p, "refusal", why);
		p->broken = true;
		return;
	}
	p->state = RANK;
	s->of[m->rank] = p;
	answer(p, "welcome", s->name);
}

/* serve_peer takes what a peer has sent. */
static void serve_peer(struct snd_root_service *s, struct peer *p)
{
	struct snd_root_message m;
	int got = 1;
	while (got > 0 && !p->broken) {
		if (p->state == GREETING) {
			if ((got = snd_root_fill(&p->channel, SND_ROOT_GREETING)) > 0)
				greet(s, p);
		} else if ((got = snd_root_receive(&p->channel, &m)) > 0) {
			if (p->state == HELLO)
				register_rank(s, p, &m);
			else if (!p->left || strcmp(m.kind, "abort") == 0)
				handle(s, p, &m);
		}
	}
	if (got >= 0)
		return;
	if (p->state == HELLO && p->channel.why == snd_root_ended)
		refuse(s, p, other_secret);
	else if (p->state < RANK)
		refuse(s, p, p->channel.why);
	p->broken = true;
}

/* lost handles the end of a connection: the rank has died, unless it has left. Before its first request it may not have got its
 * welcome in time, and tries again. */
static void lost(struct snd_root_service *s, struct peer *p)
{
	char why[SND_TCP_TEXT + 100];
	if (p->state < RANK || p->left)
		return;
	if (!p->met) {
		s->of[p->rank] = NULL;
		return;
	}
	snprintf(why, sizeof why, "rank %" PRId64 " (at %s) has died, or has ended without leaving the job", p->rank, p->at);
	end_job(s, p, p->rank, 0, why);
}

static void hang_up(struct peer *p)
{
	if (p->channel.socket >= 0)
		snd_fork_close(p->channel.socket);
	p->channel.socket = -1;
}

/* sweep closes broken connections. A rank stays in s->of. */
static void sweep(struct snd_root_service *s)
{
	for (size_t i = 0; i < s->count;) {
		struct peer *p = s->peers[i];
		if (!p->broken) {
			i++;
			continue;
		}
		lost(s, p); /* which may break others, also earlier ones: those are closed the next time */
		hang_up(p);
		memmove(s->peers + i, s->peers + i + 1, (--s->count - i) * sizeof(struct peer *));
		if (p->state < RANK || s->of[p->rank] != p)
			free(p);
	}
}

/* reserve makes room for another peer. */
static bool reserve(struct snd_root_service *s)
{
	if (s->count + 1 < s->capacity)
		return true;
	const size_t larger = 2 * s->capacity + 16;
	struct peer **peers = realloc(s->peers, larger * sizeof(struct peer *));
	if (peers == NULL)
		return false;
	s->peers = peers;
	struct pollfd *polled = realloc(s->polled, larger * sizeof *polled);
	if (polled == NULL)
		return false;
	s->polled = polled;
	s->capacity = larger;
	return true;
}

/* limit_strangers ends the oldest handshake if there are too many. */
static void limit_strangers(struct snd_root_service *s)
{
	struct peer *oldest = NULL;
	size_t strangers = 0;
	for (size_t i = 0; i < s->count; i++) {
		if (s->peers[i]->state == RANK || s->peers[i]->broken)
			continue;
		strangers++;
		if (oldest == NULL)
			oldest = s->peers[i];
	}
	if (strangers > MAX_STRANGERS) {
		refuse(s, oldest, "more than 64 connections have not said who they are");
		hang_up(oldest); /* before another one takes a descriptor */
	}
}

/* admit makes a connection a peer. There is room for it. */
static void admit(struct snd_root_service *s, struct peer *p, int socket)
{
	const struct snd_tcp_address at = snd_tcp_peer(socket);
	p->broken = !snd_root_open(&p->channel, socket);
	p->deadline = snd_deadline(HANDSHAKE_LIMIT);
	snd_tcp_text(&at, true, p->at);
	s->peers[s->count++] = p;
	limit_strangers(s);
}

/* take_connections takes some of those that wait: ranks must be served, too. */
static void take_connections(struct snd_root_service *s)
{
	for (int i = 0; i < MAX_STRANGERS && snd_is_still(s->listener, &s->identity); i++) {
		struct peer *p = reserve(s) ? calloc(1, sizeof *p) : NULL;
		const int socket = p == NULL ? -1 : snd_tcp_accept(s->listener);
		if (socket < 0) {
			if (p != NULL && (errno == EMFILE || errno == ENFILE) && !s->starved) {
				dprintf(STDERR_FILENO, "softnd: rank 0: accept a connection to SOFTND_ROOT: %s; ranks wait until it succeeds\n", snd_errno_text(errno));
				s->starved = true;
			}
			if (p == NULL || (errno != EAGAIN && errno != EINVAL && errno != ECONNABORTED && errno != EINTR))
				usleep(10000); /* out of memory or descriptors: try again later */
			free(p);
			return;
		}
		admit(s, p, socket);
	}
}

/* wait_ms returns how long to wait for events: until the first handshake is too late. */
static int wait_ms(const struct snd_root_service *s)
{
	int64_t least = IDLE_MS;
	for (size_t i = 0; i < s->count; i++) {
		const int64_t left = s->peers[i]->broken ? 0 : snd_time_left(s->peers[i]->deadline) / 1000000 + 1;
		if ((s->peers[i]->state < RANK || s->peers[i]->broken) && left < least)
			least = left;
	}
	return (int)least;
}

/* serve waits for events and handles them. */
static void serve(struct snd_root_service *s)
{
	const size_t count = s->count;
	s->polled[0] = (struct pollfd){snd_is_still(s->listener, &s->identity) ? s->listener : -1, POLLIN, 0};
	for (size_t i = 0; i < count; i++)
		s->polled[i + 1] = (struct pollfd){s->peers[i]->channel.socket, POLLIN, 0};
	if (poll(s->polled, count + 1, wait_ms(s)) < 0 && errno != EINTR)
		usleep(10000);
	for (size_t i = 0; i < count; i++) {
		struct peer *p = s->peers[i];
		if (s->polled[i + 1].revents != 0 && !p->broken)
			serve_peer(s, p);
		if (p->state < RANK && !p->broken && snd_clock() >= p->deadline)
			refuse(s, p, "it has not said who it is in time");
	}
	if (s->polled[0].revents != 0)
		take_connections(s);
	sweep(s);
}

static void *run(void *arg)
{
	struct snd_root_service *s = arg;
	snd_thread_name(thread_of_service);
	while (snd_load32(&s->quit) == 0)
		serve(s);
	if (s->died != NULL)
		end_job(s, NULL, 0, 0, s->died);
	return NULL;
}

static void free_service(struct snd_root_service *s)
{
	if (s->listener >= 0)
		snd_fork_close(s->listener);
	for (uint32_t i = 0; s->of != NULL && i < s->size; i++) {
		if (s->of[i] == NULL)
			continue;
		for (size_t k = 0; k < s->count; k++) /* else it would be freed twice */
			if (s->peers[k] == s->of[i])
				s->peers[k] = s->peers[--s->count];
		hang_up(s->of[i]);
		free(s->of[i]);
	}
	for (size_t i = 0; i < s->count; i++) {
		hang_up(s->peers[i]);
		free(s->peers[i]);
	}
	snd_key_values_free(&s->values);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->mutex);
	free(s->of);
	free(s->peers);
	free(s->polled);
	if (s->secret != NULL)
		explicit_bzero(s->secret, s->secret_length);
	free(s->secret);
	free(s);
}

/* listen_at opens the listener. */
static snd_status listen_at(struct snd_root_service *s, const struct snd_tcp_address *at, const char *op)
{
	char text[SND_TCP_TEXT];
	snd_tcp_text(at, true, text);
	s->listener = snd_tcp_listen(at);
	if (s->listener < 0 && errno == EADDRINUSE)
		return snd_fail(SND_SHARING_VIOLATION, "%s: SOFTND_ROOT: listen at %s: %s: give each job a port of its own", op, text, snd_errno_text(errno));
	if (s->listener < 0 && errno == EADDRNOTAVAIL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_ROOT: listen at %s: %s: it has to be an address of the host on which rank 0 runs", op, text, snd_errno_text(errno));
	if (s->listener < 0 || !snd_identify(s->listener, &s->identity))
		return snd_fail(SND_UNSUCCESSFUL, "%s: SOFTND_ROOT: listen at %s: %s", op, text, snd_errno_text(errno));
	return SND_SUCCESS;
}

/* new_service returns a service without a listener and a thread, or NULL if there is no memory. */
static struct snd_root_service *new_service(const struct snd_bytes *secret, uint32_t size, int64_t silence)
{
	struct snd_root_service *s = calloc(1, sizeof *s);
	if (s == NULL)
		return NULL;
	s->listener = -1;
	s->size = size;
	s->silence = silence;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->changed, NULL);
	s->of = calloc(size, sizeof(struct peer *));
	s->secret = malloc(secret->length);
	s->secret_length = secret->length;
	if (s->of == NULL || s->secret == NULL || !reserve(s)) {
		free_service(s);
		return NULL;
	}
	memcpy(s->secret, secret->data, secret->length);
	return s;
}

/* has_descriptors reports whether the process can have two more descriptors, for both ends of the connection of rank 0. Otherwise errno
 * is set. The connection itself would wait: its end is made before the service accepts it. */
static bool has_descriptors(const struct snd_root_service *s)
{
	snd_fork_hold();
	const int one = snd_duplicate(s->listener), two = one < 0 ? -1 : snd_duplicate(s->listener), e = errno;
	if (one >= 0)
		close(one);
	if (two >= 0)
		close(two);
	snd_fork_release();
	errno = e;
	return two >= 0;
}

snd_status snd_root_serve(struct snd_root_service **service, const struct snd_tcp_address *at, const struct snd_bytes *secret, uint32_t size, int64_t silence, const char *op)
{
	char random[SND_RANDOM_TEXT];
	struct snd_root_service *s = new_service(secret, size, silence);
	if (s == NULL)
		return snd_no_memory(sizeof *s + size * sizeof(struct peer *), "private memory", op);
	snd_status status = listen_at(s, at, op);
	if (status == SND_SUCCESS && !has_descriptors(s))
		status = snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: SOFTND_ROOT: connect rank 0: %s", op, snd_errno_text(errno));
	if (status == SND_SUCCESS && !snd_random_text(random))
		status = snd_fail(SND_UNSUCCESSFUL, "%s: getrandom failed", op);
	if (status == SND_SUCCESS) {
		snprintf(s->name, sizeof s->name, "root-%s", random);
		status = snd_thread_start(&s->thread, run, s, thread_of_service, op);
	}
	if (status == SND_SUCCESS)
		*service = s;
	else
		free_service(s);
	return status;
}

snd_status snd_root_await_end(struct snd_root_service *s, const char *op)
{
	pthread_mutex_lock(&s->mutex);
	while (!s->over)
		pthread_cond_wait(&s->changed, &s->mutex);
	const snd_status status = s->ending[0] == 0 ? SND_SUCCESS : snd_fail(SND_CONNECTION_ABORTED, "%s: SOFTND_ROOT: %s", op, s->ending);
	pthread_mutex_unlock(&s->mutex);
	return status;
}

void snd_root_stop(struct snd_root_service *s, const char *died)
{
	s->died = died;
	snd_release32(&s->quit, 1);
	if (snd_is_still(s->listener, &s->identity))
		(void)shutdown(s->listener, SHUT_RD); /* which wakes the thread */
	snd_thread_join(s->thread);
	free_service(s);
}

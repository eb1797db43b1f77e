/* Connections by rank. Of two ranks, the one with the higher number connects. TWIN connect.go. */
#include "job/connect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "endpoint/cm_connector.h"
#include "endpoint/cm_ports.h"
#include "endpoint/progress_statuspage.h"
#include "job/group.h"
#include "job/hosts.h"
#include "linux/clock.h"
#include "shm/liveness.h"
#include "structure.h"

#define CHECK_INTERVAL INT64_C(100000000)
#define LEAST_ACCEPT INT64_C(1000000000)
#define PROBE_INTERVAL INT64_C(1000000000) /* after which a rank that waits checks that the rank of another host has not left */

/* kept is a connection request of a rank that no call has taken. */
struct snd_kept {
	struct snd_kept *next;
	snd_connector *connector;
	uint32_t rank;
};

/* address_of returns the address of a rank, 0 if it has not joined the job. It stores the process without which the rank cannot
 * connect: its own, or the relay of this host. */
static uint32_t address_of(const struct snd_job *j, uint32_t rank, struct snd_peer *p)
{
	const struct snd_hosts *h = j->hosts;
	if (snd_is_remote(j, rank))
		return snd_find_relay(j->fabric, p) ? h->addresses[rank] : 0;
	return snd_member_of_rank(j, h != NULL ? h->position[rank] : rank, p) ? snd_host_of(j->fabric, snd_member_slot(p->id)) : 0;
}

/* comes_from_rank stores the rank that has requested a connection. It closes requests that do not come from the rank that they name. */
static bool comes_from_rank(struct snd_job *j, snd_connector *c, uint32_t *rank)
{
	unsigned char b[4];
	uint32_t n = 0;
	snd_address from;
	struct snd_peer p;
	if (snd_connector_private_data(c, b, sizeof b, &n) == SND_SUCCESS && n == 4 && snd_connector_peer_address(c, &from) == SND_SUCCESS) {
		*rank = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
		if (*rank < j->size && address_of(j, *rank, &p) == from.host)
			return true;
	}
	(void)snd_connector_close(c);
	return false;
}

/* keep sorts a connection request by its rank. */
static void keep(struct snd_job *j, snd_connector *c)
{
	uint32_t rank;
	if (!comes_from_rank(j, c, &rank))
		return;
	struct snd_kept *k = malloc(sizeof *k);
	if (k == NULL) {
		(void)snd_connector_close(c);
		return;
	}
	*k = (struct snd_kept){NULL, c, rank};
	snd_lock(j->fabric);
	struct snd_kept **end = &j->kept;
	while (*end != NULL)
		end = &(*end)->next;
	*end = k;
	snd_unlock(j->fabric);
}

/* unlink_kept removes the oldest request of a rank from the list; NULL if there is none. */
static struct snd_kept *unlink_kept(struct snd_job *j, uint32_t rank)
{
	struct snd_kept **at = &j->kept;
	snd_lock(j->fabric);
	while (*at != NULL && (*at)->rank != rank)
		at = &(*at)->next;
	struct snd_kept *k = *at;
	if (k != NULL)
		*at = k->next;
	snd_unlock(j->fabric);
	return k;
}

/* take_kept takes the oldest request of a rank that it has not given up; NULL if there is none. */
static snd_connector *take_kept(struct snd_job *j, uint32_t rank)
{
	for (struct snd_kept *k; (k = unlink_kept(j, rank)) != NULL;) {
		snd_connector *c = k->connector;
		unsigned char b[4];
		uint32_t n;
		free(k);
		if (snd_connector_private_data(c, b, sizeof b, &n) == SND_SUCCESS)
			return c;
		(void)snd_connector_close(c);
	}
	return NULL;
}

static const snd_connect_params no_limits = {NULL, 0, SND_MAX_READS, SND_MAX_READS, 0};

static snd_status dial(struct snd_job *j, uint32_t address, uint16_t port, snd_endpoint *ep, int64_t timeout, snd_connector **connector)
{
	unsigned char b[4] = {(unsigned char)j->rank, (unsigned char)(j->rank >> 8), (unsigned char)(j->rank >> 16), (unsigned char)(j->rank >> 24)};
	snd_connect_params params = no_limits;
	params.private_data = b;
	params.private_data_length = sizeof b;
	snd_status s = snd_connector_create(j->adapter, connector);
	if (s == SND_SUCCESS)
		s = snd_connector_connect(sizeof params, *connector, ep, (snd_address){address, port, 0}, &params, timeout);
	if (s == SND_SUCCESS)
		s = snd_connector_complete(*connector);
	return s;
}

/* probe sends a process of another host a request to port 0, at which no process can listen. The status is SND_HOST_UNREACHABLE
 * if the process has left, which the memory of this host does not show, and else SND_CONNECTION_REFUSED. */
static snd_status probe(struct snd_job *j, uint32_t address, snd_endpoint *ep, int64_t timeout)
{
	snd_connector *c = NULL;
	const snd_status s = dial(j, address, 0, ep, timeout, &c);
	if (c != NULL)
		(void)snd_connector_close(c);
	return s;
}

/* accept_limit is how long the other side has to complete a connection whose request a call has taken. */
static int64_t accept_limit(int64_t deadline)
{
	const int64_t left = snd_time_left(deadline);
	return left >= 0 && left < LEAST_ACCEPT ? LEAST_ACCEPT : left;
}

static snd_status answer(struct snd_job *j, uint32_t rank, uint32_t address, const struct snd_peer *p, snd_endpoint *ep, int64_t timeout, snd_connector **connector,
	const char *op)
{
	const int64_t deadline = timeout < 0 ? -1 : snd_deadline(timeout);
	int64_t probe_at = snd_deadline(PROBE_INTERVAL);
	for (bool last = false; (*connector = take_kept(j, rank)) == NULL;) {
		if (last)
			return snd_fail(SND_IO_TIMEOUT, "%s: rank %" PRIu32 " has not called snd_job_connect within %s", op, rank, snd_duration(timeout).text);
		snd_connector *c;
		const int64_t left = snd_time_left(deadline), step = left < 0 || left > CHECK_INTERVAL ? CHECK_INTERVAL : left;
		snd_status s = snd_listener_request(j->listener, step, &c);
		if (s == SND_SUCCESS)
			keep(j, c);
		else if (s != SND_IO_TIMEOUT)
			return s;
		else if (snd_peer_gone(p)) /* connect_rank names a rank of this host */
			return snd_fail(SND_HOST_UNREACHABLE, "%s: rank %" PRIu32 ": the relay of this host has died", op, rank);
		else if (snd_is_remote(j, rank) && snd_time_left(probe_at) == 0) {
			if (probe(j, address, ep, left < 0 || left > PROBE_INTERVAL ? PROBE_INTERVAL : left) == SND_HOST_UNREACHABLE)
				return SND_HOST_UNREACHABLE;
			probe_at = snd_deadline(PROBE_INTERVAL);
		}
		last = left == 0;
	}
	const snd_status s = snd_connector_accept(sizeof no_limits, *connector, ep, &no_limits, accept_limit(deadline));
	if (s == SND_IO_TIMEOUT && snd_time_left(deadline) == 0) /* accept names the rest of the time, or the least */
		return snd_fail(s, "%s: rank %" PRIu32 " has not completed the connection within %s", op, rank, snd_duration(timeout < LEAST_ACCEPT ? LEAST_ACCEPT : timeout).text);
	return s;
}

static void give(struct snd_job *j, snd_connector *c)
{
	snd_lock(j->fabric);
	snd_give_to_endpoint(c);
	snd_unlock(j->fabric);
}

/* waits_too returns a rank, other than the given one, that waits until this rank connects with it; this rank if there is none. */
static uint32_t waits_too(struct snd_job *j, uint32_t but)
{
	snd_connector *c;
	while (snd_listener_request(j->listener, 0, &c) == SND_SUCCESS)
		keep(j, c);
	uint32_t rank = j->rank;
	snd_lock(j->fabric);
	for (const struct snd_kept *k = j->kept; k != NULL && rank == j->rank && !j->fabric->closed; k = k->next)
		if (k->rank != but && snd_is_requested(k->connector))
			rank = k->rank;
	snd_unlock(j->fabric);
	return rank;
}

/* explain_timeout adds to the text of a connect whose time is over, because ranks may wait for each other in a circle. */
static snd_status explain_timeout(struct snd_job *j, uint32_t rank)
{
	char text[256], other[64] = "";
	snprintf(text, sizeof text, "%s", snd_last_error());
	const uint32_t too = waits_too(j, rank);
	if (too != j->rank)
		snprintf(other, sizeof other, ", and rank %" PRIu32 " waits for this rank", too);
	return snd_fail(SND_IO_TIMEOUT, "%s%s: rank %" PRIu32 " must connect with rank %" PRIu32 ", too; to connect with several ranks, call snd_job_connect_ranks in each, so that they do not wait in a circle",
		text, other, rank, j->rank);
}

/* connect_rank makes an endpoint and connects it with one of a rank that calls snd_job_connect, or has a listener at the port. */
static snd_status connect_rank(struct snd_job *j, uint32_t rank, uint16_t port, uint32_t address, const struct snd_peer *p, const snd_endpoint_config *config, int64_t timeout,
	snd_endpoint **endpoint, const char *op)
{
	snd_endpoint *ep = NULL;
	snd_connector *c = NULL;
	snd_status s = snd_endpoint_create(sizeof *config, j->adapter, config, &ep);
	if (s != SND_SUCCESS)
		return s;
	const bool by_both = port == SND_CONNECT_PORT;
	s = by_both && rank > j->rank ? answer(j, rank, address, p, ep, timeout, &c, op) : dial(j, address, port, ep, timeout, &c);
	if (s == SND_SUCCESS) {
		give(j, c);
		*endpoint = ep;
		return s;
	}
	if (s == SND_HOST_UNREACHABLE && !snd_is_remote(j, rank) && snd_peer_gone(p)) /* while dial ran, or before */
		s = snd_fail(s, "%s: rank %" PRIu32 " has died or left", op, rank);
	const bool has_ended = s == SND_HOST_UNREACHABLE || s == SND_CONNECTION_ABORTED || s == SND_CONNECTION_REFUSED;
	if (has_ended && !snd_is_remote(j, rank) && (by_both || snd_peer_gone(p))) /* a rank that accepts may have given up a dial, and live */
		snd_record_lost_peer(j->fabric, p->id);
	if (c != NULL)
		(void)snd_connector_close(c);
	(void)snd_endpoint_close(ep);
	return s == SND_IO_TIMEOUT && by_both ? explain_timeout(j, rank) : s;
}

/* begin keeps the job while a call runs without the lock. It returns with the lock given up. */
static void begin(struct snd_job *j, struct snd_call *call)
{
	j->fabric->calls++;
	snd_begin_call(j->fabric, call);
	snd_unlock(j->fabric);
}

/* end returns the status of such a call, after which the job may be closed. */
static snd_status end(struct snd_fabric *f, struct snd_call *call, snd_status s, snd_endpoint **endpoint, const char *op)
{
	snd_lock(f);
	snd_end_call(f, call, s == SND_SUCCESS);
	f->calls--;
	if (f->closed) {
		*endpoint = NULL;
		s = snd_fail(SND_CANCELED, "%s: the job was closed", op);
	}
	return snd_leave_with(f, s);
}

static snd_status check_peer(const struct snd_job *j, uint32_t peer, const char *op)
{
	if (peer < j->size && peer != j->rank)
		return SND_SUCCESS;
	return snd_fail(SND_INVALID_PARAMETER, "%s: rank %" PRIu32 ", but this is rank %" PRIu32 " of %" PRIu32 ": pass another rank of the job", op, peer, j->rank, j->size);
}

static snd_status connect_at(snd_job *job, uint32_t peer, uint16_t port, const snd_endpoint_config *config, int64_t timeout, snd_endpoint **endpoint, const char *op)
{
	SND_ENTER(job, SND_TYPE_JOB, op);
	struct snd_job *j = job;
	struct snd_fabric *f = j->fabric;
	struct snd_peer p;
	const snd_status checked = check_peer(j, peer, op);
	if (checked != SND_SUCCESS)
		return snd_leave_with(f, checked);
	const uint32_t address = address_of(j, peer, &p);
	if (address == 0)
		return snd_leave_with(f, snd_fail(SND_HOST_UNREACHABLE, "%s: rank %" PRIu32 "%s", op, peer, snd_is_remote(j, peer) ? ": the relay of this host has died" : " has not joined the job"));
	char name[20];
	snprintf(name, sizeof name, "rank %" PRIu32, peer);
	struct snd_call call = {.op = port == SND_CONNECT_PORT && peer > j->rank ? "accept" : op, .object = name, .peer = snd_is_remote(j, peer) ? 0 : p.id};
	begin(j, &call);
	return end(f, &call, connect_rank(j, peer, port, address, &p, config, timeout, endpoint, op), endpoint, op);
}

/* CONNECT is the body of a call that connects with one rank. */
#define CONNECT(port, op) \
	SND_KEEP_ERRNO; \
	SND_CHECK(job, SND_TYPE_JOB, op); \
	SND_CHECK_POINTER(endpoint, op); \
	*endpoint = NULL; \
	SND_KNOWN(snd_endpoint_config, config, config_size, op); \
	SND_CHECK_TIMEOUT(timeout, op); \
	return connect_at(job, peer, port, config, timeout, endpoint, op)

snd_status snd_job_connect(size_t config_size, snd_job *job, uint32_t peer, const snd_endpoint_config *config, int64_t timeout, snd_endpoint **endpoint)
{
	CONNECT(SND_CONNECT_PORT, "connect");
}

snd_status snd_job_dial(size_t config_size, snd_job *job, uint32_t peer, const snd_endpoint_config *config, int64_t timeout, snd_endpoint **endpoint)
{
	CONNECT(SND_DIAL_PORT, "dial");
}

/* turn is one connection of a call that makes several. */
struct turn {
	uint32_t peer, index; /* of the endpoint */
};

static int compare_turns(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;
	if (x->peer != y->peer)
		return x->peer < y->peer ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* connect_in_turn connects with one peer after the other, in ascending order: the lowest rank with a missing connection and its lowest such
 * peer always wait for each other. After a failure all endpoints are closed, and NULL. */
static snd_status connect_in_turn(snd_job *job, const struct turn *turns, uint32_t count, const snd_endpoint_config *config, int64_t timeout,
	snd_endpoint **endpoints, const char *op)
{
	const int64_t deadline = timeout < 0 ? -1 : snd_deadline(timeout);
	snd_status s = SND_SUCCESS;
	uint32_t n = 0;
	for (; n < count && s == SND_SUCCESS; n++) {
		snd_endpoint_config own = *config;
		own.context = turns[n].peer;
		s = connect_at(job, turns[n].peer, SND_CONNECT_PORT, &own, snd_time_left(deadline), &endpoints[turns[n].index], op);
	}
	if (s == SND_SUCCESS)
		return s;
	while (n-- > 0) {
		snd_endpoint **ep = &endpoints[turns[n].index];
		if (*ep != NULL && s != SND_CANCELED) /* then the fabric has closed them */
			(void)snd_endpoint_close(*ep);
		*ep = NULL;
	}
	return s;
}

static struct turn *make_turns(uint32_t count, const char *op)
{
	struct turn *turns = calloc((size_t)count + 1, sizeof *turns); /* the result for none may be NULL */
	if (turns == NULL)
		(void)snd_fail(SND_NO_MEMORY, "%s: no private memory for the list of %" PRIu32 " ranks", op, count);
	return turns;
}

snd_status snd_job_connect_all(size_t config_size, snd_job *job, const snd_endpoint_config *config, int64_t timeout, snd_endpoint **endpoints)
{
	SND_KEEP_ERRNO;
	const char *op = "connect";
	SND_CHECK(job, SND_TYPE_JOB, op);
	SND_CHECK_POINTER(endpoints, op);
	SND_CHECK_POINTER(config, op);
	SND_KNOWN(snd_endpoint_config, config, config_size, op);
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(job, SND_TYPE_JOB, op);
	const uint32_t size = job->size, rank = job->rank;
	snd_unlock(job->fabric);
	for (uint32_t i = 0; i < size; i++)
		endpoints[i] = NULL;
	struct turn *turns = make_turns(size, op);
	if (turns == NULL)
		return SND_NO_MEMORY;
	uint32_t n = 0;
	for (uint32_t i = 0; i < size; i++)
		if (i != rank)
			turns[n++] = (struct turn){i, i};
	const snd_status s = connect_in_turn(job, turns, n, config, timeout, endpoints, op);
	free(turns);
	return s;
}

snd_status snd_job_connect_ranks(size_t config_size, snd_job *job, const uint32_t *peers, uint32_t count, const snd_endpoint_config *config, int64_t timeout,
	snd_endpoint **endpoints)
{
	SND_KEEP_ERRNO;
	const char *op = "connect";
	SND_CHECK(job, SND_TYPE_JOB, op);
	SND_CHECK_POINTER(config, op);
	SND_KNOWN(snd_endpoint_config, config, config_size, op);
	SND_CHECK_TIMEOUT(timeout, op);
	if (count > 0) {
		SND_CHECK_POINTER(peers, op);
		SND_CHECK_POINTER(endpoints, op);
	}
	for (uint32_t i = 0; i < count; i++)
		endpoints[i] = NULL;
	SND_ENTER(job, SND_TYPE_JOB, op);
	snd_status s = SND_SUCCESS;
	for (uint32_t i = 0; i < count && s == SND_SUCCESS; i++)
		s = check_peer(job, peers[i], op);
	(void)snd_leave_with(job->fabric, s);
	if (s != SND_SUCCESS || count == 0)
		return s;
	struct turn *turns = make_turns(count, op);
	if (turns == NULL)
		return SND_NO_MEMORY;
	for (uint32_t i = 0; i < count; i++)
		turns[i] = (struct turn){peers[i], i};
	qsort(turns, count, sizeof *turns, compare_turns);
	s = connect_in_turn(job, turns, count, config, timeout, endpoints, op);
	free(turns);
	return s;
}

snd_status snd_job_listen(snd_job *job, snd_listener **listener)
{
	SND_KEEP_ERRNO;
	const char *op = "listen";
	SND_ENTER_TO(job, SND_TYPE_JOB, listener, op);
	snd_listener *l = *listener = NULL;
	snd_adapter *adapter = job->adapter;
	snd_unlock(job->fabric);
	snd_status s = snd_listener_create(adapter, &l);
	if (s == SND_SUCCESS)
		s = snd_listener_bind(l, (snd_address){0, SND_DIAL_PORT, 0});
	if (s == SND_SUCCESS)
		s = snd_listener_listen(l, 0);
	if (s == SND_SUCCESS)
		*listener = l;
	else if (l != NULL)
		(void)snd_listener_close(l);
	return s;
}

/* accept_next accepts the next request that a rank has not given up. */
static snd_status accept_next(struct snd_job *j, snd_listener *listener, const snd_endpoint_config *config, int64_t timeout, snd_endpoint **endpoint, uint32_t *peer, const char *op)
{
	const int64_t deadline = timeout < 0 ? -1 : snd_deadline(timeout);
	for (;;) {
		snd_connector *c;
		snd_endpoint *ep;
		snd_status s = snd_listener_request(listener, snd_time_left(deadline), &c);
		if (s == SND_IO_TIMEOUT)
			return snd_fail(s, "%s: no rank has called snd_job_dial within %s", op, snd_duration(timeout).text);
		if (s != SND_SUCCESS)
			return s;
		if (!comes_from_rank(j, c, peer))
			continue;
		if ((s = snd_endpoint_create(sizeof *config, j->adapter, config, &ep)) != SND_SUCCESS) {
			(void)snd_connector_close(c); /* refuses it; the text of the failure stays */
			return s;
		}
		s = snd_connector_accept(sizeof no_limits, c, ep, &no_limits, accept_limit(deadline));
		if (s == SND_SUCCESS) {
			give(j, c);
			*endpoint = ep;
			return s;
		}
		(void)snd_endpoint_close(ep);
		(void)snd_connector_close(c);
		if (s == SND_CANCELED || s == SND_IO_TIMEOUT)
			return s;
	}
}

snd_status snd_job_accept(size_t config_size, snd_job *job, snd_listener *listener, const snd_endpoint_config *config, int64_t timeout, snd_endpoint **endpoint,
	uint32_t *peer)
{
	SND_KEEP_ERRNO;
	const char *op = "accept";
	SND_CHECK(job, SND_TYPE_JOB, op);
	SND_CHECK_POINTER(endpoint, op);
	*endpoint = NULL;
	SND_CHECK_POINTER(peer, op);
	SND_CHECK_POINTER(config, op);
	SND_KNOWN(snd_endpoint_config, config, config_size, op);
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(job, SND_TYPE_JOB, op);
	struct snd_fabric *f = job->fabric;
	if (!snd_belongs(f, listener, SND_TYPE_LISTENER))
		return snd_leave_with(f, snd_bad_handle(op, "listener"));
	struct snd_call call = {.op = op, .object = "listener"};
	begin(job, &call);
	return end(f, &call, accept_next(job, listener, config, timeout, endpoint, peer, op), endpoint, op);
}

void snd_forget_kept(struct snd_job *j)
{
	while (j->kept != NULL) {
		struct snd_kept *k = j->kept;
		j->kept = k->next;
		free(k);
	}
}

/* TWIN hostlinks.go. */


#include "job/hostlinks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encoding.h"
#include "endpoint/cm_connector.h"
#include "endpoint/cm_ports.h"
#include "endpoint/cq.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"

enum {
	LEADER_PORT = 3,
	MESSAGE = 8 << 10,
	HEADER = 32,  /* kind, length, address, token */
	RECEIVES = 4, /* a leader is at most one call ahead of another, and acknowledges its Reads */
	SLOTS = 1 + RECEIVES, /* of messages: one to send, then those to receive */
	READ = 256 << 10, /* bytes of a Read */
	READS = 4,        /* in flight */
	SEND_CONTEXT = 100, READ_CONTEXT = 101, /* Receives have the number of their slot */
	RESULTS = 16,
};
#define CHECK_INTERVAL INT64_C(100000000)
#define FAIL_LIMIT INT64_C(1000000000) /* for which a failure waits for earlier messages */

/* link is the connection with another host's leader. */
struct link {
	snd_endpoint *ep; /* NULL = none, as for the own host */
	struct { uint32_t slot, length; } arrived[RECEIVES]; /* messages, the oldest first */
	uint32_t messages;
	uint32_t reading; /* Reads that have not completed */
	bool sending;     /* the message to send is in use */
	bool failed;      /* the connection has ended */
};

struct snd_links {
	struct snd_job *job;
	snd_adapter *adapter;
	snd_cq *queue;
	snd_mr *memory;
	unsigned char *buffer; /* of memory: the region names none when another thread has closed the job */
	snd_listener *listener;
	struct link links[SND_HOSTS];
};

static void put_header(unsigned char to[HEADER], enum snd_call_kind kind, uint64_t length, uint64_t address, uint64_t token)
{
	snd_put_number(to, (uint64_t)kind, 8);
	snd_put_number(to + 8, length, 8);
	snd_put_number(to + 16, address, 8);
	snd_put_number(to + 24, token, 8);
}

static snd_status closed(const char *op) { return snd_fail(SND_CANCELED, "%s: the job was closed", op); }

static unsigned char *message_at(const struct snd_links *x, uint32_t host, uint32_t slot)
{
	return x->buffer + ((size_t)host * SLOTS + slot) * MESSAGE;
}

static snd_sge part_of(const struct snd_links *x, unsigned char *at, uint32_t length) { return (snd_sge){at, length, snd_mr_local_token(x->memory)}; }

snd_status snd_links_open(struct snd_job *j, struct snd_links **links, const char *op)
{
	const uint32_t count = j->hosts->count;
	struct snd_links *x = calloc(1, sizeof *x);
	if (x == NULL)
		return snd_no_memory(sizeof *x, "private memory", op);
	x->job = j;
	*links = x;
	snd_status s = snd_adapter_open(j->fabric, &x->adapter);
	if (s == SND_SUCCESS)
		s = snd_cq_create(x->adapter, count * (SLOTS + READS), &x->queue);
	if (s == SND_SUCCESS)
		s = snd_mr_allocate(x->adapter, (uint64_t)count * SLOTS * MESSAGE, SND_ALLOW_LOCAL_WRITE, &x->memory);
	if (s == SND_SUCCESS && (x->buffer = snd_mr_buffer(x->memory)) == NULL)
		s = closed(op);
	if (s == SND_SUCCESS)
		s = snd_listener_create(x->adapter, &x->listener);
	if (s == SND_SUCCESS)
		s = snd_listener_bind(x->listener, (snd_address){0, LEADER_PORT, 0});
	return s == SND_SUCCESS ? snd_listener_listen(x->listener, 0) : s;
}

static snd_status receive(struct snd_links *x, uint32_t host, uint32_t slot)
{
	const snd_sge sge = part_of(x, message_at(x, host, slot), MESSAGE);
	return snd_endpoint_receive(x->links[host].ep, slot, &sge, 1);
}

/* new_link makes an endpoint with its Receives. */
static snd_status new_link(struct snd_links *x, uint32_t host)
{
	const snd_endpoint_config config = {.receive_cq = x->queue, .initiator_cq = x->queue, .context = host};
	snd_status s = snd_endpoint_create(x->adapter, &config, &x->links[host].ep);
	for (uint32_t slot = 1; s == SND_SUCCESS && slot < SLOTS; slot++)
		s = receive(x, host, slot);
	return s;
}

static void keep(struct snd_links *x, snd_connector *c)
{
	snd_lock(x->job->fabric);
	snd_give_to_endpoint(c);
	snd_unlock(x->job->fabric);
}

/* dial connects to the leader of a host. */
static snd_status dial(struct snd_links *x, uint32_t host, uint32_t to, int64_t deadline)
{
	const uint32_t own = x->job->hosts->number;
	unsigned char b[4];
	snd_put_number(b, own, sizeof b);
	const snd_connect_params params = {b, sizeof b, READS, READS, 0};
	snd_connector *c;
	snd_status s = new_link(x, host);
	if (s == SND_SUCCESS)
		s = snd_connector_create(x->adapter, &c);
	if (s != SND_SUCCESS)
		return s;
	s = snd_connector_connect(c, x->links[host].ep, (snd_address){to, LEADER_PORT, 0}, &params, snd_time_left(deadline));
	if (s == SND_SUCCESS)
		s = snd_connector_complete(c);
	if (s == SND_SUCCESS)
		keep(x, c);
	return s;
}

/* take handles a result. */
static void take(struct snd_links *x, const snd_result *r)
{
	if (r->endpoint_context >= SND_HOSTS)
		return;
	struct link *l = &x->links[r->endpoint_context];
	if (r->status != SND_SUCCESS) {
		l->failed = true;
	} else if (r->request_context == SEND_CONTEXT) {
		l->sending = false;
	} else if (r->request_context == READ_CONTEXT) {
		l->reading--;
	} else if (l->messages < RECEIVES) {
		l->arrived[l->messages].slot = (uint32_t)r->request_context;
		l->arrived[l->messages++].length = r->bytes;
	}
}

static void poll(struct snd_links *x)
{
	snd_result results[RESULTS];
	uint32_t n;
	while ((n = snd_cq_poll(x->queue, results, RESULTS)) > 0)
		for (uint32_t i = 0; i < n; i++)
			take(x, &results[i]);
}

static snd_status lost(const struct snd_links *x, uint32_t host, const char *op)
{
	return snd_fail(SND_CONNECTION_ABORTED, "%s: host %" PRIu32 ": rank %" PRIu32 ", the first of that host, has died or left, or the host is not reachable", op, host,
		snd_first_of(x->job->hosts, host));
}

/* next_request waits for a connection request. None comes if the relay of this host has died. If a connection with another leader has
 * ended, this leader gives up as well, so that all hosts learn of it. */
static snd_status next_request(struct snd_links *x, snd_connector **c, int64_t deadline, const char *op)
{
	for (;;) {
		struct snd_peer relay;
		const int64_t left = snd_time_left(deadline), step = left < 0 || left > CHECK_INTERVAL ? CHECK_INTERVAL : left;
		snd_status s = snd_listener_request(x->listener, step, c);
		if (s != SND_IO_TIMEOUT || left == 0)
			return s;
		if (!snd_find_relay(x->job->fabric, &relay))
			return snd_fail(SND_HOST_UNREACHABLE, "the relay of this host has died: start the job again");
		poll(x);
		for (uint32_t host = 0; host < x->job->hosts->count; host++)
			if (x->links[host].ep != NULL && x->links[host].failed)
				return lost(x, host, op);
	}
}

/* answer accepts a connection of a leader of a larger host, and counts it. It rejects others. */
static snd_status answer(struct snd_links *x, const uint32_t *leaders, uint32_t *missing, int64_t deadline, const char *op)
{
	const struct snd_hosts *h = x->job->hosts;
	const snd_connect_params params = {NULL, 0, READS, READS, 0};
	unsigned char b[4];
	uint32_t n = 0;
	snd_address from;
	snd_connector *c;
	snd_status s = next_request(x, &c, deadline, op);
	if (s != SND_SUCCESS)
		return s;
	const bool known = snd_connector_private_data(c, b, sizeof b, &n) == SND_SUCCESS && n == sizeof b && snd_connector_peer_address(c, &from) == SND_SUCCESS;
	const uint32_t host = known ? (uint32_t)snd_get_number(b, sizeof b) : 0;
	if (!known || host <= h->number || host >= h->count || x->links[host].ep != NULL || from.host != leaders[host]) {
		(void)snd_connector_reject(c, NULL, 0);
		(void)snd_connector_close(c);
		return SND_SUCCESS;
	}
	s = new_link(x, host);
	if (s == SND_SUCCESS)
		s = snd_connector_accept(c, x->links[host].ep, &params, snd_time_left(deadline));
	if (s == SND_SUCCESS) {
		keep(x, c);
		--*missing;
	}
	return s;
}

snd_status snd_links_connect(struct snd_links *x, const uint32_t *leaders, int64_t deadline, const char *op)
{
	const struct snd_hosts *h = x->job->hosts;
	char why[300];
	snd_status s = SND_SUCCESS;
	for (uint32_t host = 0; host < h->number; host++)
		if ((s = dial(x, host, leaders[host], deadline)) != SND_SUCCESS) {
			snprintf(why, sizeof why, "%s", snd_last_error());
			return snd_fail(s, "%s: connect to the leader of host %" PRIu32 ": %s", op, host, why);
		}
	for (uint32_t missing = h->count - h->number - 1; missing > 0;)
		if ((s = answer(x, leaders, &missing, deadline, op)) != SND_SUCCESS) {
			snprintf(why, sizeof why, "%s", snd_last_error());
			return snd_fail(s, "%s: connect to the leaders of larger hosts: %s", op, why);
		}
	return s;
}

/* wanted says what the link to a host has to reach in a wait. */
typedef bool (*wanted)(const struct link *l);
static bool has_message(const struct link *l) { return l->messages > 0; }
static bool has_sent(const struct link *l) { return !l->sending; }
static bool has_sent_or_failed(const struct link *l) { return !l->sending || l->failed; } /* the messages of a leader that has closed its job have arrived */
static bool has_room_to_read(const struct link *l) { return l->reading < READS; }
static bool has_read(const struct link *l) { return l->reading == 0; }

/* wait_for waits until a link has reached something, or all links if one is SND_HOSTS. It fails if a connection ends before. */
static snd_status wait_for(struct snd_links *x, uint32_t one, wanted is_ready, int64_t deadline, const char *op)
{
	snd_result results[RESULTS];
	for (;;) {
		uint32_t n;
		poll(x);
		bool done = true;
		for (uint32_t host = 0; host < x->job->hosts->count; host++) {
			const struct link *l = &x->links[host];
			if (l->ep == NULL || (one != SND_HOSTS && host != one) || is_ready(l))
				continue;
			if (l->failed)
				return lost(x, host, op);
			done = false;
		}
		if (done)
			return SND_SUCCESS;
		snd_status s = snd_cq_wait(x->queue, results, RESULTS, snd_time_left(deadline), &n);
		if (s != SND_SUCCESS)
			return snd_fail(s, "%s: not all hosts have arrived", op);
		for (uint32_t i = 0; i < n; i++)
			take(x, &results[i]);
	}
}

/* post sends a message to the leader of a host, when the previous one has been sent. */
static snd_status post(struct snd_links *x, uint32_t host, const unsigned char *head, const unsigned char *body, uint32_t length, int64_t deadline, const char *op)
{
	struct link *l = &x->links[host];
	snd_status s = wait_for(x, host, has_sent, deadline, op);
	if (s != SND_SUCCESS)
		return s;
	unsigned char *at = message_at(x, host, 0);
	memcpy(at, head, HEADER);
	if (length > 0)
		memcpy(at + HEADER, body, length);
	const snd_sge sge = part_of(x, at, HEADER + length);
	l->sending = true;
	if (snd_endpoint_send(l->ep, SEND_CONTEXT, &sge, 1, 0) == SND_SUCCESS)
		return SND_SUCCESS;
	l->failed = true;
	return lost(x, host, op);
}

/* read_pack reads a pack from the memory of another leader, and says so. */
static snd_status read_pack(struct snd_links *x, uint32_t host, struct snd_pack *pack, uint64_t address, uint32_t token, int64_t deadline, const char *op)
{
	struct link *l = &x->links[host];
	unsigned char head[HEADER];
	snd_mr *into;
	snd_status s = snd_mr_allocate(x->adapter, pack->length, SND_ALLOW_LOCAL_WRITE, &into);
	if (s != SND_SUCCESS)
		return s;
	unsigned char *at = snd_mr_buffer(into);
	if (at == NULL) /* the close has freed it */
		return closed(op);
	for (uint64_t done = 0, n; s == SND_SUCCESS && done < pack->length; done += n) {
		n = pack->length - done < READ ? pack->length - done : READ;
		s = wait_for(x, host, has_room_to_read, deadline, op);
		const snd_sge sge = {at + done, (uint32_t)n, snd_mr_local_token(into)};
		if (s == SND_SUCCESS && snd_endpoint_read(l->ep, READ_CONTEXT, &sge, 1, address + done, token, 0) != SND_SUCCESS) {
			l->failed = true;
			s = lost(x, host, op);
		} else if (s == SND_SUCCESS) {
			l->reading++;
		}
	}
	if (s == SND_SUCCESS)
		s = wait_for(x, host, has_read, deadline, op);
	if (s == SND_SUCCESS)
		memcpy(pack->bytes, at, pack->length);
	char why[300];
	snprintf(why, sizeof why, "%s", snd_last_error());
	if (snd_mr_close(into, snd_time_left(deadline)) != SND_SUCCESS && s == SND_SUCCESS)
		return SND_IO_TIMEOUT; /* with the text of that call */
	if (s != SND_SUCCESS)
		return snd_fail(s, "%s", why);
	put_header(head, SND_CALL_READ, 0, 0, 0);
	return post(x, host, head, NULL, 0, deadline, op);
}

/* next takes the next message of a leader, which has to be of a kind, and stores its pack. */
static snd_status next(struct snd_links *x, uint32_t host, enum snd_call_kind kind, struct snd_pack *pack, uint64_t limit, int64_t deadline, const char *op)
{
	struct link *l = &x->links[host];
	unsigned char m[MESSAGE]; /* a copy: the memory is shared */
	const uint32_t slot = l->arrived[0].slot, n = l->arrived[0].length < MESSAGE ? l->arrived[0].length : MESSAGE;
	memcpy(m, message_at(x, host, slot), n);
	memmove(l->arrived, l->arrived + 1, --l->messages * sizeof l->arrived[0]);
	if (receive(x, host, slot) != SND_SUCCESS)
		l->failed = true;
	if (n < HEADER)
		return snd_fail(SND_INTERNAL_ERROR, "%s: host %" PRIu32 ": the message of its leader is damaged", op, host);
	const uint64_t theirs = m[0], length = snd_get_number(m + 8, 8);
	if (theirs == SND_CALL_FAILED) {
		const snd_status status = (snd_status)snd_get_number(m + 16, 8);
		/* A cancel there is none of this rank. */
		return snd_fail(status == SND_CANCELED || status == SND_SUCCESS ? SND_CONNECTION_ABORTED : status, "%s: host %" PRIu32 ": %.*s", op, host, (int)(n - HEADER), (char *)m + HEADER);
	}
	if (theirs != (uint64_t)kind)
		return snd_fail(SND_INVALID_DEVICE_STATE, "%s: the ranks of host %" PRIu32 " make another collective call: let all ranks make the same collective calls in the same order", op, host);
	if (length > limit)
		return snd_fail(SND_INVALID_BUFFER_SIZE, "%s: host %" PRIu32 " passes %" PRIu64 " bytes, at most %" PRIu64, op, host, length, limit);
	if (length == 0)
		return SND_SUCCESS;
	if ((pack->bytes = malloc(length)) == NULL)
		return snd_no_memory(length, "private memory", op);
	pack->length = length;
	if (n - HEADER != length)
		return read_pack(x, host, pack, snd_get_number(m + 16, 8), (uint32_t)snd_get_number(m + 24, 8), deadline, op);
	memcpy(pack->bytes, m + HEADER, length);
	return SND_SUCCESS;
}

/* each takes the next message of each leader. */
static snd_status each(struct snd_links *x, enum snd_call_kind kind, struct snd_pack *packs, uint64_t limit, int64_t deadline, const char *op)
{
	snd_status s = wait_for(x, SND_HOSTS, has_message, deadline, op);
	for (uint32_t host = 0; s == SND_SUCCESS && host < x->job->hosts->count; host++)
		if (x->links[host].ep != NULL)
			s = next(x, host, kind, &packs[host], limit, deadline, op);
	return s;
}

snd_status snd_links_exchange(struct snd_links *x, enum snd_call_kind kind, const struct snd_pack *mine, struct snd_pack *packs, uint64_t limit, int64_t deadline, const char *op)
{
	const uint32_t count = x->job->hosts->count;
	const bool is_long = mine->length > MESSAGE - HEADER;
	unsigned char head[HEADER];
	snd_mr *region = NULL;
	snd_status s = SND_SUCCESS;
	put_header(head, kind, mine->length, 0, 0);
	if (is_long) {
		if ((s = snd_mr_allocate(x->adapter, mine->length, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ, &region)) != SND_SUCCESS)
			return s;
		unsigned char *at = snd_mr_buffer(region);
		if (at == NULL) /* the close has freed it */
			return closed(op);
		memcpy(at, mine->bytes, mine->length);
		put_header(head, kind, mine->length, snd_mr_address(region), snd_mr_remote_token(region));
	}
	for (uint32_t host = 0; s == SND_SUCCESS && host < count; host++)
		if (x->links[host].ep != NULL)
			s = post(x, host, head, mine->bytes, is_long ? 0 : (uint32_t)mine->length, deadline, op);
	if (s == SND_SUCCESS)
		s = each(x, kind, packs, limit, deadline, op);
	if (s == SND_SUCCESS && is_long) { /* until all have read it */
		struct snd_pack none[SND_HOSTS] = {{NULL, 0}};
		s = each(x, SND_CALL_READ, none, 0, deadline, op);
	}
	if (s == SND_SUCCESS) /* this rank may close the job now, which must not take messages back */
		s = wait_for(x, SND_HOSTS, has_sent_or_failed, deadline, op);
	if (region == NULL)
		return s;
	char why[400];
	snprintf(why, sizeof why, "%s", snd_last_error());
	const snd_status ended = snd_mr_close(region, snd_time_left(deadline));
	return s == SND_SUCCESS ? ended : snd_fail(s, "%s", why);
}

void snd_links_fail(struct snd_links *x, snd_status status, const char *text)
{
	const int64_t deadline = snd_deadline(FAIL_LIMIT);
	const size_t n = strlen(text), most = SND_NOTICE - HEADER;
	unsigned char head[HEADER];
	put_header(head, SND_CALL_FAILED, 0, status, 0);
	for (uint32_t host = 0; host < x->job->hosts->count; host++)
		if (x->links[host].ep != NULL && !x->links[host].failed)
			(void)post(x, host, head, (const unsigned char *)text, (uint32_t)(n < most ? n : most), deadline, "fail");
	(void)wait_for(x, SND_HOSTS, has_sent_or_failed, deadline, "fail"); /* else a close could come before */
}

/* Immediate data: of messages, and of Writes, which take a receive and leave its buffer alone. With each executor, memory and kind of receive
 * queue, with payload checks and without. */
#include <unistd.h>

#include "endpoint/cq.h"
#include "endpoint/ring.h"
#include "shm/doorbell.h"
#include "two_members.h"

enum { SIZE = SND_QUANTUM + (64 << 10), RECEIVE = 8, MARK = 0x5a };

static snd_mr *mine, *theirs, *sink; /* of a; of b: for Writes, and for messages */
static snd_srq *srq;

static snd_sge part(snd_mr *mr, size_t n) { return (snd_sge){snd_mr_buffer(mr), (uint32_t)n, snd_mr_local_token(mr)}; }

static void make_region(struct side *s, bool is_private, uint32_t flags, snd_mr **mr)
{
	if (is_private)
		OK(snd_mr_register(s->adapter, malloc(SIZE), SIZE, flags, mr));
	else
		OK(snd_mr_allocate(s->adapter, SIZE, flags, mr));
}

static void free_region(bool is_private, snd_mr *mr)
{
	void *memory = snd_mr_buffer(mr);
	OK(snd_mr_close(mr, 10 * SECOND));
	if (is_private)
		free(memory);
}

static void post_receive(uint64_t context, size_t n)
{
	const snd_sge s = part(sink, n);
	if (srq != NULL)
		OK(snd_srq_receive(srq, context, &s, 1));
	else
		OK(snd_endpoint_receive(b.ep, context, &s, 1));
}

static snd_status write_immediate(uint64_t context, size_t n, uint32_t number, uint32_t flags)
{
	const snd_sge s = part(mine, n);
	return snd_endpoint_write_immediate(a.ep, context, &s, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), number, flags);
}

static snd_status send_immediate(uint64_t context, size_t n, uint32_t number)
{
	const snd_sge s = part(mine, n);
	return snd_endpoint_send_immediate(a.ep, context, &s, 1, number, 0);
}

/* want takes the next result of b. */
static void want(uint32_t type, uint64_t context, uint32_t bytes, uint32_t number)
{
	const snd_result r = next_result(b.cq);
	if (r.status != SND_SUCCESS || r.type != type || r.request_context != context || r.bytes != bytes || r.invalidated_token != number) {
		fprintf(stderr, "type %#x, context %lu, %u bytes, number %#x, %s, want type %#x, context %lu, %u bytes, number %#x\n", r.type, (unsigned long)r.request_context, r.bytes,
			r.invalidated_token, snd_status_name(r.status), type, (unsigned long)context, bytes, number);
		exit(1);
	}
}

static const size_t sizes[] = {0, 8, 24, 25, 32, 33, 40, 41, 48, 49, 4096, SIZE};

/* transfer makes a transfer of each kind. */
static void transfer(size_t n, unsigned seed)
{
	unsigned char *buffer = snd_mr_buffer(sink);
	fill(snd_mr_buffer(mine), n, seed);
	memset(buffer, MARK, RECEIVE);
	post_receive(1, RECEIVE);
	OK(write_immediate(2, n, seed, 0));
	want(SND_REQUEST_RECEIVE_WRITE_IMMEDIATE, 1, (uint32_t)n, seed);
	CHECK(memcmp(snd_mr_buffer(mine), snd_mr_buffer(theirs), n) == 0);
	for (int i = 0; i < RECEIVE; i++)
		CHECK(buffer[i] == MARK);
	WANT(a.cq, SND_REQUEST_WRITE, 2, SND_SUCCESS);

	post_receive(3, SIZE);
	OK(send_immediate(4, n, ~seed));
	want(SND_REQUEST_RECEIVE_IMMEDIATE, 3, (uint32_t)n, ~seed);
	CHECK(memcmp(snd_mr_buffer(mine), buffer, n) == 0);
	WANT(a.cq, SND_REQUEST_SEND, 4, SND_SUCCESS);
}

/* order mixes messages and Writes, before the receives are posted and after. */
static void order(void)
{
	const snd_sge s = part(mine, 8), none = part(mine, 0);
	for (int late = 0; late < 2; late++) {
		for (uint64_t i = 0; !late && i < 6; i++)
			post_receive(i, RECEIVE);
		OK(snd_endpoint_send(a.ep, 10, &s, 1, 0));
		OK(write_immediate(11, 4096, 1, 0));
		OK(snd_endpoint_send(a.ep, 12, &s, 1, 0));
		OK(send_immediate(13, 8, 2));
		OK(snd_endpoint_write_immediate(a.ep, 14, &none, 1, 0, 0, 3, 0)); /* without bytes the token is not checked */
		OK(snd_endpoint_send(a.ep, 15, &s, 1, 0));
		for (uint64_t i = 0; late && i < 6; i++)
			post_receive(i, RECEIVE);
		want(SND_REQUEST_RECEIVE, 0, 8, 0);
		want(SND_REQUEST_RECEIVE_WRITE_IMMEDIATE, 1, 4096, 1);
		want(SND_REQUEST_RECEIVE, 2, 8, 0);
		want(SND_REQUEST_RECEIVE_IMMEDIATE, 3, 8, 2);
		want(SND_REQUEST_RECEIVE_WRITE_IMMEDIATE, 4, 0, 3);
		want(SND_REQUEST_RECEIVE, 5, 8, 0);
		for (uint64_t i = 10; i < 16; i++)
			WANT(a.cq, i == 11 || i == 14 ? SND_REQUEST_WRITE : SND_REQUEST_SEND, i, SND_SUCCESS);
	}
}

static void *wait_solicited(void *unused)
{
	(void)unused;
	OK(snd_cq_notify(b.cq, SND_NOTIFY_SOLICITED, 10 * SECOND));
	return NULL;
}

static void solicited(void)
{
	pthread_t thread;
	post_receive(1, RECEIVE);
	CHECK(pthread_create(&thread, NULL, wait_solicited, NULL) == 0);
	usleep(20000);
	OK(write_immediate(2, 8, 1, SND_SOLICIT_EVENT));
	CHECK(pthread_join(thread, NULL) == 0);
	want(SND_REQUEST_RECEIVE_WRITE_IMMEDIATE, 1, 8, 1);
	WANT(a.cq, SND_REQUEST_WRITE, 2, SND_SUCCESS);
}

/* refused tries posts that fail, and requests that the peer refuses. */
static void refused(void)
{
	const snd_sge s = part(mine, 100);
	CHECK(snd_endpoint_send_immediate(a.ep, 1, &s, 1, 5, SND_ALLOW_READ) == SND_INVALID_PARAMETER);
	CHECK(snd_endpoint_write_immediate(a.ep, 1, &s, 1, 0, 0, 5, SND_ALLOW_READ) == SND_INVALID_PARAMETER);
	CHECK(snd_endpoint_write(a.ep, 1, &s, 1, 0, 0, SND_SOLICIT_EVENT) == SND_INVALID_PARAMETER);
	a.ep->conn->peer_extended = false; /* as a peer on another host */
	CHECK(send_immediate(1, 8, 5) == SND_NOT_SUPPORTED && write_immediate(1, 8, 5, 0) == SND_NOT_SUPPORTED);
	a.ep->conn->peer_extended = true;
	transfer(100, 9);
	if (srq != NULL)
		return; /* the receive would stay */
	post_receive(1, RECEIVE);
	OK(snd_endpoint_write_immediate(a.ep, 2, &s, 1, snd_mr_address(theirs) + SIZE - 99, snd_mr_remote_token(theirs), 5, 0));
	WANT(a.cq, SND_REQUEST_WRITE, 2, SND_ACCESS_VIOLATION);
	WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_CANCELED);
}

/* behind_message writes to a bad range behind a message that b has not placed yet. No receive is left, and none is needed to refuse it. */
static void behind_message(void)
{
	connect_members(NULL);
	set_timeouts(10 * SECOND, SND_DEFAULT_TIMEOUT); /* the Write must not end by it */
	const snd_sge s = part(mine, 100), word = part(mine, 8);
	const uint64_t to = snd_mr_address(theirs) + SIZE - 99;
	const uint32_t token = snd_mr_remote_token(theirs);
	post_receive(1, RECEIVE);
	snd_lock(b.fabric); /* b serves nothing meanwhile */
	OK(snd_endpoint_send(a.ep, 2, &word, 1, SND_SILENT_SUCCESS));
	OK(snd_endpoint_write_immediate(a.ep, 3, &s, 1, to, token, 5, 0));
	WANT(a.cq, SND_REQUEST_WRITE, 3, SND_ACCESS_VIOLATION);
	snd_unlock(b.fabric);
	want(SND_REQUEST_RECEIVE, 1, 8, 0);
	set_timeouts(SND_FOREVER, SND_DEFAULT_TIMEOUT);
	disconnect_members();
}

/* last closes a's endpoint at once. A Write that has succeeded arrives. */
static void last(void)
{
	connect_members(NULL);
	post_receive(1, RECEIVE);
	const snd_sge s = part(mine, 100);
	const uint64_t to = snd_mr_address(theirs);
	const uint32_t token = snd_mr_remote_token(theirs);
	snd_lock(b.fabric); /* b serves nothing meanwhile */
	OK(snd_endpoint_write_immediate(a.ep, 2, &s, 1, to, token, 7, 0));
	snd_result r;
	const bool succeeded = snd_cq_poll(a.cq, &r, 1) == 1;
	OK(snd_endpoint_close(a.ep));
	snd_unlock(b.fabric);
	if (succeeded) {
		CHECK(r.status == SND_SUCCESS);
		want(SND_REQUEST_RECEIVE_WRITE_IMMEDIATE, 1, 100, 7);
	} else {
		WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_CANCELED);
	}
	OK(snd_endpoint_close(b.ep));
	OK(snd_connector_close(a.connector));
	OK(snd_connector_close(b.connector));
}

/* timed_out writes to a peer without a receive. */
static void timed_out(void)
{
	connect_members(NULL);
	set_timeouts(SECOND / 10, SND_DEFAULT_TIMEOUT);
	OK(write_immediate(1, 8, 5, 0));
	WANT(a.cq, SND_REQUEST_WRITE, 1, SND_IO_TIMEOUT);
	set_timeouts(SND_FOREVER, SND_DEFAULT_TIMEOUT);
	disconnect_members();
}

/* changed changes the buffer of a Write that is deferred, with payload checks. */
static void changed(size_t n)
{
	connect_members(NULL);
	unsigned char *source = snd_mr_buffer(mine);
	post_receive(1, RECEIVE);
	OK(write_immediate(2, n, 5, SND_DEFER));
	source[n - 1] ^= 1;
	OK(write_immediate(3, n, 5, 0));
	WANT(a.cq, SND_REQUEST_WRITE, 2, SND_DATA_CHECKSUM_ERROR);
	WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_CANCELED);
	disconnect_members();
}

/* push pushes an entry of a. */
static void push(uint32_t kind, uint32_t flags, uint64_t length, uint32_t token, uint64_t w1, uint64_t w4, uint64_t w5)
{
	snd_lock(a.fabric);
	struct snd_producer *out = &a.ep->conn->out;
	const uint64_t words[7] = {snd_entry_header(kind, flags, length, token), w1, 1, 1, w4, w5, 1};
	for (int i = 0; i < 7; i++)
		snd_set(&snd_next_slot(out)->words[i], words[i]);
	snd_publish(out);
	snd_ring_peer(a.fabric, &a.ep->conn->peer);
	snd_unlock(a.fabric);
}

/* lie pushes an entry that no correct peer pushes. b ends the connection. */
static void lie(int receives, uint32_t kind, uint32_t flags, uint64_t length, uint64_t w1, uint64_t w4, uint64_t w5)
{
	connect_members(NULL);
	for (int i = 0; i < receives; i++)
		post_receive(1, RECEIVE);
	push(kind, flags, length, snd_mr_remote_token(theirs), w1, w4, w5);
	for (int i = 0; i < 100000 && snd_endpoint_error(b.ep) == SND_SUCCESS; i++)
		usleep(100);
	CHECK(snd_endpoint_error(b.ep) == SND_CONNECTION_ABORTED);
	disconnect_members();
}

static void lies(void)
{
	enum { FIRST = SNDL_FLAG_FIRST, LAST = SNDL_FLAG_LAST, ACK = SNDL_FLAG_ACK_REQUEST, NUMBER = SNDL_FLAG_IMMEDIATE, WHOLE = FIRST | LAST, PLAIN = WHOLE | ACK };
	const uint64_t at = snd_mr_address(theirs);
	connect_members(NULL);
	post_receive(1, RECEIVE);
	push(SNDL_KIND_WRITE_IN_ENTRY, PLAIN | NUMBER, 0, 0, 0, 0, 0); /* correct: without bytes it names no memory */
	want(SND_REQUEST_RECEIVE_WRITE_IMMEDIATE, 1, 0, 1);
	post_receive(2, RECEIVE);
	push(SNDL_KIND_WRITE_PLACED, WHOLE | NUMBER, 0, 7, UINT64_MAX, 0, 0); /* the length has no effect but for the result */
	want(SND_REQUEST_RECEIVE_WRITE_IMMEDIATE, 2, 1u << 30, 7);
	disconnect_members();
	lie(0, SNDL_KIND_WRITE_PLACED, WHOLE | NUMBER, 0, 8, 0, 0); /* without a receive */
	lie(0, SNDL_KIND_WRITE_IN_ENTRY, PLAIN | NUMBER, 8, at, 0, 0);
	lie(0, SNDL_KIND_WRITE_FRAGMENT, PLAIN | NUMBER, 0, at, 1, 0);
	lie(0, SNDL_KIND_SEND_IN_ENTRY, WHOLE | NUMBER, 8, at, 0, 0);
	lie(1, SNDL_KIND_WRITE_PLACED, WHOLE, 0, 8, 0, 0); /* without a number */
	lie(1, SNDL_KIND_WRITE_PLACED, WHOLE | NUMBER, 1, 8, 0, 0);
	lie(1, SNDL_KIND_WRITE_IN_ENTRY, PLAIN | NUMBER, 33, at, 0, 0); /* more than it holds */
	lie(1, SNDL_KIND_WRITE_IN_ENTRY, PLAIN | NUMBER | SNDL_FLAG_HASHED, 25, at, 0, 0);
	lie(1, SNDL_KIND_SEND_IN_ENTRY, WHOLE | NUMBER | SNDL_FLAG_INVALIDATE, 8, at, 0, 0);
	lie(1, SNDL_KIND_SEND_FAILED, WHOLE | NUMBER, 0, SND_BUFFER_OVERFLOW, 0, 0);
	lie(1, SNDL_KIND_READ_FRAGMENT, PLAIN | NUMBER, 0, at, 8, 0);
	lie(1, SNDL_KIND_ATOMIC, PLAIN | NUMBER, 0, at, SNDL_OPERATION_SWAP, 0);
	lie(1, SNDL_KIND_ATOMIC, WHOLE, 0, at, SNDL_OPERATION_SWAP, 0);
	lie(1, SNDL_KIND_ATOMIC, PLAIN, 0, at, 0, 0);
	lie(1, SNDL_KIND_ATOMIC, PLAIN, 0, at, SNDL_OPERATION_SWAP + 1, 0);
	lie(1, SNDL_KIND_ATOMIC, PLAIN, 0, at, SNDL_OPERATION_SWAP, SNDL_RESULTS);
	lie(1, SNDL_KIND_ATOMIC, PLAIN, 0, at, SNDL_OPERATION_SWAP, 0); /* memory without the right */
	lie(1, SNDL_KIND_ATOMIC + 1, PLAIN, 0, at, SNDL_OPERATION_SWAP, 0);
}

static void with_queue(snd_srq *q)
{
	srq = q;
	for (check_payloads = 0; check_payloads < 2; check_payloads++) {
		connect_members(srq);
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
			transfer(sizes[i], (unsigned)i);
		order();
		solicited();
		refused();
		disconnect_members();
	}
	check_payloads = 0;
	srq = NULL;
}

int main(void)
{
	for (int executor = SND_EXECUTOR_AUTO; executor <= SND_EXECUTOR_TARGET; executor++)
		for (int setup = 0; setup < 4; setup++) {
			const bool is_private = setup % 2 != 0, weak = setup / 2 != 0;
			snd_srq *q;
			open_members_with((snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO, .executor = (snd_executor)executor,
				.weak_order = weak});
			set_timeouts(SND_FOREVER, SND_DEFAULT_TIMEOUT);
			make_region(&a, is_private, SND_ALLOW_LOCAL_WRITE, &mine);
			make_region(&b, is_private, SND_ALLOW_REMOTE_WRITE, &theirs);
			make_region(&b, is_private, SND_ALLOW_LOCAL_WRITE, &sink);
			with_queue(NULL);
			OK(snd_srq_create(b.adapter, &(snd_srq_config){.depth = 16}, &q));
			with_queue(q);
			last();
			timed_out();
			if (executor == SND_EXECUTOR_AUTO && !is_private) /* else only b can check the range */
				behind_message();
			check_payloads = 1;
			for (size_t i = 1; i < sizeof sizes / sizeof sizes[0]; i++)
				changed(sizes[i]);
			check_payloads = 0;
			lies();
			free_region(is_private, mine);
			free_region(is_private, theirs);
			free_region(is_private, sink);
			close_members();
		}
	return 0;
}

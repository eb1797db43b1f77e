/* How endpoints with a number fail, at both sides: as queue pairs of a card. With each executor, memory and kind of receive queue. */
#include "endpoint/cm_connection.h"
#include "endpoint/cq.h"
#include "endpoint/mr.h"
#include "endpoint/progress_housekeeper.h"
#include "endpoint/qp.h"
#include "endpoint/req_execute.h"
#include "endpoint/srq.h"
#include "linux/clock.h"
#include "two_members.h"

enum { SIZE = 1 << 17, SMALL = 32, LARGE = 1 << 16, RECEIVES = 2 };

static snd_mr *mine, *theirs; /* of a, and of b */
static snd_srq *srq;
static bool is_private;

static snd_sge part(snd_mr *mr, uint32_t n) { return (snd_sge){snd_mr_buffer(mr), n, snd_mr_local_token(mr)}; }
static snd_sge bad(snd_mr *mr, uint32_t n) { return (snd_sge){snd_mr_buffer(mr), n, snd_mr_local_token(mr) ^ UINT32_C(1) << 25}; }

static void make_region(struct side *s, uint32_t flags, snd_mr **mr)
{
	if (is_private)
		OK(snd_mr_register(s->adapter, malloc(SIZE), SIZE, flags, mr));
	else
		OK(snd_mr_allocate(s->adapter, SIZE, flags, mr));
}

static void free_region(snd_mr *mr)
{
	void *memory = snd_mr_buffer(mr);
	OK(snd_mr_close(mr, 10 * SECOND));
	if (is_private)
		free(memory);
}

static void post_receive(uint64_t context, snd_sge s)
{
	if (srq != NULL)
		OK(snd_srq_receive(srq, context, &s, 1));
	else
		OK(snd_endpoint_receive(b.ep, context, &s, 1));
}

static uint32_t calls[2]; /* of the function that the endpoint of a side calls when it fails */

static void count_call(void *arg, snd_status fault)
{
	(void)fault;
	++*(uint32_t *)arg;
}

/* number makes an endpoint one with a number, as if it had been before it was connected. */
static void number(struct side *s, uint32_t rights, uint32_t rnr_retry, uint64_t rnr_timer)
{
	struct snd_endpoint *ep = s->ep;
	struct snd_connection *c = ep->conn;
	snd_lock(s->fabric);
	ep->numbered = true;
	ep->match.rnr_retry = rnr_retry;
	ep->match.retry_deadline = 1000000; /* of requests to a peer that has ended */
	ep->failed = count_call;
	ep->failed_arg = &calls[s == &b];
	calls[s == &b] = 0;
	ep->conn = NULL;
	snd_set_access(ep, rights);
	ep->conn = c;
	snd_obey_access(c);
	snd_set(&ep->local_qp->rnr_timer, rnr_timer);
	snd_unlock(s->fabric);
}

enum { ALL = SNDL_RIGHT_READ | SNDL_RIGHT_WRITE | SNDL_RIGHT_ATOMIC };

static void begin(void)
{
	connect_members(NULL);
	number(&a, ALL, 7, 0);
	number(&b, ALL, 7, 0);
}

static void begin_shared(void)
{
	OK(snd_srq_create(b.adapter, &(snd_srq_config){.depth = 16}, &srq));
	connect_members(srq);
	number(&a, ALL, 7, 0);
	number(&b, ALL, 7, 0);
}

static void end(void)
{
	disconnect_members();
	if (srq != NULL)
		OK(snd_srq_close(srq));
	srq = NULL;
}

/* want takes the next result of a side's requests, or of its receives. The order between the two is not fixed. */
static snd_result held[2][16]; /* of both sides, that were not taken yet */
static uint32_t holds[2];

static void want_at(int line, struct side *s, uint32_t type, uint64_t context, snd_status status)
{
	const int side = s == &b;
	snd_result r;
	for (uint32_t i = 0;; i++) {
		if (i == holds[side]) {
			CHECK(i < 16);
			held[side][holds[side]++] = next_result(s->cq);
		}
		r = held[side][i];
		if ((r.type == SND_REQUEST_RECEIVE) != (type == SND_REQUEST_RECEIVE))
			continue;
		memmove(&held[side][i], &held[side][i + 1], (--holds[side] - i) * sizeof r);
		break;
	}
	if (r.type != type || r.request_context != context || r.status != status) {
		fprintf(stderr, "line %d: type %#x, context %lu, %s, want type %#x, context %lu, %s; %s\n", line, r.type, (unsigned long)r.request_context, snd_status_name(r.status), type,
			(unsigned long)context, snd_status_name(status), s->ep->cause_text);
		exit(1);
	}
}
#define want(...) want_at(__LINE__, __VA_ARGS__)

/* is_broken waits until a side has noticed the end of the connection, and reports whether it is broken. */
static bool is_broken(struct side *s)
{
	const int64_t deadline = snd_clock() + 10 * SECOND;
	bool ended = false, broken = false;
	while (!ended) {
		CHECK(snd_clock() < deadline);
		OK(snd_fabric_progress(s->fabric));
		snd_lock(s->fabric);
		ended = s->ep->state == SND_QP_FAILED && s->ep->teardown == SND_FLUSHED;
		broken = snd_is_broken(s->ep);
		snd_unlock(s->fabric);
	}
	return broken;
}

static void want_nothing(struct side *s)
{
	snd_result r;
	CHECK(holds[s == &b] == 0 && snd_cq_poll(s->cq, &r, 1) == 0);
}

/* want_broken checks that a side is in error, and that its receives are canceled. */
static void want_broken(struct side *s, uint64_t first, uint64_t last, snd_status fault)
{
	CHECK(is_broken(s));
	for (uint64_t i = first; i <= last; i++)
		want(s, SND_REQUEST_RECEIVE, i, SND_CANCELED);
	want_nothing(s);
	CHECK(s->ep->fault == fault && calls[s == &b] == 1);
}

/* want_quiet checks that a side keeps its receives, until its own requests fail. */
static void want_quiet(struct side *s, uint64_t first, uint64_t last)
{
	snd_mr *mr = s == &a ? mine : theirs;
	const snd_sge e = part(mr, SMALL);
	CHECK(!is_broken(s) && calls[s == &b] == 0);
	want_nothing(s);
	if (s == &a || srq == NULL) {
		OK(snd_endpoint_receive(s->ep, ++last, &e, 1));
		want_nothing(s);
	}
	OK(snd_endpoint_write(s->ep, 1, &e, 1, 0, 1, SND_DEFER));
	OK(snd_endpoint_send(s->ep, 2, &e, 1, 0));
	want(s, SND_REQUEST_WRITE, 1, SND_CONNECTION_ABORTED);
	want(s, SND_REQUEST_SEND, 2, SND_CANCELED);
	want_broken(s, first, last, SND_SUCCESS);
	OK(snd_endpoint_read(s->ep, 3, &e, 1, 0, 1, 0));
	want(s, SND_REQUEST_READ, 3, SND_CANCELED);
}

/* post_all posts receives at both sides. Nothing takes them. */
static void post_all(void)
{
	const snd_sge m = part(mine, LARGE), t = part(theirs, LARGE);
	for (uint64_t i = 0; i < RECEIVES; i++) {
		OK(snd_endpoint_receive(a.ep, 50 + i, &m, 1));
		if (srq == NULL)
			post_receive(60 + i, t);
	}
}

static void post(uint32_t type, uint64_t context, snd_sge s, uint64_t address, uint32_t token, uint32_t flags)
{
	const snd_request r = {.type = type, .flags = flags, .context = context, .sge = &s, .count = 1, .address = address, .token = token, .operand = 1};
	OK(snd_endpoint_post(a.ep, &r, 1, NULL));
}

static uint64_t far(void) { return snd_mr_address(theirs); }
/* fails posts a request of a that fails with a status, and another one behind it. */
static void fails(uint32_t type, snd_sge s, uint64_t address, uint32_t token, snd_status status)
{
	post(SND_REQUEST_WRITE, 10, part(mine, SMALL), far(), snd_mr_remote_token(theirs), SND_DEFER);
	post(type, 11, s, address, token, SND_DEFER);
	post(SND_REQUEST_WRITE, 12, part(mine, SMALL), far(), snd_mr_remote_token(theirs), 0);
	want(&a, SND_REQUEST_WRITE, 10, SND_SUCCESS);
	want(&a, type, 11, status);
	want(&a, SND_REQUEST_WRITE, 12, SND_CANCELED);
	want_broken(&a, 50, 50 + RECEIVES - 1, SND_SUCCESS);
}

static const uint32_t one_sided[] = {SND_REQUEST_WRITE, SND_REQUEST_READ, SND_REQUEST_FETCH_AND_ADD};
enum { ONE_SIDED = sizeof one_sided / sizeof one_sided[0] };

static uint32_t size_of(uint32_t type, uint32_t n) { return type == SND_REQUEST_FETCH_AND_ADD ? 8 : n; }

static void test_local_entries(void)
{
	for (int i = 0; i < 2 * ONE_SIDED; i++) {
		const uint32_t type = one_sided[i / 2];
		begin();
		post_all();
		fails(type, bad(mine, size_of(type, i % 2 == 0 ? SMALL : LARGE)), far(), snd_mr_remote_token(theirs), SND_INVALID_ADDRESS);
		want_quiet(&b, 60, 60 + RECEIVES - 1);
		end();
	}
	for (int i = 0; i < 2; i++) {
		begin();
		post_all();
		fails(SND_REQUEST_SEND, bad(mine, i == 0 ? SMALL : LARGE), 0, 0, SND_INVALID_ADDRESS);
		want_quiet(&b, 60, 60 + RECEIVES - 1);
		end();
	}
}

static void test_remote_tokens(void)
{
	for (int i = 0; i < 3 * 2 * ONE_SIDED; i++) {
		const uint32_t type = one_sided[i % ONE_SIDED], n = size_of(type, i / ONE_SIDED % 2 == 0 ? SMALL : LARGE);
		snd_mr *none;
		begin();
		make_region(&b, SND_ALLOW_LOCAL_WRITE, &none);
		post_all();
		switch (i / 2 / ONE_SIDED) {
		case 0: fails(type, part(mine, n), far(), snd_mr_remote_token(theirs) ^ UINT32_C(1) << 25, SND_ACCESS_VIOLATION); break;
		case 1: fails(type, part(mine, n), far() + SIZE - n + 8, snd_mr_remote_token(theirs), SND_ACCESS_VIOLATION); break;
		case 2: fails(type, part(mine, n), snd_mr_address(none), snd_mr_remote_token(none), SND_ACCESS_VIOLATION); break;
		}
		want_broken(&b, 60, 60 + RECEIVES - 1, SND_ACCESS_VIOLATION);
		end();
		free_region(none);
	}
}

/* A Write with immediate data fails for its token before it waits for a Receive, if this side checks the token. */
static void test_immediate_tokens(void)
{
	for (int i = 0; i < 2; i++) {
		begin();
		if (snd_peer_must_copy(a.ep)) {
			end();
			return;
		}
		const snd_sge s = part(mine, i == 0 ? SMALL : LARGE);
		const snd_request r = {.type = SND_REQUEST_WRITE, .context = 11, .sge = &s, .count = 1, .address = far(), .token = snd_mr_remote_token(theirs) ^ UINT32_C(1) << 25, .has_immediate = 1};
		OK(snd_endpoint_post(a.ep, &r, 1, NULL));
		want(&a, SND_REQUEST_WRITE, 11, SND_ACCESS_VIOLATION);
		want_broken(&b, 1, 0, SND_ACCESS_VIOLATION);
		end();
	}
}

static const uint32_t right_of[] = {SNDL_RIGHT_WRITE, SNDL_RIGHT_READ, SNDL_RIGHT_ATOMIC};

/* Rights that the endpoint of the memory's owner does not give, from the beginning, or from then on. */
static void test_access(void)
{
	for (int i = 0; i < 2 * 2 * ONE_SIDED; i++) {
		const uint32_t type = one_sided[i % ONE_SIDED], n = size_of(type, i / ONE_SIDED % 2 == 0 ? SMALL : LARGE), right = right_of[i % ONE_SIDED];
		const bool is_late = i / 2 / ONE_SIDED == 1;
		begin();
		number(&b, is_late ? ALL : ALL & ~right, 7, 0);
		post_all();
		for (int other = 0; other < ONE_SIDED; other++)
			if (is_late || right_of[other] != right) {
				post(one_sided[other], 20, part(mine, size_of(one_sided[other], SMALL)), far(), snd_mr_remote_token(theirs), 0);
				want(&a, one_sided[other], 20, SND_SUCCESS);
			}
		if (is_late) {
			snd_lock(b.fabric);
			snd_set_access(b.ep, ALL & ~right);
			snd_unlock(b.fabric);
		}
		post(type, 11, part(mine, n), far(), snd_mr_remote_token(theirs), 0);
		want(&a, type, 11, SND_ACCESS_VIOLATION);
		want_broken(&a, 50, 50 + RECEIVES - 1, SND_SUCCESS);
		want_broken(&b, 60, 60 + RECEIVES - 1, SND_ACCESS_VIOLATION);
		end();
	}
}

/* is_copied compares the memory of both sides, which the engine of b has written. The thread sanitizer sees the order only by the lock: it takes
 * the two mappings of the arena in this process for different memory. */
static bool is_copied(const unsigned char *from, const unsigned char *to, uint32_t n)
{
	snd_lock(b.fabric);
	const bool same = memcmp(from, to, n) == 0;
	snd_unlock(b.fabric);
	return same;
}

/* Regions whose addresses are not those of their memory. */
static void test_addresses(void)
{
	const uint64_t base = is_private ? 0 : UINT64_C(0x7000000000000008);
	const uint32_t rights = SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC;
	unsigned char *from = snd_mr_buffer(mine), *to = snd_mr_buffer(theirs);
	snd_mr *own, *other;
	OK(snd_mr_register_at(a.adapter, from + 16, LARGE, base, SND_ALLOW_LOCAL_WRITE, &own));
	OK(snd_mr_register_at(b.adapter, to + 20, LARGE, base, rights, &other));
	begin();
	for (uint32_t n = 8; n < LARGE; n += 4093 * 4) {
		const snd_sge s = {(void *)(uintptr_t)(base + 8), n, snd_mr_local_token(own)}, r = {(void *)(uintptr_t)(base + 8), n, snd_mr_local_token(other)};
		fill(from, SIZE, n);
		post(SND_REQUEST_WRITE, 10, s, base + 8, snd_mr_remote_token(other), 0);
		want(&a, SND_REQUEST_WRITE, 10, SND_SUCCESS);
		CHECK(is_copied(from + 24, to + 28, n));
		fill(from, SIZE, n + 1);
		OK(snd_endpoint_receive(b.ep, 60, &r, 1));
		post(SND_REQUEST_SEND, 11, s, 0, 0, 0);
		want(&b, SND_REQUEST_RECEIVE, 60, SND_SUCCESS);
		want(&a, SND_REQUEST_SEND, 11, SND_SUCCESS);
		CHECK(is_copied(from + 24, to + 28, n));
		fill(from, SIZE, n + 2);
		post(SND_REQUEST_READ, 12, s, base + 8, snd_mr_remote_token(other), 0);
		want(&a, SND_REQUEST_READ, 12, SND_SUCCESS);
		CHECK(is_copied(from + 24, to + 28, n));
	}
	post_all();
	fails(SND_REQUEST_FETCH_AND_ADD, part(mine, 8), base + 8, snd_mr_remote_token(other), SND_INVALID_DEVICE_REQUEST); /* not aligned in memory */
	want_broken(&b, 60, 60 + RECEIVES - 1, SND_INVALID_DEVICE_REQUEST);
	end();
	begin();
	post_all();
	fails(SND_REQUEST_WRITE, (snd_sge){from + 16, 8, snd_mr_local_token(own)}, far(), snd_mr_remote_token(theirs), SND_INVALID_ADDRESS); /* the address of the memory */
	want_quiet(&b, 60, 60 + RECEIVES - 1);
	end();
	OK(snd_mr_close(own, 10 * SECOND));
	OK(snd_mr_close(other, 10 * SECOND));
}

/* Messages that their receive cannot hold, or must not be stored in it. */
static void test_receives(void)
{
	for (int i = 0; i < 2 * 2 * 2; i++) {
		const uint32_t n = i % 2 == 0 ? SMALL : LARGE;
		const bool is_long = i / 2 % 2 == 0;
		if (i / 4 == 0)
			begin();
		else
			begin_shared();
		post_receive(59, is_long ? part(theirs, n - 1) : bad(theirs, n));
		post_all();
		fails(SND_REQUEST_SEND, part(mine, n), 0, 0, is_long ? SND_INVALID_DEVICE_REQUEST : SND_REMOTE_ERROR);
		want(&b, SND_REQUEST_RECEIVE, 59, is_long ? SND_BUFFER_OVERFLOW : SND_ACCESS_VIOLATION);
		want_broken(&b, 60, srq == NULL ? 60 + RECEIVES - 1 : 0, is_long ? SND_INVALID_DEVICE_REQUEST : SND_REMOTE_ERROR);
		end();
	}
}

/* Messages without a receive. */
static void test_no_receive(void)
{
	for (int i = 0; i < 2 * 2; i++) {
		const uint32_t n = i % 2 == 0 ? SMALL : SIZE;
		if (i / 2 == 0)
			begin();
		else
			begin_shared();
		number(&a, ALL, 2, 0);
		number(&b, ALL, 7, 2000000);
		const snd_sge m = part(mine, SMALL), t = part(theirs, SIZE);
		OK(snd_endpoint_receive(a.ep, 50, &m, 1));
		OK(snd_endpoint_receive(a.ep, 51, &m, 1));
		const int64_t began = snd_clock();
		fails(SND_REQUEST_SEND, part(mine, n), 0, 0, SND_IO_TIMEOUT);
		CHECK(snd_clock() - began >= 3 * 2000000);
		CHECK(!is_broken(&b));
		if (srq == NULL)
			OK(snd_endpoint_receive(b.ep, 60, &t, 1));
		want_quiet(&b, 60, srq == NULL ? 60 : 0);
		end();
	}
	for (int i = 0; i < 2; i++) { /* without a limit, and within it */
		if (i == 0)
			begin();
		else
			begin_shared();
		number(&a, ALL, i == 0 ? 7 : 6, 0);
		number(&b, ALL, 7, UINT64_C(655360000));
		post(SND_REQUEST_SEND, 10, part(mine, SMALL), 0, 0, 0);
		nanosleep(&(struct timespec){0, 5000000}, NULL);
		post_receive(60, part(theirs, SMALL));
		want(&b, SND_REQUEST_RECEIVE, 60, SND_SUCCESS);
		want(&a, SND_REQUEST_SEND, 10, SND_SUCCESS);
		CHECK(srq == NULL || snd_load(&b.ep->local_qp->posted) == 0); /* a long message is not late once it has its receive */
		end();
	}
}

/* The peer ends while a request waits, and while none does. */
static void test_lost_peer(void)
{
	for (int i = 0; i < 2 * 2; i++) {
		begin();
		const snd_sge m = part(mine, SMALL);
		OK(snd_endpoint_receive(a.ep, 50, &m, 1));
		if (i % 2 == 1) {
			post(SND_REQUEST_SEND, 10, part(mine, SMALL), 0, 0, 0);
			post(SND_REQUEST_SEND, 11, part(mine, SMALL), 0, 0, 0);
		}
		if (i / 2 == 0)
			OK(snd_endpoint_flush(b.ep, 10 * SECOND));
		else
			OK(snd_endpoint_close(b.ep));
		if (i % 2 == 1) {
			want(&a, SND_REQUEST_SEND, 10, SND_CONNECTION_ABORTED);
			want(&a, SND_REQUEST_SEND, 11, SND_CANCELED);
			want_broken(&a, 50, 50, SND_SUCCESS);
		} else {
			want_quiet(&a, 50, 50);
		}
		if (i / 2 == 1)
			OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq}, &b.ep)); /* for end */
		end();
	}
	begin(); /* then the program ends this side */
	post_all();
	OK(snd_endpoint_flush(b.ep, 10 * SECOND));
	CHECK(!is_broken(&a));
	OK(snd_endpoint_flush(a.ep, 10 * SECOND));
	want_broken(&a, 50, 50 + RECEIVES - 1, SND_SUCCESS);
	end();
}

/* A message that was sent with success arrives, even if the sender ends at once. */
static void test_last_message(void)
{
	for (int i = 0; i < 2; i++) {
		begin();
		post_receive(60, part(theirs, LARGE));
		post_receive(61, part(theirs, LARGE));
		post(SND_REQUEST_SEND, 10, part(mine, i == 0 ? SMALL : LARGE), 0, 0, 0);
		want(&a, SND_REQUEST_SEND, 10, SND_SUCCESS);
		OK(snd_endpoint_flush(a.ep, 10 * SECOND));
		want(&b, SND_REQUEST_RECEIVE, 60, SND_SUCCESS);
		want_quiet(&b, 61, 61);
		end();
	}
}

static void test_invalidate(void)
{
	begin();
	post_receive(59, part(theirs, SMALL));
	post_all();
	fails(SND_REQUEST_SEND, part(mine, SMALL), 0, snd_mr_remote_token(theirs) ^ UINT32_C(1) << 25, SND_CONNECTION_ABORTED);
	want(&b, SND_REQUEST_RECEIVE, 59, SND_INVALID_DEVICE_REQUEST);
	want_broken(&b, 60, 60 + RECEIVES - 1, SND_CONNECTION_ABORTED);
	end();
}

static void test_bind(void)
{
	snd_window *w;
	OK(snd_window_create(a.adapter, &w));
	begin();
	post_all();
	OK(snd_endpoint_bind(a.ep, 10, mine, w, snd_mr_buffer(mine), 8, SND_ALLOW_WRITE));
	OK(snd_endpoint_bind(a.ep, 11, mine, w, snd_mr_buffer(mine), 8, SND_ALLOW_WRITE));
	want(&a, SND_REQUEST_BIND, 10, SND_SUCCESS);
	want(&a, SND_REQUEST_BIND, 11, SND_INVALID_DEVICE_REQUEST);
	want_broken(&a, 50, 50 + RECEIVES - 1, SND_SUCCESS);
	want_quiet(&b, 60, 60 + RECEIVES - 1);
	end();
	OK(snd_window_close(w, 10 * SECOND));
}

/* Requests without bytes name no memory. */
static void test_empty(void)
{
	begin();
	for (int i = 0; i < 2; i++) {
		post(one_sided[i], 10, part(mine, 0), 0, 12345, 0);
		want(&a, one_sided[i], 10, SND_SUCCESS);
	}
	end();
}

/* An endpoint is closed while the peer is in the middle of a copy, and then the peer dies: no result comes late. */
static void test_closed_in_copy(void)
{
	const snd_sge m = part(mine, SMALL);
	begin();
	OK(snd_endpoint_receive(a.ep, 50, &m, 1));
	const uint64_t id = a.ep->conn->peer.id;
	snd_lock(b.fabric); /* it does not clear the hazard */
	snd_store_full(&b.ep->local_qp->hazard, UINT64_C(1) << 40);
	CHECK(snd_endpoint_flush(a.ep, 0) == SND_IO_TIMEOUT);
	a.ep->ends_silently = true; /* as libibverbs does */
	OK(snd_endpoint_close(a.ep));
	snd_lock(a.fabric);
	CHECK(!snd_list_is_empty(&a.fabric->closing));
	snd_release_dead(a.fabric, id);
	CHECK(a.cq->head == a.cq->tail);
	snd_unlock(a.fabric);
	snd_store_full(&b.ep->local_qp->hazard, 0);
	snd_unlock(b.fabric);
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq}, &a.ep)); /* for end */
	end();
}

static void test_overrun(void)
{
	begin();
	post_all();
	snd_lock(a.fabric);
	snd_cq_overrun(a.cq);
	snd_unlock(a.fabric);
	CHECK(is_broken(&a));
	want_quiet(&b, 60, 60 + RECEIVES - 1);
	end();
}

int main(void)
{
	for (int i = 0; i < 4; i++) {
		is_private = i % 2 == 1;
		open_members(i / 2 == 0 ? SND_EXECUTOR_AUTO : SND_EXECUTOR_TARGET);
		make_region(&a, SND_ALLOW_LOCAL_WRITE, &mine);
		make_region(&b, SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC, &theirs);
		test_local_entries();
		test_remote_tokens();
		test_immediate_tokens();
		test_access();
		test_addresses();
		test_receives();
		test_no_receive();
		test_lost_peer();
		test_last_message();
		test_invalidate();
		test_bind();
		test_empty();
		test_overrun();
		test_closed_in_copy(); /* then a takes b for dead */
		free_region(mine);
		free_region(theirs);
		close_members();
	}
	return 0;
}

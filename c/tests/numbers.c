/* Numbers of endpoints, and connections by number between two members of one process. */
#include <time.h>

#include "endpoint/cm_number.h"
#include "linux/clock.h"
#include "shm/number.h"
#include "two_members.h"

enum { SIZE = 4096, MANY = 200, LIES = 2000 };

static uint32_t of_a, of_b; /* numbers of the sides */
static snd_mr *from_a, *from_b, *to_a, *to_b;
static const uint32_t rights = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE;

static uint32_t claim(snd_adapter *adapter)
{
	uint32_t n;
	OK(snd_number_claim(adapter, &n));
	CHECK(n > 1 && n < 0xffffff && (n & 0xffff) > 1);
	return n;
}

static void test_claims(void)
{
	uint32_t n[MANY], others[MANY];
	for (int i = 0; i < MANY; i++) {
		n[i] = claim(a.adapter);
		others[i] = claim(b.adapter);
		for (int k = 0; k < i; k++)
			CHECK((n[i] & 0xffff) != (n[k] & 0xffff));
		for (int k = 0; k <= i; k++)
			CHECK((n[i] & 0xffff) != (others[k] & 0xffff));
	}
	struct snd_seen_number seen;
	CHECK(snd_find_number(b.fabric, n[0], &seen) && seen.peer.id == a.fabric->id && seen.state == SNDL_NUMBER_RESET);
	CHECK(!snd_find_number(b.fabric, n[0] ^ 1 << 16, &seen));
	CHECK(!snd_find_number(b.fabric, 0, &seen) && !snd_find_number(b.fabric, 1, &seen) && !snd_find_number(b.fabric, 0xffffff, &seen) && !snd_find_number(b.fabric, UINT32_MAX, &seen));
	CHECK(snd_number_free(b.adapter, n[0]) == SND_INVALID_PARAMETER);
	OK(snd_number_free(a.adapter, n[0]));
	CHECK(snd_number_free(a.adapter, n[0]) == SND_INVALID_PARAMETER && !snd_find_number(b.fabric, n[0], &seen));
	/* The number that has been free for longest is next, and the entry of n[0] comes again with another tag. */
	unsigned before = 0;
	uint32_t again;
	while (((again = claim(a.adapter)) & 0xffff) != (n[0] & 0xffff))
		before++;
	CHECK(before >= SNDL_NUMBER_BLOCK_ENTRIES / 2 && again != n[0] && again == ((n[0] + (1 << 16)) & 0xffffff));
}

/* claim_higher claims the numbers of the sides, so that a's is the higher one, or the lower. */
static void claim_higher(bool a_is_higher)
{
	of_a = claim(a.adapter);
	of_b = claim(b.adapter);
	while ((of_a > of_b) != a_is_higher) { /* each use of an entry has a higher tag */
		snd_adapter *adapter = a_is_higher ? a.adapter : b.adapter;
		uint32_t *n = a_is_higher ? &of_a : &of_b;
		OK(snd_number_free(adapter, *n));
		*n = claim(adapter);
	}
}

static void make_endpoint(struct side *s)
{
	OK(snd_endpoint_create(s->adapter, &(snd_endpoint_config){.receive_cq = s->cq, .initiator_cq = s->cq, .inline_size = 64}, &s->ep));
}

static snd_number_params params(uint32_t number, uint32_t dest, int64_t deadline)
{
	return (snd_number_params){.number = number, .dest = dest, .inbound_reads = 4, .outbound_reads = 4,
		.access = SNDL_RIGHT_READ | SNDL_RIGHT_WRITE, .rnr_timer = 1000000, .rnr_retry = 7, .retry_deadline = deadline};
}

static void name(struct side *s, uint32_t number, uint32_t dest, int64_t deadline)
{
	const snd_number_params p = params(number, dest, deadline);
	OK(snd_endpoint_connect_number(s->ep, &p));
}

static void post(struct side *s, snd_mr *from, uint64_t context)
{
	OK(snd_endpoint_send(s->ep, context, &(snd_sge){snd_mr_buffer(from), 16, snd_mr_local_token(from)}, 1, 0));
}

static void receive(struct side *s, snd_mr *to, uint64_t context)
{
	OK(snd_endpoint_receive(s->ep, context, &(snd_sge){snd_mr_buffer(to), SIZE, snd_mr_local_token(to)}, 1));
}

static void leave(struct side *s)
{
	OK(snd_number_leave(s->ep));
	OK(snd_endpoint_close(s->ep));
	snd_result r;
	while (snd_cq_poll(s->cq, &r, 1) > 0) { /* of the end */
	}
}

/* exchange sends in both directions. */
static void exchange(void)
{
	receive(&a, to_a, 10);
	receive(&b, to_b, 20);
	post(&a, from_a, 11);
	post(&b, from_b, 21);
	for (int i = 0; i < 2; i++) {
		CHECK(next_result(a.cq).status == SND_SUCCESS);
		CHECK(next_result(b.cq).status == SND_SUCCESS);
	}
}

/* The sides name each other in either order. Requests that were posted before run when the sides are connected. */
static void test_orders(void)
{
	for (int round = 0; round < 8; round++) {
		make_endpoint(&a);
		make_endpoint(&b);
		struct side *first = round % 2 == 0 ? &a : &b, *second = first == &a ? &b : &a;
		const uint32_t of_first = first == &a ? of_a : of_b, of_second = first == &a ? of_b : of_a;
		receive(second, second == &a ? to_a : to_b, 2);
		name(first, of_first, of_second, 0);
		memset(snd_mr_buffer(first == &a ? from_a : from_b), round, 16);
		post(first, first == &a ? from_a : from_b, 1);
		CHECK(snd_endpoint_send(first->ep, 3, NULL, 0, SND_DEFER) == SND_SUCCESS);
		receive(second, second == &a ? to_a : to_b, 4);
		CHECK(snd_endpoint_send(second->ep, 5, NULL, 0, 0) == SND_CONNECTION_INVALID); /* it has not named its peer */
		name(second, of_second, of_first, 0);
		WANT(first->cq, SND_REQUEST_SEND, 1, SND_SUCCESS);
		WANT(first->cq, SND_REQUEST_SEND, 3, SND_SUCCESS);
		WANT(second->cq, SND_REQUEST_RECEIVE, 2, SND_SUCCESS);
		WANT(second->cq, SND_REQUEST_RECEIVE, 4, SND_SUCCESS);
		CHECK(((unsigned char *)snd_mr_buffer(second == &a ? to_a : to_b))[15] == round);
		exchange();
		if (round % 4 < 2)
			leave(&a);
		leave(&b);
		if (round % 4 >= 2)
			leave(&a);
	}
}

/* The side that waits stays, while endpoints of the other number come and go. */
static void test_resets(void)
{
	for (int round = 0; round < 2; round++) {
		struct side *stays = round == 0 ? &a : &b, *other = round == 0 ? &b : &a;
		const uint32_t of_stays = round == 0 ? of_a : of_b, of_other = round == 0 ? of_b : of_a;
		const uint32_t third = claim(other->adapter);
		make_endpoint(stays);
		name(stays, of_stays, of_other, 0);
		for (int i = 0; i < 20; i++) {
			make_endpoint(other);
			name(other, of_other, third, 0); /* the wrong one */
			if (i % 2 == 0)
				OK(snd_fabric_progress(stays->fabric));
			leave(other);
		}
		make_endpoint(other);
		name(other, of_other, of_stays, 0);
		exchange();
		leave(other);
		leave(stays);
		OK(snd_number_free(other->adapter, third));
	}
}

static uint64_t connections(const struct side *s)
{
	uint64_t n = 0;
	snd_lock(s->fabric);
	for (const struct snd_link *l = s->fabric->connections.next; l != &s->fabric->connections; l = l->next)
		n++;
	snd_unlock(s->fabric);
	return n;
}

/* await_release waits until no connection is left. */
static void await_release(void)
{
	const int64_t deadline = snd_clock() + 10 * SECOND;
	while (connections(&a) + connections(&b) > 0) {
		CHECK(snd_clock() < deadline);
		OK(snd_fabric_progress(a.fabric));
		OK(snd_fabric_progress(b.fabric));
	}
}

/* A side that resets when its record may be under way leaves nothing behind, and the next endpoint connects. */
static void test_withdrawals(void)
{
	for (int i = 0; i < 300; i++) {
		make_endpoint(&a);
		make_endpoint(&b);
		name(&b, of_b, of_a, 0);
		name(&a, of_a, of_b, 0);
		for (int k = i % 7; k > 0; k--)
			OK(snd_fabric_progress(k % 2 == 0 ? a.fabric : b.fabric));
		struct side *resets = i % 2 == 0 ? &a : &b;
		leave(resets);
		make_endpoint(resets);
		name(resets, i % 2 == 0 ? of_a : of_b, i % 2 == 0 ? of_b : of_a, 0);
		for (int k = i % 5; k > 0; k--)
			OK(snd_fabric_progress(k % 2 == 0 ? a.fabric : b.fabric));
		/* The other side was connected with the first endpoint or the second, or it waits still. */
		leave(&b);
		leave(&a);
		make_endpoint(&a);
		make_endpoint(&b);
		name(&a, of_a, of_b, 0);
		name(&b, of_b, of_a, 0);
		exchange();
		leave(&a);
		leave(&b);
	}
	await_release();
}

/* Requests to a peer that does not come fail after the deadline; those to one that is certainly gone, at once. */
static void test_deadlines(void)
{
	const uint32_t third = claim(b.adapter);
	make_endpoint(&a);
	name(&a, of_a, third, SECOND / 20);
	receive(&a, to_a, 1);
	post(&a, from_a, 2);
	post(&a, from_a, 3);
	WANT(a.cq, SND_REQUEST_SEND, 2, SND_CONNECTION_ABORTED);
	leave(&a);
	/* The peer waits for another one. */
	make_endpoint(&a);
	make_endpoint(&b);
	name(&b, third, of_b, 0);
	name(&a, of_a, third, 0);
	const snd_number_params p = params(0, 0, SECOND / 20);
	post(&a, from_a, 2);
	OK(snd_number_update(a.ep, &p));
	WANT(a.cq, SND_REQUEST_SEND, 2, SND_CONNECTION_ABORTED);
	leave(&a);
	/* It has ended, without limit of time. */
	OK(snd_endpoint_flush(b.ep, SECOND));
	make_endpoint(&a);
	name(&a, of_a, third, 0);
	post(&a, from_a, 2);
	WANT(a.cq, SND_REQUEST_SEND, 2, SND_CONNECTION_ABORTED);
	leave(&a);
	leave(&b);
	/* Its number is free. */
	OK(snd_number_free(b.adapter, third));
	make_endpoint(&a);
	name(&a, of_a, third, 0);
	post(&a, from_a, 2);
	WANT(a.cq, SND_REQUEST_SEND, 2, SND_CONNECTION_ABORTED);
	leave(&a);
}

/* has_closing reports whether an endpoint that is closed waits for its peer. */
static bool has_closing(struct snd_fabric *f)
{
	snd_lock(f);
	const bool yes = !snd_list_is_empty(&f->closing);
	snd_unlock(f);
	return yes;
}

/* An endpoint ends while its peer is stopped in the middle of a copy. When the peer goes on, that gives no results: the program may use the
 * number and the buffers again. */
static void test_stopped_peer(void)
{
	snd_result r;
	make_endpoint(&a);
	make_endpoint(&b);
	name(&a, of_a, of_b, 0);
	name(&b, of_b, of_a, 0);
	exchange();
	receive(&b, to_b, 20);
	snd_lock(a.fabric); /* as during a copy: else the hazard counts as forged */
	snd_set(&a.ep->local_qp->hazard, 1);
	OK(snd_number_leave(b.ep));
	CHECK(snd_endpoint_flush(b.ep, SECOND / 100) == SND_IO_TIMEOUT);
	b.ep->ends_silently = true; /* as libibverbs does */
	OK(snd_endpoint_close(b.ep));
	CHECK(has_closing(b.fabric) && snd_cq_poll(b.cq, &r, 1) == 0);
	snd_set(&a.ep->local_qp->hazard, 0);
	snd_unlock(a.fabric);
	while (has_closing(b.fabric)) {
		OK(snd_fabric_progress(a.fabric));
		OK(snd_fabric_progress(b.fabric));
	}
	CHECK(snd_cq_poll(b.cq, &r, 1) == 0);
	leave(&a);
}

static void test_mistakes(void)
{
	make_endpoint(&a);
	snd_number_params p = params(of_b, of_a, 0);
	CHECK(snd_endpoint_connect_number(a.ep, &p) == SND_INVALID_PARAMETER);
	p = params(of_a, of_b, 0);
	CHECK(snd_number_update(a.ep, &p) == SND_CONNECTION_INVALID);
	OK(snd_endpoint_connect_number(a.ep, &p));
	CHECK(snd_endpoint_connect_number(a.ep, &p) != SND_SUCCESS);
	CHECK(snd_number_free(a.adapter, of_a) == SND_INVALID_PARAMETER);
	leave(&a);
}

/* Two endpoints of one process connect, too. */
static void test_one_process(void)
{
	const struct side other = b;
	const uint32_t other_number = of_b;
	b = a;
	OK(snd_cq_create(b.adapter, 64, &b.cq));
	of_b = claim(b.adapter);
	for (int i = 0; i < 4; i++) {
		make_endpoint(&a);
		make_endpoint(&b);
		name(i % 2 == 0 ? &a : &b, i % 2 == 0 ? of_a : of_b, i % 2 == 0 ? of_b : of_a, 0);
		name(i % 2 == 0 ? &b : &a, i % 2 == 0 ? of_b : of_a, i % 2 == 0 ? of_a : of_b, 0);
		snd_mr *const to = to_b, *const from = from_b;
		to_b = to_a;
		from_b = from_a;
		exchange();
		to_b = to;
		from_b = from;
		leave(&a);
		leave(&b);
	}
	OK(snd_number_free(b.adapter, of_b));
	OK(snd_cq_close(b.cq));
	b = other;
	of_b = other_number;
}

/* An endpoint that names itself receives what it sends. */
static void test_itself(void)
{
	unsigned char *const to = snd_mr_buffer(to_a), *const from = snd_mr_buffer(from_a);
	const uint32_t remote = snd_mr_remote_token(to_a), local = snd_mr_local_token(from_a);
	for (int i = 0; i < 10; i++) {
		make_endpoint(&a);
		memset(from, i + 1, SIZE);
		memset(to, 0, SIZE);
		if (i % 2 == 0)
			receive(&a, to_a, 1);
		name(&a, of_a, of_a, 0);
		if (i % 2 == 1)
			receive(&a, to_a, 1);
		OK(snd_endpoint_send(a.ep, 2, &(snd_sge){from, i % 3 == 0 ? 16 : SIZE / 2, local}, 1, 0));
		snd_result r = next_result(a.cq), other = next_result(a.cq);
		CHECK(r.status == SND_SUCCESS && other.status == SND_SUCCESS && r.request_context + other.request_context == 3);
		CHECK(to[15] == i + 1 && to[SIZE / 2] == 0);
		const uint64_t sent = a.ep->bytes;
		for (unsigned k = 1; k <= 3; k++) { /* the fast path counts, too */
			OK(snd_endpoint_write(a.ep, 3, &(snd_sge){from, 8, local}, 1, (uint64_t)(uintptr_t)&to[SIZE - 8], remote, 0));
			WANT(a.cq, SND_REQUEST_WRITE, 3, SND_SUCCESS);
			CHECK(to[SIZE - 1] == i + 1 && a.ep->bytes == sent + 8 * k);
		}
		OK(snd_endpoint_write_immediate(a.ep, 3, NULL, 0, 0, 0, 77, 0)); /* it waits for the receive */
		receive(&a, to_a, 4);
		for (int k = 0; k < 2; k++)
			CHECK(next_result(a.cq).status == SND_SUCCESS);
		OK(snd_endpoint_read(a.ep, 5, &(snd_sge){from, 8, local}, 1, (uint64_t)(uintptr_t)to, remote, 0));
		WANT(a.cq, SND_REQUEST_READ, 5, SND_SUCCESS);
		if (i % 4 == 0) { /* its end is that of both sides */
			receive(&a, to_a, 6);
			OK(snd_endpoint_write(a.ep, 7, &(snd_sge){from, 8, local}, 1, (uint64_t)(uintptr_t)to, remote ^ 1 << 20, 0));
			post(&a, from_a, 8);
			WANT(a.cq, SND_REQUEST_WRITE, 7, SND_ACCESS_VIOLATION);
			for (int k = 0; k < 2; k++)
				CHECK(next_result(a.cq).status == SND_CANCELED);
		}
		leave(&a);
	}
	await_release();
}

/* A bind that is refused leaves the one before, of a window that every endpoint binds. */
static void test_refused_bind(void)
{
	snd_window *w;
	OK(snd_window_create(a.adapter, &w));
	w->i.any_endpoint = true;
	make_endpoint(&a);
	make_endpoint(&b);
	name(&a, of_a, of_b, 0);
	name(&b, of_b, of_a, 0);
	const snd_request binds[] = {{.type = SND_REQUEST_BIND, .context = 1, .mr = to_a, .window = w, .address = snd_mr_address(to_a), .length = 8},
		{.type = SND_REQUEST_BIND, .context = 2, .window = w, .address = snd_mr_address(to_a), .length = 8}};
	OK(snd_endpoint_post(a.ep, binds, 2, NULL));
	WANT(a.cq, SND_REQUEST_BIND, 1, SND_SUCCESS);
	WANT(a.cq, SND_REQUEST_BIND, 2, SND_INVALID_DEVICE_REQUEST);
	CHECK(w->i.state == SND_BOUND && snd_is_valid(w->i.remote));
	leave(&a);
	leave(&b);
	OK(snd_window_close(w, SECOND));
}

/* A program without an engine polls one queue only. An endpoint of another queue connects, and its request runs. */
static void test_unpolled(void)
{
	const struct side old = a;
	snd_cq *polled;
	snd_result r;
	a = (struct side){0};
	OK(snd_fabric_attach(snd_fabric_descriptor(old.fabric), -1, MANUAL, &a.fabric));
	OK(snd_adapter_open(a.fabric, &a.adapter));
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_cq_create(a.adapter, 64, &polled));
	for (int i = 0; i < 4; i++) {
		claim_higher(i % 2 == 0);
		make_endpoint(&a);
		make_endpoint(&b);
		receive(&b, to_b, 20);
		name(i < 2 ? &a : &b, i < 2 ? of_a : of_b, i < 2 ? of_b : of_a, 0);
		name(i < 2 ? &b : &a, i < 2 ? of_b : of_a, i < 2 ? of_a : of_b, 0);
		OK(snd_endpoint_send(a.ep, 11, NULL, 0, 0));
		const int64_t deadline = snd_clock() + 10 * SECOND;
		while (snd_cq_poll(b.cq, &r, 1) == 0) {
			CHECK(snd_cq_poll(polled, &r, 1) == 0);
			CHECK(snd_clock() < deadline);
		}
		CHECK(r.type == SND_REQUEST_RECEIVE && r.status == SND_SUCCESS);
		leave(&a);
		leave(&b);
	}
	OK(snd_fabric_close(a.fabric));
	a = old;
	claim_higher(true);
}

/* any_word returns a word that a hostile peer may write: of an entry, of the shared state of an endpoint, or of its record. */
static snd_word *any_word(uint64_t random)
{
	const struct snd_arena *m = &a.fabric->arena;
	const struct side *s = (random & 1) != 0 ? &a : &b;
	uint64_t at;
	snd_lock(s->fabric);
	switch (random >> 1 & 3) {
	case 0:
		at = s->ep->local_qp_offset + (random >> 8) % 20 * 8;
		break;
	case 1:
		if (s->ep->conn != NULL) {
			at = s->ep->conn->offset + (random >> 8) % 15 * 8;
			break;
		} /* fall through */
	default:
		at = m->number_table + (uint64_t)((s == &a ? of_a : of_b) & 0xffff) * SNDL_NUMBER_ENTRY_SIZE + (random >> 8 & 1) * 8;
	}
	snd_unlock(s->fabric);
	return (snd_word *)(void *)(m->base + at);
}

/* A hostile peer can write anything into its entries, its records and into ours. */
static void test_lies(void)
{
	uint64_t seed = 1;
	for (int i = 0; i < LIES; i++) {
		make_endpoint(&a);
		make_endpoint(&b);
		receive(&b, to_b, 1);
		name(&b, of_b, of_a, 0);
		name(&a, of_a, of_b, 0);
		post(&a, from_a, 2);
		for (int k = 0; k < 4; k++) {
			seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
			snd_word *w = any_word(seed >> 24);
			const uint64_t old = snd_relaxed(w), values[] = {seed, 0, UINT64_MAX, old ^ UINT64_C(1) << (seed >> 58), old + 1, old ^ (seed >> 44 & 7)};
			snd_release(w, values[(seed >> 33) % 6]);
			OK(snd_fabric_progress(a.fabric));
			OK(snd_fabric_progress(b.fabric));
		}
		leave(&a);
		leave(&b);
	}
	/* The next endpoints store their words again. */
	make_endpoint(&a);
	make_endpoint(&b);
	name(&b, of_b, of_a, 0);
	name(&a, of_a, of_b, 0);
	exchange();
	leave(&a);
	leave(&b);
}

int main(void)
{
	open_members(SND_EXECUTOR_AUTO);
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_cq_create(b.adapter, 64, &b.cq));
	OK(snd_mr_allocate(a.adapter, SIZE, rights, &from_a));
	OK(snd_mr_allocate(a.adapter, SIZE, rights, &to_a));
	OK(snd_mr_allocate(b.adapter, SIZE, rights, &from_b));
	OK(snd_mr_allocate(b.adapter, SIZE, rights, &to_b));
	test_claims();
	for (int active = 0; active < 2; active++) { /* a, then b */
		claim_higher(active == 0);
		test_orders();
		test_resets();
		test_withdrawals();
		test_deadlines();
		test_stopped_peer();
	}
	test_mistakes();
	test_one_process();
	test_itself();
	test_refused_bind();
	test_unpolled();
	test_lies();
	close_members();
	return 0;
}

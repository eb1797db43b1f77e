/* The weak order: its decisions, its limits, and that a seed repeats them. c/tests/ndc has the litmus tests and the suite. */
#include "endpoint/cq.h"
#include "endpoint/weak.h"
#include "two_members.h"

/* Each number has a part in each decision, and a rank in Go decides the same: TestWeakOrderDecides in endpoint/internal/mode/weak has
 * the same loops and sum. */
#define SUM_OF_DECISIONS UINT64_C(0x2f397680bd6b1303)

static uint64_t sum = UINT64_C(14695981039346656037);

static void add(uint64_t x) { sum = (sum ^ x) * UINT64_C(1099511628211); }

static void test_decisions(void)
{
	static struct snd_fabric f;
	static struct snd_endpoint ep;
	ep.object.fabric = &f;
	for (uint64_t seed = 0; seed < 4; seed++) {
		for (f.slot = 0; f.slot < 3; f.slot++) {
			f.weak_seed = seed << 62 | seed;
			snd_weak_begin(&f);
			for (ep.number = 1; ep.number <= 3; ep.number++)
				for (uint32_t c = SND_OF_START; c <= SND_OF_EVENTS; c++)
					for (uint64_t number = 0; number < 20; number++) {
						add(snd_weak_draw(&f, (enum snd_choice)c, ep.number, number));
						add(snd_weak_steps(&ep, (enum snd_choice)c, number));
					}
			for (uint64_t total = 1; total < 5000; total += total / 3 + 1) {
				struct snd_placement p;
				uint64_t stored = 0, n;
				snd_placement_draw(&p, snd_weak_draw(&f, SND_OF_PLACEMENT, 1, total), total * 5, total);
				for (; p.next < p.count; stored += n) {
					add(snd_placement_part(&p, &n));
					if (n > 3)
						n /= 2; /* a budget ends within the part */
					add(n);
					snd_placement_advance(&p, n);
				}
				CHECK(stored == total);
			}
		}
	}
	if (sum != SUM_OF_DECISIONS) {
		fprintf(stderr, "the decisions have the sum %#lx\n", (unsigned long)sum);
		exit(1);
	}
}

static void open_weak(uint64_t seed, snd_progress_model progress)
{
	open_members_with((snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = progress, .weak_order = 1, .weak_order_seed = seed});
	connect_members(NULL);
}

/* A small card grants what the program asks for, and no more. */
static void test_limits(void)
{
	snd_adapter_info i;
	snd_cq *cq;
	snd_srq *srq;
	snd_endpoint *ep;
	char data[57] = {0};
	open_weak(1, SND_PROGRESS_MANUAL);
	OK(snd_adapter_query(a.adapter, &i));
	CHECK(i.max_initiator_sge == 4 && i.max_receive_sge == 4 && i.max_inline == 96 && i.max_inbound_reads == 16 && i.max_initiator_depth == 256 && i.max_cq_depth == 4096 &&
		i.max_caller_data == 56 && (i.flags & SND_ADAPTER_IN_ORDER_DMA) == 0 && (i.flags & SND_ADAPTER_READ_SINK_NOT_REQUIRED) != 0 && i.inline_threshold == 96);
	CHECK(snd_cq_create(a.adapter, 4097, &cq) == SND_INVALID_PARAMETER);
	CHECK(snd_cq_resize(a.cq, 4097) == SND_INVALID_PARAMETER);
	CHECK(snd_srq_create(a.adapter, &(snd_srq_config){.depth = 257}, &srq) == SND_INVALID_PARAMETER);
	CHECK(snd_srq_create(a.adapter, &(snd_srq_config){.max_sge = 5}, &srq) == SND_INVALID_PARAMETER);
	const snd_endpoint_config bad[] = {{.receive_depth = 257}, {.initiator_depth = 257}, {.max_receive_sge = 5}, {.max_initiator_sge = 5}, {.inline_size = 97}};
	for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
		snd_endpoint_config c = bad[k];
		c.receive_cq = c.initiator_cq = a.cq;
		CHECK(snd_endpoint_create(a.adapter, &c, &ep) == SND_INVALID_PARAMETER);
	}
	snd_connector *c;
	OK(snd_connector_create(a.adapter, &c));
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq, .max_initiator_sge = 1}, &ep));
	CHECK(snd_connector_connect(c, ep, (snd_address){1, 1, 0}, &(snd_connect_params){.private_data = data, .private_data_length = 57}, 0) == SND_INVALID_BUFFER_SIZE);
	/* A queue holds exactly its depth. */
	OK(snd_cq_create(a.adapter, 3, &cq));
	for (int n = 0; n < 4; n++) {
		CHECK(cq->overrun == 0);
		snd_cq_limit(cq, a.ep);
		snd_cq_push(cq, &cq->nobody, SND_SUCCESS, SND_REQUEST_SEND, 0, 0, 0, false);
	}
	CHECK(cq->overrun);
	snd_result r[4];
	CHECK(snd_cq_poll(cq, r, 2) == 2 && snd_cq_poll(cq, NULL, 0) == 0 && snd_cq_poll(cq, r, 4) == 1 && snd_cq_poll(cq, NULL, 0) < 0);
	CHECK((snd_status)snd_cq_poll(cq, r, 4) == SND_BUFFER_OVERFLOW && strstr(snd_last_error(), "poll: the queue overran") != NULL);
	disconnect_members();
	close_members();
}

/* run_requests makes requests of all kinds, and returns a sum of when each result has come, counted in polls. With manual progress, time
 * has no part in it. */
static uint64_t run_requests(uint64_t seed)
{
	snd_mr *mine, *far;
	snd_window_descriptor to;
	uint64_t done = 0;
	sum = UINT64_C(14695981039346656037);
	open_weak(seed, SND_PROGRESS_MANUAL);
	OK(snd_mr_allocate(a.adapter, 8192, SND_ALLOW_LOCAL_WRITE, &mine));
	OK(snd_mr_allocate(b.adapter, 8192, SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, &far));
	OK(snd_mr_query(far, &to));
	unsigned char *from = snd_mr_buffer(mine), *at = snd_mr_buffer(far);
	fill(from, 4096, (unsigned)seed);
	enum { COUNT = 24 };
	for (uint64_t i = 0; i < COUNT; i++) {
		const snd_sge data = {from + 100 * i, 100, snd_mr_local_token(mine)}, sink = {from + 4096 + 100 * i, 100, snd_mr_local_token(mine)};
		if (i % 3 == 0)
			OK(snd_endpoint_write(a.ep, i, &data, 1, to.address + 100 * i, to.token, 0));
		else if (i % 3 == 1)
			OK(snd_endpoint_read(a.ep, i, &sink, 1, to.address + 100 * (i - 1), to.token, 0));
		else {
			const snd_sge room = {at + 4096 + 100 * i, 100, snd_mr_local_token(far)};
			OK(snd_endpoint_receive(b.ep, i, &room, 1));
			OK(snd_endpoint_send(a.ep, i, &data, 1, 0));
		}
	}
	for (uint64_t polls = 0, received = 0; done + received < COUNT + COUNT / 3; polls++) {
		snd_result r;
		CHECK(polls < 1000000);
		if (snd_cq_poll(a.cq, &r, 1) == 1) {
			CHECK(r.status == SND_SUCCESS && r.request_context == done);
			add(polls << 8 | done++);
		}
		if (snd_cq_poll(b.cq, &r, 1) == 1) {
			CHECK(r.status == SND_SUCCESS && r.bytes == 100);
			add(polls << 8 | 128 | received++);
		}
		add((uint64_t)(memcmp(from, at, 100) != 0) << 8 | from[4096 + 199]); /* the bytes that are visible meanwhile */
	}
	for (uint64_t i = 0; i < COUNT; i++) {
		if (i % 3 == 0)
			CHECK(memcmp(at + 100 * i, from + 100 * i, 100) == 0);
		else if (i % 3 == 1)
			CHECK(memcmp(from + 4096 + 100 * i, from + 100 * (i - 1), 100) == 0);
		else
			CHECK(memcmp(at + 4096 + 100 * i, from + 100 * i, 100) == 0);
	}
	disconnect_members();
	OK(snd_mr_close(mine, 10 * SECOND));
	OK(snd_mr_close(far, 10 * SECOND));
	close_members();
	return sum;
}

static void test_replay(void)
{
	uint64_t before = 0, different = 0;
	for (uint64_t seed = 0; seed < 12; seed++) {
		const uint64_t first = run_requests(seed);
		for (int i = 0; i < 3; i++)
			CHECK(run_requests(seed) == first);
		different += first != before;
		before = first;
	}
	CHECK(different > 6);
}

/* The engine drives an endpoint when the program has not done so for 10 rounds: requests end although nothing polls. */
static void test_engine(void)
{
	for (uint64_t seed = 0; seed < 4; seed++) {
		snd_mr *mine, *far;
		open_weak(seed, SND_PROGRESS_AUTO);
		OK(snd_mr_allocate(a.adapter, 4096, SND_ALLOW_LOCAL_WRITE, &mine));
		OK(snd_mr_allocate(b.adapter, 4096, SND_ALLOW_REMOTE_WRITE, &far));
		const snd_sge data = {snd_mr_buffer(mine), 64, snd_mr_local_token(mine)};
		snd_word *word = snd_mr_buffer(far);
		*(uint64_t *)snd_mr_buffer(mine) = 1;
		OK(snd_endpoint_write(a.ep, 0, &data, 1, snd_mr_address(far), snd_mr_remote_token(far), 0));
		while (snd_acquire(word) != 1)
			snd_pause();
		OK(snd_cq_notify(a.cq, SND_NOTIFY_ANY, 10 * SECOND));
		WANT(a.cq, SND_REQUEST_WRITE, 0, SND_SUCCESS);
		disconnect_members();
		OK(snd_mr_close(mine, 10 * SECOND));
		OK(snd_mr_close(far, 10 * SECOND));
		close_members();
	}
}

/* A Read with SND_READ_LOCAL_INVALIDATE waits for an earlier Read that is set aside, and does not keep it from running. */
static void test_invalidated_sink(void)
{
	enum { LENGTH = 5000, SEEDS = 16 };
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		snd_mr *memory, *fast, *far;
		open_weak(seed, SND_PROGRESS_AUTO);
		OK(snd_mr_allocate(a.adapter, 16384, SND_ALLOW_LOCAL_WRITE, &memory));
		OK(snd_mr_allocate(b.adapter, 8192, SND_ALLOW_REMOTE_READ, &far));
		OK(snd_mr_create_fast(a.adapter, 2, 0, &fast));
		unsigned char *sink = snd_mr_buffer(memory);
		fill(snd_mr_buffer(far), LENGTH, (unsigned)seed);
		snd_mapping *mapping;
		uint64_t pages[2];
		OK(snd_mapping_create(memory, sink + 8192, 8192, &mapping));
		CHECK(snd_mapping_pages(mapping, pages, 2) == 2);
		const snd_fast_registration g = {.pages = pages, .page_count = 2, .offset = snd_mapping_offset(mapping), .length = 8192, .address = 4096,
			.rights = SND_ALLOW_LOCAL_WRITE};
		OK(snd_endpoint_fast_register(a.ep, 0, fast, &g, 0));
		WANT(a.cq, SND_REQUEST_FAST_REGISTER, 0, SND_SUCCESS);
		const snd_sge to = {sink, LENGTH, snd_mr_local_token(memory)}, last = {sink + 8192, LENGTH, snd_mr_local_token(fast)};
		OK(snd_endpoint_read(a.ep, 1, &to, 1, snd_mr_address(far), snd_mr_remote_token(far), 0));
		OK(snd_endpoint_read(a.ep, 2, &last, 1, snd_mr_address(far), snd_mr_remote_token(far), SND_READ_LOCAL_INVALIDATE));
		WANT(a.cq, SND_REQUEST_READ, 1, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_READ, 2, SND_SUCCESS);
		CHECK(memcmp(sink, snd_mr_buffer(far), LENGTH) == 0 && memcmp(sink + 8192, snd_mr_buffer(far), LENGTH) == 0);
		disconnect_members();
		OK(snd_mr_close(fast, 10 * SECOND));
		OK(snd_mapping_close(mapping, 10 * SECOND));
		OK(snd_mr_close(memory, 10 * SECOND));
		OK(snd_mr_close(far, 10 * SECOND));
		close_members();
	}
}

/* A receive may have an entry that only the peer can fill, before one that this side fills. */
static void test_private_entry(void)
{
	enum { LENGTH = 4000, SEEDS = 32 };
	static unsigned char room[LENGTH];
	receive_sge = 2;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		snd_mr *mine, *far, *own;
		open_weak(seed, SND_PROGRESS_AUTO);
		OK(snd_mr_allocate(a.adapter, 8192, SND_ALLOW_LOCAL_WRITE, &mine));
		OK(snd_mr_allocate(b.adapter, 8192, SND_ALLOW_LOCAL_WRITE, &far));
		OK(snd_mr_register(b.adapter, room, LENGTH, SND_ALLOW_LOCAL_WRITE, &own));
		unsigned char *from = snd_mr_buffer(mine);
		fill(from, 2 * LENGTH, (unsigned)seed);
		const snd_sge to[] = {{room, LENGTH, snd_mr_local_token(own)}, {snd_mr_buffer(far), LENGTH, snd_mr_local_token(far)}};
		const snd_sge message = {from, 2 * LENGTH, snd_mr_local_token(mine)};
		OK(snd_endpoint_receive(b.ep, 1, to, 2));
		OK(snd_endpoint_send(a.ep, 2, &message, 1, 0));
		WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_SEND, 2, SND_SUCCESS);
		CHECK(memcmp(room, from, LENGTH) == 0 && memcmp(snd_mr_buffer(far), from + LENGTH, LENGTH) == 0);
		disconnect_members();
		OK(snd_mr_close(mine, 10 * SECOND));
		OK(snd_mr_close(far, 10 * SECOND));
		OK(snd_mr_close(own, 10 * SECOND));
		close_members();
	}
}

/* A Write that has run behind a Read does not succeed after the Read has failed at its own side. */
static void test_failed_read(void)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		snd_mr *mine, *far;
		open_weak(seed, SND_PROGRESS_AUTO);
		OK(snd_mr_allocate(a.adapter, 4096, 0, &mine)); /* nothing may write to it */
		OK(snd_mr_allocate(b.adapter, 4096, SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, &far));
		const snd_sge data = {snd_mr_buffer(mine), 64, snd_mr_local_token(mine)};
		OK(snd_endpoint_read(a.ep, 0, &data, 1, snd_mr_address(far), snd_mr_remote_token(far), 0));
		OK(snd_endpoint_write(a.ep, 1, &data, 1, snd_mr_address(far), snd_mr_remote_token(far), 0));
		WANT(a.cq, SND_REQUEST_READ, 0, SND_ACCESS_VIOLATION);
		WANT(a.cq, SND_REQUEST_WRITE, 1, SND_CANCELED);
		disconnect_members();
		OK(snd_mr_close(mine, 10 * SECOND));
		OK(snd_mr_close(far, 10 * SECOND));
		close_members();
	}
}

int main(void)
{
	test_decisions();
	test_limits();
	test_replay();
	test_engine();
	test_invalidated_sink();
	test_private_entry();
	test_failed_read();
	return 0;
}

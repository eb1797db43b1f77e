/* Fast registration, logical mappings and the privileged token. b owns the registered memory. */
#include "endpoint/endpoint.h"
#include "two_members.h"

enum { PAGES = 8, SIZE = PAGES * 4096 - 300, START = 200 };
#define BASE UINT64_C(0x7000000000000000)
#define ALL (SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE)

static snd_mr *memory, *fast, *mine; /* mine is a's */
static snd_mapping *mapping;
static uint64_t pages[PAGES];
static unsigned char *owned, *far;

static void begin(void)
{
	connect_members(NULL);
	OK(snd_mr_allocate(b.adapter, PAGES * 4096, ALL, &memory));
	OK(snd_mr_allocate(a.adapter, PAGES * 4096, ALL, &mine));
	owned = (unsigned char *)snd_mr_buffer(memory) + START;
	far = snd_mr_buffer(mine);
	OK(snd_mapping_create(memory, owned, SIZE, &mapping));
	CHECK(snd_mapping_pages(mapping, NULL, 0) == snd_mapping_pages(mapping, pages, PAGES));
	CHECK((uintptr_t)owned % 4096 == snd_mapping_offset(mapping));
	OK(snd_mr_create_fast(b.adapter, PAGES, 1, &fast));
}

static void end(void)
{
	disconnect_members();
	OK(snd_mr_close(fast, 10 * SECOND));
	OK(snd_mapping_close(mapping, 10 * SECOND));
	OK(snd_mr_close(memory, 10 * SECOND));
	OK(snd_mr_close(mine, 10 * SECOND));
}

static snd_fast_registration whole(void)
{
	return (snd_fast_registration){.pages = pages, .page_count = snd_mapping_pages(mapping, NULL, 0), .offset = snd_mapping_offset(mapping), .length = SIZE,
		.address = BASE, .rights = ALL};
}

static void register_all(void)
{
	snd_fast_registration g = whole();
	OK(snd_endpoint_fast_register(b.ep, 1, fast, &g, 0));
	WANT(b.cq, SND_REQUEST_FAST_REGISTER, 1, SND_SUCCESS);
	CHECK(snd_mr_address(fast) == BASE && snd_mr_length(fast) == SIZE && snd_mr_buffer(fast) == NULL);
}

/* copy writes or reads n bytes of the registered range from at on, through a's memory. */
static void copy(uint32_t type, uint64_t at, uint32_t n, snd_status want)
{
	snd_sge s = {far, n, snd_mr_local_token(mine)};
	if (type == SND_REQUEST_WRITE)
		OK(snd_endpoint_write(a.ep, 2, &s, 1, BASE + at, snd_mr_remote_token(fast), 0));
	else
		OK(snd_endpoint_read(a.ep, 2, &s, 1, BASE + at, snd_mr_remote_token(fast), 0));
	WANT(a.cq, type, 2, want);
}

static void invalidate(snd_status want)
{
	OK(snd_endpoint_invalidate_mr(b.ep, 3, fast, 0));
	WANT(b.cq, SND_REQUEST_INVALIDATE, 3, want);
}

static void test_register(void)
{
	begin();
	uint32_t seen = 0;
	for (unsigned round = 0; round < 3; round++) {
		register_all();
		CHECK(snd_mr_remote_token(fast) != seen);
		seen = snd_mr_remote_token(fast);
		fill(far, SIZE, round);
		copy(SND_REQUEST_WRITE, 0, SIZE, SND_SUCCESS);
		CHECK(memcmp(far, owned, SIZE) == 0);
		fill(owned, SIZE, round + 10);
		copy(SND_REQUEST_READ, 5000, 9000, SND_SUCCESS);
		CHECK(memcmp(far, owned + 5000, 9000) == 0);
		CHECK(snd_mapping_close(mapping, 0) == SND_DEVICE_BUSY && snd_mr_close(memory, 0) == SND_DEVICE_BUSY);
		/* Own requests use the addresses of the memory. */
		snd_sge s = {owned + 100, 8000, snd_mr_local_token(fast)};
		OK(snd_endpoint_write(b.ep, 4, &s, 1, snd_mr_address(mine), snd_mr_remote_token(mine), 0));
		WANT(b.cq, SND_REQUEST_WRITE, 4, SND_SUCCESS);
		CHECK(memcmp(far, owned + 100, 8000) == 0);
		/* A window of the region. */
		snd_window *w;
		snd_window_descriptor d;
		OK(snd_window_create(b.adapter, &w));
		OK(snd_endpoint_bind(b.ep, 5, fast, w, owned + 4000, 1000, SND_ALLOW_WRITE));
		WANT(b.cq, SND_REQUEST_BIND, 5, SND_SUCCESS);
		OK(snd_window_query(w, &d));
		CHECK(d.address == BASE + 4000 && d.length == 1000);
		s = (snd_sge){far, 1000, snd_mr_local_token(mine)};
		OK(snd_endpoint_write(a.ep, 6, &s, 1, d.address, d.token, 0));
		WANT(a.cq, SND_REQUEST_WRITE, 6, SND_SUCCESS);
		CHECK(memcmp(far, owned + 4000, 1000) == 0);
		OK(snd_window_close(w, 10 * SECOND));
		invalidate(SND_SUCCESS);
	}
	copy(SND_REQUEST_WRITE, 0, 8, SND_ACCESS_VIOLATION);
	end();
}

/* Pages in another order, some of them twice: peers see one range. */
static void test_scattered(void)
{
	begin();
	uint64_t order[] = {pages[3], pages[1], pages[2], pages[1]};
	snd_fast_registration g = {.pages = order, .page_count = 4, .offset = 96, .length = 4 * 4096 - 200, .address = BASE, .rights = ALL};
	OK(snd_endpoint_fast_register(b.ep, 1, fast, &g, 0));
	WANT(b.cq, SND_REQUEST_FAST_REGISTER, 1, SND_SUCCESS);
	fill(owned, SIZE, 3);
	copy(SND_REQUEST_READ, 0, 4 * 4096 - 200, SND_SUCCESS);
	unsigned char *page = owned - snd_mapping_offset(mapping);
	CHECK(memcmp(far, page + 3 * 4096 + 96, 4000) == 0 && memcmp(far + 4000, page + 4096, 8192) == 0 && memcmp(far + 12192, page + 4096, 3992) == 0);
	fill(far, 4096, 9);
	copy(SND_REQUEST_WRITE, 4000, 4096, SND_SUCCESS);
	CHECK(memcmp(far, page + 4096, 4096) == 0);
	invalidate(SND_SUCCESS);
	copy(SND_REQUEST_READ, 0, 8, SND_ACCESS_VIOLATION);
	end();
}

/* The peer ends the registration with a message, and a Read ends it with its success. */
static void test_other_ends(void)
{
	begin();
	snd_result r;
	register_all();
	OK(snd_endpoint_receive(b.ep, 7, NULL, 0));
	OK(snd_endpoint_send_and_invalidate(a.ep, 8, NULL, 0, snd_mr_remote_token(fast), 0));
	WANT(a.cq, SND_REQUEST_SEND, 8, SND_SUCCESS);
	r = next_result(b.cq);
	CHECK(r.type == SND_REQUEST_RECEIVE_AND_INVALIDATE && r.invalidated_token == snd_mr_remote_token(fast));
	for (uint32_t n = 8; n < 20000; n += 19000) {
		register_all();
		fill(far, SIZE, n);
		snd_sge s = {owned + 50, n, snd_mr_local_token(fast)};
		OK(snd_endpoint_read(b.ep, 9, &s, 1, snd_mr_address(mine), snd_mr_remote_token(mine), SND_READ_LOCAL_INVALIDATE));
		WANT(b.cq, SND_REQUEST_READ, 9, SND_SUCCESS);
		CHECK(memcmp(far, owned + 50, n) == 0);
	}
	register_all(); /* else the last one were still there */
	snd_sge s = {owned, 8, snd_mr_local_token(memory)};
	OK(snd_endpoint_read(b.ep, 10, &s, 1, snd_mr_address(mine), snd_mr_remote_token(mine), SND_READ_LOCAL_INVALIDATE));
	WANT(b.cq, SND_REQUEST_READ, 10, SND_INVALID_DEVICE_REQUEST);
	end();
}

/* The registration of an endpoint that ends lasts until its last window is invalid. */
static void test_endpoint_ends(void)
{
	begin();
	register_all();
	snd_fast_registration g = whole();
	OK(snd_endpoint_fast_register(b.ep, 11, fast, &g, SND_DEFER));
	OK(snd_endpoint_close(b.ep));
	OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq}, &b.ep));
	OK(snd_mapping_close(mapping, 10 * SECOND)); /* neither registration is left */
	OK(snd_mapping_create(memory, owned, SIZE, &mapping));
	disconnect_members();

	connect_members(NULL);
	register_all();
	snd_window *w;
	OK(snd_window_create(b.adapter, &w));
	OK(snd_endpoint_bind(b.ep, 12, fast, w, owned, 8, SND_ALLOW_WRITE));
	WANT(b.cq, SND_REQUEST_BIND, 12, SND_SUCCESS);
	CHECK(snd_mr_close(fast, 0) == SND_DEVICE_BUSY);
	invalidate(SND_INVALID_DEVICE_REQUEST); /* which ends the connection, the window and the registration */
	OK(snd_window_close(w, 10 * SECOND));
	OK(snd_mapping_close(mapping, 10 * SECOND));
	OK(snd_mapping_create(memory, owned, SIZE, &mapping));
	disconnect_members();

	connect_members(NULL);
	register_all();
	OK(snd_endpoint_fast_register(b.ep, 13, fast, &g, 0));
	WANT(b.cq, SND_REQUEST_FAST_REGISTER, 13, SND_INVALID_DEVICE_REQUEST);
	end();
}

/* The end of a registration does not wait for messages that have completed, although the peer has not taken them yet. */
static void test_unreceived(void)
{
	begin();
	register_all();
	const snd_sge to = {far, 8, snd_mr_local_token(mine)};
	OK(snd_endpoint_receive(a.ep, 5, &to, 1));
	snd_lock(a.fabric); /* it takes nothing */
	OK(snd_endpoint_send(b.ep, 4, &(snd_sge){owned, 8, snd_mr_local_token(memory)}, 1, 0));
	WANT(b.cq, SND_REQUEST_SEND, 4, SND_SUCCESS);
	invalidate(SND_SUCCESS);
	snd_unlock(a.fabric);
	WANT(a.cq, SND_REQUEST_RECEIVE, 5, SND_SUCCESS);
	end();
}

static void test_privileged(void)
{
	begin();
	uint32_t token, again;
	OK(snd_adapter_privileged_token(b.adapter, &token));
	OK(snd_adapter_privileged_token(b.adapter, &again));
	CHECK(token != 0 && token == again);
	for (uint32_t n = 8; n < 20000; n += 19000) {
		fill(owned, SIZE, n);
		snd_sge s = {owned, n, token}, to = {far, n, snd_mr_local_token(mine)};
		OK(snd_endpoint_write(b.ep, 14, &s, 1, snd_mr_address(mine), snd_mr_remote_token(mine), 0));
		WANT(b.cq, SND_REQUEST_WRITE, 14, SND_SUCCESS);
		CHECK(memcmp(far, owned, n) == 0);
		fill(far, n, n + 1);
		snd_sge parts[] = {{owned, n / 2, token}, {owned + n / 2, n - n / 2, token}};
		OK(snd_endpoint_receive(b.ep, 15, &s, 1));
		OK(snd_endpoint_receive(b.ep, 16, parts, 2));
		for (uint64_t i = 0; i < 2; i++) {
			memset(owned, 0, n);
			OK(snd_endpoint_send(a.ep, 17, &to, 1, 0));
			WANT(a.cq, SND_REQUEST_SEND, 17, SND_SUCCESS);
			WANT(b.cq, SND_REQUEST_RECEIVE, 15 + i, SND_SUCCESS);
			CHECK(memcmp(far, owned, n) == 0);
		}
	}
	CHECK(snd_endpoint_error(b.ep) == SND_SUCCESS);
	snd_sge outside = {owned - 1, 2, token}; /* begins before the mapping */
	OK(snd_endpoint_write(b.ep, 18, &outside, 1, snd_mr_address(mine), snd_mr_remote_token(mine), 0));
	WANT(b.cq, SND_REQUEST_WRITE, 18, SND_ACCESS_VIOLATION);
	end();
}

static void test_arguments(void)
{
	begin();
	snd_mapping *m;
	snd_mr *r, *foreign;
	CHECK(snd_mapping_create(memory, owned, PAGES * 4096, &m) == SND_INVALID_PARAMETER && m == NULL);
	CHECK(snd_mapping_create(memory, owned, 0, &m) == SND_INVALID_PARAMETER && snd_mapping_create(fast, owned, 8, &m) == SND_INVALID_PARAMETER);
	OK(snd_mr_register(b.adapter, pages, sizeof pages, ALL, &foreign));
	CHECK(snd_mapping_create(foreign, pages, 8, &m) == SND_INVALID_PARAMETER);
	CHECK(snd_mr_create_fast(b.adapter, 0, 1, &r) == SND_INVALID_PARAMETER && snd_mr_create_fast(b.adapter, 5000, 1, &r) == SND_INVALID_PARAMETER);
	OK(snd_mr_create_fast(b.adapter, 2, 0, &r));
	uint64_t bad[PAGES];
	memcpy(bad, pages, sizeof bad);
	bad[1]++;
	const struct {
		snd_mr *mr;
		snd_fast_registration g;
		snd_status want;
	} cases[] = {
		{memory, {pages, 1, 300, 8, BASE, 0, 0}, SND_INVALID_PARAMETER}, {r, {pages, 3, 300, 8, BASE, 0, 0}, SND_INVALID_PARAMETER},
		{r, {pages, 0, 0, 8, BASE, 0, 0}, SND_INVALID_PARAMETER}, {r, {NULL, 1, 300, 8, BASE, 0, 0}, SND_INVALID_PARAMETER},
		{r, {pages, 1, 4096, 1, BASE, 0, 0}, SND_INVALID_PARAMETER}, {r, {pages, 1, 4000, 97, BASE, 0, 0}, SND_INVALID_PARAMETER},
		{r, {pages, 1, 300, 0, BASE, 0, 0}, SND_INVALID_PARAMETER}, {r, {pages, 1, 300, 8, 0, 0, 0}, SND_INVALID_PARAMETER},
		{r, {pages, 1, 300, 8, UINT64_MAX - 7, 0, 0}, SND_INVALID_PARAMETER}, {r, {pages, 1, 300, 8, BASE, 0x40, 0}, SND_INVALID_PARAMETER},
		{r, {pages, 1, 300, 8, BASE, 0, 1}, SND_INVALID_PARAMETER},
		{r, {pages, 1, 300, 8, BASE, SND_ALLOW_REMOTE_READ, 0}, SND_ACCESS_VIOLATION}, {r, {bad, 2, 300, 8, BASE, 0, 0}, SND_INVALID_PARAMETER},
		{r, {pages, 1, snd_mapping_offset(mapping) - 1, 8, BASE, 0, 0}, SND_INVALID_PARAMETER}, /* before the mapped part of the page */
		{r, {pages + 6, 2, 0, 8192, BASE, 0, 0}, SND_INVALID_PARAMETER}, /* behind it */
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		snd_status s = snd_endpoint_fast_register(b.ep, 1, cases[i].mr, &cases[i].g, 0);
		if (s != cases[i].want) {
			fprintf(stderr, "case %d: %s\n", (int)i, snd_status_name(s));
			exit(1);
		}
	}
	CHECK(snd_endpoint_fast_register(b.ep, 1, r, NULL, 0) == SND_INVALID_PARAMETER && snd_endpoint_fast_register(a.ep, 1, r, &cases[1].g, 0) == SND_INVALID_HANDLE);
	CHECK(snd_endpoint_fast_register(b.ep, 1, r, &(snd_fast_registration){pages, 1, 300, 8, BASE, 0, 0}, SND_INLINE) == SND_INVALID_PARAMETER);
	CHECK(snd_endpoint_invalidate_mr(b.ep, 1, memory, 0) == SND_INVALID_DEVICE_REQUEST && snd_endpoint_invalidate_mr(a.ep, 1, fast, 0) == SND_INVALID_HANDLE);
	OK(snd_mr_close(r, 0));
	OK(snd_mr_close(foreign, 0));
	end(); /* no refused registration has kept the mapping */
}

int main(void)
{
	for (int executor = SND_EXECUTOR_AUTO; executor <= SND_EXECUTOR_TARGET; executor++) {
		open_members((snd_executor)executor);
		test_register();
		test_scattered();
		test_other_ends();
		test_endpoint_ends();
		test_unreceived();
		test_privileged();
		test_arguments();
		close_members();
	}
	/* A fabric that is closed with a registration and a mapping. */
	open_members(SND_EXECUTOR_AUTO);
	begin();
	register_all();
	close_members();
	return 0;
}

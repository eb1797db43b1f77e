/* Lists of requests: one call posts requests of every type, in order, until one is refused. */
#include "two_members.h"

enum { PAGE = 4096, REQUESTS = 13, RECEIVES = 3 };
#define ALL (SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC)

static snd_mr *mine, *theirs, *fast;
static snd_mapping *mapping;
static snd_window *window;
static uint64_t page;
static snd_fast_registration registration;
static snd_sge sges[3];

static void begin(void)
{
	connect_members(NULL);
	OK(snd_mr_allocate(a.adapter, PAGE, ALL, &mine));
	OK(snd_mr_allocate(b.adapter, PAGE, ALL, &theirs));
	OK(snd_mr_create_fast(a.adapter, 1, 1, &fast));
	OK(snd_mapping_create(mine, snd_mr_buffer(mine), 64, &mapping));
	CHECK(snd_mapping_pages(mapping, &page, 1) == 1);
	OK(snd_window_create(a.adapter, &window));
	registration = (snd_fast_registration){.pages = &page, .page_count = 1, .offset = snd_mapping_offset(mapping), .length = 64, .address = PAGE, .rights = SND_ALLOW_REMOTE_READ};
	for (int i = 0; i < 3; i++)
		sges[i] = (snd_sge){(uint64_t *)snd_mr_buffer(mine) + i, 8, snd_mr_local_token(mine)};
}

static void end(void)
{
	disconnect_members();
	OK(snd_window_close(window, SECOND));
	OK(snd_mapping_close(mapping, SECOND));
	OK(snd_mr_close(fast, SECOND));
	OK(snd_mr_close(mine, SECOND));
	OK(snd_mr_close(theirs, SECOND));
}

/* make_list makes a list with a request of each initiator type, numbered from 0. Entry 2 of sges takes what the peer's memory had. */
static void make_list(snd_request list[REQUESTS])
{
	const uint64_t at = snd_mr_address(theirs);
	const uint32_t token = snd_mr_remote_token(theirs);
	const snd_request all[REQUESTS] = {
		{.type = SND_REQUEST_WRITE, .sge = sges, .count = 1, .address = at, .token = token},
		{.type = SND_REQUEST_FETCH_AND_ADD, .sge = sges + 2, .count = 1, .address = at, .token = token, .operand = 5},
		{.type = SND_REQUEST_COMPARE_AND_SWAP, .sge = sges + 2, .count = 1, .address = at, .token = token, .operand = 12, .swap = 20},
		{.type = SND_REQUEST_SWAP, .sge = sges + 2, .count = 1, .address = at, .token = token, .operand = 30},
		{.type = SND_REQUEST_READ, .sge = sges + 1, .count = 1, .address = at, .token = token},
		{.type = SND_REQUEST_SEND, .sge = sges, .count = 1},
		{.type = SND_REQUEST_SEND, .has_immediate = 1, .immediate = 77},
		{.type = SND_REQUEST_WRITE, .sge = sges, .count = 1, .address = at + 8, .token = token, .has_immediate = 1, .immediate = 78},
		{.type = SND_REQUEST_BIND, .mr = mine, .window = window, .address = (uintptr_t)sges[1].buffer, .length = 8, .flags = SND_ALLOW_READ},
		{.type = SND_REQUEST_INVALIDATE, .window = window},
		{.type = SND_REQUEST_FAST_REGISTER, .mr = fast, .registration = &registration},
		{.type = SND_REQUEST_INVALIDATE, .mr = fast},
		{.type = SND_REQUEST_WRITE, .sge = sges, .count = 1, .address = at + 16, .token = token},
	};
	memcpy(list, all, sizeof all);
	for (uint64_t i = 0; i < REQUESTS; i++)
		list[i].context = i;
}

static void test_every_type(void)
{
	snd_request list[REQUESTS];
	uint32_t posted;
	begin();
	const snd_sge place = {(char *)snd_mr_buffer(theirs) + 64, 8, snd_mr_local_token(theirs)};
	const snd_request receives[RECEIVES] = {{.type = SND_REQUEST_RECEIVE, .context = 1, .sge = &place, .count = 1}, {.type = SND_REQUEST_RECEIVE, .context = 2},
		{.type = SND_REQUEST_RECEIVE, .context = 3}};
	OK(snd_endpoint_post(b.ep, receives, RECEIVES, &posted));
	CHECK(posted == RECEIVES);
	*(uint64_t *)sges[0].buffer = 7;
	make_list(list);
	OK(snd_endpoint_post(a.ep, list, REQUESTS, NULL));
	for (uint64_t i = 0; i < REQUESTS; i++)
		WANT(a.cq, list[i].type, i, SND_SUCCESS);
	WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
	for (uint32_t i = 0; i < 2; i++) {
		const snd_result r = next_result(b.cq);
		CHECK(r.status == SND_SUCCESS && r.request_context == 2 + i && r.invalidated_token == 77 + i);
		CHECK(r.type == (i == 0 ? SND_REQUEST_RECEIVE_IMMEDIATE : SND_REQUEST_RECEIVE_WRITE_IMMEDIATE));
	}
	const uint64_t *words = snd_mr_buffer(theirs), *own = snd_mr_buffer(mine);
	CHECK(words[0] == 30 && words[1] == 7 && words[2] == 7 && words[8] == 7 && own[1] == 30 && own[2] == 20);
	end();
}

/* A refused request is named, those before it run, and those after it are not posted. */
static void test_refused(void)
{
	static const struct {
		int request;
		snd_status want;
		const char *text;
	} cases[] = {
		{0, SND_INVALID_PARAMETER, "post: request 1 of 13: write: invalid flags 0x80000000"},
		{3, SND_INVALID_PARAMETER, "post: request 4 of 13: swap: invalid flags 0x80000000"},
		{9, SND_INVALID_PARAMETER, "post: request 10 of 13: invalidate: invalid flags 0x80000000"},
		{12, SND_INVALID_PARAMETER, "post: request 13 of 13: write: invalid flags 0x80000000"},
	};
	snd_request list[REQUESTS];
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		uint32_t posted = 99;
		begin();
		OK(snd_endpoint_receive(b.ep, 1, sges, 0));
		OK(snd_endpoint_receive(b.ep, 2, sges, 0));
		OK(snd_endpoint_receive(b.ep, 3, sges, 0));
		make_list(list);
		list[5].sge = NULL; /* an empty message */
		list[5].count = 0;
		list[cases[k].request].flags |= 0x80000000;
		CHECK(snd_endpoint_post(a.ep, list, REQUESTS, &posted) == cases[k].want && posted == (uint32_t)cases[k].request);
		if (strncmp(snd_last_error(), cases[k].text, strlen(cases[k].text)) != 0) {
			fprintf(stderr, "wanted \"%s\": %s\n", cases[k].text, snd_last_error());
			exit(1);
		}
		for (uint32_t i = 0; i < posted; i++)
			WANT(a.cq, list[i].type, i, SND_SUCCESS);
		OK(snd_endpoint_write(a.ep, 50, sges, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), 0));
		WANT(a.cq, SND_REQUEST_WRITE, 50, SND_SUCCESS);
		end();
	}
}

/* Members that contradict each other, and handles of requests that need one. */
static void test_members(void)
{
	const snd_request bad[] = {{.type = SND_REQUEST_SEND, .token = 5, .has_immediate = 1}, {.type = SND_REQUEST_WRITE, .has_immediate = 2}, {.type = SND_REQUEST_FAST_REGISTER, .mr = fast},
		{.type = SND_REQUEST_RECEIVE, .flags = SND_DEFER}, {.type = SND_REQUEST_RECEIVE_AND_INVALIDATE}};
	const snd_request handles[] = {{.type = SND_REQUEST_INVALIDATE}, {.type = SND_REQUEST_BIND, .mr = mine}, {.type = SND_REQUEST_FAST_REGISTER, .registration = &registration}};
	uint32_t posted;
	begin();
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		CHECK(snd_endpoint_post(a.ep, &bad[i], 1, &posted) == SND_INVALID_PARAMETER && posted == 0 && strstr(snd_last_error(), "post: request 1 of 1: ") != NULL);
	for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
		CHECK(snd_endpoint_post(a.ep, &handles[i], 1, &posted) == SND_INVALID_HANDLE && posted == 0);
	OK(snd_endpoint_post(a.ep, NULL, 0, &posted));
	end();
}

int main(void)
{
	for (int executor = SND_EXECUTOR_AUTO; executor <= SND_EXECUTOR_TARGET; executor++) {
		open_members((snd_executor)executor);
		test_every_type();
		test_refused();
		test_members();
		close_members();
	}
	return 0;
}

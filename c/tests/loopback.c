/* Two endpoints of one process, one thread, and no engine: polls of one endpoint drive the other one, too. */
#include <stdbool.h>

#include "endpoint/endpoint.h"
#include "endpoint/mr.h"
#include "shm/member.h"
#include "two_members.h"

enum { SIZE = 2 * SND_QUANTUM, SMALL = 8, MAX_POLLS = 64 }; /* several chunks, and parts */

static snd_mr *mine, *theirs;
static bool is_private;

static snd_sge part(snd_mr *mr, uint32_t n) { return (snd_sge){snd_mr_buffer(mr), n, snd_mr_local_token(mr)}; }

static void open_side(struct side *s, snd_srq *srq)
{
	OK(snd_cq_create(s->adapter, 64, &s->cq));
	OK(snd_endpoint_create(s->adapter, &(snd_endpoint_config){.receive_cq = s->cq, .initiator_cq = s->cq, .srq = srq}, &s->ep));
}

static void finish(snd_connector *c)
{
	snd_status s = SND_DEVICE_BUSY;
	while (s == SND_DEVICE_BUSY)
		s = snd_connector_finish(c);
	OK(s);
}

static void connect_sides(snd_srq *srq)
{
	const snd_connect_params p = {.inbound_reads = 4, .outbound_reads = 4};
	snd_address to;
	open_side(&a, NULL);
	open_side(&b, srq);
	OK(snd_listener_address(listener, &to));
	OK(snd_connector_create(a.adapter, &a.connector));
	OK(snd_connector_start_connect(a.connector, a.ep, to, &p));
	OK(snd_listener_request(listener, 10 * SECOND, &b.connector));
	OK(snd_connector_start_accept(b.connector, b.ep, &p));
	finish(a.connector);
	OK(snd_connector_complete(a.connector));
	finish(b.connector);
}

/* want polls a queue for a result, a few times. */
static void want(snd_cq *cq, uint32_t type, uint64_t context)
{
	snd_result r;
	int polls = 0;
	while (snd_cq_poll(cq, &r, 1) == 0)
		CHECK(++polls < MAX_POLLS);
	CHECK(r.type == type && r.request_context == context && r.status == SND_SUCCESS);
}

static void make_region(snd_adapter *adapter, snd_mr **mr)
{
	const uint32_t flags = SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC;
	if (is_private)
		OK(snd_mr_register(adapter, malloc(SIZE), SIZE, flags, mr));
	else
		OK(snd_mr_allocate(adapter, SIZE, flags, mr));
}

static void free_region(snd_mr *mr)
{
	void *memory = snd_mr_buffer(mr);
	OK(snd_mr_close(mr, 0));
	if (is_private)
		free(memory);
}

static void transfer(snd_srq *srq, uint32_t n)
{
	unsigned char *from = snd_mr_buffer(mine), *to = snd_mr_buffer(theirs);
	const snd_sge m = part(mine, n), t = part(theirs, n), eight = part(mine, 8);
	const uint64_t address = snd_mr_address(theirs);
	const uint32_t token = snd_mr_remote_token(theirs);
	fill(from, n, n);
	OK(snd_endpoint_write(a.ep, 1, &m, 1, address, token, 0));
	want(a.cq, SND_REQUEST_WRITE, 1);
	CHECK(memcmp(from, to, n) == 0);
	fill(to, n, n + 1);
	OK(snd_endpoint_read(a.ep, 2, &m, 1, address, token, 0));
	want(a.cq, SND_REQUEST_READ, 2);
	CHECK(memcmp(from, to, n) == 0);
	OK(snd_endpoint_fetch_and_add(a.ep, 3, &eight, 1, address, token, 1, 0));
	want(a.cq, SND_REQUEST_FETCH_AND_ADD, 3);
	for (int is_late = 0; is_late < 2; is_late++) {
		fill(from, n, n + 2 + (unsigned)is_late);
		if (is_late)
			OK(snd_endpoint_send(a.ep, 4, &m, 1, 0));
		OK(srq != NULL ? snd_srq_receive(srq, 5, &t, 1) : snd_endpoint_receive(b.ep, 5, &t, 1));
		if (!is_late) {
			OK(snd_endpoint_send(a.ep, 4, &m, 1, 0));
			want(a.cq, SND_REQUEST_SEND, 4);
		}
		want(b.cq, SND_REQUEST_RECEIVE, 5);
		if (is_late)
			want(a.cq, SND_REQUEST_SEND, 4);
		CHECK(memcmp(from, to, n) == 0);
	}
}

static snd_srq *open_all(snd_executor executor, bool has_srq)
{
	snd_srq *srq = NULL;
	OK(snd_fabric_create(0, UINT64_C(1) << 28, &(snd_fabric_options){.threading = SND_THREAD_DOMAIN, .progress = SND_PROGRESS_MANUAL, .executor = executor}, &a.fabric));
	OK(snd_adapter_open(a.fabric, &a.adapter));
	OK(snd_adapter_open(a.fabric, &b.adapter));
	OK(snd_listener_create(b.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	if (has_srq)
		OK(snd_srq_create(b.adapter, &(snd_srq_config){.depth = 16}, &srq));
	connect_sides(srq);
	make_region(a.adapter, &mine);
	make_region(b.adapter, &theirs);
	return srq;
}

static void test_with(snd_executor executor, bool has_srq)
{
	snd_srq *srq = open_all(executor, has_srq);
	for (uint32_t n = SMALL; n <= SIZE; n *= 4)
		transfer(srq, n);
	disconnect_members();
	free_region(mine);
	free_region(theirs);
	OK(snd_fabric_close(a.fabric));
}

/* A third process stores the word of an ended region of private memory again: that memory is the program's. */
static void test_lie(void)
{
	static unsigned char memory[SIZE];
	snd_mr *ended;
	open_all(SND_EXECUTOR_AUTO, false);
	OK(snd_mr_register(b.adapter, memory, SIZE, SND_ALLOW_REMOTE_WRITE, &ended));
	const snd_sge s = {snd_mr_buffer(mine), 8, snd_mr_local_token(mine)};
	const uint64_t address = snd_mr_address(ended);
	const uint32_t token = snd_mr_remote_token(ended);
	OK(snd_endpoint_write(a.ep, 1, &s, 1, address, token, 0));
	want(a.cq, SND_REQUEST_WRITE, 1);
	struct snd_access_entry *e = ended->region.i.remote->entry;
	const uint64_t word = snd_load(&e->word);
	OK(snd_mr_close(ended, SECOND));
	memset(memory, 0x33, SIZE);
	snd_store_full(&e->word, word);
	OK(snd_endpoint_write(a.ep, 2, &s, 1, address, token, 0));
	snd_result r;
	while (snd_cq_poll(a.cq, &r, 1) == 0) {
	}
	CHECK(r.status == SND_ACCESS_VIOLATION && memory[0] == 0x33);
	free_region(mine);
	free_region(theirs);
	OK(snd_fabric_close(a.fabric));
}

int main(void)
{
	for (int i = 0; i < 8; i++) {
		is_private = i % 2 == 1;
		test_with(i / 2 % 2 == 0 ? SND_EXECUTOR_AUTO : SND_EXECUTOR_TARGET, i / 4 == 1);
	}
	test_lie();
	return 0;
}

/* Two members of one arena make calls, and a peer overwrites shared words between and within them. Every call returns soon
 * with a known status. Private memory does not change where no request of its owner and no window allows it. When one
 * member has left, every request of the other completes, and all its memory can be released. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "damage.h"

enum { DESCRIPTOR = 700, MAX_STEPS = 300, CANARY = 0xa5 };
#define MILLISECOND INT64_C(1000000)

struct side sides[2];

static struct input *script;
static bool shared_queue;
static int slot_of_connect;

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void known_status(snd_status s) { EXPECT(fuzz_known(s)); }

static void check_memory(const struct side *s)
{
	static unsigned char canary[3 * PAGE];
	const unsigned char *m = s->memory;
	if (canary[0] == 0)
		memset(canary, CANARY, sizeof canary);
	EXPECT(memcmp(m, canary, GRANTED) == 0);
	EXPECT(memcmp(m + GRANTED + GRANTED_BYTES, canary, SINK - GRANTED - GRANTED_BYTES) == 0);
	EXPECT(memcmp(m + 2 * PAGE, canary, PAGE) == 0);
}

static void poll(struct side *s)
{
	snd_result r[4];
	const int32_t n = snd_cq_poll(s->cq, r, 4);
	EXPECT(n <= 4 && (n >= 0 || (snd_status)n == SND_BUFFER_OVERFLOW));
	for (int32_t i = 0; i < n; i++) {
		known_status(r[i].status);
		EXPECT(r[i].request_context > 0 && r[i].request_context <= PAGE + 1); /* the capacity of a receive, plus 1 */
		EXPECT((r[i].type & 0x7fff) != SND_REQUEST_RECEIVE || r[i].bytes < r[i].request_context);
		s->done++;
		EXPECT(s->done <= s->posted);
	}
}

/* region chooses memory of a request: any part of arena memory, or the part of private memory that its requests may change. */
static snd_sge part(struct side *s, bool is_sink)
{
	const uint8_t b = fuzz_byte(script);
	const uint32_t n = (uint32_t)(b >> 2) * 32;
	if (b & 1)
		return (snd_sge){snd_mr_buffer(s->shared), b & 2 ? n : n % 60, snd_mr_local_token(s->shared)};
	const uint32_t most = 2 * PAGE - SINK;
	return (snd_sge){s->memory + (is_sink ? SINK : PAGE), b & 2 ? n % most : n % 60, snd_mr_local_token(s->own)};
}

static void count(struct side *s, snd_status status)
{
	known_status(status);
	s->posted += status == SND_SUCCESS;
}

static void make_side(int rank)
{
	struct side *s = &sides[rank];
	memset(s, 0, sizeof *s);
	memset(s->memory, CANARY, sizeof s->memory);
	char text[2] = {(char)('0' + rank), 0};
	setenv("SOFTND_RANK", text, 1);
	const uint8_t mode = fuzz_byte(script);
	snd_fabric_options o = {.threading = SND_THREAD_DOMAIN, .progress = SND_PROGRESS_MANUAL, .executor = mode & 1 ? SND_EXECUTOR_TARGET : SND_EXECUTOR_AUTO, .check_payloads = mode >> 1 & 1};
	EXPECT(snd_job_init(&o, 50 * MILLISECOND, &s->job) == SND_SUCCESS);
	s->f = snd_job_fabric(s->job);
	EXPECT(snd_fabric_set_timeouts(s->f, MILLISECOND, MILLISECOND) == SND_SUCCESS);
	s->a = snd_job_adapter(s->job);
	EXPECT(snd_cq_create(s->a, 1024, &s->cq) == SND_SUCCESS);
	snd_srq_config config = {.depth = 16};
	EXPECT(snd_srq_create(s->a, &config, &s->srq) == SND_SUCCESS);
	EXPECT(snd_mr_allocate(s->a, PAGE, SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_ATOMIC, &s->shared) == SND_SUCCESS);
	EXPECT(snd_mr_register(s->a, s->memory + PAGE, PAGE, SND_ALLOW_LOCAL_WRITE, &s->own) == SND_SUCCESS);
	for (int i = 0; i < WINDOWS; i++)
		EXPECT(snd_window_create(s->a, &s->windows[i]) == SND_SUCCESS);
}

static void make_first(void) { make_side(0); }
static void make_second(void) { make_side(1); }

static void connect_side(struct side *s)
{
	if (s->endpoints[slot_of_connect] != NULL)
		return;
	snd_endpoint_config config = {.receive_cq = s->cq, .initiator_cq = s->cq, .receive_depth = 8, .initiator_depth = 8, .inline_size = 64,
		.srq = shared_queue ? s->srq : NULL};
	known_status(snd_job_connect(s->job, s == &sides[0], &config, 20 * MILLISECOND, &s->endpoints[slot_of_connect]));
}

static void connect_first(void) { connect_side(&sides[0]); }
static void connect_second(void) { connect_side(&sides[1]); }

/* name_peer makes an endpoint that names the number of the other side's endpoint in the same place. */
static void name_peer(struct side *s, int i)
{
	if (s->endpoints[i] != NULL)
		return;
	for (int k = 0; k < 2; k++)
		if (sides[k].numbers[i] == 0)
			known_status(snd_number_claim(sides[k].a, &sides[k].numbers[i]));
	const uint8_t b = fuzz_byte(script);
	const snd_endpoint_config config = {.receive_cq = s->cq, .initiator_cq = s->cq, .receive_depth = 8, .initiator_depth = 8, .inline_size = 64,
		.srq = b & 1 ? s->srq : NULL};
	const snd_number_params params = {.number = s->numbers[i], .dest = sides[b & 2 ? s != &sides[0] : s == &sides[0]].numbers[i], .inbound_reads = b >> 2 & 3, .outbound_reads = 4,
		.access = SNDL_RIGHT_READ | SNDL_RIGHT_WRITE | (b & 16 ? SNDL_RIGHT_ATOMIC : 0), .rnr_timer = 1000, .rnr_retry = b >> 5, .retry_deadline = MILLISECOND};
	known_status(snd_endpoint_create(s->a, &config, &s->endpoints[i]));
	if (s->endpoints[i] != NULL)
		known_status(snd_endpoint_connect_number(s->endpoints[i], &params));
}

static void close_endpoint(struct side *s, int i)
{
	if (s->endpoints[i] != NULL)
		EXPECT(snd_endpoint_close(s->endpoints[i]) == SND_SUCCESS);
	s->endpoints[i] = NULL;
}

static void collective(struct side *s)
{
	const uint8_t b = fuzz_byte(script);
	struct snd_rank_record *other = snd_rank(&s->f->arena, s == &sides[0]);
	unsigned char all[2 * 64], mine[64] = {1};
	if (b & 1)
		snd_set(&other->round, snd_relaxed(&other->round) + (b >> 6) + 1); /* the other rank seems to be there */
	if (b & 2)
		known_status(snd_job_barrier(s->job, MILLISECOND));
	else
		known_status(snd_job_exchange(s->job, mine, b & 63, all, MILLISECOND));
}

/* answer takes a connection request outside of snd_job_connect. */
static void answer(struct side *s)
{
	snd_connector *c = NULL;
	snd_listener *l = SND_OF(s->f->listeners.next, struct snd_listener, link);
	snd_status got = snd_listener_request(l, 0, &c);
	known_status(got);
	if (got != SND_SUCCESS)
		return;
	unsigned char data[512];
	uint32_t n, in, out;
	known_status(snd_connector_private_data(c, data, sizeof data, &n));
	known_status(snd_connector_read_limits(c, &in, &out));
	snd_endpoint *ep = NULL;
	snd_endpoint_config config = {.receive_cq = s->cq, .initiator_cq = s->cq};
	if (fuzz_byte(script) & 1)
		known_status(snd_connector_reject(c, data, n > 512 ? 512 : n));
	else if (snd_endpoint_create(s->a, &config, &ep) == SND_SUCCESS)
		known_status(snd_connector_accept(c, ep, NULL, MILLISECOND));
	EXPECT(snd_connector_close(c) == SND_SUCCESS);
	if (ep != NULL)
		EXPECT(snd_endpoint_close(ep) == SND_SUCCESS);
}

static void churn(struct side *s)
{
	snd_mr *mr;
	if (snd_mr_allocate(s->a, 64u << (fuzz_byte(script) % 12), SND_ALLOW_REMOTE_WRITE, &mr) != SND_SUCCESS)
		return;
	snd_status closed = snd_mr_close(mr, MILLISECOND);
	EXPECT(closed == SND_SUCCESS || closed == SND_IO_TIMEOUT);
}

static void request(struct side *s, struct snd_endpoint *ep, uint8_t kind)
{
	const uint8_t b = fuzz_byte(script);
	const struct side *other = &sides[s == &sides[0]];
	const snd_window_descriptor d = b & 1 ? other->windows[b >> 1 & 1]->latest
		: (snd_window_descriptor){snd_mr_address(other->shared), PAGE, snd_mr_remote_token(other->shared), 0};
	const uint32_t flags = (b & 0x10 ? SND_SILENT_SUCCESS : 0) | (b & 0x20 ? SND_DEFER : 0) | (b & 0x40 ? SND_READ_FENCE : 0);
	snd_sge g = part(s, kind == 0 || kind == 3 || kind > 8);
	if (kind > 8 && (b & 8) == 0)
		g.length = 8;
	snd_window *w = s->windows[b >> 1 & 1];
	if (kind == 6) {
		if (g.buffer != snd_mr_buffer(s->shared)) /* memory that a bound window grants */
			count(s, snd_endpoint_bind(ep, 1, s->own, w, s->memory + GRANTED, GRANTED_BYTES, SND_ALLOW_WRITE | SND_ALLOW_READ | SND_ALLOW_ATOMIC));
		else
			count(s, snd_endpoint_bind(ep, 1, s->shared, w, g.buffer, g.length, SND_ALLOW_READ));
		return;
	}
	switch (kind) {
	case 0: count(s, snd_endpoint_receive(ep, g.length + 1, &g, 1)); break;
	case 1: count(s, snd_endpoint_send(ep, 1, &g, 1, flags | (b & 0x80 ? SND_SOLICIT_EVENT : 0))); break;
	case 2: count(s, snd_endpoint_write(ep, 1, &g, 1, d.address, d.token, flags | (b & 0x80 ? SND_INLINE : 0))); break;
	case 3: count(s, snd_endpoint_read(ep, 1, &g, 1, d.address, d.token, flags)); break;
	case 4: count(s, snd_endpoint_send_and_invalidate(ep, 1, &g, 1, d.token, flags)); break;
	case 7: count(s, snd_endpoint_send_immediate(ep, 1, &g, 1, b, flags)); break;
	case 8: count(s, snd_endpoint_write_immediate(ep, 1, &g, 1, d.address, d.token, b, flags | (b & 0x80 ? SND_INLINE : 0))); break;
	case 9: count(s, snd_endpoint_fetch_and_add(ep, 1, &g, 1, d.address, d.token, b, flags)); break;
	case 10: count(s, snd_endpoint_compare_and_swap(ep, 1, &g, 1, d.address, d.token, b & 0x80, b, flags)); break;
	case 11: count(s, snd_endpoint_swap(ep, 1, &g, 1, d.address, d.token, b, flags)); break;
	default: count(s, snd_endpoint_invalidate(ep, 1, w, flags)); break;
	}
}

static void step(void)
{
	const uint8_t b = fuzz_byte(script), kind = b >> 2;
	struct side *s = &sides[b & 1];
	struct snd_endpoint *ep = s->endpoints[b >> 1 & 1];
	if (kind == 13) {
		name_peer(s, b >> 1 & 1);
		return;
	}
	if (kind < 13) {
		if (ep != NULL)
			request(s, ep, kind % 12);
		return;
	}
	switch (kind) {
	case 14:
	case 15:
	case 16: poll(s); break;
	case 17: known_status(snd_fabric_progress(s->f)); break;
	case 18: fuzz_pass((int64_t)fuzz_byte(script) * MILLISECOND); break;
	case 19:
	case 20:
		slot_of_connect = b >> 1 & 1;
		fuzz_together(connect_first, connect_second);
		break;
	case 21:
		if (ep != NULL && ep->connector != NULL)
			known_status(snd_connector_disconnect(ep->connector, MILLISECOND)); /* hidden: the status is that of a bad handle */
		if (ep != NULL && snd_begin_disconnect(ep))
			fuzz_pass(MILLISECOND);
		break;
	case 22: close_endpoint(s, b >> 1 & 1); break;
	case 23:
		if (ep != NULL)
			known_status(snd_endpoint_flush(ep, MILLISECOND));
		break;
	case 24: collective(s); break;
	case 25: answer(s); break;
	case 26: churn(s); break;
	case 27: {
		snd_sge g = part(s, true);
		count(s, snd_srq_receive(s->srq, g.length + 1, &g, 1));
		break;
	}
	default:
		if (kind < 40)
			damage(script);
		else if (kind < 52)
			forge(script);
		else
			arm_damage(script);
	}
}

/* end closes one member, and then checks that the other one is free. */
static void end(struct side *s, struct side *first)
{
	disarm_damage();
	EXPECT(snd_job_close(first->job) == SND_SUCCESS);
	for (int i = 0; i < 40; i++) { /* the other has left: nothing of this member waits for it */
		fuzz_pass(i % 10 == 0 ? 150 * MILLISECOND : 0);
		EXPECT(snd_fabric_progress(s->f) == SND_SUCCESS);
		poll(s);
	}
	for (int i = 0; i < ENDPOINTS; i++) {
		struct snd_endpoint *ep = s->endpoints[i];
		if (ep != NULL && ep->was_connected && !ep->numbered) /* a queue pair keeps its receives */
			EXPECT(ep->completed == ep->posted && ep->rcompleted == ep->rposted && ep->pending_drains == 0);
		close_endpoint(s, i);
	}
	EXPECT(snd_fabric_progress(s->f) == SND_SUCCESS);
	for (int i = 0; i < WINDOWS; i++)
		EXPECT(snd_window_close(s->windows[i], 100 * MILLISECOND) == SND_SUCCESS);
	EXPECT(snd_mr_close(s->shared, 100 * MILLISECOND) == SND_SUCCESS);
	EXPECT(snd_mr_close(s->own, 100 * MILLISECOND) == SND_SUCCESS);
	EXPECT(snd_cq_close(s->cq) == SND_SUCCESS);
	EXPECT(snd_srq_close(s->srq) == SND_SUCCESS);
	EXPECT(snd_job_close(s->job) == SND_SUCCESS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	struct snd_arena arena;
	const int before = fuzz_descriptors();
	script = &in;
	EXPECT(snd_arena_create(&arena, 2, 0, ARENA, "fuzz") == SND_SUCCESS);
	EXPECT(dup2(arena.fd, DESCRIPTOR) == DESCRIPTOR);
	setenv("SOFTND_ARENA_FD", "700", 1);
	setenv("SOFTND_SIZE", "2", 1);
	fuzz_together(make_first, make_second);
	close(DESCRIPTOR);
	shared_queue = fuzz_byte(script) & 1;
	slot_of_connect = 0;
	fuzz_together(connect_first, connect_second);
	EXPECT(sides[0].endpoints[0] != NULL && sides[1].endpoints[0] != NULL);
	const int leaver = fuzz_byte(script) & 1;
	for (int i = 0; i < MAX_STEPS && in.at < in.end; i++) {
		double began = cpu();
		step();
		EXPECT(cpu() - began < 3);
		check_memory(&sides[0]);
		check_memory(&sides[1]);
	}
	end(&sides[1 - leaver], &sides[leaver]);
	check_memory(&sides[0]);
	check_memory(&sides[1]);
	sides[0].f = sides[1].f = NULL;
	snd_arena_close(&arena);
	EXPECT(fuzz_descriptors() == before);
	return 0;
}

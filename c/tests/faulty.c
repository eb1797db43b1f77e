/* Rank 1 makes every operation that a fault plan can be about, and prints how each ended. The program of
 * tests/gorank plays the same script in Go. The test faults.sh compares the two. */
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "window/guard.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

/* The longest transfer has more than two chunks. A plan has a fault after so many bytes, in the second one. */
enum { LONGEST = 600000, AFTER = 300003 };
_Static_assert(AFTER > SND_CHUNK_BYTES && AFTER < 2 * SND_CHUNK_BYTES && 2 * SND_CHUNK_BYTES < LONGEST, "sizes; the same in gorank and faults.plans");

/* Request i begins at i * SLOT. Only the last one of several is longer than that. */
enum { SLOT = 8192, SLOTS = 4, MEMORY = (SLOTS - 1) * SLOT + LONGEST, ATTEMPTS = 6, ALL = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC };
static const uint32_t transfers[SLOTS] = {8, 100, 5000, LONGEST};
enum kind { SEND, SEND_AND_INVALIDATE, RECEIVE, READ, WRITE, BIND, FAST_REGISTER, ATOMIC, KINDS };
static const char *const kinds[] = {"send", "send-and-invalidate", "receive", "read", "write", "bind", "fast-register", "atomic"};

static snd_job *job;
static snd_adapter *adapter;
static bool subject;
static int round_number;
static const char *kind_name = "prepare";
static snd_mr *memory, *private_memory, *fast;
static unsigned char private_bytes[MEMORY];
static snd_mapping *mapping;
static uint64_t pages[2];
static snd_window *windows[SLOTS];

struct link {
	snd_cq *cq;
	snd_endpoint *ep;
};

static void barrier(void) { OK(snd_job_barrier(job, SECONDS(60))); }

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	char text[200];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	printf("%u %d %s: %s\n", snd_job_rank(job), round_number, kind_name, text);
	fflush(stdout);
}

/* tell prints the status of a call of rank 1, which makes the calls that plans are about, and reports whether it has succeeded. */
static bool tell(const char *name, snd_status s)
{
	if (subject)
		say("%s %08x", name, s);
	return s == SND_SUCCESS;
}

/* PERSIST repeats a call until it succeeds. */
#define PERSIST(name, call) \
	do { \
		for (int attempt_ = 0; attempt_ < ATTEMPTS && !tell(name, call); attempt_++) { \
		} \
	} while (0)

static snd_window_descriptor theirs(snd_window_descriptor mine)
{
	snd_window_descriptor all[2];
	OK(snd_job_exchange_windows(job, &mine, all, SECONDS(60)));
	return all[1 - snd_job_rank(job)];
}

static void prepare(void)
{
	snd_mapping *m;
	PERSIST("allocate", snd_mr_allocate(adapter, MEMORY, ALL, &memory));
	PERSIST("register", snd_mr_register(adapter, private_bytes, MEMORY, ALL, &private_memory));
	for (int i = 0; i < SLOTS; i++)
		PERSIST("create-window", snd_window_create(adapter, &windows[i]));
	OK(snd_mr_create_fast(adapter, 4, 1, &fast));
	OK(snd_mapping_create(memory, snd_mr_buffer(memory), 4096, &m));
	mapping = m;
	(void)snd_mapping_pages(mapping, pages, 2);
}

static void new_queue(struct link *l) { PERSIST("create-completion-queue", snd_cq_create(adapter, 32, &l->cq)); }

static snd_endpoint_config config_of(const struct link *l)
{
	return (snd_endpoint_config){.receive_cq = l->cq, .initiator_cq = l->cq, .receive_depth = 16, .initiator_depth = 16};
}

static void close_link(struct link *l)
{
	OK(snd_endpoint_close(l->ep));
	OK(snd_cq_close(l->cq));
}

/* take takes n results, and prints those that are worth it. It reports whether all are successes. */
static bool take(struct link *l, int n, bool print)
{
	bool all = true;
	for (; n > 0; n--) {
		snd_result r;
		uint32_t taken;
		snd_status s = snd_cq_wait(l->cq, &r, 1, SECONDS(60), &taken);
		if (s != SND_SUCCESS) {
			if (print)
				say("wait %08x", s);
			return false;
		}
		all = all && r.status == SND_SUCCESS;
		if (print)
			say("result %lu of 0x%x: %08x, %u bytes", (unsigned long)r.request_context, r.type, r.status, r.bytes);
	}
	return all;
}

static uint64_t hash(uint64_t h, const unsigned char *b)
{
	for (int i = 0; i < MEMORY; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* sees prints a hash of the memory: FNV-1a. If several requests are posted at once and one fails, chance decides which bytes of the
 * others have been copied. */
static void sees(void)
{
	say("memory %016lx", (unsigned long)hash(hash(UINT64_C(0xcbf29ce484222325), snd_mr_buffer(memory)), private_bytes));
}

static void fill(unsigned char *b, int k)
{
	for (int i = 0; i < MEMORY; i++)
		b[i] = (unsigned char)(i * 7 + k * 13 + 5);
}

static snd_sge sge_of(snd_mr *mr, int i, uint32_t n)
{
	return (snd_sge){(unsigned char *)snd_mr_buffer(mr) + i * SLOT, n, snd_mr_local_token(mr)};
}

/* post posts request i of a kind. The memory of odd rounds is private. */
static snd_status post(struct link *l, enum kind kind, int i, const snd_window_descriptor *window, const snd_window_descriptor *all)
{
	const uint64_t number = (uint64_t)i, far = all->address + number * SLOT;
	snd_mr *mr = round_number % 2 != 0 ? private_memory : memory;
	const snd_fast_registration g = {.pages = pages, .page_count = snd_mapping_pages(mapping, NULL, 0), .offset = snd_mapping_offset(mapping), .length = 4096,
		.address = 1 << 30, .rights = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ};
	snd_sge s;
	switch (kind) {
	case SEND: s = sge_of(mr, i, transfers[i]); return snd_endpoint_send(l->ep, number, &s, 1, 0);
	case SEND_AND_INVALIDATE: s = sge_of(mr, i, transfers[3 * i]); return snd_endpoint_send_and_invalidate(l->ep, number, &s, 1, window->token, 0);
	case RECEIVE: s = sge_of(mr, i, LONGEST); return snd_endpoint_receive(l->ep, number, &s, 1);
	case READ: s = sge_of(mr, i, transfers[i]); return snd_endpoint_read(l->ep, number, &s, 1, far, all->token, 0);
	case WRITE: s = sge_of(mr, i, transfers[i]); return snd_endpoint_write(l->ep, number, &s, 1, far, all->token, 0);
	case BIND: return i % 2 == 0 ? snd_endpoint_bind(l->ep, number, memory, windows[i / 2], snd_mr_buffer(memory), 100, SND_ALLOW_READ)
				: snd_endpoint_invalidate(l->ep, number, windows[i / 2], 0);
	case ATOMIC:
		s = sge_of(mr, i, 8);
		return i % 3 == 0 ? snd_endpoint_fetch_and_add(l->ep, number, &s, 1, far, all->token, 5, 0)
			: i % 3 == 1  ? snd_endpoint_compare_and_swap(l->ep, number, &s, 1, far, all->token, 5, 7, 0)
				      : snd_endpoint_swap(l->ep, number, &s, 1, far, all->token, 9, 0);
	default: return i % 2 == 0 ? snd_endpoint_fast_register(l->ep, number, fast, &g, 0) : snd_endpoint_invalidate_mr(l->ep, number, fast, 0);
	}
}

static void act(struct link *l, enum kind kind, int posts, bool at_once, const snd_window_descriptor *far, const snd_window_descriptor *all)
{
	int posted = 0;
	bool certain = !at_once;
	for (int i = 0; i < posts; i++) {
		char name[20];
		snprintf(name, sizeof name, "post %d", i);
		if (!tell(name, post(l, kind, i, &far[i % SLOTS], all)))
			continue;
		posted++;
		if (!at_once && kind != RECEIVE)
			take(l, 1, true);
	}
	if (kind == RECEIVE)
		(void)theirs((snd_window_descriptor){.length = (uint64_t)posted});
	if (at_once || kind == RECEIVE)
		certain = take(l, posted, true) && certain;
	snd_result none;
	(void)snd_cq_poll(l->cq, &none, 1); /* an endpoint whose queue has overrun fails when it is driven next */
	OK(snd_endpoint_flush(l->ep, SECONDS(60)));
	say("error %08x", snd_endpoint_error(l->ep));
	if (certain)
		sees();
}

/* run_kind makes the requests of a kind: all at once, or each after the result of the one before. */
static void run_kind(enum kind kind, bool at_once)
{
	struct link l;
	new_queue(&l);
	const snd_endpoint_config c = config_of(&l);
	const int rank = (int)snd_job_rank(job), receives = kind == SEND ? SLOTS : kind == SEND_AND_INVALIDATE ? 2 : 0;
	PERSIST("connect", snd_job_connect(job, (uint32_t)(1 - rank), &c, SECONDS(60), &l.ep));
	fill(snd_mr_buffer(memory), (int)strlen(kind_name) + rank);
	fill(private_bytes, (int)strlen(kind_name) + rank + 2);
	if (!subject) {
		for (int i = 0; i < receives; i++) {
			snd_sge s = sge_of(memory, i, LONGEST);
			OK(snd_endpoint_receive(l.ep, (uint64_t)i, &s, 1));
		}
		for (int i = 0; i < receives && kind == SEND_AND_INVALIDATE; i++) {
			OK(snd_endpoint_bind(l.ep, (uint64_t)(10 + i), memory, windows[i], snd_mr_buffer(memory), 64, SND_ALLOW_READ));
			take(&l, 1, false);
		}
	}
	snd_window_descriptor far[SLOTS], all, d;
	for (int i = 0; i < SLOTS; i++) {
		OK(snd_window_query(windows[i], &d));
		far[i] = theirs(d);
	}
	OK(snd_mr_query(memory, &d));
	all = theirs(d);
	if (subject) {
		act(&l, kind, kind == SEND_AND_INVALIDATE ? 2 : kind == BIND ? 2 * SLOTS : SLOTS, at_once, far, &all);
	} else if (kind == RECEIVE) {
		const int n = (int)theirs((snd_window_descriptor){.length = 0}).length;
		for (int i = 0; i < n; i++) {
			snd_sge s = sge_of(memory, i, transfers[i]);
			OK(snd_endpoint_send(l.ep, (uint64_t)i, &s, 1, 0));
		}
		take(&l, n, false);
	}
	barrier();
	if (!subject) {
		OK(snd_endpoint_flush(l.ep, SECONDS(60)));
		take(&l, receives, !at_once); /* if one of several requests fails, chance decides which of the others arrive */
		if (!at_once)
			sees();
	}
	close_link(&l);
	barrier();
}

static const snd_connect_params no_limits = {.inbound_reads = 4, .outbound_reads = 4};

static void new_endpoint(struct link *l)
{
	const snd_endpoint_config c = config_of(l);
	PERSIST("create-endpoint", snd_endpoint_create(adapter, &c, &l->ep));
}

/* dial connects until it succeeds. A refused connect can be repeated; an accepted one that is not completed cannot. */
static snd_connector *dial(struct link *l, snd_address to)
{
	for (;;) {
		snd_connector *c;
		snd_status s = SND_UNSUCCESSFUL;
		new_endpoint(l);
		OK(snd_connector_create(adapter, &c));
		PERSIST("connect", s = snd_connector_connect(c, l->ep, to, &no_limits, SECONDS(60)));
		if (s == SND_SUCCESS && tell("complete-connect", snd_connector_complete(c)))
			return c;
		OK(snd_connector_close(c));
		OK(snd_endpoint_close(l->ep));
	}
}

/* answer accepts requests until one is connected. */
static snd_connector *answer(struct link *l, snd_listener *listener)
{
	for (;;) {
		snd_connector *c;
		new_endpoint(l);
		OK(snd_listener_request(listener, SECONDS(60), &c));
		if (tell("accept", snd_connector_accept(c, l->ep, &no_limits, SECONDS(60))))
			return c;
		OK(snd_connector_close(c));
		OK(snd_endpoint_close(l->ep));
	}
}

/* end_gracefully waits for a notification, and ends the connection. */
static void end_gracefully(struct link *l, snd_connector *c)
{
	if (subject) {
		PERSIST("post", snd_endpoint_write(l->ep, 7, NULL, 0, 0, 0, 0));
		PERSIST("notify", snd_cq_notify(l->cq, SND_NOTIFY_ANY, SECONDS(60)));
		take(l, 1, true);
	}
	barrier();
	PERSIST("disconnect", snd_connector_disconnect(c, SECONDS(60)));
	OK(snd_connector_close(c));
	close_link(l);
	barrier();
}

/* meet makes and ends a connection between a rank that listens and the other. */
static void meet(bool listens)
{
	struct link l;
	new_queue(&l);
	if (!listens) {
		const snd_window_descriptor d = theirs((snd_window_descriptor){.length = 0});
		end_gracefully(&l, dial(&l, (snd_address){(uint32_t)d.address, (uint16_t)d.length, 0}));
		return;
	}
	snd_listener *listener;
	snd_address at;
	OK(snd_listener_create(adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	PERSIST("listen", snd_listener_listen(listener, 0));
	OK(snd_listener_address(listener, &at));
	(void)theirs((snd_window_descriptor){.address = at.host, .length = at.port});
	end_gracefully(&l, answer(&l, listener));
	OK(snd_listener_close(listener));
}

int main(int argc, char **argv)
{
	const int rounds = argc > 1 ? atoi(argv[1]) : 2;
	OK(snd_job_init(test_options(), SECONDS(60), &job));
	adapter = snd_job_adapter(job);
	subject = snd_job_rank(job) == 1;
	prepare();
	for (round_number = 0; round_number < rounds; round_number++) {
		for (enum kind k = SEND; k < KINDS; k++) {
			kind_name = kinds[k];
			run_kind(k, round_number % 2 != 0);
		}
		kind_name = "connect";
		meet(!subject);
		kind_name = "accept";
		meet(subject);
	}
	barrier();
	OK(snd_job_close(job));
	return 0;
}

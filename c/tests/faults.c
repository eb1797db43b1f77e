/* Fault plans in one process. The rules are about a, rank 0, and most are not about b, rank 1. The test writes them into the arena as
 * ndrun does. faults.sh compares the effects of more plans with those in Go. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/cq.h"
#include "../src/faults.h"
#include "../src/sha256.h"
#include "../src/xxh64.h"
#include "two_members.h"

enum { MOST = 300000, ALL = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, RECORDS = 4 };

static snd_fabric *base; /* of a member without a rank: it has made the arena */
static struct snd_fault_record *records;
static snd_mr *mine, *theirs;
static unsigned char *here, *there;

static struct snd_fault_rule rule(uint32_t operation, uint32_t phase, uint32_t action)
{
	return (struct snd_fault_rule){.operations = UINT64_C(1) << operation, .max_size = UINT64_MAX, .phase = phase, .action = action, .ranks = {1}};
}

/* plant makes an arena of two ranks with a plan, and sets SOFTND_FAULTS. */
static void plant(const struct snd_fault_rule *rules, uint32_t n)
{
	unsigned char sum[32];
	char digest[65];
	OK(snd_fabric_create(2, UINT64_C(1) << 30, &(snd_fabric_options){.threading = SND_THREAD_SAFE}, &base));
	struct snd_arena *arena = &base->arena;
	struct snd_header *h = snd_header(arena);
	CHECK(snd_reserve(arena, arena->fault_rules, RECORDS * sizeof *records, "test") == SND_SUCCESS);
	records = (struct snd_fault_record *)(void *)(arena->base + arena->fault_rules);
	for (uint32_t i = 0; i < n; i++)
		records[i].rule = rules[i];
	snd_set32(&h->rules, n);
	const uint64_t words[] = {snd_relaxed(&h->magic), snd_relaxed32(&h->ranks) | (uint64_t)n << 32, snd_relaxed(&h->layout), snd_relaxed(&h->size),
		snd_relaxed(&h->secret[0]), snd_relaxed(&h->secret[1]), snd_relaxed(&h->id[0]), snd_relaxed(&h->id[1])};
	snd_set(&h->checksum, snd_xxh64(words, sizeof words));
	snd_sha256(rules, n * sizeof *rules, sum);
	for (size_t i = 0; i < sizeof sum; i++)
		snprintf(digest + 2 * i, 3, "%02x", (unsigned)sum[i]);
	CHECK(setenv("SOFTND_FAULTS", digest, 1) == 0);
}

static const snd_fabric_options automatic = {.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO};

/* open_side opens the fabric of a side as a rank. */
static void open_side(struct side *s, int32_t rank, snd_executor executor)
{
	snd_fabric_options o = automatic;
	o.executor = executor;
	OK(snd_fabric_attach(snd_fabric_descriptor(base), rank, &o, &s->fabric));
	OK(snd_adapter_open(s->fabric, &s->adapter));
}

static void allocate(struct side *s, bool private_memory, snd_mr **mr, unsigned char **bytes)
{
	if (private_memory)
		OK(snd_mr_register(s->adapter, malloc(MOST), MOST, ALL, mr));
	else
		OK(snd_mr_allocate(s->adapter, MOST, ALL, mr));
	*bytes = snd_mr_buffer(*mr);
}

/* open_pair connects a, which follows rules, with b. In private setups the memory of both is private, so the responder copies. */
static void open_pair(const struct snd_fault_rule *rules, uint32_t n, int setup)
{
	plant(rules, n);
	open_side(&a, 0, setup == 1 ? SND_EXECUTOR_TARGET : SND_EXECUTOR_AUTO);
	open_side(&b, 1, setup == 1 ? SND_EXECUTOR_TARGET : SND_EXECUTOR_AUTO);
	OK(snd_listener_create(b.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	connect_members(NULL);
	allocate(&a, setup == 2, &mine, &here);
	allocate(&b, setup == 2, &theirs, &there);
}
enum { SETUPS = 3 };

static void close_pair(int setup)
{
	disconnect_members();
	OK(snd_mr_close(mine, 10 * SECOND));
	OK(snd_mr_close(theirs, 10 * SECOND));
	if (setup == 2) {
		free(here);
		free(there);
	}
	close_members();
	OK(snd_fabric_close(base));
}

static snd_status request(uint32_t operation, uint64_t context, uint32_t n)
{
	snd_sge s = {here, n, snd_mr_local_token(mine)}, r = {there, n, snd_mr_local_token(theirs)};
	switch (operation) {
	case SNDL_FAULT_WRITE: return snd_endpoint_write(a.ep, context, &s, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), 0);
	case SNDL_FAULT_READ: return snd_endpoint_read(a.ep, context, &s, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), 0);
	case SNDL_FAULT_SEND:
		OK(snd_endpoint_receive(b.ep, context, &r, 1));
		return snd_endpoint_send(a.ep, context, &s, 1, 0);
	default: /* a receives */
		OK(snd_endpoint_receive(a.ep, context, &s, 1));
		return snd_endpoint_send(b.ep, context, &r, 1, 0);
	}
}

static uint32_t type_of(uint32_t operation)
{
	return operation == SNDL_FAULT_WRITE ? SND_REQUEST_WRITE : operation == SNDL_FAULT_READ ? SND_REQUEST_READ : operation == SNDL_FAULT_SEND ? SND_REQUEST_SEND : SND_REQUEST_RECEIVE;
}

static void want_counts(int i, uint64_t matched, uint64_t fired)
{
	CHECK(snd_relaxed(&records[i].counters.matched) == matched && snd_relaxed(&records[i].counters.fired) == fired);
}

/* ended waits until the connection has ended at both sides. */
static void ended(snd_status cause)
{
	while (snd_endpoint_error(a.ep) == SND_SUCCESS || snd_endpoint_error(b.ep) == SND_SUCCESS)
		usleep(100);
	CHECK(snd_endpoint_error(a.ep) == cause);
}

static const uint32_t transfers[] = {SNDL_FAULT_WRITE, SNDL_FAULT_READ, SNDL_FAULT_SEND};

/* After k bytes a transfer fails, or the connection ends. The other bytes are as they were. */
static void test_mid_transfer(void)
{
	enum { N = 200000, K = 100003 };
	static const struct {
		uint32_t action;
		snd_status result, cause;
	} actions[] = {{SNDL_FAULT_FAIL, SND_IO_TIMEOUT, SND_IO_TIMEOUT}, {SNDL_FAULT_INVALIDATE_NOW, SND_ACCESS_VIOLATION, SND_ACCESS_VIOLATION},
		{SNDL_FAULT_DROP, SND_CANCELED, SND_CONNECTION_ABORTED}};
	for (int setup = 0; setup < SETUPS; setup++)
		for (size_t t = 0; t < 3; t++)
			for (size_t i = 0; i < 3; i++) {
				if (transfers[t] == SNDL_FAULT_SEND && actions[i].action == SNDL_FAULT_INVALIDATE_NOW)
					continue;
				struct snd_fault_rule r = rule(transfers[t], SNDL_FAULT_AT_EXECUTE, actions[i].action);
				r.status = SND_IO_TIMEOUT;
				r.after = K;
				r.min_size = K + 1;
				open_pair(&r, 1, setup);
				unsigned char *from = transfers[t] == SNDL_FAULT_READ ? there : here, *to = transfers[t] == SNDL_FAULT_READ ? here : there, *old = malloc(N);
				CHECK(old != NULL);
				fill(from, N, 1);
				fill(to, N, 2);
				memcpy(old, to, N);
				OK(request(transfers[t], 7, N));
				WANT(a.cq, type_of(transfers[t]), 7, actions[i].result);
				if (transfers[t] == SNDL_FAULT_SEND)
					WANT(b.cq, SND_REQUEST_RECEIVE, 7, SND_CANCELED);
				ended(actions[i].cause);
				CHECK(memcmp(to, from, K) == 0 && memcmp(to + K, old + K, N - K) == 0);
				want_counts(0, 1, 1);
				free(old);
				close_pair(setup);
			}
}

/* One byte of the second of three transfers is wrong at the receiver. The data of the sender does not change. */
static void test_corrupt(void)
{
	static const uint32_t sizes[] = {1, 40, 48, 1000, 150000};
	for (int setup = 0; setup < SETUPS; setup++)
		for (size_t t = 0; t < 4; t++)
			for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
				const uint32_t n = sizes[i], operation = t < 3 ? transfers[t] : SNDL_FAULT_RECEIVE;
				const bool inward = operation == SNDL_FAULT_READ || operation == SNDL_FAULT_RECEIVE;
				struct snd_fault_rule r = rule(operation, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_CORRUPT);
				r.nth = 2;
				r.offset = n / 2;
				r.min_size = n / 2 + 1;
				r.flip = 0x10;
				open_pair(&r, 1, setup);
				unsigned char *from = inward ? there : here, *to = inward ? here : there, *original = malloc(n);
				CHECK(original != NULL);
				for (unsigned k = 1; k <= 3; k++) {
					fill(from, n, k);
					memcpy(original, from, n);
					OK(request(operation, k, n));
					if (operation != SNDL_FAULT_RECEIVE)
						WANT(a.cq, type_of(operation), k, SND_SUCCESS);
					else
						WANT(b.cq, SND_REQUEST_SEND, k, SND_SUCCESS);
					if (operation == SNDL_FAULT_SEND || operation == SNDL_FAULT_RECEIVE)
						WANT(inward ? a.cq : b.cq, SND_REQUEST_RECEIVE, k, SND_SUCCESS);
					CHECK(memcmp(from, original, n) == 0);
					if (k == 2)
						to[n / 2] ^= 0x10;
					CHECK(memcmp(to, original, n) == 0);
				}
				want_counts(0, 3, 1);
				free(original);
				close_pair(setup);
			}
}

/* A Read that ends the registration of its sink corrupts a byte before that, and before a payload check, which finds the byte. */
static void test_corrupt_sink(void)
{
	enum { N = 1000, AT = 500 };
	for (check_payloads = 0; check_payloads < 2; check_payloads++)
		for (int setup = 0; setup < 2; setup++) {
			struct snd_fault_rule r = rule(SNDL_FAULT_READ, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_CORRUPT);
			uint64_t pages[2];
			snd_mapping *mapping;
			snd_mr *fast;
			r.offset = AT;
			r.min_size = AT + 1;
			r.flip = 0x10;
			open_pair(&r, 1, setup);
			OK(snd_mapping_create(mine, here, N, &mapping));
			OK(snd_mr_create_fast(a.adapter, 2, 0, &fast));
			const snd_fast_registration g = {.pages = pages, .page_count = snd_mapping_pages(mapping, pages, 2), .offset = snd_mapping_offset(mapping),
				.length = N, .address = 4096, .rights = SND_ALLOW_LOCAL_WRITE};
			OK(snd_endpoint_fast_register(a.ep, 1, fast, &g, 0));
			WANT(a.cq, SND_REQUEST_FAST_REGISTER, 1, SND_SUCCESS);
			fill(there, N, 1);
			const snd_sge s = {here, N, snd_mr_local_token(fast)};
			OK(snd_endpoint_read(a.ep, 2, &s, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), SND_READ_LOCAL_INVALIDATE));
			WANT(a.cq, SND_REQUEST_READ, 2, check_payloads ? SND_DATA_CHECKSUM_ERROR : SND_SUCCESS);
			here[AT] ^= 0x10;
			CHECK(memcmp(here, there, N) == 0);
			want_counts(0, 1, 1);
			OK(snd_mr_close(fast, 10 * SECOND));
			OK(snd_mapping_close(mapping, 10 * SECOND));
			close_pair(setup);
		}
	check_payloads = 0;
}

/* The queue of the request overruns in each phase, and the endpoint fails. */
static void test_overrun(void)
{
	for (uint32_t phase = SNDL_FAULT_AT_POST; phase <= SNDL_FAULT_AT_COMPLETE; phase++)
		for (size_t t = 0; t < 4; t++) {
			const uint32_t operation = t < 3 ? transfers[t] : SNDL_FAULT_RECEIVE;
			if (operation == SNDL_FAULT_RECEIVE && phase == SNDL_FAULT_AT_COMPLETE)
				continue; /* a receive has no such phase */
			struct snd_fault_rule r = rule(operation, phase, SNDL_FAULT_OVERRUN);
			open_pair(&r, 1, 0);
			(void)request(operation, 1, 8); /* a receive may end b's connection already */
			snd_result result;
			uint32_t n;
			CHECK(snd_cq_wait(a.cq, &result, 1, 10 * SECOND, &n) == SND_BUFFER_OVERFLOW);
			ended(SND_INTERNAL_ERROR);
			want_counts(0, 1, 1);
			close_pair(0);
		}
}

/* A delay ends without a poll of the program, and with one in a process without a thread. */
static void test_delay(void)
{
	for (uint32_t phase = SNDL_FAULT_AT_EXECUTE; phase <= SNDL_FAULT_AT_COMPLETE; phase++)
		for (size_t t = 0; t < 4; t++) {
			const uint32_t operation = t < 3 ? transfers[t] : SNDL_FAULT_RECEIVE;
			if (operation == SNDL_FAULT_RECEIVE && phase == SNDL_FAULT_AT_COMPLETE)
				continue;
			struct snd_fault_rule r = rule(operation, phase, SNDL_FAULT_DELAY);
			r.delay = 3000000;
			r.times = 1;
			open_pair(&r, 1, 0);
			const int64_t began = snd_clock();
			OK(request(operation, 1, 100));
			for (uint64_t tail = 0; tail == 0; usleep(100)) {
				snd_lock(a.fabric);
				tail = a.cq->tail;
				snd_unlock(a.fabric);
			}
			CHECK(snd_clock() - began >= 3000000);
			WANT(a.cq, type_of(operation), 1, SND_SUCCESS);
			want_counts(0, 1, 1);
			close_pair(0);
		}
}

/* A receive that fails because the message is too long has received none, so no rule applies. */
static void test_too_long(void)
{
	for (int setup = 0; setup < SETUPS; setup++)
		for (uint32_t n = 40; n <= 1000; n += 960) { /* in a ring entry, and not */
			struct snd_fault_rule r = rule(SNDL_FAULT_RECEIVE, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_FAIL);
			r.status = SND_IO_TIMEOUT;
			open_pair(&r, 1, setup);
			snd_sge to = {here, 8, snd_mr_local_token(mine)}, from = {there, n, snd_mr_local_token(theirs)};
			OK(snd_endpoint_receive(a.ep, 1, &to, 1));
			OK(snd_endpoint_send(b.ep, 1, &from, 1, 0));
			WANT(a.cq, SND_REQUEST_RECEIVE, 1, SND_BUFFER_OVERFLOW);
			want_counts(0, 0, 0);
			close_pair(setup);
		}
}

/* The data of a checked Read has arrived, and its result is late. Meanwhile a request, a message of the peer, or the end of the
 * connection revokes its token. The Read succeeds all the same. */
static void test_late_reads(void)
{
	enum { N = 4000, BY_REQUEST, BY_SINK, BY_MESSAGE, BY_END, AFTER_ARRIVAL };
	for (int setup = 0; setup < 2; setup++)
		for (int by = BY_REQUEST; by <= AFTER_ARRIVAL; by++) {
			struct snd_fault_rule r = rule(SNDL_FAULT_READ, SNDL_FAULT_AT_COMPLETE, SNDL_FAULT_DELAY);
			snd_mapping *mapping;
			snd_mr *fast;
			uint64_t pages[2];
			r.delay = by < BY_MESSAGE ? 3000000 : UINT64_MAX;
			if (by == BY_END && setup == 0)
				continue; /* this process refuses the Write, after the Read */
			check_payloads = 1;
			open_pair(&r, 1, setup);
			fill(there, N, 1);
			OK(snd_mapping_create(mine, here, N + 8, &mapping));
			OK(snd_mr_create_fast(a.adapter, 2, 1, &fast));
			const snd_fast_registration g = {.pages = pages, .page_count = snd_mapping_pages(mapping, pages, 2), .offset = snd_mapping_offset(mapping),
				.length = N + 8, .address = UINT64_C(1) << 40, .rights = ALL};
			OK(snd_endpoint_fast_register(a.ep, 0, fast, &g, 0));
			WANT(a.cq, SND_REQUEST_FAST_REGISTER, 0, SND_SUCCESS);
			const snd_sge sink = {here, N, snd_mr_local_token(fast)}, other = {here + N, 8, sink.token}, plain = {here + 2 * N, 8, snd_mr_local_token(mine)},
				far = {there + N, 8, snd_mr_local_token(theirs)};
			OK(snd_endpoint_read(a.ep, 1, &sink, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), 0));
			if (by == BY_REQUEST) {
				OK(snd_endpoint_invalidate_mr(a.ep, 2, fast, 0));
			} else if (by == BY_SINK) {
				OK(snd_endpoint_read(a.ep, 2, &other, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), SND_READ_LOCAL_INVALIDATE));
			} else if (by == BY_END) {
				OK(snd_endpoint_write(a.ep, 2, &plain, 1, snd_mr_address(theirs), snd_mr_remote_token(fast), 0)); /* of another adapter */
			} else {
				OK(snd_endpoint_receive(b.ep, 3, &far, 1));
				OK(snd_endpoint_receive(a.ep, 4, &plain, 1));
				OK(snd_endpoint_send(a.ep, 2, &plain, 1, 0));
				WANT(b.cq, SND_REQUEST_RECEIVE, 3, SND_SUCCESS); /* after the Read */
				if (by == BY_MESSAGE) {
					OK(snd_endpoint_send_and_invalidate(b.ep, 5, &far, 1, snd_mr_remote_token(fast), 0));
					WANT(a.cq, SND_REQUEST_RECEIVE_AND_INVALIDATE, 4, SND_SUCCESS);
				} else { /* as if the data had arrived when the token was revoked */
					snd_lock(a.fabric);
					snd_revoke_all(&fast->region.i);
					snd_unlock(a.fabric);
				}
				OK(snd_endpoint_flush(a.ep, 10 * SECOND)); /* ends the delay */
			}
			WANT(a.cq, SND_REQUEST_READ, 1, by == AFTER_ARRIVAL ? SND_CANCELED : SND_SUCCESS);
			CHECK(memcmp(here, there, N) == 0);
			if (by == AFTER_ARRIVAL)
				WANT(a.cq, SND_REQUEST_RECEIVE, 4, SND_CANCELED);
			const uint32_t next[] = {[BY_REQUEST] = SND_REQUEST_INVALIDATE, [BY_SINK] = SND_REQUEST_READ, [BY_MESSAGE] = SND_REQUEST_SEND,
				[BY_END] = SND_REQUEST_WRITE, [AFTER_ARRIVAL] = SND_REQUEST_SEND};
			WANT(a.cq, next[by], 2, by == BY_END ? SND_ACCESS_VIOLATION : by == AFTER_ARRIVAL ? SND_CANCELED : SND_SUCCESS);
			OK(snd_mr_close(fast, 10 * SECOND));
			OK(snd_mapping_close(mapping, 10 * SECOND));
			close_pair(setup);
			check_payloads = 0;
		}
}

/* Messages for a shared receive queue match rules about receives, too. */
static void test_shared_queue(void)
{
	struct snd_fault_rule rules[] = {rule(SNDL_FAULT_RECEIVE, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_FAIL), rule(SNDL_FAULT_RECEIVE, SNDL_FAULT_AT_POST, SNDL_FAULT_FAIL),
		rule(SNDL_FAULT_RECEIVE, SNDL_FAULT_AT_POST, SNDL_FAULT_DROP)};
	snd_srq *srq;
	for (int i = 0; i < 3; i++) {
		rules[i].nth = 2;
		rules[i].status = SND_BUFFER_OVERFLOW;
		rules[i].ranks[0] = 2; /* b */
	}
	plant(rules, 3);
	open_side(&a, 0, SND_EXECUTOR_AUTO);
	open_side(&b, 1, SND_EXECUTOR_AUTO);
	OK(snd_listener_create(b.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	OK(snd_srq_create(b.adapter, &(snd_srq_config){.depth = 4}, &srq));
	connect_members(srq);
	OK(snd_srq_receive(srq, 1, NULL, 0));
	CHECK(snd_srq_receive(srq, 2, NULL, 0) == SND_BUFFER_OVERFLOW); /* by the post */
	OK(snd_srq_receive(srq, 2, NULL, 0));
	want_counts(1, 3, 1);
	want_counts(2, 0, 0); /* a post to a shared queue has no connection */
	for (uint64_t i = 1; i <= 2; i++) {
		OK(snd_endpoint_send(a.ep, i, NULL, 0, 0));
		WANT(b.cq, SND_REQUEST_RECEIVE, i, i == 1 ? SND_SUCCESS : SND_BUFFER_OVERFLOW);
		WANT(a.cq, SND_REQUEST_SEND, i, i == 1 ? SND_SUCCESS : SND_REMOTE_ERROR);
	}
	want_counts(0, 2, 1);
	disconnect_members();
	OK(snd_srq_close(srq));
	close_members();
	OK(snd_fabric_close(base));
}

/* Only the endpoints of a member that a rule names leave the fast path. */
static void test_fast_path(void)
{
	struct snd_fault_rule r = rule(SNDL_FAULT_READ, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_DROP);
	r.nth = UINT64_C(1) << 40;
	open_pair(&r, 1, 0);
	CHECK(a.ep->slow != 0 && a.ep->faults != NULL && b.ep->slow == 0 && b.ep->faults == NULL && b.fabric->faults == NULL);
	OK(request(SNDL_FAULT_WRITE, 1, 8));
	WANT(a.cq, SND_REQUEST_WRITE, 1, SND_SUCCESS);
	close_pair(0);
}

/* A process that waits with its own progress only continues a delayed request. It stops or dies at its third Write. */
static void act_as_child(void)
{
	const snd_fabric_options o = {.progress = SND_PROGRESS_MANUAL};
	snd_address to;
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	char *name = getenv("FAULTS_ARENA"), *port = getenv("FAULTS_PORT"), *host = getenv("FAULTS_HOST");
	OK(snd_fabric_attach(atoi(name), 0, &o, &a.fabric));
	to = (snd_address){(uint32_t)strtoul(host, NULL, 10), (uint16_t)atoi(port), 0};
	const snd_connect_params p = {.inbound_reads = 4, .outbound_reads = 4};
	OK(snd_adapter_open(a.fabric, &a.adapter));
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq}, &a.ep));
	OK(snd_connector_create(a.adapter, &a.connector));
	OK(snd_connector_connect(a.connector, a.ep, to, &p, 10 * SECOND));
	OK(snd_connector_complete(a.connector));
	allocate(&a, false, &mine, &here);
	memset(here, 7, MOST);
	snd_sge s = {here, 32, snd_mr_local_token(mine)}, w = {here, 8, s.token};
	OK(snd_endpoint_receive(a.ep, 1, &s, 1)); /* the descriptor of b's memory */
	WANT(a.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
	snd_window_descriptor d;
	snd_window_descriptor_decode(here, &d);
	memset(here, 7, MOST);
	for (uint64_t i = 0; i < 4; i++) {
		OK(snd_endpoint_write(a.ep, i, &w, 1, d.address + 8 * i, d.token, 0));
		WANT(a.cq, SND_REQUEST_WRITE, i, SND_SUCCESS);
	}
	OK(snd_fabric_close(a.fabric));
	_exit(0);
}

static void test_signals(char *program)
{
	for (uint32_t action = SNDL_FAULT_STOP; action <= SNDL_FAULT_KILL; action++)
		for (uint32_t phase = SNDL_FAULT_AT_POST; phase <= SNDL_FAULT_AT_COMPLETE; phase++) {
			struct snd_fault_rule rules[] = {rule(SNDL_FAULT_WRITE, phase, action), rule(SNDL_FAULT_WRITE, SNDL_FAULT_AT_COMPLETE, SNDL_FAULT_DELAY)};
			rules[0].nth = 3;
			rules[1].nth = 2;
			rules[1].delay = 3000000;
			plant(rules, 2);
			open_side(&b, 1, SND_EXECUTOR_AUTO);
			OK(snd_listener_create(b.adapter, &listener));
			OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
			OK(snd_listener_listen(listener, 0));
			snd_address at;
			OK(snd_listener_address(listener, &at));
			OK(snd_cq_create(b.adapter, 64, &b.cq));
			OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq}, &b.ep));
			allocate(&b, false, &theirs, &there);
			char arena[20], host[20], port[20];
			snprintf(arena, sizeof arena, "%d", dup(snd_fabric_descriptor(base)));
			snprintf(host, sizeof host, "%u", at.host);
			snprintf(port, sizeof port, "%u", (unsigned)at.port);
			setenv("FAULTS_ARENA", arena, 1);
			setenv("FAULTS_HOST", host, 1);
			setenv("FAULTS_PORT", port, 1);
			pthread_t thread;
			CHECK(pthread_create(&thread, NULL, accept_one, NULL) == 0);
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0) {
				execl(program, program, "child", (char *)NULL);
				_exit(9);
			}
			CHECK(pthread_join(thread, NULL) == 0);
			snd_window_descriptor d;
			OK(snd_mr_query(theirs, &d));
			memset(there, 0, MOST);
			snd_window_descriptor_encode(&d, there + 1000);
			snd_sge s = {there + 1000, 32, snd_mr_local_token(theirs)};
			OK(snd_endpoint_send(b.ep, 1, &s, 1, 0));
			WANT(b.cq, SND_REQUEST_SEND, 1, SND_SUCCESS);
			int status;
			CHECK(waitpid(child, &status, WUNTRACED) == child);
			const size_t written = phase == SNDL_FAULT_AT_COMPLETE ? 24 : 16;
			for (size_t i = 0; i < 40; i++)
				CHECK(there[i] == (i < written ? 7 : 0));
			if (action == SNDL_FAULT_STOP) {
				CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
				CHECK(kill(child, SIGCONT) == 0 && waitpid(child, &status, 0) == child);
				CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0 && there[31] == 7);
			} else {
				CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
			}
			want_counts(0, action == SNDL_FAULT_STOP ? 4 : 3, 1);
			want_counts(1, action == SNDL_FAULT_STOP ? 4 : phase == SNDL_FAULT_AT_COMPLETE ? 3 : 2, 1);
			OK(snd_endpoint_close(b.ep));
			OK(snd_connector_close(b.connector));
			OK(snd_fabric_close(b.fabric));
			OK(snd_fabric_close(base));
			close(atoi(arena));
		}
}

static snd_status join_with(const struct snd_fault_rule *r, const char *digest)
{
	snd_fabric *f;
	plant(r, 1);
	if (digest != NULL)
		setenv("SOFTND_FAULTS", digest, 1);
	snd_status s = snd_fabric_attach(snd_fabric_descriptor(base), 0, &automatic, &f);
	if (s == SND_SUCCESS)
		OK(snd_fabric_close(f));
	OK(snd_fabric_close(base));
	return s;
}

/* A member does not join if the rules are not those of the launcher, or if no compiler writes such rules. */
static void test_nonsense(void)
{
	const struct snd_fault_rule good = rule(SNDL_FAULT_WRITE, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_DROP);
	OK(join_with(&good, NULL));
	CHECK(join_with(&good, "") == SND_INVALID_PARAMETER && join_with(&good, "0123") == SND_INVALID_DEVICE_STATE);
	struct snd_fault_rule bad[12];
	for (size_t i = 0; i < 12; i++)
		bad[i] = good;
	bad[0].operations = 0;
	bad[1].operations = UINT64_C(1) << 21;
	bad[2].operations |= UINT64_C(1) << SNDL_FAULT_NOTIFY;
	bad[3].phase = 0;
	bad[4].phase = 4;
	bad[5].action = 0;
	bad[6].action = 11;
	bad[7].flip = 256;
	bad[8].reserved[1] = 1;
	bad[9].action = SNDL_FAULT_FAIL; /* with success */
	bad[10].action = SNDL_FAULT_CORRUPT;
	bad[10].offset = 1;
	bad[10].min_size = 1;
	bad[11].after = 1;
	for (size_t i = 0; i < 12; i++)
		CHECK(join_with(&bad[i], NULL) == SND_NOT_SUPPORTED);
}

/* A process survives each combination of an action and a phase, unless it is to stop or die. */
static void test_combinations(void)
{
	for (uint32_t action = SNDL_FAULT_FAIL; action <= SNDL_FAULT_EXHAUST; action++)
		for (uint32_t phase = SNDL_FAULT_AT_POST; phase <= SNDL_FAULT_AT_COMPLETE; phase++) {
			if (action == SNDL_FAULT_STOP || action == SNDL_FAULT_KILL)
				continue;
			struct snd_fault_rule r = rule(SNDL_FAULT_WRITE, phase, action);
			r.operations = (UINT64_C(1) << SNDL_FAULT_CONNECT) - 1;
			r.status = UINT32_MAX;
			r.delay = 1000;
			r.min_size = 1;
			memset(r.name, 0xff, sizeof r.name);
			open_pair(&r, 1, 0);
			for (size_t t = 0; t < 4; t++) {
				const uint32_t operation = t < 3 ? transfers[t] : SNDL_FAULT_RECEIVE;
				snd_sge s = {here, 100, snd_mr_local_token(mine)};
				if (operation != SNDL_FAULT_RECEIVE)
					(void)request(operation, t, 100);
				else
					(void)snd_endpoint_receive(a.ep, t, &s, 1);
			}
			OK(snd_endpoint_flush(a.ep, 10 * SECOND));
			close_pair(0);
		}
}

/* Decisions use private counters and rules. A peer that overwrites those in the arena changes the report only. */
static void test_peers_change_nothing(void)
{
	struct snd_fault_rule r = rule(SNDL_FAULT_WRITE, SNDL_FAULT_AT_COMPLETE, SNDL_FAULT_FAIL);
	r.nth = 3;
	r.times = 1;
	r.status = SND_REMOTE_ERROR;
	open_pair(&r, 1, 0);
	for (uint64_t i = 1; i <= 3; i++) {
		OK(request(SNDL_FAULT_WRITE, i, 8));
		WANT(a.cq, SND_REQUEST_WRITE, i, i < 3 ? SND_SUCCESS : SND_REMOTE_ERROR);
		snd_set(&records[0].counters.matched, 77);
		snd_set(&records[0].counters.fired, 5);
		records[0].rule.action = SNDL_FAULT_KILL;
		snd_set32(&snd_header(&base->arena)->rules, 100);
	}
	want_counts(0, 77, 5); /* written after the third */
	close_pair(0);
}

static void *close_queue(void *q)
{
	while (snd_relaxed(&records[0].counters.fired) < 3)
		usleep(100); /* until the rule delays the third call */
	OK(snd_cq_close(q));
	return NULL;
}

/* A call is late by a part of its timeout, and another thread may close its handle meanwhile. */
static void test_late_calls(void)
{
	struct snd_fault_rule r = rule(SNDL_FAULT_NOTIFY, SNDL_FAULT_AT_POST, SNDL_FAULT_DELAY);
	pthread_t thread;
	snd_cq *q;
	r.delay = UINT64_MAX;
	plant(&r, 1);
	open_side(&a, 0, SND_EXECUTOR_AUTO);
	OK(snd_cq_create(a.adapter, 4, &q));
	CHECK(snd_cq_notify(q, SND_NOTIFY_ANY, 0) == SND_IO_TIMEOUT && snd_cq_notify(q, SND_NOTIFY_ANY, 2000000) == SND_IO_TIMEOUT);
	CHECK(pthread_create(&thread, NULL, close_queue, q) == 0);
	CHECK(snd_cq_notify(q, SND_NOTIFY_ANY, SND_FOREVER) == SND_CANCELED);
	CHECK(pthread_join(thread, NULL) == 0);
	want_counts(0, 3, 3);
	OK(snd_fabric_close(a.fabric));
	OK(snd_fabric_close(base));
}

/* canceler is a thread that cancels the calls of a connector when a rule delays one of them. */
struct canceler {
	int rule;
	snd_connector *connector;
	pthread_t thread;
};

static void *cancel_call(void *arg)
{
	struct canceler *c = arg;
	while (snd_relaxed(&records[c->rule].counters.fired) == 0)
		usleep(100);
	OK(snd_connector_cancel(c->connector));
	return NULL;
}

static void begin_cancel(struct canceler *c, int number, snd_connector *connector)
{
	c->rule = number;
	c->connector = connector;
	CHECK(pthread_create(&c->thread, NULL, cancel_call, c) == 0);
}

static void *connect_a(void *to)
{
	OK(snd_connector_connect(a.connector, a.ep, *(snd_address *)to, NULL, 10 * SECOND));
	OK(snd_connector_complete(a.connector));
	return NULL;
}

/* A cancel ends the delay of a call, and the connector is as before: the call succeeds later. A call with bad arguments meets no rule. */
static void test_canceled_calls(void)
{
	struct snd_fault_rule rules[] = {rule(SNDL_FAULT_CONNECT, SNDL_FAULT_AT_POST, SNDL_FAULT_DELAY), rule(SNDL_FAULT_ACCEPT, SNDL_FAULT_AT_POST, SNDL_FAULT_DELAY),
		rule(SNDL_FAULT_DISCONNECT, SNDL_FAULT_AT_POST, SNDL_FAULT_DELAY)};
	const snd_connect_params bad = {.private_data_length = 1};
	struct canceler c;
	snd_address to;
	pthread_t thread;
	for (int i = 0; i < 3; i++) {
		rules[i].delay = UINT64_MAX;
		rules[i].times = 1;
	}
	rules[1].ranks[0] = 2; /* b */
	plant(rules, 3);
	open_side(&a, 0, SND_EXECUTOR_AUTO);
	open_side(&b, 1, SND_EXECUTOR_AUTO);
	OK(snd_listener_create(b.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	OK(snd_listener_address(listener, &to));
	struct side *sides[] = {&a, &b};
	for (int i = 0; i < 2; i++) {
		OK(snd_cq_create(sides[i]->adapter, 4, &sides[i]->cq));
		OK(snd_endpoint_create(sides[i]->adapter, &(snd_endpoint_config){.receive_cq = sides[i]->cq, .initiator_cq = sides[i]->cq}, &sides[i]->ep));
	}
	OK(snd_connector_create(a.adapter, &a.connector));
	begin_cancel(&c, 0, a.connector);
	CHECK(snd_connector_connect(a.connector, a.ep, to, NULL, SND_FOREVER) == SND_CANCELED);
	CHECK(pthread_join(c.thread, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, connect_a, &to) == 0);
	OK(snd_listener_request(listener, 10 * SECOND, &b.connector));
	CHECK(snd_connector_accept(b.connector, b.ep, &bad, SND_FOREVER) == SND_INVALID_PARAMETER);
	want_counts(1, 0, 0);
	begin_cancel(&c, 1, b.connector);
	CHECK(snd_connector_accept(b.connector, b.ep, NULL, SND_FOREVER) == SND_CANCELED);
	CHECK(pthread_join(c.thread, NULL) == 0);
	OK(snd_connector_accept(b.connector, b.ep, NULL, 10 * SECOND));
	CHECK(pthread_join(thread, NULL) == 0);
	begin_cancel(&c, 2, a.connector);
	CHECK(snd_connector_disconnect(a.connector, SND_FOREVER) == SND_CANCELED);
	CHECK(pthread_join(c.thread, NULL) == 0 && snd_endpoint_error(a.ep) == SND_SUCCESS);
	disconnect_members();
	close_members();
	OK(snd_fabric_close(base));
}

int main(int argc, char **argv)
{
	if (argc > 1)
		act_as_child();
	test_nonsense();
	test_fast_path();
	test_mid_transfer();
	test_corrupt();
	test_corrupt_sink();
	test_overrun();
	test_delay();
	test_too_long();
	test_late_reads();
	test_shared_queue();
	test_signals(argv[0]);
	test_combinations();
	test_peers_change_nothing();
	test_late_calls();
	test_canceled_calls();
	return 0;
}

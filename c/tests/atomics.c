/* Atomics: their values and results, those that are refused, and that no change is lost, whether processes, executors or the owner's own
 * instructions change a word at once. */
#include <sys/wait.h>
#include <unistd.h>

#include "endpoint/cq.h"
#include "endpoint/qp.h"
#include "endpoint/req_atomic.h"
#include "endpoint/req_execute.h"
#include "two_members.h"

enum { WORDS = 512, SIZE = WORDS * 8, RANKS = 4, ADDS = 1000000, SLOW_ADDS = 20000, LOCKED = 500, COUNTER = 0, LOCK = 1, NUMBER = 2, ENDED = 3 };

static snd_mr *mine, *theirs;
static uint64_t *old, *word;

static snd_sge at(int i) { return (snd_sge){old + i, 8, snd_mr_local_token(mine)}; }
static uint64_t remote(int i) { return snd_mr_address(theirs) + 8 * (uint64_t)i; }
static uint64_t load(const uint64_t *w) { return __atomic_load_n(w, __ATOMIC_SEQ_CST); }
static uint64_t value(int i) { return load(&word[i]); }
static void set(int i, uint64_t v) { __atomic_store_n(&word[i], v, __ATOMIC_SEQ_CST); }

static snd_status add(uint64_t context, int i, uint64_t n, uint32_t flags)
{
	const snd_sge s = at(i);
	return snd_endpoint_fetch_and_add(a.ep, context, &s, 1, remote(i), snd_mr_remote_token(theirs), n, flags);
}

static void make_region(struct side *s, bool is_private, uint32_t flags, snd_mr **mr, uint64_t **words)
{
	if (is_private)
		OK(snd_mr_register(s->adapter, calloc(WORDS, 8), SIZE, flags, mr));
	else
		OK(snd_mr_allocate(s->adapter, SIZE, flags, mr));
	*words = snd_mr_buffer(*mr);
}

static void want(uint32_t type, uint64_t context, int i, uint64_t before, uint64_t after)
{
	const snd_result r = next_result(a.cq);
	CHECK(r.status == SND_SUCCESS && r.type == type && r.request_context == context && r.bytes == 8);
	CHECK(old[i] == before && value(i) == after);
}

/* kinds makes each kind of atomic. */
static void kinds(void)
{
	const snd_sge s = at(1);
	const uint32_t token = snd_mr_remote_token(theirs);
	set(0, 10);
	set(1, 7);
	set(2, 20);
	OK(snd_endpoint_fetch_and_add(a.ep, 1, &s, 1, remote(1), token, UINT64_MAX, 0));
	want(SND_REQUEST_FETCH_AND_ADD, 1, 1, 7, 6);
	OK(snd_endpoint_compare_and_swap(a.ep, 2, &s, 1, remote(1), token, 7, 100, 0));
	want(SND_REQUEST_COMPARE_AND_SWAP, 2, 1, 6, 6);
	OK(snd_endpoint_compare_and_swap(a.ep, 3, &s, 1, remote(1), token, 6, UINT64_MAX - 1, 0));
	want(SND_REQUEST_COMPARE_AND_SWAP, 3, 1, 6, UINT64_MAX - 1);
	OK(snd_endpoint_fetch_and_add(a.ep, 4, &s, 1, remote(1), token, 5, SND_READ_FENCE));
	want(SND_REQUEST_FETCH_AND_ADD, 4, 1, UINT64_MAX - 1, 3);
	OK(snd_endpoint_swap(a.ep, 5, &s, 1, remote(1), token, 9, 0));
	want(SND_REQUEST_SWAP, 5, 1, 3, 9);
	CHECK(value(0) == 10 && value(2) == 20);
}

/* burst posts more atomics than the peer has words for results, and than may be in flight. */
static void burst(uint32_t limit)
{
	a.ep->read_limit = limit;
	for (int i = 0; i < 40; i++) {
		set(i, 10 * (uint64_t)i);
		OK(add((uint64_t)i, i, (uint64_t)i + 1, i < 39 ? SND_DEFER : 0));
	}
	for (int i = 0; i < 40; i++)
		want(SND_REQUEST_FETCH_AND_ADD, (uint64_t)i, i, 10 * (uint64_t)i, 11 * (uint64_t)i + 1);
	for (int i = 0; i < 40; i++)
		OK(add((uint64_t)i, 0, 1, SND_SILENT_SUCCESS | SND_DEFER));
	OK(add(99, 0, 1, 0));
	want(SND_REQUEST_FETCH_AND_ADD, 99, 0, 41, 42);
	a.ep->read_limit = 4;
}

/* fences sends each old value on, in a message behind a fence, and overwrites a word behind an atomic of it. With a weak order, the first
 * Write may complete long after the atomic that follows it has run. */
static void fences(int rounds)
{
	uint64_t *in = word + 100;
	const snd_sge to = {in, 8, snd_mr_local_token(theirs)}, from = at(1), later = at(2);
	for (int i = 0; i < rounds; i++) {
		set(1, (uint64_t)i + 1000);
		set(3, 5);
		old[1] = old[3] = 0;
		old[2] = (uint64_t)i + 7;
		OK(snd_endpoint_receive(b.ep, 1, &to, 1));
		OK(snd_endpoint_write(a.ep, 6, &later, 1, remote(4), snd_mr_remote_token(theirs), 0));
		OK(add(2, 1, 1, 0));
		OK(snd_endpoint_send(a.ep, 3, &from, 1, SND_READ_FENCE));
		OK(add(4, 3, 1, 0));
		OK(snd_endpoint_write(a.ep, 5, &later, 1, remote(3), snd_mr_remote_token(theirs), 0));
		WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
		CHECK(*in == (uint64_t)i + 1000);
		WANT(a.cq, SND_REQUEST_WRITE, 6, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_FETCH_AND_ADD, 2, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_SEND, 3, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_FETCH_AND_ADD, 4, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_WRITE, 5, SND_SUCCESS);
		CHECK(old[3] == 5 && value(3) == (uint64_t)i + 7);
	}
}

/* sinks stores old values into memory that is registered by a request, and invalidates that behind the atomic. */
static void sinks(void)
{
	snd_mr *memory, *fast;
	snd_mapping *mapping;
	uint64_t page;
	OK(snd_mr_allocate(a.adapter, SND_PAGE_SIZE, SND_ALLOW_LOCAL_WRITE, &memory));
	OK(snd_mapping_create(memory, snd_mr_buffer(memory), SND_PAGE_SIZE, &mapping));
	CHECK(snd_mapping_pages(mapping, &page, 1) == 1);
	OK(snd_mr_create_fast(a.adapter, 1, 0, &fast));
	uint64_t *result = snd_mr_buffer(memory);
	const snd_sge first = at(2);
	set(1, 50);
	for (uint64_t i = 0; i < 20; i++) {
		const snd_fast_registration f = {.pages = &page, .page_count = 1, .length = 64, .address = SND_PAGE_SIZE, .rights = SND_ALLOW_LOCAL_WRITE};
		OK(snd_endpoint_fast_register(a.ep, 1, fast, &f, 0));
		const snd_sge s = {result, 8, snd_mr_local_token(fast)};
		OK(snd_endpoint_write(a.ep, 4, &first, 1, remote(4), snd_mr_remote_token(theirs), 0));
		OK(snd_endpoint_fetch_and_add(a.ep, 2, &s, 1, remote(1), snd_mr_remote_token(theirs), 1, 0));
		OK(snd_endpoint_invalidate_mr(a.ep, 3, fast, 0));
		WANT(a.cq, SND_REQUEST_FAST_REGISTER, 1, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_WRITE, 4, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_FETCH_AND_ADD, 2, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_INVALIDATE, 3, SND_SUCCESS);
		CHECK(*result == 50 + i);
	}
	OK(snd_mr_close(fast, 10 * SECOND));
	OK(snd_mapping_close(mapping, 10 * SECOND));
	OK(snd_mr_close(memory, 10 * SECOND));
}

/* stays_behind writes to memory that this side reaches, after an atomic on memory that only the peer reaches. While the peer does nothing,
 * neither has an effect. */
static void stays_behind(void)
{
	snd_mr *owned, *shared;
	uint64_t *first, *second;
	const snd_sge s = at(1), later = at(2);
	make_region(&b, true, SND_ALLOW_REMOTE_ATOMIC, &owned, &first);
	make_region(&b, false, SND_ALLOW_REMOTE_WRITE, &shared, &second);
	const uint64_t to_first = snd_mr_address(owned), to_second = snd_mr_address(shared);
	const uint32_t token = snd_mr_remote_token(owned), other = snd_mr_remote_token(shared);
	uint64_t budget = SND_QUANTUM;
	old[2] = 5;
	OK(snd_endpoint_swap(a.ep, 1, &s, 1, to_first, token, 4, SND_DEFER));
	OK(snd_endpoint_write(a.ep, 2, &later, 1, to_second, other, SND_DEFER));
	snd_lock(a.fabric);
	snd_lock(b.fabric);
	a.ep->submitted = a.ep->posted;
	(void)snd_run_requests(a.ep, &budget);
	CHECK(load(first) == 0 && load(second) == 0);
	snd_unlock(b.fabric);
	snd_unlock(a.fabric);
	WANT(a.cq, SND_REQUEST_SWAP, 1, SND_SUCCESS);
	WANT(a.cq, SND_REQUEST_WRITE, 2, SND_SUCCESS);
	CHECK(load(first) == 4 && load(second) == 5);
	OK(snd_mr_close(owned, 10 * SECOND));
	OK(snd_mr_close(shared, 10 * SECOND));
	free(first);
}

/* oldest_first takes old values while the peer executes the atomics. Those that are taken are those of the oldest: they make room for later ones. */
static void oldest_first(int rounds)
{
	for (int round = 0; round < rounds; round++) {
		uint64_t budget = SND_QUANTUM, taken = 0;
		a.ep->read_limit = SNDL_RESULTS;
		for (uint64_t i = 0; i < SNDL_RESULTS; i++)
			OK(add(i, (int)i, 1, SND_DEFER));
		snd_lock(a.fabric); /* nothing else takes them */
		snd_lock(b.fabric); /* nothing is executed */
		a.ep->submitted = a.ep->posted;
		(void)snd_run_requests(a.ep, &budget);
		snd_unlock(b.fabric);
		while (taken != SNDL_RESULTS) {
			snd_take_results(a.ep);
			taken = 0;
			for (uint64_t i = a.ep->completed; i != a.ep->next; i++)
				if (snd_request_at(a.ep, i)->state == SND_REQ_FINISHED)
					CHECK(taken++ == i - a.ep->completed);
		}
		snd_unlock(a.fabric);
		for (uint64_t i = 0; i < SNDL_RESULTS; i++)
			WANT(a.cq, SND_REQUEST_FETCH_AND_ADD, i, SND_SUCCESS);
	}
	a.ep->read_limit = 4;
}

/* arguments makes posts that fail. */
static void arguments(void)
{
	const snd_sge s = at(1), two[] = {s, s}, part = {old, 4, s.token}, none = {NULL, 8, s.token};
	const uint32_t token = snd_mr_remote_token(theirs);
	const uint64_t to = remote(1);
	CHECK(snd_endpoint_fetch_and_add(a.ep, 1, two, 2, to, token, 1, 0) == SND_DATA_OVERRUN);
	CHECK(snd_endpoint_swap(a.ep, 1, NULL, 0, to, token, 1, 0) == SND_DATA_OVERRUN);
	CHECK(snd_endpoint_swap(a.ep, 1, NULL, 1, to, token, 1, 0) == SND_INVALID_PARAMETER);
	CHECK(snd_endpoint_swap(a.ep, 1, &none, 1, to, token, 1, 0) == SND_INVALID_PARAMETER);
	CHECK(snd_endpoint_swap(a.ep, 1, &part, 1, to, token, 1, 0) == SND_INVALID_BUFFER_SIZE);
	CHECK(snd_endpoint_swap(a.ep, 1, &s, 1, to + 4, token, 1, 0) == SND_INVALID_PARAMETER);
	CHECK(snd_endpoint_compare_and_swap(a.ep, 1, &s, 1, to, token, 1, 2, SND_INLINE) == SND_INVALID_PARAMETER);
	a.ep->conn->peer_extended = false; /* as a peer on another host */
	CHECK(add(1, 1, 1, 0) == SND_NOT_SUPPORTED);
	a.ep->conn->peer_extended = true;
}

/* fails makes an atomic that fails, on a connection of its own, and changes nothing. */
static void fails(snd_sge s, uint64_t address, uint32_t token, snd_status status)
{
	const uint64_t before = value(1);
	OK(snd_endpoint_fetch_and_add(a.ep, 1, &s, 1, address, token, 1, 0));
	WANT(a.cq, SND_REQUEST_FETCH_AND_ADD, 1, status);
	CHECK(value(1) == before);
	disconnect_members();
	connect_members(NULL);
}

static void refusals(void)
{
	snd_mr *other;
	snd_window *w;
	snd_window_descriptor d;
	const uint32_t token = snd_mr_remote_token(theirs);
	connect_members(NULL);
	fails((snd_sge){old, 8, snd_mr_local_token(mine) ^ 1u << 20}, remote(1), token, SND_ACCESS_VIOLATION);
	fails((snd_sge){old + WORDS, 8, snd_mr_local_token(mine)}, remote(1), token, SND_ACCESS_VIOLATION);
	fails(at(1), remote(WORDS), token, SND_ACCESS_VIOLATION);
	fails(at(1), remote(1), token ^ 1u << 20, SND_ACCESS_VIOLATION);
	a.ep->read_limit = 0;
	fails(at(1), remote(1), token, SND_INVALID_DEVICE_REQUEST);

	/* A local entry without the right, and memory without it. */
	OK(snd_mr_register(a.adapter, old, SIZE, 0, &other));
	fails((snd_sge){old, 8, snd_mr_local_token(other)}, remote(1), token, SND_ACCESS_VIOLATION);
	OK(snd_mr_close(other, 10 * SECOND));
	OK(snd_mr_register(b.adapter, word, SIZE, SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, &other));
	fails(at(1), snd_mr_address(other) + 8, snd_mr_remote_token(other), SND_ACCESS_VIOLATION);

	/* Windows. */
	OK(snd_window_create(b.adapter, &w));
	OK(snd_endpoint_bind(b.ep, 1, other, w, word, SIZE, SND_ALLOW_READ | SND_ALLOW_WRITE));
	WANT(b.cq, SND_REQUEST_BIND, 1, SND_SUCCESS);
	OK(snd_window_query(w, &d));
	fails(at(1), d.address + 8, d.token, SND_ACCESS_VIOLATION);
	OK(snd_endpoint_bind(b.ep, 1, other, w, word, SIZE, SND_ALLOW_ATOMIC));
	WANT(b.cq, SND_REQUEST_BIND, 1, SND_SUCCESS);
	OK(snd_window_query(w, &d));
	const snd_sge s = at(1);
	set(1, 3);
	OK(snd_endpoint_swap(a.ep, 1, &s, 1, d.address + 8, d.token, 4, 0));
	want(SND_REQUEST_SWAP, 1, 1, 3, 4);
	OK(snd_endpoint_invalidate(b.ep, 2, w, 0));
	WANT(b.cq, SND_REQUEST_INVALIDATE, 2, SND_SUCCESS);
	fails(at(1), d.address + 8, d.token, SND_ACCESS_VIOLATION);
	OK(snd_window_close(w, 10 * SECOND));
	OK(snd_mr_close(other, 10 * SECOND));
	OK(snd_mr_register(b.adapter, word, SIZE, 0, &other));
	OK(snd_window_create(b.adapter, &w));
	CHECK(snd_endpoint_bind(b.ep, 1, other, w, word, SIZE, SND_ALLOW_ATOMIC) == SND_ACCESS_VIOLATION);
	OK(snd_window_close(w, 10 * SECOND));
	OK(snd_mr_close(other, 10 * SECOND));
	disconnect_members();
}

/* unaligned names memory between two words by an address that is a multiple of 8. */
static void unaligned(void)
{
	snd_mr *memory, *fast;
	snd_mapping *mapping;
	uint64_t page;
	connect_members(NULL);
	OK(snd_mr_allocate(b.adapter, SND_PAGE_SIZE, SND_ALLOW_LOCAL_WRITE, &memory));
	OK(snd_mapping_create(memory, snd_mr_buffer(memory), SND_PAGE_SIZE, &mapping));
	CHECK(snd_mapping_pages(mapping, &page, 1) == 1);
	OK(snd_mr_create_fast(b.adapter, 1, 1, &fast));
	const snd_fast_registration f = {.pages = &page, .page_count = 1, .offset = 4, .length = 64, .address = SND_PAGE_SIZE, .rights = SND_ALLOW_REMOTE_ATOMIC};
	OK(snd_endpoint_fast_register(b.ep, 1, fast, &f, 0));
	WANT(b.cq, SND_REQUEST_FAST_REGISTER, 1, SND_SUCCESS);
	fails(at(1), SND_PAGE_SIZE + 8, snd_mr_remote_token(fast), SND_ACCESS_VIOLATION);
	for (int i = 0; i < 64; i++)
		CHECK(((unsigned char *)snd_mr_buffer(memory))[i] == 0);
	OK(snd_mr_close(fast, 10 * SECOND));
	OK(snd_mapping_close(mapping, 10 * SECOND));
	OK(snd_mr_close(memory, 10 * SECOND));
	disconnect_members();
}

/* late lets the peer run an atomic, and then invalidate the memory for the old value or end the connection, before this side has seen that the
 * atomic has run. */
static void late(bool ends)
{
	uint64_t budget = SND_QUANTUM, page;
	snd_mr *memory, *fast;
	snd_mapping *mapping;
	connect_members(NULL);
	OK(snd_mr_allocate(a.adapter, SND_PAGE_SIZE, SND_ALLOW_LOCAL_WRITE, &memory));
	OK(snd_mapping_create(memory, snd_mr_buffer(memory), SND_PAGE_SIZE, &mapping));
	CHECK(snd_mapping_pages(mapping, &page, 1) == 1);
	OK(snd_mr_create_fast(a.adapter, 1, 1, &fast));
	const snd_fast_registration f = {.pages = &page, .page_count = 1, .length = 64, .address = SND_PAGE_SIZE, .rights = SND_ALLOW_REMOTE_WRITE};
	OK(snd_endpoint_fast_register(a.ep, 1, fast, &f, 0));
	WANT(a.cq, SND_REQUEST_FAST_REGISTER, 1, SND_SUCCESS);
	uint64_t *result = snd_mr_buffer(memory);
	const snd_sge s = {result, 8, snd_mr_local_token(fast)}, in = at(5);
	const uint32_t token = snd_mr_remote_token(fast);
	set(1, 70);
	OK(snd_endpoint_receive(a.ep, 3, &in, 1));
	OK(snd_endpoint_fetch_and_add(a.ep, 2, &s, 1, remote(1), snd_mr_remote_token(theirs), 1, SND_DEFER));
	snd_lock(a.fabric);
	snd_lock(b.fabric);
	a.ep->submitted = a.ep->posted;
	(void)snd_run_requests(a.ep, &budget);
	snd_unlock(b.fabric);
	while (snd_load_released(&a.ep->conn->out) != a.ep->conn->out.next)
		usleep(100);
	if (ends)
		OK(snd_endpoint_close(b.ep));
	else
		OK(snd_endpoint_send_and_invalidate(b.ep, 4, NULL, 0, token, 0));
	snd_unlock(a.fabric);
	WANT(a.cq, ends ? SND_REQUEST_FETCH_AND_ADD : SND_REQUEST_RECEIVE_AND_INVALIDATE, ends ? 2u : 3u, SND_SUCCESS);
	WANT(a.cq, ends ? SND_REQUEST_RECEIVE : SND_REQUEST_FETCH_AND_ADD, ends ? 3u : 2u, ends ? SND_CANCELED : SND_SUCCESS);
	CHECK(*result == 70 && value(1) == 71);
	OK(snd_endpoint_close(a.ep));
	OK(snd_mr_close(fast, 10 * SECOND));
	OK(snd_mapping_close(mapping, 10 * SECOND));
	OK(snd_mr_close(memory, 10 * SECOND));
	if (!ends)
		OK(snd_endpoint_close(b.ep));
	OK(snd_connector_close(a.connector));
	OK(snd_connector_close(b.connector));
	OK(snd_cq_close(a.cq));
	OK(snd_cq_close(b.cq));
}

static void between_members(snd_executor executor, bool is_private, uint32_t weak)
{
	open_members_with((snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO, .executor = executor, .weak_order = weak});
	make_region(&a, is_private, SND_ALLOW_LOCAL_WRITE, &mine, &old);
	make_region(&b, is_private, SND_ALLOW_REMOTE_ATOMIC | SND_ALLOW_REMOTE_WRITE, &theirs, &word);
	for (check_payloads = 0; check_payloads < 2; check_payloads++) {
		connect_members(NULL);
		kinds();
		burst(4);
		burst(100);
		fences(weak ? 20 : 500);
		sinks();
		stays_behind();
		arguments();
		kinds();
		if (!weak && (executor == SND_EXECUTOR_TARGET || is_private))
			oldest_first(1000);
		disconnect_members();
	}
	check_payloads = 0;
	refusals();
	unaligned();
	for (int ends = 0; ends < 2 && (executor == SND_EXECUTOR_TARGET || is_private) && !weak; ends++)
		late(ends);
	OK(snd_mr_close(mine, 10 * SECOND));
	OK(snd_mr_close(theirs, 10 * SECOND));
	if (is_private) {
		free(old);
		free(word);
	}
	close_members();
}

static uint64_t finish(snd_cq *cq, const uint64_t *result)
{
	snd_result r;
	while (snd_cq_poll(cq, &r, 1) == 0) {
	}
	CHECK(r.status == SND_SUCCESS);
	return *result;
}

/* run_rank is a process of a job. Rank 0 owns the words: a counter that all add to, rank 0 as long as others do, a lock, a number that the
 * lock protects, and how many ranks have ended. Ranks with an odd number let rank 0 execute their atomics. */
static int run_rank(const char *name, uint32_t rank, bool is_private)
{
	const snd_executor executor = rank % 2 == 0 ? SND_EXECUTOR_AUTO : SND_EXECUTOR_TARGET;
	const int fast_adds = getenv("ATOMICS_ADDS") != NULL ? atoi(getenv("ATOMICS_ADDS")) : ADDS;
	const int adds = rank % 2 == 0 && !is_private ? fast_adds : SLOW_ADDS;
	const snd_fabric_options o = {.executor = executor, .threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO};
	snd_job *job;
	snd_cq *cq;
	snd_mr *mr;
	snd_endpoint *ep = NULL, *peers[RANKS];
	snd_window_descriptor d, all[RANKS];
	void *memory = calloc(8, 8);
	OK(snd_job_join(name, rank, RANKS, &o, 20 * SECOND, &job));
	snd_adapter *adapter = snd_job_adapter(job);
	OK(snd_cq_create(adapter, 256, &cq));
	if (is_private)
		OK(snd_mr_register(adapter, memory, 64, SND_ALLOW_REMOTE_ATOMIC | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, &mr));
	else
		OK(snd_mr_allocate(adapter, 64, SND_ALLOW_REMOTE_ATOMIC | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, &mr));
	uint64_t *w = snd_mr_buffer(mr);
	OK(snd_mr_query(mr, &d));
	OK(snd_job_exchange_windows(job, &d, all, 20 * SECOND));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	for (uint32_t i = 1; i < RANKS; i++)
		if (rank == 0 || rank == i)
			OK(snd_job_connect(job, rank == 0 ? i : 0, &config, 20 * SECOND, rank == 0 ? &peers[i] : &ep));
	OK(snd_job_barrier(job, 20 * SECOND));
	const snd_sge s = {w, 8, snd_mr_local_token(mr)}, second = {w + 1, 8, s.token};
	const uint64_t counter = all[0].address, lock = counter + 8 * LOCK, number = counter + 8 * NUMBER;
	uint64_t own = 0;
	for (; rank == 0 && __atomic_load_n(&w[ENDED], __ATOMIC_SEQ_CST) < RANKS - 1; own++)
		__atomic_fetch_add(&w[COUNTER], 1, __ATOMIC_SEQ_CST);
	for (int i = 0; rank != 0 && i < adds; i++) {
		OK(snd_endpoint_fetch_and_add(ep, 1, &s, 1, counter, all[0].token, 1, 0));
		(void)finish(cq, w);
	}
	if (rank != 0) {
		OK(snd_endpoint_fetch_and_add(ep, 1, &s, 1, counter + 8 * ENDED, all[0].token, 1, 0));
		(void)finish(cq, w);
	}
	for (int i = 0; i < LOCKED; i++) {
		uint64_t free_lock = 0;
		if (rank == 0) {
			while (!__atomic_compare_exchange_n(&w[LOCK], &free_lock, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
				free_lock = 0;
			__atomic_store_n(&w[NUMBER], __atomic_load_n(&w[NUMBER], __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
			__atomic_store_n(&w[LOCK], 0, __ATOMIC_SEQ_CST);
			continue;
		}
		do {
			OK(snd_endpoint_compare_and_swap(ep, 2, &s, 1, lock, all[0].token, 0, rank + 1, 0));
		} while (finish(cq, w) != 0);
		OK(snd_endpoint_read(ep, 3, &second, 1, number, all[0].token, 0));
		w[1] = finish(cq, w + 1) + 1;
		OK(snd_endpoint_write(ep, 4, &second, 1, number, all[0].token, 0));
		(void)finish(cq, w);
		OK(snd_endpoint_swap(ep, 5, &s, 1, lock, all[0].token, 0, 0));
		CHECK(finish(cq, w) == rank + 1);
	}
	OK(snd_job_barrier(job, 600 * SECOND)); /* the rank that adds directly has long been done */
	if (rank == 0) {
		CHECK(w[COUNTER] == own + (is_private ? 3 * SLOW_ADDS : (uint64_t)fast_adds + 2 * SLOW_ADDS));
		CHECK(w[LOCK] == 0 && w[NUMBER] == RANKS * LOCKED);
	}
	OK(snd_job_close(job));
	free(memory);
	return 0;
}

static void between_processes(bool is_private)
{
	char name[64];
	pid_t children[RANKS];
	snprintf(name, sizeof name, "atomics.%d.%d", (int)getpid(), is_private);
	for (uint32_t i = 0; i < RANKS; i++)
		if ((children[i] = fork()) == 0)
			_exit(run_rank(name, i, is_private));
	for (int i = 0; i < RANKS; i++) {
		int status;
		CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
	}
}

int main(void)
{
	between_processes(false); /* before this process uses the library */
	between_processes(true);
	for (int executor = SND_EXECUTOR_AUTO; executor <= SND_EXECUTOR_TARGET; executor++)
		for (int i = 0; i < 4; i++)
			between_members((snd_executor)executor, i % 2 != 0, (uint32_t)i / 2);
	return 0;
}

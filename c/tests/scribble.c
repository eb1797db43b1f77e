/* A process scribbles in the arena while ranks use it. The ranks may fail in any way, but they neither crash nor hang.
 * SCRIBBLE_SECONDS says for how long, SCRIBBLE_ROUNDS how often, at least until the ranks have done something of each kind. The scribbling Go test
 * runs this program as a rank, too. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "endpoint/cm_ports.h"
#include "linux/clock.h"
#include "shm/fabric.h"
#include "window/guard.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

enum { RANKS = 3, ROUNDS = 60, SIZE = 300000, PORT = 9 };

_Static_assert(SIZE > SND_CHUNK_BYTES, "a transfer has two chunks");

static uint64_t seed;

static uint64_t random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint32_t pick(uint32_t n) { return (uint32_t)(random64() >> 20) % n; }

/* work counts what a rank has done successfully. */
struct work {
	unsigned long sessions, transfers, collectives, allocations;
};

static bool has_all(const struct work *w) { return w->sessions > 0 && w->transfers > 0 && w->collectives > 0 && w->allocations > 0; }

static struct work done;
static snd_job *job;
static snd_adapter *adapter;
static int64_t end;

/* session is one connection of an honest rank. A call that fails ends at most this session. */
struct session {
	snd_cq *cq;
	snd_srq *srq;
	snd_endpoint *ep;
	snd_connector *connector;
	snd_mr *mr, *secret;
	snd_window *w;
	snd_window_descriptor far[4]; /* memory that the peer has described */
	uint32_t described;
	int bound; /* the window, as far as the posts say */
};

static snd_listener *listener;

/* reach connects with a peer: by its rank, or by the address of its listener. */
static int reach(struct session *s, uint32_t peer)
{
	snd_endpoint_config config = {.receive_cq = s->cq, .initiator_cq = s->cq, .receive_depth = 16, .initiator_depth = 16, .inline_size = 64,
		.srq = pick(3) == 0 ? s->srq : NULL};
	const int64_t timeout = SECONDS(1) / 8;
	if (pick(4) != 0)
		return snd_job_connect(job, peer, &config, timeout, &s->ep) == SND_SUCCESS;
	snd_connect_params params = {"hello", 5, 4, 4, 0};
	if (snd_endpoint_create(adapter, &config, &s->ep) != SND_SUCCESS)
		return 0;
	if (snd_job_rank(job) > peer && listener != NULL)
		return snd_listener_request(listener, timeout, &s->connector) == SND_SUCCESS && snd_connector_accept(s->connector, s->ep, &params, timeout) == SND_SUCCESS;
	return snd_connector_create(adapter, &s->connector) == SND_SUCCESS &&
		snd_connector_connect(s->connector, s->ep, (snd_address){snd_host_of(snd_job_fabric(job), peer), PORT, 0}, &params, timeout) == SND_SUCCESS &&
		(pick(20) == 0 ? snd_connector_reject(s->connector, "no", 2) : snd_connector_complete(s->connector)) == SND_SUCCESS;
}

static void tell(struct session *s, snd_mr *mr)
{
	snd_window_descriptor d;
	uint8_t b[SND_WINDOW_DESCRIPTOR_SIZE];
	if (snd_mr_query(mr, &d) != SND_SUCCESS)
		return;
	snd_window_descriptor_encode(&d, b);
	snd_sge g = {b, sizeof b, 0};
	snd_endpoint_send(s->ep, 1, &g, 1, SND_INLINE);
}

static void receive(struct session *s)
{
	snd_mr *m = pick(4) ? s->mr : s->secret;
	snd_sge g = {snd_mr_buffer(m), SIZE, snd_mr_local_token(m)};
	snd_endpoint_receive(s->ep, m == s->mr, &g, 1);
	snd_srq_receive(s->srq, m == s->mr, &g, 1);
}

static void request(struct session *s)
{
	uint32_t n = 1 + (pick(3) == 0 ? pick(SIZE - 200) : pick(60));
	snd_mr *m = pick(2) ? s->mr : s->secret;
	const snd_window_descriptor d = s->described == 0 ? (snd_window_descriptor){0} : s->far[pick(s->described < 4 ? s->described : 4)];
	snd_sge g = {snd_mr_buffer(m), n, snd_mr_local_token(m)}, old = {g.buffer, 8, g.token};
	const uint32_t flags = pick(8) == 0 ? SND_READ_FENCE : pick(8) == 0 ? SND_DEFER : 0;
	if (s->described == 0 && pick(2000) != 0)
		return; /* a Write or Read without a token ends the connection */
	switch (pick(11)) {
	case 0:
	case 1: snd_endpoint_write(s->ep, 2, &g, 1, d.address + pick(100), d.token, flags); break;
	case 2: snd_endpoint_read(s->ep, 2, &g, 1, d.address, d.token, flags); break;
	case 3:
	case 4:
		if (!s->bound)
			s->bound = snd_endpoint_bind(s->ep, 3, m, s->w, snd_mr_buffer(m), n, SND_ALLOW_READ | SND_ALLOW_WRITE | SND_ALLOW_ATOMIC) == SND_SUCCESS;
		else
			s->bound = snd_endpoint_invalidate(s->ep, 3, s->w, 0) != SND_SUCCESS;
		break;
	case 5:
		if (pick(200) == 0)
			snd_endpoint_send_and_invalidate(s->ep, 3, &g, 1, pick(2) ? d.token : (uint32_t)random64(), flags);
		break;
	case 6: snd_endpoint_fetch_and_add(s->ep, 2, &old, 1, d.address + 8 * pick(12), d.token, random64(), flags); break;
	case 7: snd_endpoint_compare_and_swap(s->ep, 2, &old, 1, d.address + 8 * pick(12), d.token, 0, random64(), flags); break;
	case 8: snd_endpoint_write_immediate(s->ep, 2, &g, 1, d.address + pick(100), d.token, (uint32_t)random64(), flags); break;
	default: snd_endpoint_send(s->ep, 2, &g, 1, flags | (pick(2) ? SND_SOLICIT_EVENT : 0)); break;
	}
}

static void take(struct session *s, int64_t timeout)
{
	snd_result r[8];
	uint32_t taken = 0;
	int32_t n;
	if (timeout == 0)
		taken = (n = snd_cq_poll(s->cq, r, 8)) > 0 ? (uint32_t)n : 0;
	else
		snd_cq_wait(s->cq, r, 8, timeout, &taken);
	for (uint32_t i = 0; i < taken; i++) {
		done.transfers += r[i].status == SND_SUCCESS && r[i].bytes > 0;
		if (r[i].type == SND_REQUEST_RECEIVE && r[i].status == SND_SUCCESS && r[i].bytes == SND_WINDOW_DESCRIPTOR_SIZE)
			snd_window_descriptor_decode(snd_mr_buffer(r[i].request_context ? s->mr : s->secret), &s->far[s->described++ % 4]);
	}
}

/* memory allocates, registers and frees. */
static void memory(void)
{
	static snd_mr *held[8];
	uint32_t i = pick(8);
	if (held[i] != NULL && snd_mr_close(held[i], SECONDS(1) / 50) == SND_IO_TIMEOUT)
		return;
	held[i] = NULL;
	done.allocations += snd_mr_allocate(adapter, 1 + pick(300000), SND_ALLOW_REMOTE_WRITE, &held[i]) == SND_SUCCESS;
}

/* play_session makes requests on a connection, and ignores how they end. */
static void play_session(uint32_t peer)
{
	static unsigned char private_memory[SIZE];
	const uint32_t flags = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC;
	struct session s = {0};
	snd_srq_config config = {.depth = 16, .threshold = 8};
	if (snd_cq_create(adapter, 512, &s.cq) == SND_SUCCESS && snd_srq_create(adapter, &config, &s.srq) == SND_SUCCESS &&
		snd_mr_allocate(adapter, SIZE, flags, &s.mr) == SND_SUCCESS && snd_mr_register(adapter, private_memory, SIZE, flags, &s.secret) == SND_SUCCESS &&
		snd_window_create(adapter, &s.w) == SND_SUCCESS && reach(&s, peer)) {
		done.sessions++;
		for (int i = 0; i < 8; i++)
			receive(&s);
		tell(&s, s.mr);
		tell(&s, s.secret);
		for (int i = 0; i < 400 && snd_endpoint_error(s.ep) == SND_SUCCESS && snd_clock() < end; i++) {
			receive(&s);
			request(&s);
			take(&s, pick(3) ? 0 : 200000);
			if (pick(50) == 0)
				memory();
			if (pick(400) == 0)
				snd_endpoint_flush(s.ep, SECONDS(1) / 50);
		}
		snd_cq_notify(s.cq, SND_NOTIFY_SOLICITED, 100000);
		snd_srq_notify(s.srq, 100000);
	}
	if (s.connector != NULL) {
		snd_connector_disconnect(s.connector, SECONDS(1) / 50);
		snd_connector_close(s.connector);
	}
	if (s.ep != NULL)
		snd_endpoint_close(s.ep);
	snd_window_close(s.w, SECONDS(1) / 10);
	snd_mr_close(s.mr, SECONDS(1) / 10);
	snd_mr_close(s.secret, SECONDS(1) / 10);
	snd_srq_close(s.srq);
	snd_cq_close(s.cq);
}

/* beside is what another thread does in a thread-safe fabric. */
static void *beside(void *unused)
{
	(void)unused;
	snd_cq *cq;
	while (snd_clock() < end) {
		snd_result r;
		uint32_t n;
		memory();
		if (snd_cq_create(adapter, 8, &cq) != SND_SUCCESS)
			continue;
		snd_cq_wait(cq, &r, 1, 100000, &n);
		snd_cq_close(cq);
	}
	return NULL;
}

static int run_rank(void)
{
	seed = (uint64_t)getpid() * 2654435761 + 1;
	snd_fabric_options o = *test_options();
	if (snd_job_init(&o, SECONDS(1), &job) != SND_SUCCESS)
		return 0;
	OK(snd_fabric_set_timeouts(snd_job_fabric(job), SECONDS(1) / 10, SECONDS(1) / 10));
	adapter = snd_job_adapter(job);
	end = snd_clock() + SECONDS(1) / 2;
	if (snd_listener_create(adapter, &listener) != SND_SUCCESS || snd_listener_bind(listener, (snd_address){0, PORT, 0}) != SND_SUCCESS ||
		snd_listener_listen(listener, 4) != SND_SUCCESS)
		listener = NULL;
	pthread_t thread;
	const int threads = o.threading == SND_THREAD_SAFE && pthread_create(&thread, NULL, beside, NULL) == 0;
	unsigned char mine[5000] = {0}, all[8 * 5000];
	const uint32_t self = snd_job_rank(job), ranks = snd_job_size(job);
	for (uint32_t sum = 1; snd_clock() < end; sum = sum % (2 * ranks - 3) + 1) { /* in an order in which the ranks do not wait for each other in a ring */
		if (sum == 1 && snd_job_exchange(job, mine, sizeof mine, all, SECONDS(1) / 4) == SND_SUCCESS && snd_job_barrier(job, SECONDS(1) / 4) == SND_SUCCESS)
			done.collectives += 2;
		if (sum >= self && sum - self < ranks && sum != 2 * self)
			play_session(sum - self);
	}
	if (threads)
		pthread_join(thread, NULL);
	snd_job_close(job);
	printf("%lu %lu %lu %lu\n", done.sessions, done.transfers, done.collectives, done.allocations);
	return 0;
}

/* scribble stores a word somewhere. */
static void scribble(struct snd_fabric *f)
{
	struct snd_arena *a = &f->arena;
	uint64_t at, v;
	const uint32_t rank = pick(RANKS);
	switch (pick(7)) {
	case 0: at = a->member_table + rank * SNDL_MEMBER_STRIDE + pick(64) * 8; break;
	case 1: at = a->rank_records + rank * SNDL_RANK_STRIDE + pick(8) * 8; break;
	case 2: at = (uint64_t)((unsigned char *)&a->chunk_owners[pick(40)] - a->base) & ~UINT64_C(7); break;
	case 3: at = a->window_table + (uint64_t)(pick(RANKS) * 512 + pick(16)) * 64 + pick(8) * 8; break;
	case 4: at = 128 + pick(48) * 8; break; /* counters of the header */
	default: at = a->heap + pick(12 * 8192) * 8; break; /* queue pairs, rings, descriptors, records */
	}
	snd_word *w = (snd_word *)(void *)(a->base + at);
	uint64_t old = snd_relaxed(w);
	switch (pick(6)) {
	case 0: v = random64(); break;
	case 1: v = 0; break;
	case 2: v = UINT64_MAX; break;
	case 3: v = old + 1; break;
	case 4: v = old - 1; break;
	default: v = old ^ UINT64_C(1) << pick(64); break;
	}
	if (snd_owned(a, 0, at, 8) || snd_owned(a, 1, at, 8) || snd_owned(a, 2, at, 8) || at < a->heap)
		snd_release(w, v);
}

/* start starts a rank, with an executor, a way of progress, threads and perhaps a weak order that are chosen at random. It prints into a
 * pipe. */
static pid_t start(int fd, int number, int out)
{
	pid_t pid = fork();
	if (pid == 0) {
		char text[20];
		snprintf(text, sizeof text, "%d", fd);
		setenv("SOFTND_ARENA_FD", text, 1);
		snprintf(text, sizeof text, "%d", number);
		setenv("SOFTND_RANK", text, 1);
		snprintf(text, sizeof text, "%d", RANKS);
		setenv("SOFTND_SIZE", text, 1);
		uint64_t choice = (uint64_t)number * 7 + random64();
		if (choice & 0x100)
			setenv("SOFTND_EXEC", "target", 1);
		if (choice & 0x200)
			setenv("TEST_PROGRESS", "auto", 1);
		if (choice & 0x400)
			setenv("TEST_THREADS", "safe", 1);
		if ((choice & 0x1800) == 0) {
			snprintf(text, sizeof text, "%u", (unsigned)(choice >> 32));
			setenv("SOFTND_WEAK_ORDER", text, 1);
		}
		dup2(out, STDOUT_FILENO);
		execl("/proc/self/exe", "scribbled", (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void add(struct work *sum, int in)
{
	struct work w;
	FILE *f = fdopen(in, "r");
	while (fscanf(f, "%lu %lu %lu %lu", &w.sessions, &w.transfers, &w.collectives, &w.allocations) == 4) {
		sum->sessions += w.sessions;
		sum->transfers += w.transfers;
		sum->collectives += w.collectives;
		sum->allocations += w.allocations;
	}
	fclose(f);
}

static int run(int round, struct work *sum)
{
	snd_fabric *f;
	int out[2];
	OK(snd_fabric_create(RANKS, UINT64_C(1) << 29, MANUAL, &f));
	CHECK(pipe2(out, O_CLOEXEC) == 0);
	int fd = fcntl(snd_fabric_descriptor(f), F_DUPFD, 100);
	pid_t ranks[RANKS];
	for (int i = 0; i < RANKS; i++) {
		ranks[i] = start(fd, i, out[1]);
		(void)random64();
	}
	close(fd);
	close(out[1]);
	nanosleep(&(struct timespec){0, (long)pick(150) * 1000000}, NULL); /* some rounds reach the ranks while they join */
	int64_t deadline = snd_clock() + SECONDS(100);
	int left = RANKS;
	uint32_t pause = pick(5) * 100000; /* from a storm to a word now and then */
	while (left > 0 && snd_clock() < deadline) {
		for (int k = 0; k < 20; k++)
			scribble(f);
		nanosleep(&(struct timespec){0, (long)pause + 1}, NULL);
		for (int i = 0; i < RANKS; i++) {
			int status;
			if (ranks[i] == 0 || waitpid(ranks[i], &status, WNOHANG) <= 0)
				continue;
			ranks[i] = 0;
			left--;
			if (status != 0) {
				fprintf(stderr, "round %d: rank %d ended with status %#x\n", round, i, (unsigned)status);
				return 1;
			}
		}
	}
	if (left > 0) {
		fprintf(stderr, "round %d: %d ranks hang (pids %d, %d and %d; 0 has ended)\n", round, left, (int)ranks[0], (int)ranks[1], (int)ranks[2]);
		for (int i = 0; i < RANKS && getenv("SCRIBBLE_KEEP") == NULL; i++)
			if (ranks[i] != 0)
				kill(ranks[i], SIGKILL);
		return 1;
	}
	add(sum, out[0]);
	/* This process scribbled over its own state too: it only closes the descriptor and the mapping. */
	snd_arena_close(&f->arena);
	munmap(f->lock_page, SNDL_HEADER_PAGE);
	return 0;
}

static int number_in(const char *name, int otherwise)
{
	const char *text = getenv(name);
	return text != NULL ? atoi(text) : otherwise;
}

int main(void)
{
	if (getenv("SOFTND_RANK") != NULL)
		return run_rank();
	struct work sum = {0};
	seed = (uint64_t)number_in("SCRIBBLE_SEED", 77) * 977 + 1;
	const int seconds = number_in("SCRIBBLE_SECONDS", 0), rounds = number_in("SCRIBBLE_ROUNDS", ROUNDS);
	const int64_t stop = snd_clock() + SECONDS(seconds);
	int i = 0;
	for (; (seconds > 0 ? snd_clock() < stop : i < rounds) || (i < ROUNDS && !has_all(&sum)); i++) /* on a loaded machine, the ranks may do nothing in a few rounds */
		if (run(i, &sum) != 0)
			return 1;
	printf("%d rounds: %lu sessions, %lu transfers, %lu collective calls, %lu allocations\n", i, sum.sessions, sum.transfers, sum.collectives, sum.allocations);
	CHECK(has_all(&sum));
	fflush(stdout);
	_exit(0); /* without what a leak checker would say about the arenas */
}

/* One of three ranks is killed at a random time. The requests of the others complete, and they go on with each other. Meanwhile
 * the memory of the dead rank is reclaimed, and its slot can be taken again. No atomic of it that was complete is lost. Nothing is left
 * at the end. KILL_GO names the program gorank, for jobs of ranks in Go and C. KILL_KILLS is the number of kills. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "endpoint/cm_ports.h"
#include "endpoint/progress_housekeeper.h"
#include "linux/clock.h"
#include "shm/fabric.h"
#include "window/guard.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

enum { RANKS = 3, KILLS = 12, SIZE = 300000, MESSAGE = 20000, SLOTS = 24, HELLO = 2 * SND_WINDOW_DESCRIPTOR_SIZE, IDLE_CHUNKS = 4,
	WORDS = SIZE - 8 * RANKS /* in memory: a number for each rank, to which only that rank adds */ };

_Static_assert(SIZE > SND_CHUNK_BYTES, "a transfer has two chunks; the same in gorank/kill.go");

static uint32_t seed;

/* counts is memory of all processes: how many additions a rank has posted to its number in the memory of another one, and how many of
 * them were complete. The test clears it. */
static struct counts {
	uint64_t posted, done;
} (*counts)[RANKS];

static void map_counts(int fd)
{
	counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(counts != MAP_FAILED);
}

static uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static uint32_t pick(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

/* ---- A rank. ---- */

/* link is the connection with another rank. Its requests and its receives are counted. */
struct link {
	snd_endpoint *ep;
	snd_window *window;
	snd_window_descriptor theirs[2];
	int has_theirs, shared, failed;
	uint32_t requests, receives;
};

static snd_job *job;
static snd_adapter *adapter;
static snd_cq *cq;
static snd_srq *srq;
static snd_mr *memory, *secret, *inbox, *hello; /* hello describes the first two to peers */
static struct link links[RANKS];
static uint32_t shared_receives;
static uint64_t succeeded;

/* Each receive has a slot of its own in inbox; its context is the slot plus 1. */
static enum { UNUSED, OWN, SHARED } used[2 * RANKS * SLOTS];

static void post_receives(struct link *l)
{
	uint32_t *outstanding = l->shared ? &shared_receives : &l->receives;
	for (uint32_t i = 0; i < 2 * RANKS * SLOTS && *outstanding < SLOTS; i++) {
		if (used[i])
			continue;
		snd_sge s = {(char *)snd_mr_buffer(inbox) + (uint64_t)i * MESSAGE, MESSAGE, snd_mr_local_token(inbox)};
		snd_status posted = l->shared ? snd_srq_receive(srq, i + 1, &s, 1) : snd_endpoint_receive(l->ep, i + 1, &s, 1);
		if (posted != SND_SUCCESS)
			return;
		used[i] = l->shared ? SHARED : OWN;
		++*outstanding;
	}
}

static void take(const snd_result *r)
{
	struct link *l = &links[r->endpoint_context];
	succeeded += r->status == SND_SUCCESS;
	if (r->type != SND_REQUEST_RECEIVE) {
		CHECK(l->requests > 0);
		l->requests--;
		l->failed |= r->status != SND_SUCCESS;
		if (r->type == SND_REQUEST_FETCH_AND_ADD && r->status == SND_SUCCESS)
			__atomic_fetch_add(&counts[snd_job_rank(job)][r->endpoint_context].done, 1, __ATOMIC_SEQ_CST);
		return;
	}
	CHECK(r->request_context > 0 && used[r->request_context - 1]);
	--*(used[r->request_context - 1] == SHARED ? &shared_receives : &l->receives);
	used[r->request_context - 1] = UNUSED;
	l->failed |= r->status != SND_SUCCESS;
	if (r->status != SND_SUCCESS || r->bytes != HELLO || l->has_theirs)
		return;
	const uint8_t *b = (const uint8_t *)snd_mr_buffer(inbox) + (r->request_context - 1) * MESSAGE;
	snd_window_descriptor_decode(b, &l->theirs[0]);
	snd_window_descriptor_decode(b + SND_WINDOW_DESCRIPTOR_SIZE, &l->theirs[1]);
	l->has_theirs = 1;
}

static void poll_for(int64_t timeout)
{
	snd_result r[16];
	uint32_t n;
	snd_status s = snd_cq_wait(cq, r, 16, timeout, &n);
	CHECK(s == SND_SUCCESS || s == SND_IO_TIMEOUT);
	for (uint32_t i = 0; i < n; i++)
		take(&r[i]);
}

/* begin connects with a rank, if it still lives. */
static void begin(uint32_t rank, int64_t timeout)
{
	struct link *l = &links[rank];
	*l = (struct link){.shared = (int)pick(2)};
	snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq, .context = rank, .receive_depth = SLOTS, .initiator_depth = 32, .srq = l->shared ? srq : NULL};
	snd_status s = snd_job_connect(job, rank, &config, timeout, &l->ep);
	if (s != SND_SUCCESS) {
		CHECK(s == SND_HOST_UNREACHABLE || s == SND_CONNECTION_ABORTED || s == SND_CONNECTION_REFUSED || s == SND_IO_TIMEOUT);
		l->ep = NULL;
		return;
	}
	OK(snd_window_create(adapter, &l->window));
	post_receives(l);
	snd_sge s1 = {snd_mr_buffer(hello), HELLO, snd_mr_local_token(hello)};
	l->requests += snd_endpoint_send(l->ep, 1, &s1, 1, 0) == SND_SUCCESS;
}

/* finish waits until all requests of a connection have completed, and releases what it has. */
static void finish(struct link *l)
{
	int64_t deadline = snd_clock() + SECONDS(10);
	if (l->ep == NULL)
		return;
	if (!l->failed) /* else its end completes them */
		OK(snd_endpoint_flush(l->ep, SECONDS(10)));
	while (l->requests + l->receives > 0) {
		CHECK(snd_clock() < deadline);
		poll_for(1000000);
	}
	CHECK(snd_endpoint_error(l->ep) != SND_SUCCESS);
	OK(snd_endpoint_close(l->ep));
	OK(snd_window_close(l->window, SECONDS(10)));
	l->ep = NULL;
	const ptrdiff_t peer = l - links;
	const struct counts *c = &counts[peer][snd_job_rank(job)];
	const uint64_t done = load(&c->done), sum = load((uint64_t *)((char *)snd_mr_buffer(memory) + WORDS) + peer);
	CHECK(done <= sum && sum <= load(&c->posted));
}

static void request(struct link *l)
{
	uint32_t n = pick(5) == 0 ? pick(MESSAGE) : pick(60);
	n += n == HELLO;
	snd_mr *m = pick(2) ? memory : secret;
	const snd_window_descriptor *d = &l->theirs[pick(2)];
	snd_sge sge = {snd_mr_buffer(m), n, snd_mr_local_token(m)};
	snd_status s = SND_CONNECTION_INVALID;
	switch (pick(9)) {
	case 0:
	case 1:
		if (l->has_theirs)
			s = snd_endpoint_write(l->ep, 2, &sge, 1, d->address, d->token, 0);
		break;
	case 2:
		if (l->has_theirs)
			s = snd_endpoint_read(l->ep, 2, &sge, 1, d->address, d->token, 0);
		break;
	case 8: {
		if (!l->has_theirs)
			break;
		sge.length = 8;
		d = &l->theirs[0];
		struct counts *c = &counts[snd_job_rank(job)][l - links];
		__atomic_fetch_add(&c->posted, 1, __ATOMIC_SEQ_CST);
		s = snd_endpoint_fetch_and_add(l->ep, 2, &sge, 1, d->address + WORDS + 8 * snd_job_rank(job), d->token, 1, 0);
		break;
	}
	case 3: s = snd_endpoint_send(l->ep, 2, &sge, 1, SND_SOLICIT_EVENT); break;
	case 4: { /* the window is bound while both are in order; otherwise the connection fails, too */
		s = snd_endpoint_bind(l->ep, 3, m, l->window, snd_mr_buffer(m), 1 + n, SND_ALLOW_READ | SND_ALLOW_WRITE);
		l->requests += s == SND_SUCCESS;
		s = snd_endpoint_invalidate(l->ep, 3, l->window, 0);
		break;
	}
	default: s = snd_endpoint_send(l->ep, 2, &sge, 1, 0); break;
	}
	l->requests += s == SND_SUCCESS;
	CHECK(s == SND_SUCCESS || s == SND_NO_MORE_ENTRIES || s == SND_CONNECTION_INVALID);
}

static int told(char what)
{
	struct pollfd p = {STDIN_FILENO, POLLIN, 0};
	char c;
	if (poll(&p, 1, 0) <= 0)
		return 0;
	CHECK(read(STDIN_FILENO, &c, 1) == 1 && c == what);
	return 1;
}

static int run_rank(void)
{
	const int before = descriptors();
	map_counts(atoi(getenv("KILL_COUNTS")));
	snd_status joined = snd_job_init(test_options(), SECONDS(30), &job);
	if (joined == SND_CONNECTION_ABORTED)
		return 0; /* another was killed before this rank was ready */
	OK(joined);
	const uint32_t flags = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC, self = snd_job_rank(job);
	static unsigned char private_memory[SIZE];
	snd_srq_config config = {.depth = SLOTS};
	seed = (uint32_t)getpid() * 2654435761u;
	adapter = snd_job_adapter(job);
	OK(snd_cq_create(adapter, 1024, &cq));
	OK(snd_srq_create(adapter, &config, &srq));
	OK(snd_mr_allocate(adapter, SIZE, flags, &memory));
	OK(snd_mr_allocate(adapter, 2 * RANKS * SLOTS * MESSAGE, SND_ALLOW_LOCAL_WRITE, &inbox));
	OK(snd_mr_register(adapter, private_memory, SIZE, flags, &secret));
	OK(snd_mr_allocate(adapter, HELLO, SND_ALLOW_LOCAL_WRITE, &hello));
	snd_window_descriptor d;
	OK(snd_mr_query(memory, &d));
	snd_window_descriptor_encode(&d, snd_mr_buffer(hello));
	OK(snd_mr_query(secret, &d));
	snd_window_descriptor_encode(&d, (uint8_t *)snd_mr_buffer(hello) + SND_WINDOW_DESCRIPTOR_SIZE);
	for (uint32_t sum = 1; sum < 2 * RANKS - 2; sum++) /* in an order in which no rank waits for one that waits for it */
		if (sum >= self && sum - self < RANKS && sum != 2 * self)
			begin(sum - self, SECONDS(20));
	while (!told('s')) {
		for (uint32_t rank = 0; rank < RANKS; rank++) {
			struct link *l = &links[rank];
			if (rank == self)
				continue;
			if (l->ep != NULL && (l->failed || pick(2000) == 0)) {
				finish(l);
			} else if (l->ep == NULL) {
				if (pick(10) == 0)
					begin(rank, SECONDS(1) / 5);
			} else {
				post_receives(l);
				for (int i = 0; i < 6; i++)
					request(l);
			}
		}
		poll_for(1000000);
	}
	for (uint32_t rank = 0; rank < RANKS; rank++)
		finish(&links[rank]);
	OK(snd_mr_close(secret, SECONDS(10)));
	OK(snd_mr_close(memory, SECONDS(10)));
	OK(snd_srq_close(srq));
	OK(snd_cq_close(cq));
	OK(snd_mr_close(inbox, SECONDS(10)));
	OK(snd_mr_close(hello, SECONDS(10)));
	CHECK(write(STDOUT_FILENO, &succeeded, sizeof succeeded) == sizeof succeeded);
	while (!told('q')) { /* the memory of connections is freed when the other side has let go of it */
		OK(snd_fabric_progress(snd_job_fabric(job)));
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	OK(snd_job_close(job));
	CHECK(descriptors() == before);
	return 0;
}

/* ---- The test. ---- */

struct rank {
	pid_t pid;
	int to, from;
};

static int counts_descriptor;

static struct rank start(const char *program, int fd, int number)
{
	int in[2], out[2];
	CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	struct rank r = {fork(), in[1], out[0]};
	if (r.pid == 0) {
		char text[20];
		snprintf(text, sizeof text, "%d", fd);
		setenv("SOFTND_ARENA_FD", text, 1);
		snprintf(text, sizeof text, "%d", counts_descriptor);
		setenv("KILL_COUNTS", text, 1);
		snprintf(text, sizeof text, "%d", number);
		setenv("SOFTND_RANK", text, 1);
		setenv("SOFTND_SIZE", "3", 1);
		if (pick(2))
			setenv("SOFTND_EXEC", "target", 1);
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		execl(program, program, "kill", (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	return r;
}

/* until waits until a condition holds, and drives the fabric. */
#define UNTIL(f, condition, seconds, what) \
	do { \
		int64_t deadline_ = snd_clock() + SECONDS(seconds); \
		while (!(condition)) { \
			if (snd_clock() >= deadline_) { \
				fprintf(stderr, "kill %d: not in %d s: %s\n", number, seconds, what); \
				return 1; \
			} \
			snd_check_liveness(f); \
			OK(snd_fabric_progress(f)); \
			nanosleep(&(struct timespec){0, 1000000}, NULL); \
		} \
	} while (0)

static uint64_t chunks_of(const struct snd_fabric *f, uint32_t slot)
{
	uint64_t n = 0;
	for (uint64_t i = 0; i < f->arena.chunks; i++)
		n += snd_load32(&f->arena.chunk_owners[i]) == slot + 1;
	return n;
}

static int is_free(const struct snd_fabric *f, uint32_t slot)
{
	return snd_state_status(snd_load(&snd_member(&f->arena, slot)->state)) == SNDL_STATUS_FREE && chunks_of(f, slot) == 0;
}

static int has_said(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};
	return poll(&p, 1, 0) > 0;
}

/* kill_one kills a rank after a while, at most range microseconds. If that was before all ranks had joined, it does not count, and the
 * next while is longer: on a slow machine ranks need long to join. */
static int kill_one(int number, const char *other, uint32_t *range, uint32_t *counted, uint64_t *requests)
{
	snd_fabric *f, *again;
	struct rank ranks[RANKS];
	int status, early = 0;
	memset(counts, 0, 4096);
	OK(snd_fabric_create(RANKS, UINT64_C(1) << 30, MANUAL, &f));
	int fd = fcntl(snd_fabric_descriptor(f), F_DUPFD, 100);
	const uint32_t mix = 1 + pick(6); /* a rank of each kind at least */
	for (int i = 0; i < RANKS; i++)
		ranks[i] = start(other != NULL && (mix >> i & 1) ? other : "/proc/self/exe", fd, i);
	close(fd);
	const uint32_t victim = pick(RANKS), delay = 3000 + pick(*range);
	nanosleep(&(struct timespec){delay / 1000000, (long)(delay % 1000000) * 1000}, NULL);
	for (uint32_t i = 0; i < RANKS; i++)
		early |= snd_load(&snd_rank(&f->arena, i)->member) == 0;
	CHECK(kill(ranks[victim].pid, SIGKILL) == 0);
	CHECK(waitpid(ranks[victim].pid, &status, 0) == ranks[victim].pid && WIFSIGNALED(status));
	if (early) { /* the others wait for a rank that never comes */
		if (*range < 5000000)
			*range += *range / 4;
		for (uint32_t i = 0; i < RANKS; i++)
			if (i != victim)
				kill(ranks[i].pid, SIGKILL);
	} else {
		++*counted;
		UNTIL(f, is_free(f, victim), 20, "the memory of the dead rank is reclaimed while the others live");
		for (int64_t deadline = snd_clock() + SECONDS(20);;) { /* the survivor that has freed the memory may still hold the record */
			OK(snd_fabric_attach(snd_fabric_descriptor(f), (int32_t)victim, MANUAL, &again));
			int same = snd_fabric_address(again).host == snd_host_of(again, victim);
			OK(snd_fabric_close(again));
			if (same)
				break;
			CHECK(snd_clock() < deadline);
		}
		nanosleep(&(struct timespec){0, (long)pick(100) * 1000000}, NULL);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		if (i != victim && !early)
			CHECK(write(ranks[i].to, "s", 1) == 1 || has_said(ranks[i].from));
	for (uint32_t i = 0; i < RANKS; i++)
		if (i != victim && !early)
			UNTIL(f, has_said(ranks[i].from), 40, "the requests of a survivor complete");
	for (uint32_t i = 0; i < RANKS; i++)
		if (i != victim && !early)
			UNTIL(f, chunks_of(f, i) <= IDLE_CHUNKS, 20, "a survivor's memory is free");
	for (uint32_t i = 0; i < RANKS; i++) {
		uint64_t n;
		if (i == victim)
			continue;
		if (!early && read(ranks[i].from, &n, sizeof n) == sizeof n) {
			*requests += n;
			CHECK(write(ranks[i].to, "q", 1) == 1);
		}
		UNTIL(f, waitpid(ranks[i].pid, &status, WNOHANG) != 0, 20, "a survivor ends");
		if (status != 0 && !early) {
			fprintf(stderr, "kill %d: rank %u ended with %#x after rank %u was killed after %u us\n", number, i, (unsigned)status, victim, delay);
			return 1;
		}
	}
	for (uint32_t i = 0; i < RANKS; i++) {
		close(ranks[i].to);
		close(ranks[i].from);
		UNTIL(f, is_free(f, i), 20, "nothing of a rank is left");
	}
	OK(snd_fabric_close(f));
	return 0;
}

int main(void)
{
	if (getenv("SOFTND_RANK") != NULL)
		return run_rank();
	signal(SIGPIPE, SIG_IGN);
	const char *text = getenv("KILL_KILLS");
	const uint32_t kills = text != NULL ? (uint32_t)atoi(text) : KILLS;
	seed = getenv("KILL_SEED") != NULL ? (uint32_t)atoi(getenv("KILL_SEED")) : 7;
	const int memory_file = memfd_create("counts", 0);
	CHECK(ftruncate(memory_file, 4096) == 0);
	counts_descriptor = fcntl(memory_file, F_DUPFD, 110);
	map_counts(counts_descriptor);
	const int before = descriptors();
	uint32_t counted = 0, range = 200000;
	uint64_t requests = 0;
	for (int i = 0; counted < kills; i++)
		if (kill_one(i, getenv("KILL_GO"), &range, &counted, &requests) != 0)
			return 1;
	CHECK(descriptors() == before);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* no process is left */
	printf("%u kills, %lu requests of the survivors\n", counted, (unsigned long)requests);
	CHECK(requests > 10 * (uint64_t)kills);
	return 0;
}

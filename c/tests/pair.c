/* Two ranks make every kind of request, each of them in both roles. Without SOFTND_RANK the program starts both
 * ranks itself. tests/gorank plays the same script in Go, so that ndrun can mix the two. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "endpoint/endpoint.h"
#include "window/guard.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

/* The same in gorank: more than a chunk, and more than a call of progress transfers. */
enum { MIDDLE = 500000, BUFFER = 3 << 19, BURST = 5000 };
_Static_assert(MIDDLE > SND_CHUNK_BYTES && MIDDLE < SND_QUANTUM && BUFFER > SND_QUANTUM, "sizes");
static const uint32_t sizes[] = {1, 7, 8, 40, 41, 48, 49, 4096, 65535, 65536, 65537, MIDDLE, BUFFER};
static const uint32_t messages[] = {0, 1, 48, 49, 1000, 65536, MIDDLE, BUFFER};

static snd_job *job;
static snd_adapter *adapter;
static uint32_t rank;

static unsigned char pattern(uint64_t i, uint32_t k) { return (unsigned char)(i * 7 + k * 13 + 5); }

static void fill(unsigned char *b, uint64_t n, uint32_t k)
{
	for (uint64_t i = 0; i < n; i++)
		b[i] = pattern(i, k);
}

static void verify(const unsigned char *b, uint64_t n, uint32_t k)
{
	for (uint64_t i = 0; i < n; i++)
		if (b[i] != pattern(i, k)) {
			fprintf(stderr, "rank %u: byte %lu of %lu is %u, want %u\n", rank, (unsigned long)i, (unsigned long)n, b[i], pattern(i, k));
			exit(1);
		}
}

static void barrier(void) { OK(snd_job_barrier(job, SECONDS(30))); }

/* region makes a buffer of arena memory, or of private memory. */
static snd_mr *region(int private_memory)
{
	const uint32_t flags = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE;
	snd_mr *mr;
	if (private_memory)
		OK(snd_mr_register(adapter, calloc(1, BUFFER), BUFFER, flags, &mr));
	else
		OK(snd_mr_allocate(adapter, BUFFER, flags, &mr));
	return mr;
}

static void close_region(snd_mr *mr, int private_memory)
{
	void *b = snd_mr_buffer(mr);
	OK(snd_mr_close(mr, SECONDS(10)));
	if (private_memory)
		free(b);
}

static snd_result wait_one(snd_cq *cq)
{
	snd_result r;
	uint32_t n;
	OK(snd_cq_wait(cq, &r, 1, SECONDS(20), &n));
	CHECK(n == 1);
	return r;
}

static void want(snd_cq *cq, uint32_t type, uint64_t context, uint32_t bytes)
{
	snd_result r = wait_one(cq);
	if (r.status != SND_SUCCESS || r.type != type || r.request_context != context || r.bytes != bytes) {
		fprintf(stderr, "rank %u: result %#x type %u context %lu bytes %u, want type %u context %lu bytes %u\n", rank, r.status, r.type,
			(unsigned long)r.request_context, r.bytes, type, (unsigned long)context, bytes);
		exit(1);
	}
}

struct link {
	snd_cq *cq;
	snd_endpoint *ep;
};

static struct link connect_peer(void)
{
	struct link l;
	OK(snd_cq_create(adapter, 512, &l.cq));
	snd_endpoint_config c = {.receive_cq = l.cq, .initiator_cq = l.cq, .context = 77, .receive_depth = 128, .initiator_depth = 128, .inline_size = 256};
	OK(snd_job_connect(job, 1 - rank, &c, SECONDS(20), &l.ep));
	return l;
}

static void close_link(struct link *l)
{
	OK(snd_endpoint_close(l->ep));
	OK(snd_cq_close(l->cq));
}

static snd_sge sge_of(snd_mr *mr, uint64_t offset, uint32_t n)
{
	return (snd_sge){(unsigned char *)snd_mr_buffer(mr) + offset, n, snd_mr_local_token(mr)};
}

/* theirs exchanges the descriptors of both ranks and returns the peer's. */
static snd_window_descriptor theirs(snd_window_descriptor mine)
{
	snd_window_descriptor all[2];
	OK(snd_job_exchange_windows(job, &mine, all, SECONDS(20)));
	CHECK(memcmp(&all[rank], &mine, sizeof mine) == 0);
	return all[1 - rank];
}

static snd_window_descriptor descriptor(snd_mr *mr)
{
	snd_window_descriptor d;
	OK(snd_mr_query(mr, &d));
	return d;
}

/* one_sided: the initiator writes every size, the responder verifies, the initiator reads it back. */
static void one_sided(int initiator, int private_memory)
{
	struct link l = connect_peer();
	snd_mr *mr = region(private_memory);
	unsigned char *b = snd_mr_buffer(mr);
	snd_window_descriptor d = theirs(descriptor(mr));
	for (uint32_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
		const uint32_t n = sizes[k];
		if (initiator) {
			fill(b, n, k);
			snd_sge s = sge_of(mr, 0, n);
			OK(snd_endpoint_write(l.ep, k, &s, 1, d.address, d.token, 0));
			want(l.cq, SND_REQUEST_WRITE, k, n);
			if (n <= 256) { /* again, inline and silent, from the stack */
				unsigned char copy[256];
				memcpy(copy, b, n);
				snd_sge in = {copy, n, 0};
				OK(snd_endpoint_write(l.ep, k, &in, 1, d.address, d.token, SND_INLINE | SND_SILENT_SUCCESS));
				memset(copy, 0, sizeof copy);
			}
			memset(b, 0, n);
			snd_sge parts[2] = {sge_of(mr, 0, n / 2), sge_of(mr, n / 2, n - n / 2)};
			OK(snd_endpoint_read(l.ep, 100 + k, parts, 2, d.address, d.token, 0));
			want(l.cq, SND_REQUEST_READ, 100 + k, n);
			verify(b, n, k);
			barrier();
		} else {
			snd_result r;
			uint32_t taken;
			/* A barrier makes no promise about requests that this process copies: it waits in its progress. */
			CHECK(snd_cq_wait(l.cq, &r, 1, SECONDS(0), &taken) == SND_IO_TIMEOUT);
			barrier();
			verify(b, n, k);
		}
		barrier();
	}
	close_link(&l);
	close_region(mr, private_memory);
	barrier();
}

/* two_sided: messages of every length, into one or two entries. */
static void two_sided(int initiator, int private_memory)
{
	struct link l = connect_peer();
	snd_mr *mr = region(private_memory);
	unsigned char *b = snd_mr_buffer(mr);
	for (uint32_t k = 0; k < sizeof messages / sizeof messages[0]; k++) {
		const uint32_t n = messages[k];
		if (initiator) {
			fill(b, n, k);
			snd_sge s = sge_of(mr, 0, n);
			OK(snd_endpoint_send(l.ep, k, &s, n > 0, k % 2 == 0 ? 0 : SND_SOLICIT_EVENT));
			want(l.cq, SND_REQUEST_SEND, k, n);
		} else {
			snd_sge s[2] = {sge_of(mr, 0, 30), sge_of(mr, 30, BUFFER - 30)};
			OK(snd_endpoint_receive(l.ep, 10 + k, s, 2));
			want(l.cq, SND_REQUEST_RECEIVE, 10 + k, n);
			verify(b, n, k);
			memset(b, 0, n);
		}
	}
	barrier();
	close_link(&l);
	close_region(mr, private_memory);
	barrier();
}

/* burst: many small messages, faster than the receiver posts. */
static void burst(int initiator)
{
	enum { WINDOW = 64, SIZE = 16 };
	struct link l = connect_peer();
	snd_mr *mr = region(0);
	unsigned char *b = snd_mr_buffer(mr);
	snd_result r[16];
	uint32_t posted = 0, done = 0;
	while (done < BURST) {
		if (initiator) {
			while (posted < BURST && posted - done < WINDOW) {
				uint32_t at = posted % WINDOW * SIZE;
				memcpy(b + at, &posted, sizeof posted);
				snd_sge s = sge_of(mr, at, SIZE);
				OK(snd_endpoint_send(l.ep, posted, &s, 1, 0));
				posted++;
			}
		} else {
			while (posted < BURST && posted - done < WINDOW) {
				snd_sge s = sge_of(mr, posted % WINDOW * SIZE, SIZE);
				OK(snd_endpoint_receive(l.ep, posted, &s, 1));
				posted++;
			}
		}
		uint32_t n;
		OK(snd_cq_wait(l.cq, r, 16, SECONDS(20), &n));
		for (uint32_t i = 0; i < n; i++, done++) {
			uint32_t got;
			CHECK(r[i].status == SND_SUCCESS && r[i].request_context == done && r[i].bytes == SIZE);
			memcpy(&got, b + done % WINDOW * SIZE, sizeof got);
			CHECK(initiator || got == done);
		}
	}
	barrier();
	close_link(&l);
	close_region(mr, 0);
	barrier();
}

/* windows: the responder binds a window, the initiator writes through it; then the responder invalidates it, and a write
 * through the old token fails and ends the connection. */
static void windows(int initiator, int private_memory)
{
	struct link l = connect_peer();
	snd_mr *mr = region(private_memory);
	unsigned char *b = snd_mr_buffer(mr);
	snd_window *w = NULL;
	snd_window_descriptor mine = {0}, d;
	OK(snd_window_create(adapter, &w));
	if (!initiator) {
		OK(snd_endpoint_bind(l.ep, 1, mr, w, b + 1000, 5000, SND_ALLOW_READ | SND_ALLOW_WRITE));
		want(l.cq, SND_REQUEST_BIND, 1, 0);
		OK(snd_window_query(w, &mine));
	}
	d = theirs(mine);
	if (initiator) {
		fill(b, 5000, 3);
		snd_sge s = sge_of(mr, 0, 5000);
		OK(snd_endpoint_write(l.ep, 2, &s, 1, d.address, d.token, 0));
		want(l.cq, SND_REQUEST_WRITE, 2, 5000);
	}
	snd_result none;
	uint32_t taken;
	if (!initiator)
		CHECK(snd_cq_wait(l.cq, &none, 1, 0, &taken) == SND_IO_TIMEOUT);
	barrier();
	if (!initiator) {
		verify(b + 1000, 5000, 3);
		CHECK(snd_mr_close(mr, 0) == SND_DEVICE_BUSY);
		OK(snd_endpoint_invalidate(l.ep, 3, w, 0));
		want(l.cq, SND_REQUEST_INVALIDATE, 3, 0);
		memset(b + 1000, 0, 5000);
	}
	barrier();
	if (initiator) {
		snd_sge s = sge_of(mr, 0, 8);
		OK(snd_endpoint_write(l.ep, 4, &s, 1, d.address, d.token, 0));
		snd_result r = wait_one(l.cq);
		CHECK(r.status == SND_ACCESS_VIOLATION && r.request_context == 4);
		CHECK(snd_endpoint_error(l.ep) == SND_ACCESS_VIOLATION);
	} else {
		snd_sge s = sge_of(mr, 0, 8);
		snd_status posted = snd_endpoint_receive(l.ep, 5, &s, 1);
		CHECK(posted == SND_SUCCESS);
		snd_result r = wait_one(l.cq);
		CHECK(r.status == SND_CANCELED && r.request_context == 5);
		CHECK(snd_endpoint_error(l.ep) != SND_SUCCESS);
		for (int i = 0; i < 5000; i++)
			CHECK(b[1000 + i] == 0);
	}
	barrier();
	OK(snd_window_close(w, SECONDS(10)));
	close_link(&l);
	close_region(mr, private_memory);
	barrier();
}

/* remote_invalidate: the initiator sends a message that invalidates the responder's window. */
static void remote_invalidate(int initiator)
{
	struct link l = connect_peer();
	snd_mr *mr = region(0);
	snd_window *w;
	snd_window_descriptor mine = {0}, d;
	OK(snd_window_create(adapter, &w));
	snd_sge s = sge_of(mr, 0, 20);
	if (!initiator) {
		OK(snd_endpoint_bind(l.ep, 1, mr, w, snd_mr_buffer(mr), 100, SND_ALLOW_WRITE));
		want(l.cq, SND_REQUEST_BIND, 1, 0);
		OK(snd_window_query(w, &mine));
		OK(snd_endpoint_receive(l.ep, 2, &s, 1));
	}
	d = theirs(mine);
	if (initiator) {
		OK(snd_endpoint_send_and_invalidate(l.ep, 3, &s, 1, d.token, 0));
		want(l.cq, SND_REQUEST_SEND, 3, 20);
	} else {
		snd_result r = wait_one(l.cq);
		CHECK(r.status == SND_SUCCESS && r.type == SND_REQUEST_RECEIVE_AND_INVALIDATE && r.invalidated_token == mine.token && r.bytes == 20);
	}
	barrier();
	OK(snd_window_close(w, SECONDS(10)));
	close_link(&l);
	close_region(mr, 0);
	barrier();
}

/* too_long: a message that is longer than its receive fails at both sides. */
static void too_long(int initiator, uint32_t n)
{
	struct link l = connect_peer();
	snd_mr *mr = region(0);
	snd_sge s = sge_of(mr, 0, initiator ? n : n - 1);
	if (!initiator)
		OK(snd_endpoint_receive(l.ep, 1, &s, 1));
	barrier();
	if (initiator)
		OK(snd_endpoint_send(l.ep, 2, &s, 1, 0));
	snd_result r = wait_one(l.cq);
	CHECK(r.status == (initiator ? SND_REMOTE_ERROR : SND_BUFFER_OVERFLOW));
	barrier();
	close_link(&l);
	close_region(mr, 0);
	barrier();
}

static int run_rank(void)
{
	const char *name = getenv("PAIR_NAME"); /* ranks that no launcher has started */
	if (name != NULL)
		OK(snd_job_join(name, (uint32_t)atoi(getenv("SOFTND_RANK")), 2, test_options(), SECONDS(30), &job));
	else
		OK(snd_job_init(test_options(), SECONDS(30), &job));
	adapter = snd_job_adapter(job);
	rank = snd_job_rank(job);
	CHECK(snd_job_size(job) == 2);
	for (uint32_t round = 0; round < 4; round++) {
		const int initiator = rank == round % 2, private_memory = round >= 2;
		one_sided(initiator, private_memory);
		two_sided(initiator, private_memory);
		windows(initiator, private_memory);
		remote_invalidate(initiator);
		too_long(initiator, 40);
		too_long(initiator, 4000);
		burst(initiator);
	}
	barrier();
	OK(snd_job_close(job));
	return 0;
}

static pid_t start(const char *program, int fd, int number, const char *executor)
{
	pid_t pid = fork();
	if (pid == 0) {
		char text[20];
		snprintf(text, sizeof text, "%d", fd);
		setenv("SOFTND_ARENA_FD", text, 1);
		snprintf(text, sizeof text, "%d", number);
		setenv("SOFTND_RANK", text, 1);
		setenv("SOFTND_SIZE", "2", 1);
		setenv("SOFTND_EXEC", executor, 1);
		execl(program, program, (char *)NULL);
		_exit(127);
	}
	return pid;
}

int main(int argc, char **argv)
{
	if (getenv("SOFTND_RANK") != NULL)
		return run_rank();
	static const char *const executors[][2] = {{"auto", "auto"}, {"target", "target"}, {"auto", "target"}};
	const int only = argc > 1 ? atoi(argv[1]) : -1; /* under a slow tool */
	for (int i = 0; i < 3; i++) {
		if (only >= 0 && i != only)
			continue;
		snd_fabric *f;
		OK(snd_fabric_create(2, UINT64_C(1) << 30, MANUAL, &f));
		int fd = fcntl(snd_fabric_descriptor(f), F_DUPFD, 100);
		pid_t ranks[2];
		for (int r = 0; r < 2; r++)
			ranks[r] = start(argv[0], fd, r, executors[i][r]);
		close(fd);
		int failed = 0;
		for (int r = 0; r < 2; r++) {
			int status;
			CHECK(waitpid(-1, &status, 0) > 0);
			if (status != 0 && !failed) {
				failed = 1;
				kill(ranks[0], SIGKILL);
				kill(ranks[1], SIGKILL);
			}
		}
		if (failed) {
			fprintf(stderr, "%s: executors %s and %s failed\n", argv[0], executors[i][0], executors[i][1]);
			return 1;
		}
		OK(snd_fabric_close(f));
	}
	return 0;
}

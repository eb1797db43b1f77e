/* Rank 0 stops rank 1 in the middle of an access to its memory, and ends the access. Rank 1 goes on later. No byte changes after the end, and at most
 * those of the chunk that was being copied after it was asked for. gorank stops plays the same in Go.
 *
 * The access is a Write through a window. With SOFTND_EXEC=target, which makes the owner the executor of Writes, it is a Read of rank 0. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "linux/clock.h"
#include "shm/arena.h"
#include "window/guard.h"

#define MS(n) ((int64_t)(n) * 1000000)

enum { SIZE = 2 << 20, TRIALS = 40 };

/* Bytes of each request of a trial. A Write of a word tells more if rank 1 is stopped between two of them: the next one uses what it knows of the bind. */
static const uint64_t lengths[] = {8, SND_CHUNK_BYTES, SIZE};

static snd_job *job;
static snd_adapter *adapter;
static bool reads;
static unsigned char stopped[SIZE], ended[SIZE];

struct link {
	snd_cq *cq;
	snd_endpoint *ep;
};

static struct link connect_to(uint32_t rank)
{
	struct link l;
	OK(snd_cq_create(adapter, 64, &l.cq));
	OK(snd_job_connect(job, rank, &(snd_endpoint_config){.receive_cq = l.cq, .initiator_cq = l.cq}, MS(20000), &l.ep));
	return l;
}

static void close_link(struct link l)
{
	OK(snd_endpoint_close(l.ep));
	OK(snd_cq_close(l.cq));
}

static snd_result wait_one(snd_cq *cq)
{
	snd_result r;
	uint32_t n;
	OK(snd_cq_wait(cq, &r, 1, MS(30000), &n));
	return r;
}

/* is_stopped reports whether all threads of a process are stopped. */
static bool is_stopped(pid_t pid)
{
	char path[300], text[300];
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *d = opendir(path);
	CHECK(d != NULL);
	bool all = true;
	for (struct dirent *e; all && (e = readdir(d)) != NULL;) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/%d/task/%s/stat", pid, e->d_name);
		FILE *f = fopen(path, "r");
		if (f == NULL)
			continue; /* a thread that has ended */
		const char *state = fgets(text, sizeof text, f) != NULL ? strrchr(text, ')') : NULL;
		all = state == NULL || state[2] == 'T';
		fclose(f);
	}
	closedir(d);
	return all;
}

static uint64_t load(const unsigned char *p) { return atomic_load_explicit((const snd_word *)(const void *)p, memory_order_acquire); }

/* is_in_part reports whether a chunk has been copied in part: the bytes of a complete one are equal. A copy may go backwards, but for its last word. */
static bool is_in_part(const unsigned char *b, uint64_t n)
{
	for (uint64_t at = 0; at < n; at += SND_CHUNK_BYTES)
		for (uint64_t of = 0; of < SND_CHUNK_BYTES; of += 1024)
			if (load(b + at + of) != load(b + at + SND_CHUNK_BYTES - 8))
				return true;
	return false;
}

struct trial {
	struct link l;
	snd_mr *region; /* of a Read */
	snd_window *window;
	snd_window_descriptor remote;
	unsigned char *b;
	uint64_t n;
	bool reading; /* a Read is outstanding */
	unsigned read; /* Reads so far */
};

/* go_on keeps a Read outstanding until it fails. */
static void go_on(struct trial *t)
{
	snd_result r;
	if (snd_cq_poll(t->l.cq, &r, 1) == 1) {
		CHECK(t->reading && r.status == SND_SUCCESS);
		t->reading = false;
	}
	if (reads && !t->reading) {
		snd_sge s = snd_mr_sge(t->region, 0, t->n);
		OK(snd_endpoint_read(t->l.ep, 1, &s, 1, t->remote.address + t->read++ % 2 * SIZE, t->remote.token, 0));
		t->reading = true;
	}
}

/* stop stops rank 1: wherever it is if it copies words, else in the middle of a chunk. It is quick: between two chunks, rank 1 may wait for a processor. */
static void stop(struct trial *t, pid_t pid)
{
	static uint64_t tries;
	for (const int64_t end = snd_clock() + MS(30000);; tries++) {
		const unsigned char *at = t->b + tries * 4096 % t->n;
		go_on(t);
		const uint64_t last = load(at);
		for (unsigned spins = 1; load(at) == last; spins++)
			if (spins % 1024 == 0) {
				CHECK(snd_clock() < end);
				go_on(t);
			}
		CHECK(kill(pid, SIGSTOP) == 0);
		while (!is_stopped(pid)) {
		}
		if (t->n == 8 || is_in_part(t->b, t->n))
			return;
		CHECK(kill(pid, SIGCONT) == 0);
	}
}

/* end_access reports whether the access has ended. It is called again until it has. */
static bool end_access(struct trial *t, int64_t timeout)
{
	if (reads) {
		snd_status s = snd_mr_close(t->region, timeout);
		CHECK(s == SND_SUCCESS || s == SND_IO_TIMEOUT);
		return s == SND_SUCCESS;
	}
	snd_result r;
	uint32_t n;
	snd_status s = snd_cq_wait(t->l.cq, &r, 1, timeout, &n);
	CHECK(s == SND_IO_TIMEOUT || (s == SND_SUCCESS && r.status == SND_SUCCESS && r.type == SND_REQUEST_INVALIDATE));
	return s == SND_SUCCESS;
}

static void own(pid_t pid)
{
	snd_mr *mr;
	OK(snd_mr_allocate(adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &mr));
	struct trial t = {.b = snd_mr_buffer(mr)};
	unsigned in_part = 0, held = 0, late = 0, beyond = 0;
	for (unsigned i = 0; i < TRIALS; i++) {
		snd_window_descriptor mine = {0}, all[2];
		memset(t.b, 0, SIZE);
		t.n = lengths[i % 3];
		t.l = connect_to(1);
		if (reads) {
			OK(snd_mr_register(adapter, t.b, SIZE, SND_ALLOW_LOCAL_WRITE, &t.region));
		} else {
			OK(snd_window_create(adapter, &t.window));
			OK(snd_endpoint_bind(t.l.ep, 1, mr, t.window, t.b, SIZE, SND_ALLOW_WRITE));
			CHECK(wait_one(t.l.cq).status == SND_SUCCESS);
			OK(snd_window_query(t.window, &mine));
		}
		OK(snd_job_exchange_windows(job, &mine, all, MS(30000)));
		t.remote = all[1];
		stop(&t, pid);
		in_part += t.n > 8;
		if (!reads)
			OK(snd_endpoint_invalidate(t.l.ep, 3, t.window, 0));
		bool done = end_access(&t, MS(2));
		held += !done;
		memcpy(stopped, t.b, SIZE);
		if (done)
			memcpy(ended, t.b, SIZE);
		CHECK(kill(pid, SIGCONT) == 0);
		if (!done) {
			CHECK(end_access(&t, MS(30000)));
			memcpy(ended, t.b, SIZE);
		}
		if (t.reading) /* its result: rank 1 has done with it */
			wait_one(t.l.cq);
		t.reading = false;
		if (reads)
			close_link(t.l); /* rank 1 goes on until then */
		OK(snd_job_barrier(job, MS(30000)));
		late += memcmp(ended, t.b, SIZE) != 0;
		uint64_t changed = 0;
		for (uint64_t at = 0; at < SIZE; at++)
			changed += stopped[at] != t.b[at];
		beyond += changed > SND_CHUNK_BYTES;
		if (!reads) {
			close_link(t.l);
			OK(snd_window_close(t.window, MS(10000)));
		}
	}
	printf("stops: %d trials, %u in the middle of a chunk; %u held the end of the access, %u with a late byte, %u beyond a chunk\n", TRIALS, in_part, held, late,
		beyond);
	CHECK(held >= in_part && late == 0 && beyond == 0);
	OK(snd_mr_close(mr, MS(10000)));
}

/* unmap_pages makes this process fault on each page of shared memory that it copies next. This takes longer than the copy does, and a signal arrives
 * at a fault, while many processors end a copy first. */
static void unmap_pages(void)
{
	static struct range {
		void *start;
		size_t size;
	} shared[64];
	static unsigned count;
	if (count == 0) {
		char line[4096], flags[8];
		FILE *f = fopen("/proc/self/maps", "r");
		CHECK(f != NULL);
		while (count < 64 && fgets(line, sizeof line, f) != NULL) {
			uintptr_t start, end;
			if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &start, &end, flags) == 3 && strcmp(flags, "rw-s") == 0)
				shared[count++] = (struct range){(void *)start, end - start};
		}
		fclose(f);
		CHECK(count > 0);
	}
	for (unsigned i = 0; i < count; i++)
		madvise(shared[i].start, shared[i].size, MADV_DONTNEED); /* the memory keeps its bytes */
}

/* use makes Writes, or serves Reads. Each request finds other bytes than the one before it. */
static void use(void)
{
	snd_mr *mr;
	OK(snd_mr_allocate(adapter, 2 * SIZE, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ, &mr));
	memset(snd_mr_buffer(mr), 1, SIZE);
	memset((unsigned char *)snd_mr_buffer(mr) + SIZE, 2, SIZE);
	for (unsigned i = 0; i < TRIALS; i++) {
		struct link l = connect_to(0);
		snd_window_descriptor mine, all[2];
		OK(snd_mr_query(mr, &mine));
		OK(snd_job_exchange_windows(job, &mine, all, MS(30000)));
		snd_sge s = snd_mr_sge(mr, 0, lengths[i % 3]);
		if (reads)
			OK(snd_endpoint_receive(l.ep, 1, &s, 1)); /* it is canceled at the end */
		bool over = false;
		for (unsigned k = 0; !over; k++) {
			snd_result r;
			if (s.length > 8)
				unmap_pages();
			if (reads) {
				over = snd_cq_poll(l.cq, &r, 1) == 1;
			} else {
				s = snd_mr_sge(mr, k % 2 * SIZE, s.length);
				over = snd_endpoint_write(l.ep, 2, &s, 1, all[0].address, all[0].token, 0) != SND_SUCCESS || wait_one(l.cq).status != SND_SUCCESS;
			}
		}
		OK(snd_job_barrier(job, MS(30000)));
		close_link(l);
	}
	OK(snd_mr_close(mr, MS(10000)));
}

int main(void)
{
	const char *executor = getenv("SOFTND_EXEC");
	reads = executor != NULL && strcmp(executor, "target") == 0;
	OK(snd_job_init(test_options(), MS(30000), &job));
	adapter = snd_job_adapter(job);
	uint64_t pid = (uint64_t)getpid(), pids[2];
	OK(snd_job_exchange(job, &pid, sizeof pid, pids, MS(30000)));
	if (snd_job_rank(job) == 0)
		own((pid_t)pids[1]);
	else
		use();
	OK(snd_job_barrier(job, MS(30000)));
	OK(snd_job_close(job));
	return 0;
}

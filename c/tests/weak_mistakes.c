/* Programs that are wrong: each relies on something that softnd does and hardware may not do. Rank 0 posts, and rank 1 owns the
 * memory. A rank that notices the mistake prints it and exits with 1. weak_mistakes.sh runs them with and without a weak order.
 * cmd/ndrun/weakorder_mistakes_test.go has the same programs in Go. */
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "atomic.h"
#include "check.h"

#define SECOND INT64_C(1000000000)

enum { ROUNDS = 100, WORDS = 64, PART = 8 * WORDS }; /* the memory of a rank has two parts of so many words */

static snd_job *job;
static uint32_t rank;
static snd_mr *mr;
static snd_cq *cq;
static snd_endpoint *ep;
static snd_window_descriptor peer;
static uint64_t *words;

static void __attribute__((format(printf, 1, 2), noreturn)) found(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static snd_sge part(unsigned n, uint32_t length) { return (snd_sge){words + n * WORDS, length, snd_mr_local_token(mr)}; }

/* finish takes the results of count requests. */
static void finish(uint32_t count)
{
	snd_result r;
	for (uint32_t n; count > 0; count -= n) {
		OK(snd_cq_wait(cq, &r, 1, 10 * SECOND, &n));
		CHECK(r.status == SND_SUCCESS);
	}
}

static void meet(void) { OK(snd_job_barrier(job, 10 * SECOND)); }

/* poll_last_word takes a Write for complete when its last word is there. */
static void poll_last_word(void)
{
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		if (rank == 0) {
			const snd_sge data = part(0, PART);
			for (int i = 0; i < WORDS; i++)
				words[i] = round;
			OK(snd_endpoint_write(ep, 0, &data, 1, peer.address, peer.token, 0));
			snd_result r;
			int32_t n;
			while ((n = snd_cq_poll(cq, &r, 1)) == 0) /* each poll is a step of the delays */
				nanosleep(&(struct timespec){0, 20000}, NULL); /* in which rank 1 may look, even if it has to share a processor */
			CHECK(n == 1 && r.status == SND_SUCCESS);
		} else {
			snd_word *shared = (snd_word *)(void *)words;
			while (snd_acquire(&shared[WORDS - 1]) != round)
				sched_yield();
			for (int i = 0; i < WORDS; i++)
				if (snd_acquire(&shared[i]) != round)
					found("round %d: the last word is there, and word %d is missing", (int)round, i);
		}
		meet();
	}
}

/* overwrite_source reads a word and then writes it, as a program does that takes a value and leaves a mark. */
static void overwrite_source(void)
{
	const snd_sge to = part(0, 8), from = part(1, 8);
	for (uint64_t round = 0; rank == 0 && round < ROUNDS; round++) {
		words[WORDS] = round + 1;
		OK(snd_endpoint_read(ep, 0, &to, 1, peer.address, peer.token, 0));
		OK(snd_endpoint_write(ep, 0, &from, 1, peer.address, peer.token, 0));
		finish(2);
		if (words[0] != round)
			found("round %d: the Read has returned %d, but a Write is later", (int)round, (int)words[0]);
	}
}

/* send_sink sends the sink of a Read without a fence. */
static void send_sink(void)
{
	const snd_sge sink = part(0, 8), message = part(1, 8);
	if (rank == 1)
		words[0] = 7;
	for (int round = 0; round < ROUNDS; round++) {
		if (rank == 1)
			OK(snd_endpoint_receive(ep, 0, &message, 1));
		else
			words[0] = 0;
		meet();
		if (rank == 0) {
			OK(snd_endpoint_read(ep, 0, &sink, 1, peer.address, peer.token, 0));
			OK(snd_endpoint_send(ep, 0, &sink, 1, 0));
			finish(2);
		} else {
			finish(1);
			if (words[WORDS] != 7)
				found("round %d: %d was sent before the Read has stored its data", round, (int)words[WORDS]);
		}
		meet();
	}
}

/* use_more_entries asks for one scatter/gather entry and posts two. */
static void use_more_entries(void)
{
	const snd_sge data[] = {part(0, 8), part(1, 8)};
	if (rank == 1)
		return;
	if (snd_endpoint_write(ep, 0, data, 2, peer.address, peer.token, 0) != SND_SUCCESS)
		found("%s", snd_last_error());
	finish(1);
}

static const struct {
	const char *name;
	void (*run)(void);
} programs[] = {
	{"polls the last word of a Write", poll_last_word},
	{"overwrites what it reads", overwrite_source},
	{"sends what it reads", send_sink},
	{"uses more entries than it asked for", use_more_entries},
};

int main(int argc, char **argv)
{
	snd_window_descriptor mine, all[2];
	snd_endpoint_config config = {.max_initiator_sge = 1};
	OK(snd_job_init(test_options(), 10 * SECOND, &job));
	rank = snd_job_rank(job);
	CHECK(argc == 2 && snd_job_size(job) == 2);
	OK(snd_mr_allocate(snd_job_adapter(job), 2 * PART, SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, &mr));
	words = snd_mr_buffer(mr);
	OK(snd_mr_query(mr, &mine));
	OK(snd_job_exchange_windows(job, &mine, all, 10 * SECOND));
	peer = all[1 - rank];
	OK(snd_cq_create(snd_job_adapter(job), 64, &cq));
	config.receive_cq = config.initiator_cq = cq;
	OK(snd_job_connect(job, 1 - rank, &config, 10 * SECOND, &ep));
	for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
		if (strcmp(programs[i].name, argv[1]) == 0) {
			programs[i].run();
			meet();
			OK(snd_job_close(job));
			return 0;
		}
	}
	fprintf(stderr, "unknown program %s\n", argv[1]);
	return 1;
}

/* perf.c: softnd_perf, a rank of ndbench in C. ndbench starts it, writes commands to its standard input, one a
 * line, and reads an answer to each: "ok" and a number. An error ends the program with a message.
 *
 *	open TEST SIZE DEPTH RECEIVES SPARE PAIRS REPOST PRIVATE MUST_POLL INLINE
 *	run N       N operations; the answer of rank 0 is their time in ns
 *	sample N    the same, each of them timed: a line with the ns of each follows
 *	close       ends what open began
 *	line, exchange, memcpy SIZE   limits of the machine, in ns
 *
 * All ranks get the same commands. The end of the input ends the job. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "perf.h"

#define GREETING "softnd_perf 1" /* changes with the commands */

enum { LEAD_IN = 16, LEAD_IN_BYTES = 64 << 20 };

snd_job *job;
uint32_t rank;
static double ns_per_tick;

_Noreturn void fail(const char *call)
{
	fprintf(stderr, "softnd_perf: rank %u: %s: %s\n", (unsigned)rank, call, snd_last_error());
	exit(1);
}

double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ticks reads a cheap clock once all earlier instructions are done. */
static uint64_t ticks(void)
{
#if defined(__x86_64__)
	_mm_lfence();
	return __rdtsc();
#else
	return (uint64_t)now();
#endif
}

static void calibrate(void)
{
	double begun = now();
	uint64_t from = ticks();
	while (now() - begun < 1e7) {
	}
	double took = now() - begun;
	ns_per_tick = took / (double)(ticks() - from);
}

/* lead_in returns the number of operations before a timed loop: the other rank may not have left the barrier
 * yet. */
static uint64_t lead_in(const struct link *l)
{
	uint64_t n = (uint64_t)LEAD_IN * l->count;
	if (n > LEAD_IN_BYTES / l->size)
		n = LEAD_IN_BYTES / l->size;
	return n > 0 ? n : 1;
}

/* respond is the part of rank 1 in n operations. */
static void respond(const struct test *t, struct link *l, uint64_t n)
{
	if (t->answer != NULL)
		t->answer(l, n);
	if (t->answer == NULL || l->repost)
		link_serve(l);
}

/* run makes n operations. If samples is not NULL, it stores the time of each. */
static double run(const struct test *t, struct link *l, uint64_t n, double *samples)
{
	must(snd_job_barrier(job, SND_FOREVER));
	double took = 0;
	if (rank == 0) {
		t->step(l, lead_in(l));
		double start = now();
		if (samples == NULL) {
			t->step(l, n);
		} else {
			for (uint64_t i = 0; i < n; i++) {
				uint64_t from = ticks();
				t->step(l, 1);
				samples[i] = (double)(ticks() - from) * ns_per_tick;
			}
		}
		took = now() - start;
		link_signal(l);
	} else {
		respond(t, l, lead_in(l) + n);
	}
	must(snd_job_barrier(job, SND_FOREVER));
	return took;
}

static void sample(const struct test *t, struct link *l, uint64_t n)
{
	double *samples = malloc((n + 1) * sizeof *samples);
	if (samples == NULL)
		fail("malloc");
	run(t, l, n, samples);
	printf("ok %" PRIu64 "\n", rank == 0 ? n : 0);
	for (uint64_t i = 0; rank == 0 && i < n; i++)
		printf("%.1f\n", samples[i]);
	free(samples);
}

static const struct test *open_test(struct link *l, const char *line)
{
	char name[32];
	int inlined;
	memset(l, 0, sizeof *l);
	if (sscanf(line, "open %31s %" SCNu64 "%" SCNu32 "%" SCNu32 "%" SCNu32 "%" SCNu32 "%d%d%d%d", name, &l->size, &l->depth, &l->receives,
		    &l->spare, &l->count, &l->repost, &l->private, &l->must_poll, &inlined) != 10 ||
		l->size == 0 || l->depth == 0 || l->count == 0)
		return NULL;
	l->flags = inlined ? SND_INLINE : 0;
	return test_named(name);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("softnd_perf (softnd) %s\n", snd_version());
		return 0;
	}
	if (argc != 3) {
		fprintf(stderr, "softnd_perf: a rank of ndbench: start it with ndbench --lang c\n");
		return 2;
	}
	if (strcmp(argv[1], "-") != 0) {
		cpu_set_t core;
		CPU_ZERO(&core);
		CPU_SET((unsigned)atoi(argv[1]), &core);
		if (sched_setaffinity(0, sizeof core, &core) != 0) {
			fprintf(stderr, "softnd_perf: core %s: not available: start ndbench with --no-pin\n", argv[1]);
			return 1;
		}
	}
	limits_open(atoi(argv[2]));
	calibrate();
	must(snd_job_init(&(snd_fabric_options){.threading = SND_THREAD_DOMAIN, .progress = SND_PROGRESS_MANUAL}, SND_FOREVER, &job));
	rank = snd_job_rank(job);
	puts(GREETING);
	fflush(stdout);

	static struct link link;
	const struct test *test = NULL;
	char line[256];
	uint64_t n;
	while (fgets(line, sizeof line, stdin) != NULL) {
		double figure = 0;
		if (test == NULL && strncmp(line, "open ", 5) == 0 && (test = open_test(&link, line)) != NULL) {
			link_open(&link);
		} else if (test != NULL && sscanf(line, "run %" SCNu64, &n) == 1) {
			figure = run(test, &link, n, NULL);
		} else if (test != NULL && sscanf(line, "sample %" SCNu64, &n) == 1) {
			sample(test, &link, n);
			fflush(stdout);
			continue;
		} else if (test != NULL && strcmp(line, "close\n") == 0) {
			link_close(&link);
			test = NULL;
		} else if (strcmp(line, "line\n") == 0) {
			figure = limit_line();
		} else if (strcmp(line, "exchange\n") == 0) {
			figure = limit_exchange();
		} else if (sscanf(line, "memcpy %" SCNu64, &n) == 1 && n > 0) {
			figure = limit_memcpy(n);
		} else {
			fprintf(stderr, "softnd_perf: command not understood: %s", line);
			return 1;
		}
		printf("ok %.3f\n", figure);
		fflush(stdout);
	}
	must(snd_job_barrier(job, SND_FOREVER));
	must(snd_job_close(job));
	return 0;
}

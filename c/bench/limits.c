/* limits.c: the limits of the machine, measured as bench.Line and bench/measure/limits.go do. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "perf.h"

/* The line has two words, each on a cache line of its own, and two counts of meetings. Go ranks map it too. */
enum { LINE_BYTES = 4096, PING_AT = 0, MET_0_AT = 1024, PONG_AT = 2048, MET_1_AT = 3072 };

#define MEETING (UINT64_C(1) << 63) /* in ping: rank 0 has arrived at the meeting whose number follows */

static word *ping, *pong, *met[2];
static uint64_t value, meets;

void limits_open(int descriptor)
{
	unsigned char *m = mmap(NULL, LINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
	if (m == MAP_FAILED)
		fail("mmap of the shared cache line");
	close(descriptor);
	ping = (word *)(void *)(m + PING_AT);
	pong = (word *)(void *)(m + PONG_AT);
	met[0] = (word *)(void *)(m + MET_0_AT);
	met[1] = (word *)(void *)(m + MET_1_AT);
}

/* meet blocks until both ranks have called it. On rank 0, it also ends the other's echo. */
static void meet(void)
{
	meets++;
	if (rank == 0)
		atomic_store(ping, MEETING | meets); /* ORDER ping: pairs with the load in echo */
	atomic_store(met[rank], meets);		     /* ORDER meeting: pairs with the load below, in the other process */
	for (int tries = 0; atomic_load(met[1 - rank]) < meets; tries++) { /* ORDER meeting: pairs with the store above */
		if (tries > 1000)
			usleep(50);
		else
			sched_yield();
	}
}

/* The stores are sequentially consistent, as those of Go are, so that the limit of both languages is the same. */
static void bounce(uint64_t n)
{
	while (n-- > 0) {
		atomic_store(ping, ++value); /* ORDER ping: pairs with the load in echo */
		while (atomic_load(pong) != value) { /* ORDER pong: pairs with the store in echo */
		}
	}
}

static void echo(void)
{
	uint64_t seen = MEETING | meets, end = MEETING | (meets + 1);
	for (;;) {
		uint64_t v = atomic_load(ping); /* ORDER ping: pairs with the stores in bounce and meet */
		if (v == seen)
			continue;
		if (v == end)
			return;
		seen = v;
		atomic_store(pong, v); /* ORDER pong: pairs with the load in bounce */
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

enum { WINDOWS = 9, FEW = 3 };

/* measure_windows stores the ns of one round of a loop in several windows, and returns their number. */
static size_t measure_windows(void (*loop)(uint64_t n), double figures[WINDOWS])
{
	const double time = 2e6;
	uint64_t n = 1;
	double start;
	for (;; n *= 2) {
		start = now();
		loop(n);
		if (now() - start >= time / WINDOWS)
			break;
	}
	size_t count = 0;
	for (double begun = now(); count < FEW || (count < WINDOWS && now() - begun < 4 * time);) {
		start = now();
		loop(n);
		figures[count++] = (now() - start) / (double)n;
	}
	return count;
}

/* repeatedly returns the ns of one round of a loop: the median of several windows, so that an interruption of
 * one of them does not count. */
static double repeatedly(void (*loop)(uint64_t n))
{
	double figures[WINDOWS];
	size_t count = measure_windows(loop, figures);
	qsort(figures, count, sizeof *figures, ascending);
	return (figures[(count - 1) / 2] + figures[count / 2]) / 2;
}

double limit_line(void)
{
	double trip = 0;
	meet();
	if (rank == 0)
		trip = repeatedly(bounce);
	else
		echo();
	meet();
	return trip / 2;
}

/* mean returns the ns of one round of a loop as the mean of the windows. */
static double mean(void (*loop)(uint64_t n))
{
	double figures[WINDOWS], sum = 0;
	size_t count = measure_windows(loop, figures);
	for (size_t i = 0; i < count; i++)
		sum += figures[i];
	return sum / (double)count;
}

/* alone measures a loop on rank 0 while rank 1 rests. */
static double alone(double (*measure)(void (*loop)(uint64_t n)), void (*loop)(uint64_t n))
{
	double ns = 0;
	meet();
	if (rank == 0)
		ns = measure(loop);
	meet();
	return ns;
}

static word exchanged;

static void exchange(uint64_t n)
{
	while (n-- > 0)
		atomic_exchange(&exchanged, n);
}

double limit_exchange(void) { return alone(repeatedly, exchange); }

/* Places of copies, as those of bench/measure/limits.go. */
enum { PLACES = 8, PLACE_BYTES = 64 << 20 /* of all */ };

static snd_mr *places[PLACES];
static uint64_t copied, second, place_count, place; /* second: offset of the second half of a place */
static unsigned char *from, *to;

static void copy(uint64_t n)
{
	while (n-- > 0) {
		memcpy(to, from, copied);
		__asm__ volatile("" ::: "memory"); /* the copy has to happen */
	}
}

static void make_places(uint64_t size)
{
	for (uint64_t i = 0; i < place_count; i++)
		must(snd_mr_close(places[i], SND_FOREVER));
	second = (size + 63) / 64 * 64; /* at the beginning of a line, as the places of transfers */
	place_count = PLACE_BYTES / (2 * second);
	place_count = place_count < 1 ? 1 : place_count > PLACES ? PLACES : place_count;
	for (uint64_t i = 0; i < place_count; i++) {
		must(snd_mr_allocate(snd_job_adapter(job), second + size, SND_ALLOW_LOCAL_WRITE, &places[i]));
		unsigned char *m = snd_mr_buffer(places[i]);
		for (uint64_t at = 0; at < second + size; at++)
			m[at] = (unsigned char)(at | 1);
	}
	copied = size;
}

double limit_memcpy(uint64_t size)
{
	if (rank == 0) {
		if (size != copied)
			make_places(size);
		place = (place + 1) % place_count;
		from = snd_mr_buffer(places[place]);
		to = from + second;
		copy(1);
	}
	return alone(mean, copy);
}

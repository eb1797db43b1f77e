/* perf.h: the parts of softnd_perf, a rank of ndbench in C.
 *
 * The program does what a Go rank of ndbench does: the same requests in the same order, over the same
 * layout of memory. The two can therefore be the ranks of one job. bench/measure is the model: its
 * link.go, steps.go, flow.go, bind.go and limits.go.
 */
#ifndef SOFTND_PERF_H
#define SOFTND_PERF_H

#include <stdatomic.h>
#include <stdint.h>

#include <softnd/softnd.h>

typedef _Atomic uint64_t word;

enum { MAX_RESULTS = 32 }; /* results of one poll */

/* mark is the end of a buffer, which shows that a Write has arrived. It is the last 8 bytes if they are an
 * aligned word, otherwise the last byte. */
struct mark {
	word *at;
	uint64_t mask;
	unsigned shift;
};

/* pair is an endpoint with its memory: a place where the other rank's data land, and a place that outgoing
 * data come from and Reads go to. */
struct pair {
	snd_endpoint *ep;
	snd_sge land, out;
	uint64_t to; /* the landing place of the other rank's pair */
	struct mark landed, stamp;
	uint64_t seq;
};

struct link {
	uint64_t size;
	uint32_t depth;	   /* initiator requests outstanding, of all pairs together */
	uint32_t receives; /* receives posted from the beginning, per pair */
	uint32_t spare;	   /* room for further receives, per pair */
	uint32_t count;	   /* of pairs */
	int repost;	   /* poll posts a receive for each one taken */
	int private;	   /* memory of the process instead of the arena */
	int must_poll;	   /* the passive rank moves the bytes */
	uint32_t flags;	   /* of Sends and Writes */

	snd_mr *mr;
	snd_window *window;
	void *own; /* private memory */
	snd_window_descriptor far;
	snd_cq *cq;
	struct pair *pairs;
	uint32_t next; /* of pairs, in turn */

	snd_result results[MAX_RESULTS];
	uint64_t done, received, expected, posted; /* completions, receives taken and awaited, Sends of a ping-pong */

	struct mark flag, flag_mark; /* set by the other rank; see link_signal */
	snd_sge flag_out;
	uint64_t signaled, awaited;
};

/* test is one measurement. step makes n operations of rank 0, and answer is the part of rank 1 in them. */
struct test {
	const char *name;
	void (*step)(struct link *l, uint64_t n);
	void (*answer)(struct link *l, uint64_t n); /* NULL: rank 1 only calls link_serve */
};

extern snd_job *job;
extern uint32_t rank;

/* must ends the program if a call has failed. */
#define must(call) ((void)((call) == SND_SUCCESS || (fail(#call), 0)))
_Noreturn void fail(const char *call);

const struct test *test_named(const char *name);

void link_open(struct link *l);
void link_close(struct link *l);
void link_signal(struct link *l);
void link_serve(struct link *l);
void mark_put(const struct mark *m, uint64_t n);
int mark_shows(const struct mark *m, uint64_t n);

double now(void); /* in ns */

/* The limits of the machine, in ns. Both ranks call them together; rank 0 gets the figure. */
void limits_open(int descriptor);
double limit_line(void);
double limit_exchange(void);
double limit_memcpy(uint64_t size);

#endif

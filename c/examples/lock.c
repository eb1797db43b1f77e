/* A ticket lock in the memory of rank 0 protects a number beside it: ndrun -n 4 ./lock
 *
 * Each other rank takes a ticket with fetch and add, waits until it is served, and adds 1 to the number with a Read and a Write. */
#include <softnd/softnd.h>
#include <stdio.h>

enum { ROUNDS = 200, NEXT = 0, SERVING = 64, SHARED = 128 }; /* the last three are places in the memory of rank 0 */

static snd_cq *cq;
static snd_endpoint *ep;
static snd_window_descriptor far;
static snd_sge word; /* own memory for one number */

/* done waits for the only outstanding request, whose post has returned s, and returns the own number. */
static uint64_t done(snd_status s)
{
	snd_check(s);
	snd_check(snd_cq_wait_one(cq, ep, SND_FOREVER, NULL));
	return *(uint64_t *)word.buffer;
}

/* add adds n to a number of rank 0, and returns what it was before. With n = 0 it reads the number. */
static uint64_t add(uint64_t at, uint64_t n) { return done(snd_endpoint_fetch_and_add(ep, 0, &word, 1, far.address + at, far.token, n, 0)); }

/* increment adds 1 to the shared number, which only the lock makes safe. */
static void increment(void)
{
	const uint64_t ticket = add(NEXT, 1);
	while (add(SERVING, 0) != ticket)
		;
	const uint64_t now = done(snd_endpoint_read(ep, 0, &word, 1, far.address + SHARED, far.token, 0));
	*(uint64_t *)word.buffer = now + 1;
	done(snd_endpoint_write(ep, 0, &word, 1, far.address + SHARED, far.token, 0));
	add(SERVING, 1); /* when the Write is complete: the next holder finds its bytes */
}

int main(void)
{
	snd_job *job;
	snd_mr *mr;
	snd_window_descriptor mine, windows[64];
	snd_endpoint *peers[64];
	snd_check(snd_job_init(NULL, SND_FOREVER, &job));
	const uint32_t rank = snd_job_rank(job), ranks = snd_job_size(job);
	if (ranks > 64)
		snd_job_abort(job, 2, "lock: start at most 64 ranks");
	snd_check(snd_mr_allocate(snd_job_adapter(job), 4096, SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC, &mr));
	snd_check(snd_cq_create(snd_job_adapter(job), 64 * ranks, &cq));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq, .initiator_depth = 4, .receive_depth = 4};
	snd_check(snd_job_connect_all(job, &config, SND_FOREVER, peers));
	snd_check(snd_mr_query(mr, &mine));
	snd_check(snd_job_exchange_windows(job, &mine, windows, SND_FOREVER));
	ep = peers[0], far = windows[0], word = snd_mr_sge(mr, 0, 8);
	for (int i = 0; i < ROUNDS && rank > 0; i++)
		increment();
	snd_check(snd_job_barrier(job, SND_FOREVER));
	const uint64_t n = ((uint64_t *)snd_mr_buffer(mr))[SHARED / 8];
	if (rank == 0 && n != (uint64_t)ROUNDS * (ranks - 1))
		snd_job_abort(job, 1, "lock: an increment was lost");
	if (rank == 0)
		printf("lock: %lu increments, and none was lost\n", (unsigned long)n);
	snd_check(snd_job_close(job));
}

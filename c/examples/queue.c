/* Numbers from many producers to one consumer, rank 0, through a bounded queue in its memory: ndrun -n 4 ./queue
 *
 * A producer takes a ticket with fetch and add, waits until its slot is free, and fills it with a Write with immediate data, which is
 * the ticket. */
#include <softnd/softnd.h>
#include <stdatomic.h>
#include <stdio.h>

enum { ITEMS = 500, SLOTS = 8, TAIL = 0, HEAD = 64, FIRST = 128 }; /* the last three: tickets taken, slots consumed, the slots */

static snd_job *job;
static snd_mr *mr;
static snd_cq *cq;
static snd_srq *srq; /* one receive for each slot that is free */

/* consume takes n numbers out of the queue, in the order of their tickets. */
static void consume(uint64_t n)
{
	const uint64_t *slots = (uint64_t *)snd_mr_buffer(mr) + FIRST / 8;
	_Atomic uint64_t *head = (_Atomic uint64_t *)snd_mr_buffer(mr) + HEAD / 8;
	int is_full[SLOTS] = {0};
	uint64_t sum = 0;
	for (uint64_t ticket = 0; ticket < n;) {
		snd_result r;
		snd_check(snd_cq_wait_one(cq, NULL, SND_FOREVER, &r));
		is_full[r.invalidated_token % SLOTS] = 1; /* a later ticket can arrive first */
		for (; is_full[ticket % SLOTS]; ticket++) {
			is_full[ticket % SLOTS] = 0;
			sum += slots[ticket % SLOTS];
			snd_check(snd_srq_receive(srq, 0, NULL, 0));
			atomic_store(head, ticket + 1); /* frees the slot */
		}
	}
	if (sum != n * (ITEMS + 1) / 2)
		snd_job_abort(job, 1, "queue: a number was lost");
	printf("queue: %lu numbers arrived\n", (unsigned long)n);
}

/* produce puts the numbers from 1 to ITEMS into the queue. */
static void produce(snd_endpoint *ep, snd_window_descriptor far)
{
	const snd_sge old = snd_mr_sge(mr, 0, 8), item = snd_mr_sge(mr, 64, 8);
	const uint64_t *was = old.buffer;
	for (uint64_t i = 1; i <= ITEMS; i++) {
		snd_check(snd_endpoint_fetch_and_add(ep, 0, &old, 1, far.address + TAIL, far.token, 1, 0));
		snd_check(snd_cq_wait_one(cq, ep, SND_FOREVER, NULL));
		const uint64_t ticket = *was;
		for (uint64_t consumed = 0; consumed + SLOTS <= ticket; consumed = *was) {
			snd_check(snd_endpoint_fetch_and_add(ep, 0, &old, 1, far.address + HEAD, far.token, 0, 0));
			snd_check(snd_cq_wait_one(cq, ep, SND_FOREVER, NULL));
		}
		*(uint64_t *)item.buffer = i;
		snd_check(snd_endpoint_write_immediate(ep, 0, &item, 1, far.address + FIRST + 8 * (ticket % SLOTS), far.token, (uint32_t)ticket, 0));
		snd_check(snd_cq_wait_one(cq, ep, SND_FOREVER, NULL));
	}
}

int main(void)
{
	snd_window_descriptor mine, windows[64];
	snd_endpoint *peers[64];
	snd_check(snd_job_init(NULL, SND_FOREVER, &job));
	const uint32_t rank = snd_job_rank(job), ranks = snd_job_size(job);
	if (ranks > 64)
		snd_job_abort(job, 2, "queue: start at most 64 ranks");
	snd_check(snd_mr_allocate(snd_job_adapter(job), 4096, SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC, &mr));
	snd_check(snd_cq_create(snd_job_adapter(job), 64 * ranks, &cq));
	snd_check(snd_srq_create(snd_job_adapter(job), &(snd_srq_config){.depth = SLOTS}, &srq));
	for (int i = 0; i < SLOTS; i++)
		snd_check(snd_srq_receive(srq, 0, NULL, 0));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq, .srq = srq, .initiator_depth = 4};
	snd_check(snd_job_connect_all(job, &config, SND_FOREVER, peers));
	snd_check(snd_mr_query(mr, &mine));
	snd_check(snd_job_exchange_windows(job, &mine, windows, SND_FOREVER));
	rank == 0 ? consume((uint64_t)ITEMS * (ranks - 1)) : produce(peers[0], windows[0]);
	snd_check(snd_job_barrier(job, SND_FOREVER));
	snd_check(snd_job_close(job));
}

/* Tasks divided among ranks that steal from each other: ndrun -n 4 ./counter
 *
 * Each rank has tasks of its own, and the number of those that are taken. It takes them with an atomic instruction. A rank without tasks
 * takes those of the others with fetch and add. */
#include <softnd/softnd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { TASKS = 5000 }; /* of each rank */

int main(void)
{
	snd_job *job;
	snd_mr *mr;
	snd_cq *cq;
	snd_window_descriptor mine;
	snd_check(snd_job_init(NULL, SND_FOREVER, &job));
	const uint32_t rank = snd_job_rank(job), ranks = snd_job_size(job);
	snd_endpoint **peers = calloc(ranks, sizeof *peers);
	snd_window_descriptor *counters = calloc(ranks, sizeof *counters);
	snd_check(snd_mr_allocate(snd_job_adapter(job), 4096, SND_ALLOW_REMOTE_ATOMIC, &mr));
	snd_check(snd_cq_create(snd_job_adapter(job), 64 * ranks, &cq));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq, .initiator_depth = 4, .receive_depth = 4};
	snd_check(snd_job_connect_all(job, &config, SND_FOREVER, peers));
	snd_check(snd_mr_query(mr, &mine));
	snd_check(snd_job_exchange_windows(job, &mine, counters, SND_FOREVER));
	_Atomic uint64_t *own = snd_mr_buffer(mr);
	const snd_sge old = snd_mr_sge(mr, 64, 8); /* in another cache line than the rank's own counter */
	uint64_t answer[3] = {0}; /* tasks done, those of them that were stolen, and the sum of their results */
	for (uint32_t i = 0; i < ranks; i++) {
		const uint32_t victim = (rank + i) % ranks;
		for (;;) {
			uint64_t task;
			if (victim == rank) {
				task = atomic_fetch_add(own, 1);
			} else {
				snd_check(snd_endpoint_fetch_and_add(peers[victim], 0, &old, 1, counters[victim].address, counters[victim].token, 1, 0));
				snd_check(snd_cq_wait_one(cq, peers[victim], SND_FOREVER, NULL));
				task = *(uint64_t *)old.buffer;
			}
			if (task >= TASKS)
				break; /* all tasks of this rank are taken */
			answer[0]++;
			answer[1] += victim != rank;
			answer[2] += (uint64_t)victim * TASKS + task; /* the result of a task is its number in the job */
		}
	}
	printf("rank %u: %lu tasks, of which %lu stolen\n", rank, (unsigned long)answer[0], (unsigned long)answer[1]);
	uint64_t (*answers)[3] = calloc(ranks, sizeof *answers), n = (uint64_t)ranks * TASKS, done = 0, sum = 0;
	snd_check(snd_job_exchange(job, answer, sizeof answer, answers, SND_FOREVER)); /* until then, each rank keeps its counter */
	for (uint32_t i = 0; i < ranks; i++)
		done += answers[i][0], sum += answers[i][2];
	if (done != n || sum != n * (n - 1) / 2)
		snd_job_abort(job, 1, "counter: a task was lost, or done twice");
	if (rank == 0)
		puts("counter: each task was done once");
	snd_check(snd_job_close(job));
	free(peers), free(counters), free(answers);
}

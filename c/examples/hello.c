/* Each rank writes a word into the memory of the other: ndrun -n 2 ./hello */
#include <softnd/softnd.h>
#include <stdio.h>

int main(void)
{
	snd_job *job;
	snd_mr *mr;
	snd_cq *cq;
	snd_endpoint *ep;
	snd_window_descriptor mine, all[2];
	snd_check(snd_job_init(NULL, SND_FOREVER, &job));
	const uint32_t rank = snd_job_rank(job);
	if (snd_job_size(job) != 2)
		snd_job_abort(job, 2, "start two ranks: ndrun -n 2 ./hello");
	snd_check(snd_mr_allocate(snd_job_adapter(job), 4096, SND_ALLOW_REMOTE_WRITE, &mr));
	uint64_t *words = snd_mr_buffer(mr);
	snd_check(snd_mr_query(mr, &mine));
	snd_check(snd_job_exchange_windows(job, &mine, all, SND_FOREVER));
	snd_check(snd_cq_create(snd_job_adapter(job), 16, &cq));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	snd_check(snd_job_connect(job, 1 - rank, &config, SND_FOREVER, &ep));
	words[0] = 42 + rank;
	const snd_sge word = snd_mr_sge(mr, 0, 8);
	snd_check(snd_endpoint_write(ep, 1, &word, 1, all[1 - rank].address + 8, all[1 - rank].token, 0));
	snd_check(snd_cq_wait_one(cq, ep, SND_FOREVER, NULL));
	snd_check(snd_job_barrier(job, SND_FOREVER));
	printf("rank %u has %lu\n", rank, (unsigned long)words[1]);
	snd_check(snd_job_close(job));
}

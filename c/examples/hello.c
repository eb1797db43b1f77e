/* Each rank writes a word into the memory of the other: ndrun -n 2 ./hello */
#include <softnd/softnd.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND INT64_C(1000000000)

static void must(snd_status s)
{
	if (s != SND_SUCCESS) {
		fprintf(stderr, "%s: %s\n", snd_status_name(s), snd_last_error());
		exit(1);
	}
}

int main(void)
{
	snd_job *job;
	snd_mr *mr;
	snd_cq *cq;
	snd_endpoint *ep;
	must(snd_job_init(NULL, 30 * SECOND, &job));
	uint32_t rank = snd_job_rank(job);
	if (snd_job_size(job) != 2) {
		fprintf(stderr, "start two ranks: ndrun -n 2 ./hello\n");
		return 1;
	}
	must(snd_mr_allocate(snd_job_adapter(job), 4096, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_WRITE, &mr));
	uint64_t *words = snd_mr_buffer(mr);
	snd_window_descriptor mine, all[2];
	must(snd_mr_query(mr, &mine));
	must(snd_job_exchange_windows(job, &mine, all, 30 * SECOND));

	must(snd_cq_create(snd_job_adapter(job), 16, &cq));
	snd_endpoint_config config = {0};
	config.receive_cq = config.initiator_cq = cq;
	must(snd_job_connect(job, 1 - rank, &config, 30 * SECOND, &ep));
	words[0] = 42 + rank;
	snd_sge sge = {words, 8, snd_mr_local_token(mr)};
	must(snd_endpoint_write(ep, 1, &sge, 1, all[1 - rank].address + 8, all[1 - rank].token, 0));
	snd_result result;
	uint32_t n;
	must(snd_cq_wait(cq, &result, 1, 30 * SECOND, &n));
	if (result.status != SND_SUCCESS)
		must(snd_endpoint_error(ep)); /* why the request has failed */
	must(snd_job_barrier(job, 30 * SECOND));
	printf("rank %u has %lu\n", rank, (unsigned long)words[1]);
	must(snd_job_close(job));
	return 0;
}

/* OpenMP: the threads of a team share an endpoint (SND_THREAD_SAFE), and each has a fabric of its own (SND_THREAD_DOMAIN). */
#include <omp.h>

#include "two.h"

enum { THREADS = 4, REQUESTS = 2000 };

/* share lets all threads of a team write and take results of one endpoint. */
static void share(struct two *t)
{
	long taken = 0, posted = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : taken, posted)
	{
		const uint32_t own = 8 * (uint32_t)(1 + omp_get_thread_num());
		volatile uint64_t *word = (uint64_t *)((char *)snd_mr_buffer(t->mr) + 1024 + own);
		const snd_sge sge = {(void *)word, 8, snd_mr_local_token(t->mr)};
		snd_result r[8];
		*word = 1000 + own;
		for (int i = 0; i < REQUESTS;) {
			snd_status s = snd_endpoint_write(t->ep, 1, &sge, 1, t->theirs.address + own, t->theirs.token, 0);
			CHECK(s == SND_SUCCESS || s == SND_NO_MORE_ENTRIES);
			i += s == SND_SUCCESS;
			posted += s == SND_SUCCESS;
			int32_t n = snd_cq_poll(t->cq, r, 8);
			CHECK(n >= 0);
			for (int32_t k = 0; k < n; k++)
				CHECK(r[k].status == SND_SUCCESS);
			taken += (uint32_t)n;
		}
	}
	while (taken < posted) {
		snd_result r[8];
		uint32_t n;
		OK(snd_cq_wait(t->cq, r, 8, SECONDS(30), &n));
		taken += n;
	}
	OK(snd_job_barrier(t->job, SECONDS(30)));
	for (uint32_t i = 1; i <= THREADS; i++)
		CHECK(((volatile uint64_t *)snd_mr_buffer(t->mr))[i] == 1000 + 8 * i);
}

int main(void)
{
	char name[64];
	struct two pair[2];
	const snd_fabric_options safe = {.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO};
	two_name(name, "openmp", (long)getpid());
	omp_set_dynamic(0);
	omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2)
	{
		struct two *t = &pair[omp_get_thread_num()];
		CHECK(omp_get_num_threads() == 2);
		two_join(t, name, (uint32_t)omp_get_thread_num(), &safe);
		share(t);
		two_leave(t);
	}
#pragma omp parallel num_threads(THREADS)
	{
		const int i = omp_get_thread_num();
		struct two t;
		char own[64];
		CHECK(omp_get_num_threads() == THREADS);
		two_join(&t, two_name(own, i / 2 == 0 ? "openmp.a" : "openmp.b", (long)getpid()), (uint32_t)i % 2, NULL);
		for (uint64_t k = 1; k <= REQUESTS; k++)
			two_round(&t, k);
		two_leave(&t);
	}
	return 0;
}

/* Ranks that leave their job and join it again, at once and many times. Some are far ahead of others. Runs under ndrun. */
#include <time.h>

#include "check.h"

#define SECOND INT64_C(1000000000)

enum { ROUNDS = 40, LATE = 20, MOST_RANKS = 8 };

int main(void)
{
	uint32_t all[MOST_RANKS], size = 0;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		snd_job *job;
		OK(snd_job_init(test_options(), 20 * SECOND, &job));
		const uint32_t rank = snd_job_rank(job), mine = round << 8 | rank;
		size = snd_job_size(job);
		CHECK(size <= MOST_RANKS);
		OK(snd_job_exchange(job, &mine, sizeof mine, all, 20 * SECOND));
		for (uint32_t i = 0; i < size; i++)
			CHECK(all[i] == (round << 8 | i));
		if ((round + rank) % 4 == 0)
			nanosleep(&(struct timespec){0, 3000000}, NULL);
		if (round == LATE && rank == 0)
			nanosleep(&(struct timespec){0, 300000000}, NULL);
		OK(snd_job_close(job));
		if (round == LATE && rank > 0) /* rank 0 joins first, and may get the record of another rank */
			nanosleep(&(struct timespec){1, 0}, NULL);
	}
	printf("%u ranks: %d rounds\n", size, ROUNDS);
	return 0;
}

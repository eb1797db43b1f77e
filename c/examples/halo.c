/* The exchange of borders between neighbours: heat in a rod, divided among the ranks: ndrun -n 4 ./halo
 *
 * In each step a rank writes its first and last cell beside those of its neighbours, and the number of the step arrives with them.
 * Each generation has cells of its own: a neighbour may be one step ahead. */
#include <softnd/softnd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 1000, STEPS = 500, ROD = CELLS + 2 };

static snd_cq *cq;
static snd_endpoint *sides[2]; /* the connections with the ranks below and above; NULL at the ends of the rod */
static uint32_t arrived[2];    /* borders from each side */

static void spread(double *next, const double *now, size_t n)
{
	for (size_t i = 1; i <= n; i++)
		next[i] = now[i] + 0.25 * (now[i - 1] - 2 * now[i] + now[i + 1]);
}

/* take_border takes a border that has arrived, and posts a receive for another one. */
static void take_border(void)
{
	snd_result r;
	snd_check(snd_cq_wait_one(cq, NULL, SND_FOREVER, &r));
	arrived[r.endpoint_context] = r.invalidated_token + 1; /* the immediate data */
	snd_check(snd_endpoint_receive(sides[r.endpoint_context], 0, NULL, 0));
}

int main(void)
{
	snd_job *job;
	snd_mr *mr;
	snd_check(snd_job_init(NULL, SND_FOREVER, &job));
	const uint32_t rank = snd_job_rank(job), ranks = snd_job_size(job);
	snd_check(snd_mr_allocate(snd_job_adapter(job), 2 * ROD * sizeof(double), SND_ALLOW_REMOTE_WRITE, &mr));
	snd_check(snd_cq_create(snd_job_adapter(job), 64, &cq));
	double (*rod)[ROD] = snd_mr_buffer(mr), *all = calloc(2 * (ranks * CELLS + 2), sizeof *all);
	snd_window_descriptor mine, *windows = calloc(ranks, sizeof *windows);
	snd_check(snd_mr_query(mr, &mine));
	snd_check(snd_job_exchange_windows(job, &mine, windows, SND_FOREVER));
	for (uint32_t side = 0; side < 2; side++) {
		const uint32_t peer = rank + 2 * side - 1;
		const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq, .context = side};
		if (peer >= ranks) /* also below 0 */
			continue;
		snd_check(snd_job_connect(job, peer, &config, SND_FOREVER, &sides[side]));
		for (int i = 0; i < 4; i++)
			snd_check(snd_endpoint_receive(sides[side], 0, NULL, 0));
	}
	if (rank == 0)
		rod[0][0] = rod[1][0] = 100; /* this end is hot */
	for (uint32_t g = 0; g < STEPS; g++) {
		const uint64_t at = g % 2 * ROD;
		for (uint32_t side = 0; side < 2; side++) {
			const snd_sge border = snd_mr_sge(mr, (at + (side == 0 ? 1 : CELLS)) * sizeof(double), sizeof(double));
			const snd_window_descriptor *to = &windows[sides[side] == NULL ? rank : rank + 2 * side - 1];
			if (sides[side] != NULL)
				snd_check(snd_endpoint_write_immediate(sides[side], 0, &border, 1, to->address + (at + (side == 0 ? CELLS + 1 : 0)) * sizeof(double), to->token, g, SND_SILENT_SUCCESS));
		}
		while ((sides[0] != NULL && arrived[0] <= g) || (sides[1] != NULL && arrived[1] <= g))
			take_border();
		spread(rod[(g + 1) % 2], rod[g % 2], CELLS);
	}
	snd_check(snd_job_exchange(job, &rod[STEPS % 2][1], CELLS * sizeof(double), all + 1, SND_FOREVER));
	double *now = calloc(ranks * CELLS + 2, sizeof *now), *next = calloc(ranks * CELLS + 2, sizeof *next), *t;
	now[0] = next[0] = 100;
	for (int g = 0; g < STEPS; g++, t = now, now = next, next = t)
		spread(next, now, ranks * CELLS);
	if (memcmp(now + 1, all + 1, ranks * CELLS * sizeof *now) != 0)
		snd_job_abort(job, 1, "halo: not the serial result");
	printf("halo: rank %u has the serial result\n", rank);
	snd_check(snd_job_close(job));
	free(all), free(windows), free(now), free(next);
}

/* mpi ORDER [NAME]: two processes use MPI and softnd together. ORDER says which of the two begins first, mpi or softnd; the
 * first to begin ends last. With a NAME they join the job of that name, otherwise that of the launcher. */
#include <mpi.h>

#include "two.h"

enum { ROUNDS = 300 };

/* own_rank returns the rank before MPI is initialised. */
static uint32_t own_rank(void)
{
	const char *hydra = getenv("PMI_RANK"), *prte = getenv("OMPI_COMM_WORLD_RANK");
	CHECK(hydra != NULL || prte != NULL);
	return (uint32_t)atoi(hydra != NULL ? hydra : prte);
}

static void join(struct two *t, const char *name, uint32_t rank, const snd_fabric_options *o)
{
	if (name != NULL) {
		two_join(t, name, rank, o);
		return;
	}
	OK(snd_job_init(o, SECONDS(30), &t->job));
	CHECK(snd_job_rank(t->job) == rank && snd_job_size(t->job) == 2);
	two_connect(t);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 2);
	const int softnd_first = strcmp(argv[1], "softnd") == 0;
	const char *name = argc > 2 ? argv[2] : NULL;
	const uint32_t rank = own_rank();
	const snd_fabric_options o = {.progress = SND_PROGRESS_AUTO};
	struct two t;
	int mpi_rank, provided;
	if (softnd_first)
		join(&t, name, rank, &o);
	CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) == MPI_SUCCESS);
	MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
	CHECK((uint32_t)mpi_rank == rank);
	if (!softnd_first)
		join(&t, name, rank, &o);
	const int other = 1 - mpi_rank;
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		uint64_t sent = i * 10 + rank, got = 0;
		two_round(&t, i);
		MPI_Sendrecv(&sent, 1, MPI_UINT64_T, other, 0, &got, 1, MPI_UINT64_T, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		CHECK(got == i * 10 + (uint64_t)other);
	}
	/* MPI sends from memory of the arena, and softnd writes into memory of MPI. */
	unsigned char *window;
	MPI_Win win;
	MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	snd_mr *mr;
	snd_window_descriptor mine, both[2];
	OK(snd_mr_register(t.adapter, window, 4096, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_WRITE, &mr));
	OK(snd_mr_query(mr, &mine));
	MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, both, (int)sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
	uint64_t *words = snd_mr_buffer(t.mr);
	words[4] = 77 + rank;
	const snd_sge sge = {&words[4], 8, snd_mr_local_token(t.mr)};
	snd_result r;
	uint32_t n;
	OK(snd_endpoint_write(t.ep, 1, &sge, 1, both[other].address, both[other].token, 0));
	OK(snd_cq_wait(t.cq, &r, 1, SECONDS(30), &n));
	CHECK(r.status == SND_SUCCESS);
	MPI_Sendrecv(&words[4], 1, MPI_UINT64_T, other, 1, &words[5], 1, MPI_UINT64_T, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	CHECK(words[5] == 77 + (uint64_t)other && memcmp(window, &words[5], 8) == 0);
	OK(snd_mr_close(mr, SECONDS(30)));
	MPI_Win_free(&win);
	if (!softnd_first)
		two_leave(&t);
	MPI_Finalize();
	if (softnd_first)
		two_leave(&t);
	return 0;
}

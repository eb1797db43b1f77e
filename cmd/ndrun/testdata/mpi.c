/* A program of MPI for the tests of ndrun: mpi MODE. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

/* A token goes around and every rank adds its number; then all sum up what they know. */
static void ring(void) {
	int token = 0, sum = 0, host_ranks = 0;
	MPI_Comm host;
	if (rank > 0)
		MPI_Recv(&token, 1, MPI_INT, rank - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	token += rank + 1;
	if (size > 1) /* a message to oneself would wait for its own receive */
		MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
	if (size > 1 && rank == 0)
		MPI_Recv(&token, 1, MPI_INT, size - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Allreduce(&token, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
	MPI_Comm_size(host, &host_ranks);
	printf("rank %d of %d: token %d, sum %d, %d share memory\n", rank, size, token, sum, host_ranks);
}

static void spawn(void) {
	MPI_Comm children;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	int err = MPI_Comm_spawn("true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
	printf("spawn %s\n", err == MPI_SUCCESS ? "succeeded" : "failed");
}

int main(int argc, char **argv) {
	const char *mode = argc > 1 ? argv[1] : "";
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (strcmp(mode, "ring") == 0)
		ring();
	else if (strcmp(mode, "spawn") == 0)
		spawn();
	else if (rank == 1 && strcmp(mode, "abort") == 0)
		MPI_Abort(MPI_COMM_WORLD, 9);
	else if (rank == 1 && strcmp(mode, "crash") == 0)
		raise(SIGSEGV);
	else if (rank == 1 && strcmp(mode, "unfinalized") == 0)
		_Exit(0);
	/* With any of the last three the others wait here for a rank that does not come. */
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}

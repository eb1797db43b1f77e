// One measurement of an MPI implementation, for comparison with softnd:
//
//     mpi MODE SIZE ITERATIONS SECONDS REPEATS [CORE,...]
//
// Rank 0 prints a line "figure,ITERATIONS,NANOSECONDS" for each repeat, where
// NANOSECONDS is the time of one operation. ITERATIONS 0 stands for as many as
// take SECONDS. With a list of cores, rank r stays on the r-th, modulo their
// number.
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { BURST = 64 }; // operations outstanding where bandwidth is measured

static int rank, peer;
static int size;
static char *here;            // memory that this rank sends from
static char *there;           // memory that it receives into
static volatile char *window; // its part of the window
static MPI_Win win;

// usage ends a run that was asked for something else.
static void usage(const char *what) {
	fprintf(stderr, "mpi: %s; usage: mpi MODE SIZE ITERATIONS SECONDS REPEATS [CORE,...]\n", what);
	exit(2);
}

// rank_of_launcher is the rank that the launcher told, before MPI_Init.
static int rank_of_launcher(void) {
	const char *names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
	for (int i = 0; i < 2; i++)
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	return 0;
}

// pin goes to a core before MPI_Init, so that what MPI allocates lies near it.
static void pin(const char *cores) {
	int core[1024], n = 0;
	char *end;
	for (const char *p = cores; *p && n < 1024; p = *end ? end + 1 : end) {
		core[n++] = (int)strtol(p, &end, 10);
		if (end == p)
			usage("cores are numbers with commas between");
	}
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(core[rank_of_launcher() % n], &set);
	if (sched_setaffinity(0, sizeof set, &set)) {
		perror("mpi: pin");
		exit(1);
	}
}

static void send_lat(long n) {
	for (long i = 0; i < n; i++) {
		if (rank == 0) {
			MPI_Send(here, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
			MPI_Recv(there, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(there, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(here, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
		}
	}
}

// send_bw ends each burst with an answer, so that the receiver has it all.
static void send_bw(long n) {
	MPI_Request requests[BURST];
	for (long i = 0; i < n; i += BURST) {
		int burst = n - i < BURST ? (int)(n - i) : BURST;
		for (int j = 0; j < burst; j++) {
			if (rank == 0)
				MPI_Isend(here, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[j]);
			else
				MPI_Irecv(there, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[j]);
		}
		MPI_Waitall(burst, requests, MPI_STATUSES_IGNORE);
		if (rank == 0)
			MPI_Recv(NULL, 0, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(NULL, 0, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
	}
}

static void put(void) {
	MPI_Put(here, size, MPI_BYTE, peer, 0, size, MPI_BYTE, win);
}

// await_put watches the last byte of the window. MPICH moves the data in the
// target's calls, and synchronising the window is not one of those.
static void await_put(char value) {
	while (window[size - 1] != value) {
#ifndef OPEN_MPI
		int flag;
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
#endif
		MPI_Win_sync(win);
	}
}

static void write_lat(long n) {
	static char value;
	for (long i = 0; i < n; i++) {
		value++;
		if (rank == 1)
			await_put(value);
		here[size - 1] = value;
		put();
		MPI_Win_flush(peer, win);
		if (rank == 0)
			await_put(value);
	}
}

static void posted(long n) {
	if (rank != 0)
		return;
	for (long i = 0; i < n; i++) {
		put();
		MPI_Win_flush(peer, win);
	}
}

static void write_bw(long n) {
	if (rank != 0)
		return;
	for (long i = 0; i < n; i += BURST) {
		int burst = n - i < BURST ? (int)(n - i) : BURST;
		for (int j = 0; j < burst; j++)
			put();
		MPI_Win_flush(peer, win);
	}
}

static void barrier(long n) {
	for (long i = 0; i < n; i++)
		MPI_Barrier(MPI_COMM_WORLD);
}

static const struct mode {
	const char *name;
	void (*run)(long n);
	double halves; // what one iteration is divided by
	int pair;      // only ranks 0 and 1
	int one_sided;
} modes[] = {
	{"send_lat", send_lat, 2, 1, 0},
	{"send_bw", send_bw, 1, 1, 0},
	{"write_lat", write_lat, 2, 1, 1},
	{"posted", posted, 1, 1, 1},
	{"write_bw", write_bw, 1, 1, 1},
	{"barrier", barrier, 1, 0, 0},
};

// timed runs n iterations and returns seconds, the same on all ranks. Those
// that have nothing to do wait in a broadcast, where MPI makes progress.
static double timed(const struct mode *m, long n) {
	MPI_Barrier(MPI_COMM_WORLD);
	double t = MPI_Wtime();
	m->run(n);
	t = MPI_Wtime() - t;
	MPI_Bcast(&t, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	return t;
}

// enough finds how many iterations take that long.
static long enough(const struct mode *m, double seconds) {
	long n = 1;
	double t;
	timed(m, n); // the first is slow: connections, pages
	while ((t = timed(m, n)) < seconds / 8 && n < 1L << 40)
		n *= 4;
	long wanted = (long)((double)n * seconds / t);
	return wanted < 1 ? 1 : wanted;
}

// pages rounds up. Windows of a few bytes would share a page, and MPICH 4.0
// then writes into that of the wrong rank.
static MPI_Aint pages(int n) {
	return ((MPI_Aint)n + 4095) / 4096 * 4096;
}

static void *memory(size_t n) {
	void *p;
	if (posix_memalign(&p, 4096, n ? n : 1)) {
		fprintf(stderr, "mpi: no memory\n");
		exit(1);
	}
	memset(p, 0, n);
	return p;
}

int main(int argc, char **argv) {
	if (argc < 6)
		usage("too few arguments");
	prctl(PR_SET_PDEATHSIG, SIGKILL); // outlive no launcher
	if (argc > 6)
		pin(argv[6]);

	const struct mode *m = NULL;
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		if (!strcmp(modes[i].name, argv[1]))
			m = &modes[i];
	if (!m)
		usage("no such mode");
	size = atoi(argv[2]);
	long n = atol(argv[3]);
	double seconds = atof(argv[4]);
	int repeats = atoi(argv[5]), ranks;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if ((m->pair && ranks != 2) || (m->one_sided && size < 1))
		usage("the mode does not go with these ranks or this size");
	peer = 1 - rank;
	here = memory(size);
	there = memory(size);
	if (m->one_sided) {
		MPI_Win_allocate(pages(size), 1, MPI_INFO_NULL, MPI_COMM_WORLD, (void *)&window, &win);
		memset((void *)window, 0, size);
		MPI_Barrier(MPI_COMM_WORLD); // no rank puts before that
		MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	}

	if (n < 1)
		n = enough(m, seconds);
	else
		timed(m, n / 10 + 1);
	for (int i = 0; i < repeats; i++) {
		double t = timed(m, n);
		if (rank == 0) {
			printf("figure,%ld,%.3f\n", n, t / (double)n / m->halves * 1e9);
			fflush(stdout);
		}
	}

	if (m->one_sided) {
		MPI_Win_unlock_all(win);
		MPI_Win_free(&win);
	}
	free(here);
	free(there);
	MPI_Finalize();
	return 0;
}

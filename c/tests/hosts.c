/* A rank of a job over several hosts: relay/internal/jobtest starts it, in two network namespaces. The first argument is what it does:
 *
 *	talks      connects with every rank, and uses each kind of call
 *	waits      joins the job, says so, and waits until it is ended
 *	leaves N   joins the job, and says so. When all ranks have joined, rank N leaves the job, says so, and ends. The others wait
 *	departs    joins the job. Ranks 1 and 3 leave, and ranks 0 and 2 learn that when they connect to them, and connect late to each other
 *	loses      ranks 0 and 1 connect and say so. When the connection has ended, they print its error
 *	barriers   joins the job, says so, and calls barriers until one fails because a connection between hosts has ended
 *	mistakes   makes collective calls that do not fit together
 *	aborts N   as waits, but rank N ends the job
 *	leaves first  joins the job. Rank 0 leaves, and prints what snd_job_close returns; with another argument, it aborts the job meanwhile.
 *	           The others say when it has gone, and wait to be ended
 *	hears      as waits, but the end of another rank does not end it. It prints what snd_job_wait_end returns
 *	refused    prints why it cannot join. The launcher may end the other ranks before they do */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define SECOND INT64_C(1000000000)
#define LIMIT (100 * SECOND)

enum { RANKS = 16, MEMORY = 16384, FROM = 2048, RECEIVED = 4096, MESSAGE = 64, LARGEST = 100000 };

static volatile sig_atomic_t ended_children;

static void count_child(int signal)
{
	(void)signal;
	ended_children++;
}

static snd_job *job;
static uint32_t rank, size;

static void join(uint32_t exits)
{
	struct sigaction action = {.sa_handler = count_child};
	CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
	snd_fabric_options options = *test_options();
	options.exit_with_job = exits;
	OK(snd_job_init(&options, LIMIT, &job));
	rank = snd_job_rank(job);
	size = snd_job_size(job);
	CHECK(size <= RANKS);
	CHECK(ended_children == 0 && waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD); /* the relay is no child of this process */
}

static void say_ready(void)
{
	printf("ready %u %d\n", rank, (int)getpid());
	CHECK(fflush(stdout) == 0);
}

static void want_results(snd_cq *cq, uint32_t wanted)
{
	while (wanted > 0) {
		snd_result r[RANKS];
		uint32_t n;
		OK(snd_cq_wait(cq, r, RANKS, LIMIT, &n));
		for (uint32_t i = 0; i < n; i++)
			CHECK(r[i].status == SND_SUCCESS);
		CHECK(n <= wanted);
		wanted -= n;
	}
}

/* exchanges passes bytes of all lengths: some packs fit into a message of the leaders, others do not. */
static void exchanges(void)
{
	static const uint32_t lengths[] = {8, 2000, LARGEST};
	static unsigned char mine[LARGEST], all[RANKS * LARGEST];
	for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
		const uint32_t n = lengths[k];
		for (uint32_t i = 0; i < n; i++)
			mine[i] = (unsigned char)(rank + i);
		memset(all, 0xee, sizeof all);
		OK(snd_job_exchange(job, mine, n, all, LIMIT));
		for (uint32_t from = 0; from < size; from++)
			for (uint32_t i = 0; i < n; i++)
				CHECK(all[from * n + i] == (unsigned char)(from + i));
	}
}

static void talks(void)
{
	snd_cq *cq;
	snd_mr *mr;
	snd_endpoint *to[RANKS] = {NULL};
	snd_window_descriptor mine, all[RANKS];
	const int open_before = descriptors();
	join(1);
	snd_adapter_info info;
	OK(snd_adapter_query(snd_job_adapter(job), &info));
	CHECK(info.max_inter_host_connections == 2048);
	OK(snd_cq_create(snd_job_adapter(job), 1024, &cq));
	OK(snd_mr_allocate(snd_job_adapter(job), MEMORY, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_READ, &mr));
	unsigned char *b = snd_mr_buffer(mr);
	const uint32_t token = snd_mr_local_token(mr);
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	uint32_t peers[RANKS], count = 0;
	for (uint32_t peer = size; peer-- > 0;)
		if (peer != rank)
			peers[count++] = peer;
	snd_endpoint *connected[RANKS];
	OK(snd_job_connect_ranks(job, peers, count, &config, LIMIT, connected)); /* ranks in Go call ConnectAll */
	for (uint32_t i = 0; i < count; i++)
		to[peers[i]] = connected[i];
	OK(snd_mr_query(mr, &mine));
	OK(snd_job_exchange_windows(job, &mine, all, LIMIT));
	for (uint32_t peer = 0; peer < size; peer++) { /* each rank writes its number into the memory of the others */
		const snd_sge sge = {b + FROM + peer, 1, token};
		b[FROM + peer] = (unsigned char)(rank + 1);
		if (peer != rank)
			OK(snd_endpoint_write(to[peer], 1, &sge, 1, all[peer].address + rank, all[peer].token, 0));
	}
	want_results(cq, size - 1);
	OK(snd_job_barrier(job, LIMIT));
	for (uint32_t peer = 0; peer < size; peer++) {
		const snd_sge sge = {b + RECEIVED + (size_t)peer * MESSAGE, MESSAGE, token};
		CHECK(peer == rank || b[peer] == peer + 1);
		if (peer != rank)
			OK(snd_endpoint_receive(to[peer], 2, &sge, 1));
	}
	OK(snd_job_barrier(job, LIMIT));
	for (uint32_t peer = 0; peer < size; peer++) {
		const snd_sge sge = {b + FROM + peer, 1, token};
		if (peer != rank)
			OK(snd_endpoint_send(to[peer], 3, &sge, 1, 0));
	}
	want_results(cq, 2 * (size - 1));
	for (uint32_t peer = 0; peer < size; peer++)
		CHECK(peer == rank || b[RECEIVED + peer * MESSAGE] == peer + 1);
	OK(snd_job_barrier(job, LIMIT));
	exchanges();
	OK(snd_job_barrier(job, LIMIT));
	OK(snd_job_close(job));
	CHECK(descriptors() == open_before - (getenv("PMI_FD") != NULL)); /* that of PMI is closed, too */
	CHECK(ended_children == 0);
	printf("rank %u of %u is done\n", rank, size);
}

/* The first host has half of the ranks. */
static void mistakes(void)
{
	unsigned char mine[16] = {0}, all[16 * RANKS];
	join(1);
	OK(snd_job_barrier(job, LIMIT));
	const uint64_t length = rank == size - 1 ? 16 : 8; /* the ranks stay in step */
	CHECK(snd_job_exchange(job, mine, length, all, LIMIT) == SND_INVALID_BUFFER_SIZE && strstr(snd_last_error(), "pass the same length on all ranks") != NULL);
	OK(snd_job_exchange(job, mine, 8, all, LIMIT));
	OK(snd_job_exchange(job, NULL, 0, NULL, LIMIT));
	OK(snd_job_barrier(job, LIMIT));
	snd_status s = rank < size / 2 ? snd_job_barrier(job, LIMIT) : snd_job_exchange(job, mine, 8, all, LIMIT);
	CHECK(s == SND_INVALID_DEVICE_STATE && strstr(snd_last_error(), "same collective calls") != NULL);
	CHECK(snd_job_barrier(job, LIMIT) == SND_INVALID_DEVICE_STATE);
	OK(snd_job_close(job));
}

/* departs: rank 0 waits for the requests of ranks 3 and 2, and rank 2 sends requests to ranks 1 and 0. */
static void departs(void)
{
	snd_cq *cq;
	snd_endpoint *ep;
	if (rank % 2 == 1) {
		OK(snd_job_close(job));
		return;
	}
	OK(snd_cq_create(snd_job_adapter(job), 64, &cq));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	snd_status s;
	while ((s = snd_job_connect(job, 3 - rank, &config, LIMIT, &ep)) == SND_CONNECTION_REFUSED) /* while the rank closes the job */
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	CHECK(s == SND_HOST_UNREACHABLE && strstr(snd_last_error(), "on another host has left or has ended the connection") != NULL);
	if (rank == 2)
		sleep(3); /* rank 0 asks whether this rank is there */
	OK(snd_job_connect(job, 2 - rank, &config, LIMIT, &ep));
	if (rank == 2) {
		OK(snd_endpoint_send(ep, 1, NULL, 0, 0));
		want_results(cq, 1);
	} else {
		snd_result r;
		uint32_t n;
		OK(snd_endpoint_receive(ep, 1, NULL, 0));
		want_results(cq, 1);
		OK(snd_endpoint_receive(ep, 2, NULL, 0));
		OK(snd_cq_wait(cq, &r, 1, LIMIT, &n)); /* until rank 2 has ended the connection */
		CHECK(r.status == SND_CANCELED);
	}
	OK(snd_job_close(job));
	printf("rank %u has learnt that rank %u has left\n", rank, 3 - rank);
}

static void loses(void)
{
	snd_cq *cq;
	snd_endpoint *ep;
	snd_result r;
	uint32_t n;
	OK(snd_cq_create(snd_job_adapter(job), 64, &cq));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	OK(snd_job_connect(job, 1 - rank, &config, LIMIT, &ep));
	OK(snd_endpoint_receive(ep, 1, NULL, 0));
	OK(snd_job_barrier(job, LIMIT)); /* a relay of one side could otherwise end before the other side has connected */
	say_ready();
	OK(snd_cq_wait(cq, &r, 1, LIMIT, &n));
	CHECK(r.status == SND_CANCELED);
	CHECK(snd_endpoint_error(ep) == SND_CONNECTION_ABORTED);
	printf("%s\n", snd_last_error());
	CHECK(fflush(stdout) == 0);
	OK(snd_job_close(job));
}

static void hears(void)
{
	join(0);
	CHECK(snd_job_wait_end(job, 0) == SND_IO_TIMEOUT);
	say_ready();
	for (int i = 0; i < 2; i++)
		CHECK(snd_job_wait_end(job, LIMIT) == SND_CONNECTION_ABORTED);
	printf("%s\n", snd_last_error());
	const snd_status s = snd_job_close(job);
	CHECK(s == SND_SUCCESS || s == SND_CONNECTION_ABORTED);
}

static void *abort_soon(void *unused)
{
	(void)unused;
	nanosleep(&(struct timespec){0, 200000000}, NULL); /* rank 0 waits in snd_job_close */
	snd_job_abort(NULL, 7, "the disk is full");
}

/* await_departure waits until rank 0 has left the job. */
static void await_departure(void)
{
	snd_cq *cq;
	snd_endpoint *ep;
	OK(snd_cq_create(snd_job_adapter(job), 64, &cq));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	snd_status s;
	while ((s = snd_job_connect(job, 0, &config, LIMIT, &ep)) == SND_CONNECTION_REFUSED) /* while the rank closes the job */
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	CHECK(s == SND_HOST_UNREACHABLE);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 2);
	if (strcmp(argv[1], "talks") == 0) {
		talks();
		return 0;
	}
	if (strcmp(argv[1], "mistakes") == 0) {
		mistakes();
		return 0;
	}
	if (strcmp(argv[1], "refused") == 0) {
		const char *fd = getenv("PMI_FD");
		CHECK(fd == NULL || dup(atoi(fd)) >= 0); /* else the launcher could end this process before it has printed */
		const char *limit = getenv("TEST_LIMIT"); /* in seconds */
		snd_status s = snd_job_init(test_options(), limit != NULL ? (int64_t)(atof(limit) * SECOND) : LIMIT, &job);
		printf("%s: %s\n", snd_status_name(s), snd_last_error());
		CHECK(fflush(stdout) == 0);
		return s == SND_SUCCESS;
	}
	if (strcmp(argv[1], "hears") == 0) {
		hears();
		return 0;
	}
	join(1);
	if (strcmp(argv[1], "loses") == 0) {
		loses();
		return 0;
	}
	if (strcmp(argv[1], "leaves first") == 0) {
		OK(snd_job_barrier(job, LIMIT));
		pthread_t thread;
		if (rank == 0) {
			if (argc > 2)
				CHECK(pthread_create(&thread, NULL, abort_soon, NULL) == 0);
			snd_status s = snd_job_close(job);
			printf("%s: %s\n", snd_status_name(s), snd_last_error());
			return 0;
		}
		await_departure();
		say_ready();
		for (;;)
			pause();
	}
	say_ready();
	if (strcmp(argv[1], "departs") == 0) {
		departs();
		return 0;
	}
	if (strcmp(argv[1], "barriers") == 0) {
		snd_status s;
		while ((s = snd_job_barrier(job, LIMIT)) == SND_SUCCESS)
			nanosleep(&(struct timespec){0, 1000000}, NULL);
		CHECK(s == SND_CONNECTION_ABORTED);
		CHECK(snd_job_barrier(job, LIMIT) == SND_INVALID_DEVICE_STATE);
		OK(snd_job_close(job));
		return 0;
	}
	if (strcmp(argv[1], "aborts") == 0) {
		OK(snd_job_barrier(job, LIMIT)); /* all have said that they are ready */
		if (argc > 2 && (uint32_t)atoi(argv[2]) == rank)
			snd_job_abort(job, 7, "the disk is full");
	}
	if (strcmp(argv[1], "leaves") == 0) {
		OK(snd_job_barrier(job, LIMIT)); /* all have said that they are ready */
		if (argc > 2 && (uint32_t)atoi(argv[2]) == rank) {
			OK(snd_job_close(job));
			printf("left\n");
			return 0;
		}
	}
	for (;;)
		pause();
}

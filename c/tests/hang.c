/* A rank of a job that hangs, so that the report of ndrun can be checked: test_hang HOW. With "abort" or "lost", rank 1 ends the job
 * instead. hang.sh and the tests of launchers in Go start it. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static snd_job *job;
static snd_cq *cq;
static snd_endpoint *ep;
static uint32_t rank;
static snd_sge sge;

static int receive_posted(void)
{
	OK(snd_endpoint_receive(ep, 1, &sge, 1));
	return 1;
}

static void wait_forever(void)
{
	snd_result r;
	uint32_t n;
	(void)snd_cq_wait(cq, &r, 1, SND_FOREVER, &n);
}

static void barrier(void) { (void)snd_job_barrier(job, SND_FOREVER); }

static void crossed(void)
{
	if (rank == 1 && receive_posted())
		wait_forever();
	barrier(); /* and would send then */
}

static void polls(void)
{
	snd_result r;
	if (rank == 1 && receive_posted())
		while (snd_cq_poll(cq, &r, 1) == 0) {
		}
	barrier();
}

static void lost_notify(void)
{
	if (rank == 0)
		receive_posted();
	barrier();
	if (rank == 0)
		(void)snd_cq_notify(cq, SND_NOTIFY_SOLICITED, SND_FOREVER);
	OK(snd_endpoint_send(ep, 1, &sge, 1, 0)); /* not solicited */
	barrier();
}

static void missing_receive(void)
{
	if (rank == 0)
		wait_forever();
	OK(snd_endpoint_send(ep, 1, &sge, 1, 0));
	wait_forever();
	barrier();
}

static void computes(void)
{
	if (rank == 1)
		for (;;)
			nanosleep(&(struct timespec){1, 0}, NULL);
	barrier();
}

/* The wait before has been on the page. */
static void computes_later(void)
{
	if (rank == 0)
		nanosleep(&(struct timespec){1, 0}, NULL);
	barrier();
	computes();
}

static void connects(void)
{
	snd_endpoint *other;
	snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	if (rank == 0)
		(void)snd_job_connect(job, 1, &config, SND_FOREVER, &other);
	barrier();
}

static void aborts(void)
{
	barrier();
	if (rank == 1)
		snd_job_abort(NULL, 7, "there is nothing to do");
	barrier(); /* fails when rank 1 has gone */
	for (;;)
		nanosleep(&(struct timespec){1, 0}, NULL); /* until the launcher ends it */
}

/* Rank 1 closes its endpoint and fails a moment later. Rank 0 fails because of that, and is the first to exit. */
static void lost(void)
{
	barrier();
	if (rank == 1) {
		OK(snd_endpoint_close(ep));
		nanosleep(&(struct timespec){0, 10000000}, NULL);
		_exit(7); /* not past the checks of a sanitizer */
	}
	snd_result r;
	while (snd_endpoint_error(ep) == SND_SUCCESS)
		(void)snd_cq_poll(cq, &r, 1);
	_exit(6);
}

/* late fails in snd_job_init of rank 0, because rank 1 is late. Rank 0 is slow to say so, and Hydra ends both. */
static int late(void)
{
	if (strcmp(getenv("PMI_RANK"), "0") != 0)
		nanosleep(&(struct timespec){60, 0}, NULL);
	const snd_status s = snd_job_init(test_options(), INT64_C(3000000000), &job); /* Hydra must have answered: it fails if a rank leaves meanwhile */
	nanosleep(&(struct timespec){1, 0}, NULL);
	printf("printed by the program: %s\n", snd_status_name(s));
	return 1;
}

/* init_only prints the error of snd_job_init, and ends well in any case. */
static int init_only(void)
{
	if (snd_job_init(test_options(), INT64_C(30000000000), &job) != SND_SUCCESS) {
		puts(snd_last_error());
		return 0;
	}
	return snd_job_close(job) != SND_SUCCESS;
}

static const struct {
	const char *name;
	void (*run)(void);
} ways[] = {{"crossed", crossed}, {"polls", polls}, {"lost notify", lost_notify}, {"missing receive", missing_receive}, {"computes", computes},
	{"computes later", computes_later}, {"connects", connects}, {"abort", aborts}, {"lost", lost}};

int main(int argc, char **argv)
{
	snd_mr *mr;
	CHECK(argc == 2);
	if (strcmp(argv[1], "late") == 0)
		return late();
	if (strcmp(argv[1], "init") == 0)
		return init_only();
	OK(snd_job_init(test_options(), INT64_C(30000000000), &job));
	rank = snd_job_rank(job);
	OK(snd_cq_create(snd_job_adapter(job), 16, &cq));
	OK(snd_mr_allocate(snd_job_adapter(job), 4096, SND_ALLOW_LOCAL_WRITE, &mr));
	sge = (snd_sge){snd_mr_buffer(mr), 8, snd_mr_local_token(mr)};
	if (rank < 2) {
		snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
		OK(snd_job_connect(job, 1 - rank, &config, INT64_C(30000000000), &ep));
	}
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
		if (strcmp(ways[i].name, argv[1]) == 0)
			ways[i].run();
	return 0;
}

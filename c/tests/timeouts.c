/* Limits of time: a call with several steps has one limit for all of them. A call whose time is over
 * does no harm to other ranks. */
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define SECOND INT64_C(1000000000)
enum { LENGTH = 4096 };

static char name[64];
static snd_job *jobs[2];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *join_other(void *unused)
{
	(void)unused;
	OK(snd_job_join(name, 1, 2, NULL, 30 * SECOND, &jobs[1]));
	return NULL;
}

/* join_both makes both ranks of a job, in one process. */
static void join_both(const char *test)
{
	pthread_t thread;
	snprintf(name, sizeof name, "timeouts.%s.%ld", test, (long)getpid());
	CHECK(pthread_create(&thread, NULL, join_other, NULL) == 0);
	OK(snd_job_join(name, 0, 2, NULL, 30 * SECOND, &jobs[0]));
	CHECK(pthread_join(thread, NULL) == 0);
}

static void close_both(void)
{
	OK(snd_job_close(jobs[0]));
	OK(snd_job_close(jobs[1]));
}

/* test_exchange: the bytes of a rank whose time is over stay in place, because another rank may be about to copy them. */
static void test_exchange(void)
{
	static unsigned char mine[2][LENGTH], all[2][2 * LENGTH];
	join_both("exchange");
	memset(mine[0], 1, LENGTH);
	memset(mine[1], 2, LENGTH);
	CHECK(snd_job_exchange(jobs[0], mine[0], LENGTH, all[0], SECOND / 10) == SND_IO_TIMEOUT);
	CHECK(snd_job_exchange(jobs[1], mine[1], LENGTH, all[1], SECOND / 10) == SND_IO_TIMEOUT); /* in the second of its two steps */
	CHECK(memcmp(all[1], mine[0], LENGTH) == 0 && memcmp(all[1] + LENGTH, mine[1], LENGTH) == 0);
	close_both();
}

/* request_late asks rank 0 for a connection, and never completes it. */
static void *request_late(void *unused)
{
	(void)unused;
	const unsigned char rank[4] = {1};
	const snd_connect_params p = {.private_data = rank, .private_data_length = sizeof rank};
	snd_adapter *adapter = snd_job_adapter(jobs[1]);
	snd_cq *cq;
	snd_endpoint *ep;
	snd_connector *c;
	OK(snd_cq_create(adapter, 16, &cq));
	OK(snd_endpoint_create(adapter, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, &ep));
	OK(snd_connector_create(adapter, &c));
	nanosleep(&(struct timespec){2, 0}, NULL);
	OK(snd_connector_connect(c, ep, (snd_address){snd_fabric_address(snd_job_fabric(jobs[0])).host, 1, 0}, &p, 10 * SECOND));
	return NULL;
}

static void test_connect(void)
{
	pthread_t thread;
	snd_cq *cq;
	snd_endpoint *ep;
	join_both("connect");
	OK(snd_cq_create(snd_job_adapter(jobs[0]), 16, &cq));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	CHECK(snd_job_connect(jobs[0], 1, &config, 0, &ep) == SND_IO_TIMEOUT);
	CHECK(pthread_create(&thread, NULL, request_late, NULL) == 0);
	const double began = now();
	CHECK(snd_job_connect(jobs[0], 1, &config, 3 * SECOND, &ep) == SND_IO_TIMEOUT);
	CHECK(now() - began < 4.5);
	CHECK(pthread_join(thread, NULL) == 0);
	close_both();
}

/* test_join joins a fabric whose only member does not answer. */
static void test_join(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "softnd-fabric-%lu-silent.%ld", (unsigned long)geteuid(), (long)getpid());
	const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(bind(s, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0 && listen(s, 100) == 0);
	snprintf(name, sizeof name, "silent.%ld", (long)getpid());
	const double began = now();
	CHECK(snd_job_join(name, 0, 2, NULL, SECOND, &jobs[0]) == SND_IO_TIMEOUT);
	CHECK(now() - began < 5);
	close(s);
}

int main(void)
{
	test_exchange();
	test_connect();
	test_join();
	puts("ok");
	return 0;
}

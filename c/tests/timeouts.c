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
	OK(snd_job_join(name, 1, 2, MANUAL, 30 * SECOND, &jobs[1]));
	return NULL;
}

/* join_both makes both ranks of a job, in one process. */
static void join_both(const char *test)
{
	pthread_t thread;
	snprintf(name, sizeof name, "timeouts.%s.%ld", test, (long)getpid());
	CHECK(pthread_create(&thread, NULL, join_other, NULL) == 0);
	OK(snd_job_join(name, 0, 2, MANUAL, 30 * SECOND, &jobs[0]));
	CHECK(pthread_join(thread, NULL) == 0);
}

static void close_both(void)
{
	OK(snd_job_close(jobs[0]));
	OK(snd_job_close(jobs[1]));
}

/* says checks the status and the text of the latest failure. */
static void says(snd_status s, snd_status want, const char *text)
{
	if (s != want || strstr(snd_last_error(), text) == NULL) {
		fprintf(stderr, "%s: %s, wanted \"%s\"\n", snd_status_name(s), snd_last_error(), text);
		exit(1);
	}
}

/* test_texts: a call whose time is over says what did not happen, and within which time. */
static void test_texts(void)
{
	snd_fabric *f;
	snd_adapter *a;
	snd_cq *cq;
	snd_srq *srq;
	snd_listener *l;
	snd_connector *c;
	snd_endpoint *ep;
	snd_address at;
	snd_result r;
	uint32_t taken;
	OK(snd_fabric_create(0, UINT64_C(1) << 30, MANUAL, &f));
	OK(snd_adapter_open(f, &a));
	OK(snd_cq_create(a, 4, &cq));
	OK(snd_srq_create(a, &(snd_srq_config){.depth = 4, .max_sge = 1}, &srq));
	OK(snd_listener_create(a, &l));
	OK(snd_listener_bind(l, (snd_address){0}));
	OK(snd_listener_listen(l, 0));
	OK(snd_listener_address(l, &at));
	OK(snd_connector_create(a, &c));
	OK(snd_endpoint_create(a, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, &ep));
	says(snd_cq_wait(cq, &r, 1, 2000000, &taken), SND_IO_TIMEOUT, "wait: no result within 2 ms");
	says(snd_cq_wait(cq, &r, 1, 0, &taken), SND_IO_TIMEOUT, "wait: no result within 0 s");
	says(snd_cq_notify(cq, SND_NOTIFY_ERRORS, 1500000), SND_IO_TIMEOUT, "notify: no result of this type within 1.5 ms");
	says(snd_srq_notify(srq, 10), SND_IO_TIMEOUT, "notify: not fewer receives than the threshold within 10 ns");
	says(snd_listener_request(l, 3000, &c), SND_IO_TIMEOUT, "get connection request: no request within 3 us");
	OK(snd_connector_create(a, &c));
	char text[80];
	snprintf(text, sizeof text, "connect: no answer from port %u within 20 ms", (unsigned)at.port);
	says(snd_connector_connect(c, ep, at, NULL, 20000000), SND_IO_TIMEOUT, text);
	OK(snd_fabric_close(f));
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

static int64_t limit; /* of rank 0's call */
static snd_status requested;

/* request_late asks rank 0 for a connection after two thirds of the limit, and never completes it. */
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
	nanosleep(&(struct timespec){limit / SECOND * 2 / 3, 0}, NULL);
	requested = snd_connector_connect(c, ep, (snd_address){snd_fabric_address(snd_job_fabric(jobs[0])).host, 1, 0}, &p, 10 * SECOND);
	return NULL;
}

/* connects returns how long rank 0 tries to connect with a rank that does not complete. */
static double connects(void)
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
	CHECK(snd_job_connect(jobs[0], 1, &config, limit, &ep) == SND_IO_TIMEOUT);
	const double took = now() - began;
	CHECK(pthread_join(thread, NULL) == 0);
	close_both();
	return took;
}

/* test_connect: with a limit for each step, the call would take 5/3 of its limit. A busy machine may be late; then the limit grows. */
static void test_connect(void)
{
	for (limit = 3 * SECOND; connects() > 1.5 * (double)limit / SECOND || requested != SND_SUCCESS; limit *= 4)
		CHECK(limit < 40 * SECOND);
}

/* test_left connects to a rank that has left. */
static void test_left(void)
{
	snd_cq *cq;
	snd_endpoint *ep;
	join_both("left");
	OK(snd_cq_create(snd_job_adapter(jobs[1]), 16, &cq));
	const snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
	OK(snd_job_close(jobs[0]));
	CHECK(snd_job_connect(jobs[1], 0, &config, SECOND, &ep) == SND_HOST_UNREACHABLE && ep == NULL);
	CHECK(strcmp(snd_last_error(), "connect: rank 0 has died or left") == 0);
	OK(snd_job_close(jobs[1]));
}

/* test_join joins a fabric whose only member does not answer. */
static void test_join(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "softnd-fabric-%lu-silent.%ld", (unsigned long)geteuid(), (long)getpid());
	const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(bind(s, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0 && listen(s, 100) == 0);
	snprintf(name, sizeof name, "silent.%ld", (long)getpid());
	double began;
	int tries = 0;
	do { /* a busy machine may be late */
		CHECK(tries++ < 5);
		began = now();
		CHECK(snd_job_join(name, 0, 2, MANUAL, SECOND, &jobs[0]) == SND_IO_TIMEOUT);
	} while (now() - began > 5);
	close(s);
}

int main(void)
{
	test_texts();
	test_exchange();
	test_connect();
	test_left();
	test_join();
	puts("ok");
	return 0;
}

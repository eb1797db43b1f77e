/* Programs with manual progress that poll rarely, or poll without taking results. The bounds are numbers of polls. */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "endpoint/cq.h"
#include "endpoint/progress.h"
#include "linux/clock.h"
#include "two_members.h"

enum { MANY = 200, LENGTH = 4 * SND_QUANTUM, LIMIT = 60 };

static void open_side(struct side *s)
{
	OK(snd_adapter_open(s->fabric, &s->adapter));
	OK(snd_cq_create(s->adapter, 64, &s->cq));
	OK(snd_endpoint_create(s->adapter, &(snd_endpoint_config){.receive_cq = s->cq, .initiator_cq = s->cq}, &s->ep));
}

/* pause_program is the work of a program between two polls. */
static void pause_program(void) { nanosleep(&(struct timespec){0, 5000000}, NULL); }

/* has_ended reports whether the child has ended its connection: it has died, or has written so. */
static bool has_ended(pid_t child, int said)
{
	siginfo_t info = {0};
	struct pollfd p = {said, POLLIN, 0};
	return poll(&p, 1, 0) == 1 || (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child);
}

/* polls_until_result polls rarely until there is a result, and returns the number of polls since the child has ended the connection. */
static int polls_until_result(struct side *s, snd_status want, pid_t child, int said)
{
	snd_result r;
	int polls = 0;
	for (const int64_t deadline = snd_clock() + LIMIT * SECOND;; pause_program()) {
		polls += has_ended(child, said);
		if (snd_cq_poll(s->cq, &r, 1) == 1)
			break;
		CHECK(polls < MANY && snd_clock() < deadline);
	}
	CHECK(r.status == want);
	return polls;
}

/* In the child: the passive side, which ends the connection as it is told. */
static void run_child(const char *name, const char *how, int ready)
{
	alarm(500); /* if the other process ends */
	struct side s;
	snd_address at;
	OK(snd_fabric_open(name, 0, 1 << 28, -1, MANUAL, &s.fabric));
	open_side(&s);
	OK(snd_listener_create(s.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	OK(snd_listener_address(listener, &at));
	CHECK(write(ready, &at, sizeof at) == sizeof at);
	OK(snd_listener_request(listener, 20 * SECOND, &s.connector));
	OK(snd_connector_accept(s.connector, s.ep, NULL, 20 * SECOND));
	snd_result r;
	uint32_t n;
	OK(snd_endpoint_receive(s.ep, 1, &(snd_sge){0}, 0));
	OK(snd_cq_wait(s.cq, &r, 1, 20 * SECOND, &n)); /* the peer has posted its Receive */
	CHECK(r.status == SND_SUCCESS);
	if (strcmp(how, "close") == 0) {
		OK(snd_endpoint_close(s.ep));
		OK(snd_fabric_close(s.fabric));
	} else if (strcmp(how, "violate") == 0) {
		snd_mr *mr;
		OK(snd_mr_allocate(s.adapter, 4096, SND_ALLOW_LOCAL_WRITE, &mr));
		OK(snd_endpoint_write(s.ep, 1, &(snd_sge){snd_mr_buffer(mr), 8, snd_mr_local_token(mr)}, 1, 4096, 5, 0));
		(void)snd_cq_poll(s.cq, &r, 1);
		CHECK(write(ready, "", 1) == 1);
		for (;;)
			pause();
	} else {
		raise(SIGKILL);
	}
}

/* test_end is a process of its own: a child of a process that uses the library cannot use it. */
static void test_end(const char *how)
{
	char name[60];
	int ends[2], status;
	struct side s;
	snd_address at;
	snprintf(name, sizeof name, "polls-%d-%s", (int)getpid(), how);
	CHECK(pipe(ends) == 0);
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		run_child(name, how, ends[1]);
		_exit(0);
	}
	CHECK(read(ends[0], &at, sizeof at) == sizeof at);
	OK(snd_fabric_open(name, 0, 1 << 28, -1, MANUAL, &s.fabric));
	open_side(&s);
	OK(snd_connector_create(s.adapter, &s.connector));
	OK(snd_connector_connect(s.connector, s.ep, at, NULL, 20 * SECOND));
	OK(snd_connector_complete(s.connector));
	OK(snd_endpoint_receive(s.ep, 2, &(snd_sge){0}, 0));
	OK(snd_endpoint_send(s.ep, 3, &(snd_sge){0}, 0, 0));
	(void)polls_until_result(&s, SND_SUCCESS, child, ends[0]);
	printf("%s: noticed in %d polls\n", how, polls_until_result(&s, SND_CANCELED, child, ends[0]));
	CHECK(snd_endpoint_error(s.ep) != SND_SUCCESS);
	OK(snd_fabric_close(s.fabric));
	(void)kill(child, SIGKILL);
	CHECK(waitpid(child, &status, 0) == child && (WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : status == 0));
	close(ends[0]);
	close(ends[1]);
	fflush(stdout);
	_exit(0);
}

/* test_without_results has the members make progress by polls that take no results. The owner of the memory copies. */
static void test_without_results(void)
{
	snd_mr *from, *to;
	snd_result r;
	open_members_with((snd_fabric_options){.progress = SND_PROGRESS_MANUAL, .executor = SND_EXECUTOR_TARGET});
	connect_members(NULL);
	OK(snd_mr_allocate(a.adapter, LENGTH, SND_ALLOW_LOCAL_WRITE, &from));
	OK(snd_mr_allocate(b.adapter, LENGTH, SND_ALLOW_REMOTE_WRITE, &to));
	unsigned char *source = snd_mr_buffer(from), *sink = snd_mr_buffer(to);
	memset(source, 7, LENGTH);
	OK(snd_endpoint_receive(b.ep, 1, &(snd_sge){0}, 0));
	OK(snd_endpoint_write(a.ep, 2, &(snd_sge){source, LENGTH, snd_mr_local_token(from)}, 1, snd_mr_address(to), snd_mr_remote_token(to), 0));
	OK(snd_endpoint_send(a.ep, 3, &(snd_sge){0}, 0, 0));
	for (int i = 0; i < MANY; i++) {
		CHECK(snd_cq_poll(a.cq, NULL, 0) == 0);
		CHECK(snd_cq_poll(b.cq, NULL, 0) == 0);
	}
	CHECK(sink[LENGTH - 1] == 7);
	CHECK(snd_cq_poll(b.cq, &r, 1) == 1 && r.request_context == 1 && r.status == SND_SUCCESS);
	CHECK(snd_cq_poll(a.cq, &r, 1) == 1 && r.request_context == 2 && r.status == SND_SUCCESS);
	CHECK(snd_cq_poll(a.cq, &r, 1) == 1 && r.request_context == 3 && r.status == SND_SUCCESS);
	CHECK((snd_status)snd_cq_poll(a.cq, NULL, 1) == SND_INVALID_PARAMETER && strstr(snd_last_error(), "results is NULL") != NULL);
	close_members();
}

static snd_status waits[2];
static snd_result before;

static void *wait_twice(void *unused)
{
	(void)unused;
	uint32_t n;
	snd_result none;
	waits[0] = snd_cq_wait(b.cq, &before, 1, 20 * SECOND, &n);
	waits[1] = snd_cq_wait(b.cq, &none, 1, 20 * SECOND, &n);
	return NULL;
}

/* test_overrun_in_a_wait: a wait takes the results from before the overrun first, as a poll does. */
static void test_overrun_in_a_wait(void)
{
	pthread_t thread;
	open_members_with((snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_MANUAL});
	connect_members(NULL);
	OK(snd_endpoint_receive(b.ep, 7, &(snd_sge){0}, 0));
	CHECK(pthread_create(&thread, NULL, wait_twice, NULL) == 0);
	nanosleep(&(struct timespec){0, 50000000}, NULL); /* for it to begin */
	CHECK(snd_enter(SND_OBJECT(b.cq), SND_TYPE_CQ)); /* it sees nothing of what follows before the end */
	OK(snd_endpoint_send(a.ep, 3, &(snd_sge){0}, 0, 0));
	while (b.cq->head == b.cq->tail)
		snd_progress(b.ep);
	snd_cq_overrun(b.cq);
	snd_unlock(b.fabric);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(waits[0] == SND_SUCCESS && before.request_context == 7 && before.status == SND_SUCCESS && waits[1] == SND_BUFFER_OVERFLOW);
	close_members();
}

int main(void)
{
	static const char *const ways[] = {"close", "violate", "die"};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		int status;
		const pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			test_end(ways[i]);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	test_without_results();
	test_overrun_in_a_wait();
	puts("ok");
	return 0;
}

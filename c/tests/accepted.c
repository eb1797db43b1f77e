/* The active side completes a connection, writes, closes it and leaves before snd_connector_accept has returned. The accept
 * succeeds, and the end of the connection is reported as an end. */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/fabric.h"
#include "two_members.h"

static int pipe_ends[2];
static _Atomic int thread; /* that accepts */
static _Atomic int stays;

/* stay keeps the thread that accepts where the signal has interrupted it. */
static void stay(int sig)
{
	char c;
	(void)sig;
	stays = 1;
	if (read(pipe_ends[0], &c, 1) != 1)
		_exit(1);
}

static void *accept_and_check(void *unused)
{
	(void)unused;
	thread = (int)syscall(SYS_gettid);
	OK(snd_listener_request(listener, 10 * SECOND, &b.connector));
	OK(snd_connector_accept(b.connector, b.ep, NULL, 10 * SECOND));
	return NULL;
}

/* sleeps reports whether the thread that accepts sleeps. */
static int sleeps(void)
{
	char path[64], state = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
	FILE *f = fopen(path, "r");
	CHECK(f != NULL && fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
	fclose(f);
	return state == 'S';
}

int main(void)
{
	pthread_t accepting;
	snd_address to;
	snd_mr *source, *sink;
	CHECK(pipe(pipe_ends) == 0);
	CHECK(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = stay, .sa_flags = SA_RESTART}, NULL) == 0);
	open_members_with((snd_fabric_options){.progress = SND_PROGRESS_MANUAL});
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_cq_create(b.adapter, 64, &b.cq));
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq}, &a.ep));
	OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq}, &b.ep));
	OK(snd_mr_allocate(a.adapter, 64, SND_ALLOW_LOCAL_WRITE, &source));
	OK(snd_mr_allocate(b.adapter, 64, SND_ALLOW_REMOTE_WRITE, &sink));
	memcpy(snd_mr_buffer(source), "written", 8);
	OK(snd_listener_address(listener, &to));
	OK(snd_connector_create(a.adapter, &a.connector));
	CHECK(pthread_create(&accepting, NULL, accept_and_check, NULL) == 0);
	OK(snd_connector_connect(a.connector, a.ep, to, NULL, 10 * SECOND));
	snd_lock(b.fabric); /* the thread that accepts must not hold it meanwhile, and its sleep is short */
	while (!sleeps())
		usleep(1000);
	CHECK(pthread_kill(accepting, SIGUSR1) == 0);
	while (!stays)
		usleep(1000);
	snd_unlock(b.fabric);
	OK(snd_connector_complete(a.connector));
	const snd_sge e = {snd_mr_buffer(source), 8, snd_mr_local_token(source)};
	OK(snd_endpoint_write(a.ep, 1, &e, 1, snd_mr_address(sink), snd_mr_remote_token(sink), 0));
	CHECK(next_result(a.cq).status == SND_SUCCESS);
	OK(snd_endpoint_close(a.ep));
	OK(snd_fabric_close(a.fabric));
	while (snd_endpoint_error(b.ep) == SND_SUCCESS) { /* until the departure is handled */
		OK(snd_fabric_progress(b.fabric));
		usleep(1000);
	}
	CHECK(write(pipe_ends[1], "", 1) == 1);
	CHECK(pthread_join(accepting, NULL) == 0);
	CHECK(snd_endpoint_error(b.ep) == SND_CONNECTION_ABORTED);
	CHECK(strcmp(snd_mr_buffer(sink), "written") == 0);
	OK(snd_fabric_close(b.fabric));
	return 0;
}

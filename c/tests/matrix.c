/* Every call of the header in the situations that programs overlook: standard descriptors closed, as in a daemon; few
 * descriptors left; another thread that closes an object. No call crashes, and the output of the program reaches no
 * descriptor of the library.
 *
 * Each situation is a process of its own: this program with arguments. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "few_descriptors.h"
#include "shm/fabric.h"

enum { LOG = 100, STANDARD = 3, ARENA = 1 << 28 };

static snd_fabric_options options;
static snd_fabric *peer_fabric; /* of the same arena as fabric */
static snd_adapter *peer_adapter;
static snd_cq *peer_cq;
static snd_endpoint *peer;
static snd_listener *peer_listener;
static snd_connector *peer_connector;

static void *accept_one(void *unused)
{
	(void)unused;
	OK(snd_listener_request(peer_listener, 10 * SECOND, &peer_connector));
	OK(snd_connector_accept(peer_connector, peer, NULL, 10 * SECOND));
	return NULL;
}

/* open_all opens an object of each type, and a connection. The fabric is that of the job, or another one. */
static void open_all(int of_job)
{
	pthread_t t;
	char name[40];
	snprintf(name, sizeof name, "matrix-%d", (int)getpid());
	OK(snd_job_join(name, 0, 1, &options, 10 * SECOND, &job));
	if (of_job)
		fabric = snd_job_fabric(job);
	else
		OK(snd_fabric_create(0, ARENA, &options, &fabric));
	OK(snd_fabric_attach(snd_fabric_descriptor(fabric), -1, &options, &peer_fabric));
	OK(snd_adapter_open(fabric, &adapter));
	OK(snd_adapter_open(peer_fabric, &peer_adapter));
	OK(snd_mr_allocate(adapter, 4096, SND_ALLOW_REMOTE_WRITE, &mr));
	OK(snd_mapping_create(mr, snd_mr_buffer(mr), 4096, &mapping));
	OK(snd_window_create(adapter, &window));
	OK(snd_cq_create(adapter, 64, &cq));
	OK(snd_cq_create(peer_adapter, 64, &peer_cq));
	OK(snd_srq_create(adapter, &(snd_srq_config){.depth = 4}, &srq));
	OK(snd_endpoint_create(adapter, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, &endpoint));
	OK(snd_endpoint_create(peer_adapter, &(snd_endpoint_config){.receive_cq = peer_cq, .initiator_cq = peer_cq}, &peer));
	OK(snd_listener_create(adapter, &listener));
	OK(snd_listener_create(peer_adapter, &peer_listener));
	OK(snd_listener_bind(peer_listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(peer_listener, 0));
	OK(snd_listener_address(peer_listener, &address));
	OK(snd_connector_create(adapter, &connector));
	CHECK(pthread_create(&t, NULL, accept_one, NULL) == 0);
	OK(snd_connector_connect(connector, endpoint, address, NULL, 10 * SECOND));
	OK(snd_connector_complete(connector));
	CHECK(pthread_join(t, NULL) == 0);
	address = (snd_address){0, 0, 0};
	sge = (snd_sge){snd_mr_buffer(mr), 8, snd_mr_local_token(mr)};
}

/* close_all closes what the test has left open. */
static void close_all(void)
{
	OK(snd_fabric_close(peer_fabric));
	(void)snd_fabric_close(fabric);
	(void)snd_job_close(job);
}

static int closes(const struct row *r) { return strcmp(r->name + strlen(r->name) - strlen("_close"), "_close") == 0; }

/* The calls without a handle, and the close of what they have made. */
static snd_status close_fabric(snd_status s, snd_fabric **f)
{
	if (s == SND_SUCCESS)
		OK(snd_fabric_close(*f));
	return s;
}
static snd_status close_job(snd_status s, snd_job **j)
{
	if (s == SND_SUCCESS)
		OK(snd_job_close(*j));
	return s;
}
static int64_t patience = 10 * SECOND;
static const char *shared_name; /* of a fabric in which the parent is a member */
static snd_status try_create(void)
{
	snd_fabric *f;
	return close_fabric(snd_fabric_create(0, ARENA, &options, &f), &f);
}
static snd_status try_attach(void)
{
	snd_fabric *f;
	return close_fabric(snd_fabric_attach(snd_fabric_descriptor(fabric), -1, &options, &f), &f);
}
static snd_status try_open(void)
{
	snd_fabric *f;
	return close_fabric(snd_fabric_open(shared_name, 0, ARENA, -1, &options, &f), &f);
}
static snd_status try_join(void)
{
	snd_job *j;
	char name[40];
	snprintf(name, sizeof name, "matrix-join-%d", (int)getpid());
	return close_job(snd_job_join(name, 0, 1, &options, 10 * SECOND, &j), &j);
}
static snd_status try_init(void)
{
	snd_job *j;
	return close_job(snd_job_init(&options, patience, &j), &j);
}
static snd_status try_init_at_root(void)
{
	char root[40];
	snprintf(root, sizeof root, "127.0.0.1:%d", 20000 + (int)getpid() % 6000); /* other tests have other ports */
	CHECK(setenv("SOFTND_ROOT", root, 1) == 0 && setenv("SOFTND_SECRET", "0123456789abcdef", 1) == 0 && setenv("SOFTND_RANK", "0", 1) == 0 && setenv("SOFTND_SIZE", "1", 1) == 0);
	const snd_status s = try_init();
	CHECK(unsetenv("SOFTND_ROOT") == 0 && unsetenv("SOFTND_RANK") == 0 && unsetenv("SOFTND_SIZE") == 0);
	return s;
}
static snd_status try_texts(void)
{
	uint8_t bytes[SND_WINDOW_DESCRIPTOR_SIZE];
	snd_window_descriptor_encode(&descriptor, bytes);
	snd_window_descriptor_decode(bytes, &descriptor);
	return snd_status_name(SND_SUCCESS) != NULL && snd_last_error() != NULL && snd_version() != NULL ? SND_SUCCESS : SND_UNSUCCESSFUL;
}
static const struct maker {
	const char *name;
	snd_status (*try)(void);
} makers[] = {
	{"snd_fabric_create", try_create}, {"snd_fabric_attach", try_attach}, {"snd_fabric_open", try_open}, {"snd_job_join", try_join},
	{"snd_job_init", try_init}, {"snd_job_init at a root", try_init_at_root}, {"the calls about texts", try_texts},
};
enum { MAKERS = sizeof makers / sizeof makers[0] };

/* check_standard checks that the closed descriptors are closed. A thread of the library may just be moving one. */
static void check_standard(unsigned closed, const char *after)
{
	for (int d = 0; d < STANDARD; d++)
		for (int i = 0; (closed >> d & 1) != 0 && fcntl(d, F_GETFD) >= 0; i++) {
			if (i == 60000) {
				dprintf(LOG, "descriptor %d is in use after %s\n", d, after);
				_exit(1);
			}
			nanosleep(&(struct timespec){0, 1000000}, NULL);
		}
}

/* print prints what a program prints that does not know about its descriptors. */
static void print(unsigned closed)
{
	static const char line[] = "progress of the program: step 17 of 20000, residual 0.000123\n";
	for (int d = 0; d < STANDARD; d++)
		for (int i = 0; i < 300 && (closed >> d & 1) != 0; i++)
			CHECK(write(d, line, sizeof line - 1) < 0 && errno == EBADF);
}

static void check_transfer(void)
{
	snd_result r;
	uint32_t k;
	snd_mr *to;
	OK(snd_mr_allocate(peer_adapter, 4096, SND_ALLOW_REMOTE_WRITE, &to));
	memset(sge.buffer, 7, sge.length);
	OK(snd_endpoint_write(endpoint, 1, &sge, 1, snd_mr_address(to), snd_mr_remote_token(to), 0));
	OK(snd_cq_wait(cq, &r, 1, 10 * SECOND, &k));
	CHECK(r.status == SND_SUCCESS && memcmp(snd_mr_buffer(to), sge.buffer, sge.length) == 0);
}

static void run_closed(unsigned closed)
{
	for (int round = 0; round < 2; round++) {
		options.progress = round == 0 ? SND_PROGRESS_MANUAL : SND_PROGRESS_AUTO;
		open_all(0);
		check_standard(closed, "opening all");
		if (options.progress == SND_PROGRESS_AUTO) {
			OK(snd_cq_event_fd(cq, &fd));
			check_standard(closed, "snd_cq_event_fd");
		}
		for (int i = 0; i < MAKERS; i++) {
			OK(makers[i].try());
			check_standard(closed, makers[i].name);
		}
		print(closed);
		check_transfer();
		for (int closing = 0; closing < 2; closing++)
			for (int i = 0; i < ROWS; i++)
				if (closes(&rows[i]) == closing) {
					(void)rows[i].try(*rows[i].handle);
					check_standard(closed, rows[i].name);
				}
		close_all();
	}
	options.progress = SND_PROGRESS_AUTO;
	OK(snd_job_init(&options, 10 * SECOND, &job));
	snd_job_abort(job, 0x42, "the end of the test");
}

static void run_limit(void)
{
	for (int round = 0; round < 2; round++) {
		options.progress = round == 0 ? SND_PROGRESS_MANUAL : SND_PROGRESS_AUTO;
		open_all(0);
		for (int i = 0; i < MAKERS; i++) {
			const int before = descriptors();
			snd_status s = SND_SUCCESS;
			for (int more = 0; more < 24; more++) {
				limit_to(LOG, more);
				patience = more < 16 ? SECOND / 5 : 10 * SECOND;
				s = makers[i].try();
				limit_to(LOG, -1);
				CHECK(snd_status_name(s) != NULL && (s == SND_SUCCESS || snd_last_error()[0] != 0));
			}
			if (s != SND_SUCCESS)
				dprintf(LOG, "%s: %s\n", makers[i].name, snd_last_error());
			CHECK(s == SND_SUCCESS);
			/* An engine opens descriptors for a moment: it may have had one when they were counted before, and may have one now. */
			int after = descriptors();
			for (int wait = 0; wait < 10000 && after > before; wait++, after = descriptors())
				nanosleep(&(struct timespec){0, 1000000}, NULL);
			CHECK(after == before || (after < before && round == 1));
		}
		for (int closing = 0; closing < 2; closing++)
			for (int i = 0; i < ROWS; i++)
				if (closes(&rows[i]) == closing)
					for (int more = 0; more < 3; more++) {
						limit_to(LOG, more);
						(void)rows[i].try(*rows[i].handle);
						limit_to(LOG, -1);
					}
		close_all();
	}
}

/* The call that a thread makes, and the one that closes an object meanwhile. */
static const struct row *call, *closer;
static snd_half calls, closed_it;

static void *repeat(void *unused)
{
	(void)unused;
	for (int late = 0; late < 3; late += snd_load32(&closed_it) != 0) {
		(void)call->try(*call->handle);
		snd_store_full32(&calls, snd_load32(&calls) + 1);
	}
	return NULL;
}

/* sleeps reports whether a thread of this process sleeps in the kernel. */
static int sleeps(uint32_t thread)
{
	char path[64], state = 0;
	snprintf(path, sizeof path, "/proc/self/task/%u/stat", thread);
	FILE *f = fopen(path, "r");
	CHECK(f != NULL && fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
	fclose(f);
	return state == 'S';
}

static snd_half thread_id, returned;
static snd_status got;

static void *call_once(void *unused)
{
	(void)unused;
	snd_store_full32(&thread_id, (uint32_t)syscall(SYS_gettid));
	got = call->try(*call->handle);
	snd_store_full32(&returned, 1);
	return NULL;
}

/* run_locked holds the lock of the fabric. No call may use an object before it has the lock: a close could free the object
 * meanwhile. */
static void run_locked(void)
{
	options.threading = SND_THREAD_SAFE;
	for (int i = 0; i < ROWS; i++) {
		pthread_t t;
		call = &rows[i];
		open_all(1);
		snd_store_full32(&thread_id, 0);
		snd_store_full32(&returned, 0);
		struct snd_fabric *f = (struct snd_fabric *)fabric;
		snd_lock(f);
		CHECK(pthread_create(&t, NULL, call_once, NULL) == 0);
		while (!snd_load32(&thread_id))
			nanosleep(&(struct timespec){0, 100000}, NULL);
		for (int asleep = 0; asleep < 3 && !snd_load32(&returned); asleep = sleeps(snd_load32(&thread_id)) ? asleep + 1 : 0)
			nanosleep(&(struct timespec){0, 100000}, NULL);
		if (snd_load32(&returned) && got == SND_SUCCESS) {
			dprintf(LOG, "%s does not wait for the lock of the fabric\n", call->name);
			_exit(1);
		}
		snd_unlock(f);
		CHECK(pthread_join(t, NULL) == 0);
		close_all();
	}
}

static void say_where(int signal)
{
	dprintf(LOG, "signal %d in %s against %s\n", signal, call->name, closer->name);
	_exit(1);
}

static void run_race(int of_job)
{
	options.threading = SND_THREAD_SAFE;
	(void)signal(SIGSEGV, say_where);
	(void)signal(SIGBUS, say_where);
	(void)signal(SIGALRM, say_where);
	for (int k = 0; k < ROWS; k++) {
		if (!closes(&rows[k]))
			continue;
		closer = &rows[k];
		for (int i = 0; i < ROWS; i++) {
			pthread_t t;
			call = &rows[i];
			alarm(500);
			open_all(of_job);
			snd_store_full32(&calls, 0);
			snd_store_full32(&closed_it, 0);
			CHECK(pthread_create(&t, NULL, repeat, NULL) == 0);
			while (snd_load32(&calls) < 3)
				nanosleep(&(struct timespec){0, 10000}, NULL);
			(void)closer->try(*closer->handle);
			snd_store_full32(&closed_it, 1);
			CHECK(pthread_join(t, NULL) == 0);
			close_all();
		}
	}
}

/* run runs a situation in a process with some standard descriptors closed. */
static void run(const char *program, const char *situation, const char *argument, unsigned closed, int code)
{
	int status;
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		for (int i = 0; i < STANDARD; i++)
			if ((closed >> i & 1) != 0)
				close(i);
		execl("/proc/self/exe", program, situation, argument, (char *)NULL);
		_exit(127);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != code) {
		fprintf(stderr, "%s, standard descriptors %#x closed: status %#x, want code %d\n", situation, closed, status, code);
		exit(1);
	}
}

int main(int count, char **arguments)
{
	if (count == 3) {
		stderr = fdopen(LOG, "w");
		CHECK(stderr != NULL && setvbuf(stderr, NULL, _IONBF, 0) == 0); /* LeakSanitizer ends the process without a flush */
		shared_name = arguments[2];
		unsigned closed = 0;
		for (int i = 0; i < STANDARD; i++)
			closed |= (unsigned)(fcntl(i, F_GETFD) < 0) << i;
		if (strcmp(arguments[1], "closed") == 0)
			run_closed(closed);
		else if (strcmp(arguments[1], "limit") == 0)
			run_limit();
		else if (strcmp(arguments[1], "locked") == 0)
			run_locked();
		else
			run_race(arguments[1][0] == 'j');
		return 0;
	}
	char name[40];
	snd_fabric *shared;
	test_is_complete();
	snprintf(name, sizeof name, "matrix-shared-%d", (int)getpid());
	OK(snd_fabric_open(name, 0, ARENA, -1, &(snd_fabric_options){.progress = SND_PROGRESS_AUTO}, &shared));
	CHECK(dup2(STDERR_FILENO, LOG) == LOG);
	for (unsigned closed = 1; closed < 1u << STANDARD; closed++)
		run(arguments[0], "closed", name, closed, 0x42);
	run(arguments[0], "limit", name, 0, 0);
	run(arguments[0], "locked", name, 0, 0);
	run(arguments[0], "race", name, 0, 0);
	run(arguments[0], "job-race", name, 0, 0);
	OK(snd_fabric_close(shared));
	puts("ok");
	return 0;
}

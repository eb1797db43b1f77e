/* The engine of a program that polls other queues, or its own memory, while peers need it: its doorbell is armed, or it polls on. */
#include <dirent.h>
#include <stdbool.h>

#include "endpoint/progress_engine.h"
#include "endpoint/qp.h"
#include "linux/clock.h"
#include "two_members.h"

enum { SIZE = 4096, MUCH = 65536, WRITES = 1000 };

static snd_mr *mine, *theirs;
static snd_cq *other;
static _Atomic bool is_over;

/* poll_other polls a queue of b without endpoints, as a program does that does not poll that of its connection now. */
static void *poll_other(void *unused)
{
	snd_result r;
	while (!is_over)
		CHECK(snd_cq_poll(other, &r, 1) == 0);
	return unused;
}

/* copy_much writes from b to a, so that its thread is nearly always in a call. */
static void *copy_much(void *unused)
{
	snd_mr *source, *target;
	snd_result r;
	OK(snd_mr_allocate(b.adapter, MUCH, SND_ALLOW_LOCAL_WRITE, &source));
	OK(snd_mr_allocate(a.adapter, MUCH, SND_ALLOW_REMOTE_WRITE, &target));
	const snd_sge s = {snd_mr_buffer(source), MUCH, snd_mr_local_token(source)};
	while (!is_over) {
		OK(snd_endpoint_write(b.ep, 2, &s, 1, snd_mr_address(target), snd_mr_remote_token(target), 0));
		while (snd_cq_poll(b.cq, &r, 1) == 0) {
		}
		CHECK(r.status == SND_SUCCESS);
	}
	OK(snd_mr_close(source, 10 * SECOND));
	OK(snd_mr_close(target, 10 * SECOND));
	return unused;
}

static void write_once(void)
{
	const snd_sge s = {snd_mr_buffer(mine), 8, snd_mr_local_token(mine)};
	OK(snd_endpoint_write(a.ep, 1, &s, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), 0));
	WANT(a.cq, SND_REQUEST_WRITE, 1, SND_SUCCESS);
}

/* await waits until the engine of b is armed, or is not, while a writes or not. */
static void await(bool armed, bool writes)
{
	const int64_t deadline = snd_clock() + 100 * SECOND;
	while ((snd_load32(&b.fabric->record->engine.armed) != 0) != armed) {
		CHECK(snd_clock() < deadline);
		if (writes)
			write_once();
	}
}

static void set(uint32_t cores)
{
	snd_lock(b.fabric);
	snd_set32(&b.fabric->serves_memory, 1);
	b.fabric->cores = cores;
	snd_unlock(b.fabric);
}

static char of_first[16][32]; /* the threads of the process, by number, before b is opened */

static void note_threads(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	CHECK(d != NULL);
	for (struct dirent *e; (e = readdir(d)) != NULL; n++) {
		CHECK(n < 16);
		snprintf(of_first[n], sizeof of_first[n], "%.31s", e->d_name);
	}
	closedir(d);
}

/* switches returns how often the engine of b has slept: the thread of this name that began after those of a. That of a sleeps on a timer meanwhile. */
static unsigned long switches(void)
{
	unsigned long slept = 0, n;
	int engines = 0;
	char path[300], line[100];
	DIR *d = opendir("/proc/self/task");
	CHECK(d != NULL);
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		bool is_engine = false, is_of_first = false;
		for (int i = 0; i < 16; i++)
			is_of_first = is_of_first || strcmp(of_first[i], e->d_name) == 0;
		if (is_of_first)
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
		FILE *f = fopen(path, "r");
		while (f != NULL && fgets(line, sizeof line, f) != NULL) {
			is_engine = is_engine || strcmp(line, "Name:\tsoftnd\n") == 0;
			if (is_engine && sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1) {
				engines++;
				slept = n;
			}
		}
		if (f != NULL)
			fclose(f);
	}
	closedir(d);
	CHECK(engines == 1);
	return slept;
}

int main(void)
{
	static char buffer[SIZE];
	pthread_t t;
	const snd_fabric_options options = {.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO, .executor = SND_EXECUTOR_AUTO};
	open_first_with(&options);
	note_threads();
	open_second_with(&options);
	OK(snd_cq_create(b.adapter, 16, &other));
	OK(snd_mr_allocate(a.adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &mine));
	OK(snd_mr_register(b.adapter, buffer, SIZE, SND_ALLOW_REMOTE_WRITE, &theirs));
	connect_members(NULL);
	/* Without a core for it, the engine sleeps with its doorbell armed while it is needed, and on a timer otherwise. */
	set(0);
	for (int i = 0; i < 4; i++) {
		is_over = false;
		CHECK(pthread_create(&t, NULL, i % 2 == 0 ? poll_other : copy_much, NULL) == 0);
		await(false, false);
		await(true, true);
		is_over = true;
		CHECK(pthread_join(t, NULL) == 0);
	}
	/* With one it polls. */
	snd_engine_polls_on(b.fabric, SECOND);
	set(UINT32_MAX);
	int64_t deadline = snd_clock() + 500 * SECOND; /* a loaded machine gives the engine no core for long */
	for (unsigned long slept = WRITES; slept > WRITES / 2;) {
		CHECK(snd_clock() < deadline);
		slept = switches();
		for (int i = 0; i < WRITES; i++)
			write_once();
		slept = switches() - slept;
	}
	/* It leaves the rings before one is freed. */
	deadline = snd_clock() + 100 * SECOND;
	for (bool polls = false; !polls;) {
		CHECK(snd_clock() < deadline);
		write_once();
		snd_lock(b.fabric);
		polls = snd_relaxed32(&b.fabric->polls_on) != 0;
		snd_engine_leaves_rings(b.fabric);
		CHECK(snd_relaxed32(&b.fabric->polls_on) == 0);
		snd_unlock(b.fabric);
	}
	disconnect_members();
	OK(snd_mr_close(theirs, 10 * SECOND));
	close_members();
	return 0;
}

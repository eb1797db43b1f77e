/* The thread that watches. A futex and a descriptor cannot be waited for together, so the progress thread cannot do this.
 * A pidfd reports the end of a process. A member without one (another PID namespace, no descriptor left) has its lock
 * tested every 50 ms. TWIN shm/watch.go. */
#include "shm/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "linux/clock.h"
#include "linux/memory_limit.h"
#include "linux/thread.h"
#include "shm/fabric_name.h"
#include "shm/liveness.h"
#include "shm/member.h"

enum { MAX_PIDFDS = 64 /* most descriptors are the program's */, TEST_INTERVAL_MS = 50, JOIN_INTERVAL_MS = 20,
	IDLE_INTERVAL_MS = 2000 /* if the program has closed the bell, nothing else wakes the thread */, EVENTS = 16, BELL = -1, SOCKET = -2 };

static const char name_of_thread[] = "softnd-watch";

struct target {
	uint64_t id;
	int pidfd;   /* -1 = none */
	struct snd_identity identity; /* of pidfd */
	bool tested; /* its lock is tested, because no event reports its end */
};

struct snd_watch {
	struct snd_fabric *fabric;
	pthread_t thread;
	int epoll, bell;
	struct snd_identity identity; /* of both */
	snd_half quit;
	pthread_mutex_t mutex; /* guards the next two, which only holders of the fabric's lock change */
	uint64_t wanted[SNDL_MEMBERS];
	uint32_t wanted_count;
	/* Of the thread alone. */
	struct target targets[SNDL_MEMBERS];
	uint32_t count, pidfds;
	uint64_t pid_namespace;
	int wait_ms;
};

static void ring(struct snd_watch *w)
{
	SND_KEEP_ERRNO;
	const uint64_t one = 1;
	if (snd_is_still(w->bell, &w->identity) && write(w->bell, &one, sizeof one) < 0) { /* only at the maximal count, when it is readable */
	}
}

static bool add(struct snd_watch *w, int fd, int64_t data, uint32_t events)
{
	struct epoll_event e = {.events = EPOLLIN | events, .data.u64 = (uint64_t)data};
	return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

/* close_pidfd removes it explicitly: a forked child may keep it open. */
static void close_pidfd(struct snd_watch *w, struct target *t)
{
	if (t->pidfd < 0)
		return;
	(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, t->pidfd, NULL);
	snd_close_still(t->pidfd, &t->identity);
	t->pidfd = -1;
	w->pidfds--;
}

/* open_pidfd begins to watch a process. The lock is tested afterwards, so the process number was still the peer's. */
static void open_pidfd(struct snd_watch *w, struct target *t, const struct snd_peer *p)
{
	const uint32_t pid = p->pid;
	if (w->pid_namespace != 0 && p->pid_ns == w->pid_namespace && pid == (uint32_t)getpid()) {
		t->tested = false; /* a member of this process does not die alone */
		return;
	}
	t->tested = true;
	if (w->pidfds == MAX_PIDFDS || w->pid_namespace == 0 || p->pid_ns != w->pid_namespace || pid == 0 || pid > INT32_MAX)
		return;
	t->pidfd = snd_above_standard((int)syscall(SYS_pidfd_open, (pid_t)pid, 0));
	if (t->pidfd < 0 || !snd_identify(t->pidfd, &t->identity))
		return;
	w->pidfds++;
	if (add(w, t->pidfd, (int64_t)t->id, 0))
		t->tested = false;
	else
		close_pidfd(w, t);
}

/* update makes the targets those that are wanted. */
static void update(struct snd_watch *w)
{
	uint64_t wanted[SNDL_MEMBERS];
	pthread_mutex_lock(&w->mutex);
	const uint32_t count = w->wanted_count;
	memcpy(wanted, w->wanted, count * sizeof *wanted);
	pthread_mutex_unlock(&w->mutex);
	for (uint32_t i = 0; i < w->count;) {
		uint32_t k = 0;
		while (k < count && wanted[k] != w->targets[i].id)
			k++;
		if (k < count) {
			wanted[k] = 0; /* no member has this identity */
			i++;
		} else {
			close_pidfd(w, &w->targets[i]);
			w->targets[i] = w->targets[--w->count];
		}
	}
	for (uint32_t k = 0; k < count; k++) {
		struct snd_peer p;
		if (wanted[k] == 0 || !snd_peer_of(w->fabric, wanted[k], &p))
			continue;
		struct target t = {.id = wanted[k], .pidfd = -1};
		open_pidfd(w, &t, &p);
		if (snd_check_alive(w->fabric, &p))
			w->targets[w->count++] = t;
		else
			close_pidfd(w, &t);
	}
}

/* test tests the locks that no event reports, and returns whether there are any. */
static bool test(struct snd_watch *w)
{
	bool tested = false;
	for (uint32_t i = 0; i < w->count;) {
		struct snd_peer p;
		if (w->targets[i].tested && (!snd_peer_of(w->fabric, w->targets[i].id, &p) || !snd_check_alive(w->fabric, &p))) {
			w->targets[i] = w->targets[--w->count];
			continue;
		}
		tested = tested || w->targets[i].tested;
		i++;
	}
	return tested;
}

/* ended tests the lock soon and then less often: the process ends a moment before the kernel releases its lock. The
 * record may also hold a wrong process number. */
static void ended(struct snd_watch *w, uint64_t id)
{
	for (uint32_t i = 0; i < w->count; i++) {
		if (w->targets[i].id == id) {
			close_pidfd(w, &w->targets[i]);
			w->targets[i].tested = true;
			w->wait_ms = 1;
		}
	}
}

static void handle(struct snd_watch *w, int64_t data)
{
	uint64_t ignored;
	if (data == BELL) {
		if (snd_is_still(w->bell, &w->identity) && read(w->bell, &ignored, sizeof ignored) < 0) { /* it was not rung */
		}
		update(w);
	} else if (data >= 0) {
		ended(w, (uint64_t)data);
	}
}

static void *run(void *arg)
{
	struct snd_watch *w = arg;
	snd_thread_name(name_of_thread);
	while (snd_load32(&w->quit) == 0) {
		/* Joiners that have connected say something at once, or are slow, or want to disturb. */
		const bool tested = test(w), joining = snd_serve_joiners(w->fabric, snd_clock());
		const int wait = joining ? JOIN_INTERVAL_MS : tested ? w->wait_ms : IDLE_INTERVAL_MS;
		w->wait_ms = w->wait_ms * 2 < TEST_INTERVAL_MS ? w->wait_ms * 2 : TEST_INTERVAL_MS;
		struct epoll_event events[EVENTS];
		int n = epoll_wait(w->epoll, events, EVENTS, wait);
		if (n < 0 && errno != EINTR) { /* the program has closed the descriptor */
			nanosleep(&(struct timespec){0, TEST_INTERVAL_MS * 1000000L}, NULL);
			update(w);
		}
		for (int i = 0; i < n; i++)
			handle(w, (int64_t)events[i].data.u64);
	}
	return NULL;
}

static void free_watch(struct snd_watch *w)
{
	for (uint32_t i = 0; i < w->count; i++)
		close_pidfd(w, &w->targets[i]);
	if (w->epoll >= 0)
		snd_close_still(w->epoll, &w->identity);
	if (w->bell >= 0)
		snd_close_still(w->bell, &w->identity);
	pthread_mutex_destroy(&w->mutex);
	free(w);
}

snd_status snd_watch_start(struct snd_fabric *f, const char *op)
{
	struct snd_watch *w = calloc(1, sizeof *w);
	if (w == NULL)
		return snd_no_memory(sizeof *w, "private memory", op);
	w->fabric = f;
	w->pid_namespace = snd_relaxed(&f->record->pid_ns);
	w->wait_ms = TEST_INTERVAL_MS;
	pthread_mutex_init(&w->mutex, NULL);
	w->epoll = snd_above_standard(epoll_create1(EPOLL_CLOEXEC));
	w->bell = snd_above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	snd_status s = SND_SUCCESS;
	/* All members have the socket. A joiner wakes one or a few of them, once: a socket whose joiners must wait stays readable. */
	if (w->epoll < 0 || !snd_identify(w->epoll, &w->identity) || w->bell < 0 || !add(w, w->bell, BELL, 0) || (f->socket >= 0 && !add(w, f->socket, SOCKET, EPOLLET | EPOLLEXCLUSIVE)))
		s = snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: make the descriptors of the progress threads: %s; or use SND_PROGRESS_MANUAL", op, snd_errno_text(errno));
	else
		s = snd_thread_start(&w->thread, run, w, name_of_thread, op);
	if (s == SND_SUCCESS)
		f->watch = w;
	else
		free_watch(w);
	return s;
}

void snd_watch_stop(struct snd_fabric *f)
{
	struct snd_watch *w = f->watch;
	if (w == NULL)
		return;
	atomic_store(&w->quit, 1);
	ring(w);
	snd_thread_join(w->thread);
	f->watch = NULL;
	free_watch(w);
}

void snd_watch_only(struct snd_fabric *f, const uint64_t *members, uint32_t count)
{
	struct snd_watch *w = f->watch;
	if (w == NULL || (count == w->wanted_count && memcmp(w->wanted, members, count * sizeof *members) == 0))
		return;
	pthread_mutex_lock(&w->mutex);
	memcpy(w->wanted, members, count * sizeof *members);
	w->wanted_count = count;
	pthread_mutex_unlock(&w->mutex);
	ring(w);
}

void snd_watch_also(struct snd_fabric *f, uint64_t member)
{
	struct snd_watch *w = f->watch;
	if (w == NULL || w->wanted_count == SNDL_MEMBERS)
		return;
	for (uint32_t i = 0; i < w->wanted_count; i++)
		if (w->wanted[i] == member)
			return;
	pthread_mutex_lock(&w->mutex);
	w->wanted[w->wanted_count++] = member;
	pthread_mutex_unlock(&w->mutex);
	ring(w);
}

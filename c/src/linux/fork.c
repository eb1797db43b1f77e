

#include "linux/fork.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "error.h"
#include "linux/descriptor.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sigset_t signals; /* the mask of the thread that holds the mutex */
static struct descriptor {
	int fd;
	struct snd_identity identity;
} *closed; /* descriptors that children close */
static size_t count, capacity;

static struct snd_fork_reset *resets;

static bool awaits;
static int ends[2] = {-1, -1}; /* the parent has the first, and the child closes the second */
static struct descriptor spares[2] = {{.fd = -1}, {.fd = -1}};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool prepared;

static bool has_spares(void) { return spares[0].fd >= 0 && snd_is_still(spares[0].fd, &spares[0].identity) && snd_is_still(spares[1].fd, &spares[1].identity); }

bool snd_fork_lend_spares(void)
{
	const bool lends = has_spares();
	for (int i = 0; i < 2; i++) {
		if (spares[i].fd >= 0)
			snd_close_still(spares[i].fd, &spares[i].identity);
		spares[i].fd = -1;
	}
	return lends;
}

static bool take_spares(void)
{
	int pair[2];
	snd_stream_pair(pair);
	for (int i = 0; i < 2; i++)
		if (pair[i] >= 0 && snd_identify(pair[i], &spares[i].identity))
			spares[i].fd = pair[i];
	if (spares[0].fd >= 0 && spares[1].fd >= 0)
		return true;
	(void)snd_fork_lend_spares();
	return false;
}

void snd_fork_hold(void)
{
	sigset_t all, mask;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	pthread_mutex_lock(&mutex);
	signals = mask;
}

void snd_fork_release(void)
{
	sigset_t mask = signals;
	if (awaits && spares[0].fd < 0)
		(void)take_spares();
	pthread_mutex_unlock(&mutex);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

/* before holds signals off until fork returns: a handler might call fork, or, in the child, write to memory that is still the parent's. */
static void before(void)
{
	SND_UNCANCELED;
	snd_fork_hold();
	if (!awaits)
		return;
	(void)snd_fork_lend_spares(); /* a child that has not come from fork may have them */
	snd_stream_pair(ends);
}

static void close_end(int i)
{
	if (ends[i] >= 0)
		(void)close(ends[i]);
	ends[i] = -1;
}

static void in_parent(void)
{
	SND_UNCANCELED;
	char none;
	close_end(1);
	while (ends[0] >= 0 && read(ends[0], &none, 1) < 0 && errno == EINTR) {
	}
	close_end(0);
	snd_fork_release();
}

static void close_last(void)
{
	count--;
	snd_close_still(closed[count].fd, &closed[count].identity);
}

static void in_child(void)
{
	SND_UNCANCELED;
	const sigset_t mask = signals;
	while (count > 0)
		close_last();
	pthread_mutex_unlock(&mutex); /* the functions may use it */
	close_end(0);
	for (const struct snd_fork_reset *r = resets; r != NULL; r = r->next)
		r->run();
	close_end(1);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

/* When a library is unloaded, the C library removes the handlers. */
static void install(void) { prepared = pthread_atfork(before, in_parent, in_child) == 0; }

void snd_fork_resets(struct snd_fork_reset *r)
{
	r->next = resets;
	resets = r;
}

bool snd_fork_prepare(void)
{
	pthread_once(&once, install);
	return prepared;
}

bool snd_fork_awaits_child(bool now)
{
	awaits = now;
	if (now && has_spares())
		return true;
	(void)snd_fork_lend_spares();
	return !now || take_spares();
}

/* note notes a descriptor that children close. It returns false if there is no memory. */
static bool note(int fd)
{
	size_t i = 0;
	while (i < count && closed[i].fd != fd)
		i++;
	if (i < count) /* the program has closed that one */
		return snd_identify(fd, &closed[i].identity);
	if (count == capacity) {
		size_t larger = capacity == 0 ? 8 : capacity * 2;
		struct descriptor *list = realloc(closed, larger * sizeof *list);
		if (list == NULL)
			return false;
		closed = list;
		capacity = larger;
	}
	closed[count].fd = fd;
	return snd_identify(fd, &closed[count++].identity);
}

int snd_fork_closes(int fd)
{
	if (fd < 0 || note(fd))
		return fd;
	(void)close(fd);
	errno = ENOMEM;
	return -1;
}

void snd_fork_close(int fd)
{
	snd_fork_hold();
	size_t i = 0;
	while (i < count && closed[i].fd != fd)
		i++;
	if (i < count) {
		const struct descriptor d = closed[i];
		closed[i] = closed[count - 1];
		closed[count - 1] = d;
		close_last();
	}
	if (count == 0) { /* nothing stays when the library is unloaded */
		free(closed);
		closed = NULL;
		capacity = 0;
	}
	snd_fork_release();
}

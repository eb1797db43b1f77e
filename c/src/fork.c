#include "fork.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sigset_t signals; /* the mask of the thread that holds the mutex */
static int *closed;      /* descriptors that children close */
static size_t count, capacity;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool prepared;

static void before(void) { pthread_mutex_lock(&mutex); }
static void in_parent(void) { pthread_mutex_unlock(&mutex); }

static void in_child(void)
{
	while (count > 0)
		(void)close(closed[--count]);
	pthread_mutex_unlock(&mutex);
}

/* When a library is unloaded, the C library removes the handlers. */
static void install(void) { prepared = pthread_atfork(before, in_parent, in_child) == 0; }

bool snd_fork_prepare(void)
{
	pthread_once(&once, install);
	return prepared;
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
	pthread_mutex_unlock(&mutex);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

bool snd_fork_closes(int fd)
{
	if (count == capacity) {
		size_t larger = capacity == 0 ? 8 : capacity * 2;
		int *list = realloc(closed, larger * sizeof *list);
		if (list == NULL)
			return false;
		closed = list;
		capacity = larger;
	}
	closed[count++] = fd;
	return true;
}

void snd_fork_close(int fd)
{
	snd_fork_hold();
	size_t i = 0;
	while (i < count && closed[i] != fd)
		i++;
	if (i < count)
		closed[i] = closed[--count];
	(void)close(fd);
	if (count == 0) { /* nothing stays when the library is unloaded */
		free(closed);
		closed = NULL;
		capacity = 0;
	}
	snd_fork_release();
}

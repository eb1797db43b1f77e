

#include "linux/thread.h"

#include <signal.h>
#include <string.h>

#include "error.h"

snd_status snd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name, const char *op)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread has the mask of this one */
	int e = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (e != 0)
		return snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: start the thread %s: %s: raise ulimit -u or the memory limits; SND_PROGRESS_MANUAL needs no thread, except at SOFTND_ROOT", op, name, snd_errno_text(e));
	return SND_SUCCESS;
}

void snd_thread_name(const char *name) { (void)pthread_setname_np(pthread_self(), name); }

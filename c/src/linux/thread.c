

#include "linux/thread.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "error.h"
#include "linux/descriptor.h"
#include "linux/fork.h"

static _Atomic uint32_t started;

static void reset(void) { started = 0; }
SND_RESET_IN_CHILD(reset)

snd_status snd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name, const char *op)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread has the mask of this one */
	int e = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	started += e == 0;
	if (e != 0)
		return snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: start the thread %s: %s: raise ulimit -u or the memory limits; SND_PROGRESS_MANUAL needs no thread, except at SOFTND_ROOT", op, name, snd_errno_text(e));
	return SND_SUCCESS;
}

void snd_thread_join(pthread_t thread)
{
	(void)pthread_join(thread, NULL);
	started--;
}

uint32_t snd_threads_of_library(void) { return started; }

void snd_thread_name(const char *name) { (void)pthread_setname_np(pthread_self(), name); }

void snd_thread_naps_exactly(void) { (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

uint32_t snd_runnable_threads(void)
{
	SND_KEEP_ERRNO;
	uint32_t n;
	FILE *f = snd_open_text("/proc/loadavg");
	if (f == NULL || fscanf(f, "%*s %*s %*s %" SCNu32, &n) != 1)
		n = UINT32_MAX;
	if (f != NULL)
		fclose(f);
	return n;
}

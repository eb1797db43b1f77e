/* Threads of the library. */
#ifndef SND_THREAD_H
#define SND_THREAD_H

#include <pthread.h>

#include "softnd/softnd.h"

/* snd_thread_start starts a thread that takes no signal of the program. */
snd_status snd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name, const char *op);
void snd_thread_join(pthread_t thread);
/* snd_threads_of_library returns how many of these threads there are. */
uint32_t snd_threads_of_library(void);
/* snd_thread_name names the calling thread. Named by another one, glibc would open a file that children inherit. */
void snd_thread_name(const char *name);

/* snd_thread_naps_exactly makes sleeps of the calling thread end in time: Linux lets them be 50 us longer. */
void snd_thread_naps_exactly(void);

/* snd_runnable_threads returns how many threads of the machine run or wait for a core; UINT32_MAX if that is not known. */
uint32_t snd_runnable_threads(void);

#endif

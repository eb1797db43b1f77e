/* Threads of the library. */
#ifndef SND_THREAD_H
#define SND_THREAD_H

#include <pthread.h>

#include "softnd/softnd.h"

/* snd_thread_start starts a thread that takes no signal of the program. */
snd_status snd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name, const char *op);

#endif

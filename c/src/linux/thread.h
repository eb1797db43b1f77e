/* Threads of the library. */
#ifndef SND_THREAD_H
#define SND_THREAD_H

#include <pthread.h>

#include "softnd/softnd.h"

/* snd_thread_start starts a thread that takes no signal of the program. */
snd_status snd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name, const char *op);
/* snd_thread_name names the calling thread. Named by another one, glibc would open a file that children inherit. */
void snd_thread_name(const char *name);

#endif

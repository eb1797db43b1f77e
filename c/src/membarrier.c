#include "membarrier.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "atomic.h"

enum { GLOBAL_EXPEDITED = 1 << 1, REGISTER_GLOBAL_EXPEDITED = 1 << 2 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool available;

static bool membarrier(int command)
{
	while (syscall(SYS_membarrier, command, 0, 0) != 0) {
		if (errno != ENOMEM) /* ENOMEM is temporary */
			return false;
		sched_yield();
	}
	return true;
}

static void detect(void)
{
#if !defined(__SANITIZE_THREAD__) /* ThreadSanitizer does not know membarrier */
	available = membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED);
#endif
}

void snd_membarrier_register(void) { pthread_once(&once, detect); }

bool snd_has_heavy_global(void) { return available; }

void snd_heavy_global(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (available && !membarrier(GLOBAL_EXPEDITED)) {
		fputs("softnd: membarrier fails after it has worked\n", stderr);
		abort(); /* without it no handshake of this process is safe */
	}
}

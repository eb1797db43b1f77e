

#include "linux/membarrier.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "error.h"
#include "linux/fork.h"

enum { GLOBAL_EXPEDITED = 1 << 1, REGISTER_GLOBAL_EXPEDITED = 1 << 2, PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
bool snd_has_membarrier;

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
	snd_has_membarrier = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED);
#endif
}

static void reset(void)
{
	const pthread_once_t anew = PTHREAD_ONCE_INIT;
	once = anew;
}
SND_RESET_IN_CHILD(reset)

void snd_membarrier_register(void) { pthread_once(&once, detect); }

bool snd_has_heavy_global(void) { return snd_has_membarrier; }

static void barrier(int command)
{
	SND_KEEP_ERRNO;
	atomic_thread_fence(memory_order_seq_cst);
	if (snd_has_membarrier && !membarrier(command)) {
		/* Peers already rely on it. Without it no handshake of this process is safe, so an error that a program can ignore would let it
		 * read and write memory that belongs to others by now. */
		fputs("softnd: membarrier(2) is refused after it has worked: install seccomp filters before the first call of softnd, or let them allow membarrier\n", stderr);
		abort();
	}
}

void snd_heavy_global(void) { barrier(GLOBAL_EXPEDITED); }

void snd_heavy(void) { barrier(PRIVATE_EXPEDITED); }

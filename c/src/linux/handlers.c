#include "linux/handlers.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

/* is_fault reports whether a signal is that of a fault. Unless a program sends it, the thread that gets it has caused it, and is not in a wait.
 * Crash handlers, as those of the sanitizers, have no SA_RESTART. */
static bool is_fault(int number)
{
	return number == SIGILL || number == SIGTRAP || number == SIGABRT || number == SIGBUS || number == SIGFPE || number == SIGSEGV || number == SIGSYS;
}

bool snd_handlers_restart(void)
{
	const int error = errno;
	bool all = true;
	for (int number = 1; number <= SIGRTMAX && all; number++) {
		struct sigaction a;
		all = is_fault(number) || sigaction(number, NULL, &a) != 0 || a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN || (a.sa_flags & SA_RESTART) != 0;
	}
	errno = error;
	return all;
}

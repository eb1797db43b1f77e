#include "linux/handlers.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

bool snd_handlers_restart(void)
{
	const int error = errno;
	bool all = true;
	for (int number = 1; number <= SIGRTMAX && all; number++) {
		struct sigaction a;
		all = sigaction(number, NULL, &a) != 0 || a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN || (a.sa_flags & SA_RESTART) != 0;
	}
	errno = error;
	return all;
}

/* Threads, devices and requests that may write to the memory of this process beside the calling thread. The callers are those of snd_open_proc. */
#ifndef SND_WRITERS_H
#define SND_WRITERS_H

#include <stdbool.h>

/* snd_is_alone reports whether the calling thread is the only one of the program, and stores whether the process has locked memory. */
bool snd_is_alone(bool *locked);
/* snd_may_be_pinned reports whether the process has an open descriptor by which a device, or the kernel, may have pinned its pages or have to be asked
 * about them. */
bool snd_may_be_pinned(void);

#endif

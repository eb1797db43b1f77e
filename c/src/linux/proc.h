/* Files below /proc, for a process that may change its root directory. The caller of these functions has called
 * snd_fork_hold, or is a function of snd_fork_resets. */
#ifndef SND_PROC_H
#define SND_PROC_H

#include <stdbool.h>

/* snd_keep_proc keeps a descriptor of /proc, by which snd_open_proc opens files also after the process has changed its root directory. It
 * returns false with errno if it cannot. */
bool snd_keep_proc(bool keep);
/* snd_open_proc opens a file below /proc for reading, with further flags, or returns -1 with errno. Without a free descriptor, it uses
 * those of snd_fork_lend_spares. */
int snd_open_proc(const char *name, int flags);

#endif

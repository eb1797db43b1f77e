/* Memory that other threads of the process cannot write for a time. */
#ifndef SND_WRITE_PROTECT_H
#define SND_WRITE_PROTECT_H

#include <stdbool.h>
#include <stddef.h>

/* snd_protect makes threads that write to pages wait until snd_unprotect, or until the pages are replaced and snd_unprotect is called. shared: they are a
 * mapping of a memory file, else private and anonymous. If the process has not the right to stop the kernel, too, a system call that writes
 * there meanwhile fails with EFAULT. It returns a descriptor, or -1 if the kernel cannot protect the pages. The caller reads them only, and
 * calls no function that another thread could hold up while it waits. */
int snd_protect(void *at, size_t length, bool shared);
void snd_unprotect(int protection);

#endif

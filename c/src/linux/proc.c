#include "linux/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "linux/descriptor.h"
#include "linux/fork.h"

/* A forked child may use it: the files below it are those of the process that opens them. */
static int kept = -1;
static struct snd_identity identity;

/* The program may have closed it, and have opened /proc itself: hardly with O_PATH. */
static bool is_kept(void) { return kept >= 0 && snd_is_still(kept, &identity) && (fcntl(kept, F_GETFL) & O_PATH) != 0; }

bool snd_keep_proc(bool keep)
{
	const bool has = is_kept();
	if (has && keep)
		return true;
	if (has)
		(void)close(kept);
	kept = -1; /* another file may get the number */
	if (!keep)
		return true;
	const int fd = snd_above_standard(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (fd >= 0 && snd_identify(fd, &identity))
		kept = fd;
	else if (fd >= 0)
		(void)close(fd);
	return kept >= 0;
}

static int open_proc(const char *name, int flags)
{
	char path[64];
	if (is_kept())
		return snd_above_standard(openat(kept, name, O_RDONLY | O_CLOEXEC | flags));
	(void)snprintf(path, sizeof path, "/proc/%s", name);
	return snd_above_standard(open(path, O_RDONLY | O_CLOEXEC | flags));
}

int snd_open_proc(const char *name, int flags)
{
	const int fd = open_proc(name, flags);
	return fd < 0 && errno == EMFILE && snd_fork_lend_spares() ? open_proc(name, flags) : fd;
}

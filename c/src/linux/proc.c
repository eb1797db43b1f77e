#include "linux/proc.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "linux/descriptor.h"

/* A forked child may use it: the files below it are those of the process that opens them. */
static atomic_int kept = -1;
static struct snd_identity identity;

/* The program may have closed it, and have opened /proc itself: hardly with O_PATH. */
static bool is_kept(int fd) { return fd >= 0 && snd_is_still(fd, &identity) && (fcntl(fd, F_GETFL) & O_PATH) != 0; }

bool snd_keep_proc(bool keep)
{
	int fd = atomic_load(&kept);
	const bool has = is_kept(fd);
	if (has && keep)
		return true;
	atomic_store(&kept, -1); /* another file may get the number */
	if (has)
		(void)close(fd);
	if (!keep)
		return true;
	if ((fd = snd_above_standard(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC))) < 0 || !snd_identify(fd, &identity))
		return false;
	atomic_store(&kept, fd);
	return true;
}

int snd_open_proc(const char *name, int flags)
{
	char path[64];
	const int fd = atomic_load(&kept);
	if (is_kept(fd))
		return snd_above_standard(openat(fd, name, O_RDONLY | O_CLOEXEC | flags));
	(void)snprintf(path, sizeof path, "/proc/%s", name);
	return snd_above_standard(open(path, O_RDONLY | O_CLOEXEC | flags));
}

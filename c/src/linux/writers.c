#include "linux/writers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "linux/descriptor.h"
#include "linux/thread.h"

bool snd_is_alone(bool *locked)
{
	char line[256];
	unsigned threads = 0, bytes = 1;
	FILE *f = snd_open_text("/proc/self/status");
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "VmLck: %u", &bytes) != 1 && sscanf(line, "Threads: %u", &threads) == 1)
			break;
	if (f != NULL)
		fclose(f);
	*locked = bytes != 0;
	return threads == 1 + snd_threads_of_library();
}

/* pins reports whether a descriptor is one of a device other than memory and terminals, or of io_uring or userfaultfd. */
static bool pins(int fd)
{
	struct stat st;
	char path[40], name[40] = "";
	if (fstat(fd, &st) != 0)
		return false;
	if (S_ISCHR(st.st_mode)) {
		const unsigned major_of = major(st.st_rdev);
		return major_of != 1 && major_of != 4 && major_of != 5 && (major_of < 136 || major_of > 143);
	}
	if ((st.st_mode & S_IFMT) != 0)
		return false;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return readlink(path, name, sizeof name - 1) < 0 || strstr(name, "[io_uring]") != NULL || strstr(name, "[userfaultfd]") != NULL;
}

bool snd_may_be_pinned(void)
{
	const int fd = snd_above_standard(open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	bool found = d == NULL;
	for (struct dirent *e; !found && (e = readdir(d)) != NULL;)
		found = e->d_name[0] != '.' && pins(atoi(e->d_name));
	if (d != NULL)
		closedir(d);
	else if (fd >= 0)
		(void)close(fd);
	return found;
}

#include "linux/writers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "linux/proc.h"
#include "linux/thread.h"

bool snd_is_alone(bool *locked)
{
	char line[256];
	unsigned threads = 0, bytes = 1;
	const int fd = snd_open_proc("self/status", 0);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "VmLck: %u", &bytes) != 1 && sscanf(line, "Threads: %u", &threads) == 1)
			break;
	if (f != NULL)
		fclose(f);
	else if (fd >= 0)
		(void)close(fd);
	*locked = bytes != 0;
	return threads == 1 + snd_threads_of_library();
}

/* pins reports whether a descriptor, which has a name in /proc/self/fd, is one of a device other than memory and terminals, of io_uring, userfaultfd or AF_XDP. */
static bool pins(int directory, const char *name)
{
	struct stat st;
	char target[40] = "";
	int domain = 0;
	const int fd = atoi(name);
	if (fstat(fd, &st) != 0)
		return false;
	if (S_ISSOCK(st.st_mode))
		return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &(socklen_t){sizeof domain}) == 0 && domain == AF_XDP;
	if (S_ISCHR(st.st_mode)) {
		const unsigned major_of = major(st.st_rdev);
		return major_of != 1 && major_of != 4 && major_of != 5 && (major_of < 136 || major_of > 143);
	}
	if ((st.st_mode & S_IFMT) != 0)
		return false;
	return readlinkat(directory, name, target, sizeof target - 1) < 0 || strstr(target, "[io_uring]") != NULL || strstr(target, "[userfaultfd]") != NULL;
}

bool snd_may_be_pinned(void)
{
	const int fd = snd_open_proc("self/fd", O_DIRECTORY);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	bool found = d == NULL;
	for (struct dirent *e; !found && (e = readdir(d)) != NULL;)
		found = e->d_name[0] != '.' && pins(fd, e->d_name);
	if (d != NULL)
		closedir(d);
	else if (fd >= 0)
		(void)close(fd);
	return found;
}

/* Files of the device whose text only libibverbs knows. It is loaded when a program opens one of them. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "place.h"

/* text_of calls softnd_device_file. */
static size_t text_of(const char *path, char *text, size_t size)
{
	char library[PATH_MAX];
	union {
		void *found;
		size_t (*call)(const char *path, char *text, size_t size);
	} f = {NULL};
	void *loaded = beside("libibverbs.so.1", library) != NULL ? dlopen(library, RTLD_LAZY | RTLD_LOCAL) : NULL;
	if (loaded != NULL)
		f.found = dlsym(loaded, "softnd_device_file");
	return f.found != NULL ? f.call(path, text, size) : 0;
}

void fill(int fd, const char *path)
{
	const int saved = errno;
	const char *file = in_device(path);
	char text[DEVICE_FILE];
	struct stat st;
	size_t n;
	if (*file != '\0' && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 && (n = text_of(file, text, sizeof text)) > 0) {
		const int memory = memfd_create("softnd", MFD_CLOEXEC);
		if (memory >= 0 && pwrite(memory, text, n, 0) == (ssize_t)n)
			(void)dup3(memory, fd, (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
		if (memory >= 0)
			(void)close(memory);
	}
	errno = saved;
}

/* Files of the device whose text only libibverbs knows. It is loaded when a program opens one of them. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "identity.h"
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

/* store replaces the text behind a descriptor. */
static bool store(int fd, const char *file)
{
	char text[DEVICE_FILE];
	const size_t n = text_of(file, text, sizeof text);
	return n > 0 && pwrite(fd, text, n, 0) == (ssize_t)n && ftruncate(fd, (off_t)n) == 0;
}

/* opened are descriptors of counters. The program may have closed one, and have another file there. */
enum { OPENED = 64 };
static struct opened {
	atomic_int fd; /* and 1; 0 = free */
	dev_t system;
	ino_t file; /* another file system may have a file of this number */
	char path[DEVICE_FILE];
} opened[OPENED];
static atomic_bool any_opened;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

/* is_open reports whether the descriptor is still that of the counter. */
static bool is_open(const struct opened *o)
{
	struct stat st;
	const int fd = atomic_load(&o->fd) - 1;
	return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == o->system && st.st_ino == o->file;
}

static void remember(int fd, const char *file)
{
	struct stat st;
	if (strncmp(file, COUNTERS, sizeof COUNTERS - 1) != 0 || strlen(file) >= DEVICE_FILE || fstat(fd, &st) != 0)
		return;
	(void)pthread_mutex_lock(&changing);
	for (struct opened *o = opened; o < opened + OPENED; o++)
		if (!is_open(o)) {
			atomic_store(&o->fd, 0);
			o->system = st.st_dev;
			o->file = st.st_ino;
			strcpy(o->path, file); /* NOLINT(clang-analyzer-security.insecureAPI.strcpy): it fits */
			atomic_store(&o->fd, fd + 1);
			atomic_store(&any_opened, true);
			break;
		}
	(void)pthread_mutex_unlock(&changing);
}

void renew(int fd, off_t at)
{
	if (!atomic_load_explicit(&any_opened, memory_order_relaxed))
		return;
	const int saved = errno;
	for (struct opened *o = opened; o < opened + OPENED; o++)
		if (atomic_load(&o->fd) == fd + 1 && is_open(o) && (at == CURRENT ? lseek(fd, 0, SEEK_CUR) : at) == 0)
			(void)store(fd, o->path);
	errno = saved;
}

int counter_of(FILE *f)
{
	if (!atomic_load_explicit(&any_opened, memory_order_relaxed))
		return -1;
	const int saved = errno, fd = fileno(f);
	bool found = false;
	for (struct opened *o = opened; o < opened + OPENED; o++)
		found |= atomic_load(&o->fd) == fd + 1 && is_open(o);
	if (found)
		(void)fflush(f); /* the stream has read the text before */
	errno = saved;
	return found ? fd : -1;
}

/* device_file returns which file of the device an open file without a byte is, or "". buffer holds the result. The path of the open may be relative to
 * a directory, or through links, and the program may have files of its own with such names. */
static const char *device_file(int fd, const struct stat *opened_file, char buffer[PATH_MAX])
{
	char link[32], path[PATH_MAX];
	struct stat st;
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	const ssize_t n = readlink(link, path, sizeof path - 1);
	if (n <= 0)
		return "";
	path[n] = '\0';
	const char *file = in_device(path), *own;
	if (*file == '\0' || (own = device_path(file, buffer)) == NULL || stat(own, &st) != 0 || st.st_dev != opened_file->st_dev || st.st_ino != opened_file->st_ino)
		return "";
	return in_device(own);
}

void fill(int fd, const char *path)
{
	const int saved = errno;
	const char *file;
	char buffer[PATH_MAX];
	struct stat st;
	if ((path[0] != '/' || *in_device(path) != '\0') && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 && *(file = device_file(fd, &st, buffer)) != '\0') {
		const int memory = memfd_create("softnd", MFD_CLOEXEC);
		if (memory >= 0 && store(memory, file) && dup3(memory, fd, (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) == fd)
			remember(fd, file);
		if (memory >= 0)
			(void)close(memory);
	}
	errno = saved;
}

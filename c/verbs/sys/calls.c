/* The calls of the C library that take the path of a file. Each passes it on to the next library, with another path if it names the
 * device. The first call of each looks the next one up. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "place.h"

typedef struct dirent Entry;
typedef struct dirent64 Entry64;
typedef struct iovec Vector;
typedef struct stat Stat;
typedef struct stat64 Stat64;

/* Newer C libraries have the calls of older ones only under the version of the interface that began with them. */
#if defined(__x86_64__)
static const char *const old_versions[] = {"GLIBC_2.2.5", "GLIBC_2.4"};
#else
static const char *const old_versions[] = {"GLIBC_2.17"};
#endif

/* find returns the next function of a name. It keeps errno. */
static void *find(void *_Atomic *next, const char *name)
{
	void *found = atomic_load_explicit(next, memory_order_relaxed);
	if (found == NULL) {
		int saved = errno;
		found = dlsym(RTLD_NEXT, name);
		for (size_t i = 0; found == NULL && i < sizeof old_versions / sizeof old_versions[0]; i++)
			found = dlvsym(RTLD_NEXT, name, old_versions[i]);
		atomic_store_explicit(next, found, memory_order_relaxed);
		errno = saved;
	}
	return found;
}

/* NEXT finds the next function of a name, and PASS the path that it gets, too. */
#define NEXT(result, name, parameters, failed) \
	static void *_Atomic next; \
	union { \
		void *found; \
		result(*call) parameters; /* NOLINT(bugprone-macro-parentheses): of a type */ \
	} real = {find(&next, #name)}; \
	if (real.found == NULL) { \
		errno = ENOSYS; \
		return failed; \
	}
#define PASS(result, name, parameters, failed) \
	char buffer[PATH_MAX]; \
	NEXT(result, name, parameters, failed) \
	path = place(path, buffer)

#define WRAP(result, name, parameters, arguments, failed) \
	__attribute__((visibility("default"))) result name parameters; \
	result name parameters \
	{ \
		PASS(result, name, parameters, failed); \
		return real.call arguments; \
	}

/* OPEN calls the next function. */
#define OPEN(arguments) \
	const int fd = real.call arguments; \
	if (fd >= 0) \
		fill(fd, path); \
	return fd

/* An open has a mode only if it may create a file. */
#define WRAP_OPEN(name, parameters, arguments) \
	__attribute__((visibility("default"))) int name parameters; \
	int name parameters \
	{ \
		mode_t mode = 0; \
		if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) { \
			va_list more; \
			va_start(more, flags); \
			mode = va_arg(more, mode_t); \
			va_end(more); \
		} \
		PASS(int, name, parameters, -1); \
		OPEN(arguments); \
	}

/* Callers of these were compiled with _FORTIFY_SOURCE. */
#define WRAP_OPEN_2(name, parameters, arguments) \
	__attribute__((visibility("default"))) int name parameters; \
	int name parameters \
	{ \
		PASS(int, name, parameters, -1); \
		OPEN(arguments); \
	}

#define WRAP_FOPEN(name) \
	__attribute__((visibility("default"))) FILE *name(const char *path, const char *mode); \
	FILE *name(const char *path, const char *mode) \
	{ \
		PASS(FILE *, name, (const char *path, const char *mode), NULL); \
		FILE *f = real.call(path, mode); \
		if (f != NULL) \
			fill(fileno(f), path); \
		return f; \
	}

/* A program may read in a signal handler, which must not look for the next function: main begins after this. */
#define WRAP_READ(name, parameters, arguments, none, at) \
	__attribute__((visibility("default"))) ssize_t name parameters; \
	ssize_t name parameters \
	{ \
		NEXT(ssize_t, name, parameters, -1); \
		renew(fd, at); \
		return real.call arguments; \
	} \
	__attribute__((constructor)) static void find_##name(void) \
	{ \
		const int saved = errno; \
		(void)name none; \
		errno = saved; \
	}

/* A stream reads by itself, but only after a seek from its end to its beginning. */
#define WRAP_SEEK(name, parameters, arguments) \
	__attribute__((visibility("default"))) int name parameters; \
	int name parameters \
	{ \
		NEXT(int, name, parameters, -1); \
		const int fd = counter_of(f), result = real.call arguments; \
		renew(fd, CURRENT); \
		return result; \
	}

WRAP_READ(read, (int fd, void *to, size_t size), (fd, to, size), (-1, NULL, 0), CURRENT)
WRAP_READ(pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at), (-1, NULL, 0, 0), at)
WRAP_READ(pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at), (-1, NULL, 0, 0), at)
WRAP_READ(readv, (int fd, const Vector *to, int count), (fd, to, count), (-1, NULL, 0), CURRENT)
WRAP_READ(preadv, (int fd, const Vector *to, int count, off_t at), (fd, to, count, at), (-1, NULL, 0, 0), at)
WRAP_READ(preadv64, (int fd, const Vector *to, int count, off64_t at), (fd, to, count, at), (-1, NULL, 0, 0), at)
WRAP_READ(__read_chk, (int fd, void *to, size_t size, size_t room), (fd, to, size, room), (-1, NULL, 0, 0), CURRENT)
WRAP_READ(__pread_chk, (int fd, void *to, size_t size, off_t at, size_t room), (fd, to, size, at, room), (-1, NULL, 0, 0, 0), at)
WRAP_READ(__pread64_chk, (int fd, void *to, size_t size, off64_t at, size_t room), (fd, to, size, at, room), (-1, NULL, 0, 0, 0), at)

WRAP_SEEK(fseek, (FILE *f, long to, int whence), (f, to, whence))
WRAP_SEEK(fseeko, (FILE *f, off_t to, int whence), (f, to, whence))
WRAP_SEEK(fseeko64, (FILE *f, off64_t to, int whence), (f, to, whence))
WRAP_SEEK(fsetpos, (FILE *f, const fpos_t *to), (f, to))
WRAP_SEEK(fsetpos64, (FILE *f, const fpos64_t *to), (f, to))
__attribute__((visibility("default"))) void rewind(FILE *f);
void rewind(FILE *f)
{
	NEXT(void, rewind, (FILE * f), );
	const int fd = counter_of(f);
	real.call(f);
	renew(fd, CURRENT);
}

WRAP_OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
WRAP_OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
WRAP_OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
WRAP_OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
WRAP_OPEN_2(__open_2, (const char *path, int flags), (path, flags))
WRAP_OPEN_2(__open64_2, (const char *path, int flags), (path, flags))
WRAP_OPEN_2(__openat_2, (int dir, const char *path, int flags), (dir, path, flags))
WRAP_OPEN_2(__openat64_2, (int dir, const char *path, int flags), (dir, path, flags))
WRAP_FOPEN(fopen)
WRAP_FOPEN(fopen64)

WRAP(int, stat, (const char *path, Stat *st), (path, st), -1)
WRAP(int, stat64, (const char *path, Stat64 *st), (path, st), -1)
WRAP(int, lstat, (const char *path, Stat *st), (path, st), -1)
WRAP(int, lstat64, (const char *path, Stat64 *st), (path, st), -1)
WRAP(int, fstatat, (int dir, const char *path, Stat *st, int flags), (dir, path, st, flags), -1)
WRAP(int, fstatat64, (int dir, const char *path, Stat64 *st, int flags), (dir, path, st, flags), -1)
WRAP(int, statx, (int dir, const char *path, int flags, unsigned mask, struct statx *st), (dir, path, flags, mask, st), -1)
WRAP(int, access, (const char *path, int mode), (path, mode), -1)
WRAP(int, faccessat, (int dir, const char *path, int mode, int flags), (dir, path, mode, flags), -1)

WRAP(ssize_t, readlink, (const char *path, char *to, size_t size), (path, to, size), -1)
WRAP(ssize_t, readlinkat, (int dir, const char *path, char *to, size_t size), (dir, path, to, size), -1)
WRAP(char *, realpath, (const char *path, char *to), (path, to), NULL)

WRAP(int, chdir, (const char *path), (path), -1)
WRAP(DIR *, opendir, (const char *path), (path), NULL)
WRAP(int, scandir, (const char *path, Entry ***list, int (*keep)(const Entry *), int (*compare)(const Entry **, const Entry **)),
	(path, list, keep, compare), -1)
WRAP(int, scandir64, (const char *path, Entry64 ***list, int (*keep)(const Entry64 *), int (*compare)(const Entry64 **, const Entry64 **)),
	(path, list, keep, compare), -1)

/* Programs that were linked with a C library before 2.33 import these. */
WRAP(int, __xstat, (int version, const char *path, Stat *st), (version, path, st), -1)
WRAP(int, __xstat64, (int version, const char *path, Stat64 *st), (version, path, st), -1)
WRAP(int, __lxstat, (int version, const char *path, Stat *st), (version, path, st), -1)
WRAP(int, __lxstat64, (int version, const char *path, Stat64 *st), (version, path, st), -1)
WRAP(int, __fxstatat, (int version, int dir, const char *path, Stat *st, int flags), (version, dir, path, st, flags), -1)
WRAP(int, __fxstatat64, (int version, int dir, const char *path, Stat64 *st, int flags), (version, dir, path, st, flags), -1)

/* Programs that were compiled with _FORTIFY_SOURCE import these. */
WRAP(ssize_t, __readlink_chk, (const char *path, char *to, size_t size, size_t room), (path, to, size, room), -1)
WRAP(ssize_t, __readlinkat_chk, (int dir, const char *path, char *to, size_t size, size_t room), (dir, path, to, size, room), -1)
WRAP(char *, __realpath_chk, (const char *path, char *to, size_t room), (path, to, room), NULL)

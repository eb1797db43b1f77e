/* Calls of programs that were linked with a C library before 2.33, with the library preloaded that answers for the device. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "identity.h"

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

#define DEVICE DEVICE_SYSFS DEVICE_NAME

#if defined(__x86_64__)
#define OLD(name) __asm__(".symver old" #name "," #name "@GLIBC_2.2.5")
#define OLD_AT(name) __asm__(".symver old" #name "," #name "@GLIBC_2.4")
#define STAT_VERSION 1
#else
#define OLD(name) __asm__(".symver old" #name "," #name "@GLIBC_2.17")
#define OLD_AT OLD
#define STAT_VERSION 0
#endif
int old__xstat(int version, const char *path, struct stat *st);
int old__xstat64(int version, const char *path, struct stat64 *st);
int old__lxstat(int version, const char *path, struct stat *st);
int old__lxstat64(int version, const char *path, struct stat64 *st);
int old__fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
int old__fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);
OLD(__xstat);
OLD(__xstat64);
OLD(__lxstat);
OLD(__lxstat64);
OLD_AT(__fxstatat);
OLD_AT(__fxstatat64);

int main(void)
{
	struct stat st;
	struct stat64 st64;
	CHECK(old__xstat(STAT_VERSION, "/dev/infiniband/" DEVICE_NODE, &st) == 0 && S_ISCHR(st.st_mode));
	CHECK(old__xstat64(STAT_VERSION, DEVICE "/node_guid", &st64) == 0 && S_ISREG(st64.st_mode));
	CHECK(old__lxstat(STAT_VERSION, DEVICE "/node_guid", &st) == 0 && S_ISREG(st.st_mode));
	CHECK(old__lxstat64(STAT_VERSION, DEVICE "/node_guid", &st64) == 0 && S_ISREG(st64.st_mode));
	CHECK(old__fxstatat(STAT_VERSION, AT_FDCWD, DEVICE "/node_guid", &st, 0) == 0 && S_ISREG(st.st_mode));
	CHECK(old__fxstatat64(STAT_VERSION, AT_FDCWD, DEVICE, &st64, 0) == 0 && S_ISDIR(st64.st_mode));
	CHECK(old__xstat(STAT_VERSION, DEVICE "0/node_guid", &st) != 0 && errno == ENOENT);
	return 0;
}

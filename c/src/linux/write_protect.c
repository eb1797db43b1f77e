#include "linux/write_protect.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "linux/descriptor.h"

static int open_faults(void)
{
	const long fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	return snd_above_standard((int)(fd >= 0 ? fd : syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
}

/* populate fills the page tables: a page that was never touched could not be protected. */
static void populate(const volatile unsigned char *at, size_t length)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	for (size_t i = 0; i < length; i += page)
		(void)at[i];
}

int snd_protect(void *at, size_t length, bool shared)
{
	const int fd = open_faults();
	const struct uffdio_range range = {(uint64_t)(uintptr_t)at, length};
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | (shared ? UFFD_FEATURE_WP_HUGETLBFS_SHMEM : 0)};
	struct uffdio_register pages = {.range = range, .mode = UFFDIO_REGISTER_MODE_WP};
	struct uffdio_writeprotect protect = {.range = range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &pages) == 0) {
		populate(at, length);
		if (ioctl(fd, UFFDIO_WRITEPROTECT, &protect) == 0)
			return fd;
	}
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

/* The kernel wakes the threads that wait. */
void snd_unprotect(int protection) { (void)close(protection); }

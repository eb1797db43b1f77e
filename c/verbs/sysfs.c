/* Files of sysfs. For those of the device, this call needs no preloaded library. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "linux/descriptor.h"
#include "sys/place.h"

const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size);

const char *ibv_get_sysfs_path(void) { return "/sys"; }

/* Returns the length of the text, without its last newline, or -1 with errno. It ends with a zero if there is space. */
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size)
{
	char path[PATH_MAX], placed[PATH_MAX];
	(void)snprintf(path, sizeof path, "%s/%s", folder, file);
	const int fd = snd_above_standard(open(place(path, placed), O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return -1;
	ssize_t n = read(fd, text, size);
	(void)close(fd);
	if (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	else if (n >= 0 && (size_t)n < size)
		text[n] = '\0';
	return (int)n;
}

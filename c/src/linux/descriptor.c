/* TWIN internal/linux/descriptor.go. */
#include "linux/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

bool snd_identify(int fd, struct snd_identity *identity)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return false;
	*identity = (struct snd_identity){st.st_dev, st.st_ino};
	return true;
}

bool snd_is_still(int fd, const struct snd_identity *identity)
{
	struct snd_identity now;
	return snd_identify(fd, &now) && now.device == identity->device && now.inode == identity->inode;
}

void snd_close_still(int fd, const struct snd_identity *identity)
{
	if (snd_is_still(fd, identity))
		(void)close(fd);
}

int snd_duplicate(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); }

int snd_above_standard(int fd)
{
	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	const int above = snd_duplicate(fd), e = errno;
	(void)close(fd);
	errno = e;
	return above;
}

void snd_stream_pair(int ends[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		ends[0] = ends[1] = -1;
	ends[0] = snd_above_standard(ends[0]);
	ends[1] = snd_above_standard(ends[1]);
}

FILE *snd_open_text(const char *path)
{
	const int fd = snd_above_standard(open(path, O_RDONLY | O_CLOEXEC));
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	if (f == NULL && fd >= 0)
		(void)close(fd);
	return f;
}

void snd_occupy_standard(int held[3])
{
	int n = 0;
	for (int fd; n < 3 && (fd = open("/", O_PATH | O_CLOEXEC)) >= 0; held[n++] = fd)
		if (fd > STDERR_FILENO) {
			(void)close(fd);
			break;
		}
	while (n < 3)
		held[n++] = -1;
}

void snd_vacate_standard(const int held[3])
{
	const int e = errno;
	for (int i = 0; i < 3 && held[i] >= 0; i++)
		(void)close(held[i]);
	errno = e;
}

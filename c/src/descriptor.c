#include "descriptor.h"

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

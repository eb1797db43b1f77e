/* Whether a descriptor is still the library's. A program may close all descriptors that it does not know (closefrom), and then
 * another file has the number. The library must not write to that file, nor close it. */
#ifndef SND_DESCRIPTOR_H
#define SND_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>

/* snd_identity is that of an open file. Event descriptors and those of epoll all have the same one. */
struct snd_identity {
	dev_t device;
	ino_t inode;
};

/* snd_identify stores the identity of a descriptor that the caller has just made. */
bool snd_identify(int fd, struct snd_identity *identity);
/* snd_is_still reports whether a descriptor has this identity. */
bool snd_is_still(int fd, const struct snd_identity *identity);
/* snd_close_still closes a descriptor if it has this identity. */
void snd_close_still(int fd, const struct snd_identity *identity);

#endif

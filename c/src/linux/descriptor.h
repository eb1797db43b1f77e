/* The library's own descriptors. None is 0, 1 or 2, even if the program was started with these closed, as daemons are: its
 * output would otherwise go into the arena, and to peers.
 *
 * Whether a descriptor is still the library's. A program may close all descriptors that it does not know (closefrom), and then
 * another file has the number. The library must not write to that file, nor close it. */
#ifndef SND_DESCRIPTOR_H
#define SND_DESCRIPTOR_H

#include <stdbool.h>
#include <stdio.h>
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

/* snd_above_standard takes the result of a call that makes a descriptor, and moves it above 2. It returns -1 with errno. Each
 * such call of the library is its argument. */
int snd_above_standard(int fd);
/* snd_duplicate returns a duplicate above 2, or -1 with errno. */
int snd_duplicate(int fd);
/* snd_stream_pair makes two connected sockets. One that it cannot make is -1, with errno. */
void snd_stream_pair(int ends[2]);
/* snd_open_text opens a file for reading, or returns NULL with errno. */
FILE *snd_open_text(const char *path);

/* Between snd_occupy_standard and snd_vacate_standard 0, 1 and 2 are in use: a descriptor of shared memory is then not even
 * for a moment one that another thread prints to. Nothing can be read from or written to the files in their place. */
void snd_occupy_standard(int held[3]);
void snd_vacate_standard(const int held[3]);

#endif

#ifndef SOFTND_VERBS_PLACE_H
#define SOFTND_VERBS_PLACE_H

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* place returns the path of the file that stands for path: in the tree beside this library for a file of sysfs that belongs to the
 * device, /dev/null for the device's node, and path itself for any other file. buffer may hold the result. It keeps errno. */
const char *place(const char *path, char buffer[PATH_MAX]);
/* in_device returns the part of a path in the tree that is below the device's directory, or "". */
const char *in_device(const char *placed);
/* beside returns the path of a file beside this library, or NULL. */
const char *beside(const char *name, char buffer[PATH_MAX]);
/* device_path returns the path of a file of the device in the tree, or NULL. */
const char *device_path(const char *name, char buffer[PATH_MAX]);

/* Files of the tree without a byte stand for ones with another text in each process or at each moment. softnd_device_file, a call of libibverbs,
 * stores that text, and returns its length; 0 = there is none. path is below the device's directory. */
enum { DEVICE_FILE = 64 }; /* bytes are enough */
size_t softnd_device_file(const char *path, char *text, size_t size);
/* fill makes fd, which is open for a path, read as that text if the file is one of those. renew is called before a read at an offset, or at that of the
 * descriptor if it is CURRENT: a program may read a counter again, from its beginning. Both keep errno. */
enum { CURRENT = -1 };
void fill(int fd, const char *path);
void renew(int fd, off_t at);
/* counter_of empties the buffer of a stream if that reads a counter, and returns its descriptor, else -1. It keeps errno. */
int counter_of(FILE *f);

#endif

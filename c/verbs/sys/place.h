#ifndef SOFTND_VERBS_PLACE_H
#define SOFTND_VERBS_PLACE_H

#include <limits.h>

/* place returns the path of the file that stands for path: in the tree beside this library for a file of sysfs that belongs to the
 * device, /dev/null for the device's node, and path itself for any other file. buffer may hold the result. It keeps errno. */
const char *place(const char *path, char buffer[PATH_MAX]);

#endif

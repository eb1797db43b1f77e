/* Which paths name the device. The tree of its files is beside this library, wherever that is installed. */
#include "place.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "identity.h"

#define VERBS_SYSFS "/sys/class/infiniband_verbs/"

/* behind returns the rest of path behind start, or NULL if path begins otherwise. */
static const char *behind(const char *path, const char *start)
{
	size_t n = strlen(start);
	return strncmp(path, start, n) == 0 ? path + n : NULL;
}

/* below returns the rest of path behind a name, or NULL if path begins with another name. */
static const char *below(const char *path, const char *name)
{
	const char *rest = behind(path, name);
	return rest != NULL && (*rest == '\0' || *rest == '/') ? rest : NULL;
}

/* This library is found by the address of this. */
static const char own_address[1];

/* in_tree joins the directory of this library, a directory of the tree, and the rest of path. dladdr takes a lock of the loader, so a
 * signal handler may call this, but not one that interrupts the loader. */
static const char *in_tree(const char *directory, const char *rest, const char *path, char buffer[PATH_MAX])
{
	Dl_info own;
	const char *slash;
	size_t length, n[2] = {strlen(directory), strlen(rest) + 1};
	if (dladdr(own_address, &own) == 0 || (slash = strrchr(own.dli_fname, '/')) == NULL)
		return path;
	length = (size_t)(slash - own.dli_fname);
	if (length + n[0] + n[1] > PATH_MAX)
		return path;
	memcpy(buffer, own.dli_fname, length);
	memcpy(buffer + length, directory, n[0]);
	memcpy(buffer + length + n[0], rest, n[1]);
	return buffer;
}

const char *beside(const char *name, char buffer[PATH_MAX]) { return in_tree("/", name, NULL, buffer); }

const char *device_path(const char *name, char buffer[PATH_MAX]) { return in_tree(DEVICE_SYSFS DEVICE_NAME "/", name, NULL, buffer); }

const char *in_device(const char *placed)
{
	static const char directory[] = DEVICE_SYSFS DEVICE_NAME "/";
	const char *at = strstr(placed, directory);
	return at != NULL ? at + sizeof directory - 1 : "";
}

const char *place(const char *path, char buffer[PATH_MAX])
{
	const char *rest;
	if (path == NULL)
		return path;
	if ((rest = behind(path, "/dev/infiniband/")) != NULL)
		return strcmp(rest, DEVICE_NODE) == 0 ? "/dev/null" : path;
	if ((rest = behind(path, DEVICE_SYSFS)) != NULL) {
		const char *name = getenv("SOFTND_VERBS_DEVICE");
		rest = below(rest, name != NULL && *name != '\0' ? name : DEVICE_NAME);
		return rest != NULL ? in_tree(DEVICE_SYSFS DEVICE_NAME, rest, path, buffer) : path;
	}
	if ((rest = behind(path, VERBS_SYSFS)) != NULL && (rest = below(rest, DEVICE_NODE)) != NULL)
		return in_tree(VERBS_SYSFS DEVICE_NODE, rest, path, buffer);
	return path;
}

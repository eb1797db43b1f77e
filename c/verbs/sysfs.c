/* Files of sysfs. For those of the device, this call needs no preloaded library. Some of them have another text in each process or at each moment:
 * the tree has them without a byte. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "linux/descriptor.h"
#include "objects.h"
#include "sys/place.h"

const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size);

const char *ibv_get_sysfs_path(void) { return "/sys"; }

/* words writes numbers of 16 bits in network order as sysfs does. */
static size_t words(const void *from, size_t count, char *text, size_t size)
{
	size_t n = 0;
	for (size_t i = 0; i < count; i++) {
		uint16_t word;
		memcpy(&word, (const char *)from + 2 * i, sizeof word);
		n += (size_t)snprintf(text + n, size - n, "%04x%c", ntohs(word), i + 1 < count ? ':' : '\n');
	}
	return n;
}

/* entry returns the index that ends a path below a directory; -1 = it is another path, or the entry is empty. */
static int entry(const char *path, const char *directory, const struct addresses *own)
{
	const size_t n = strlen(directory);
	const int i = strncmp(path, directory, n) == 0 ? atoi(path + n) : -1;
	return has_gid(own, i) ? i : -1;
}

/* counter stores a counter of the port. All that is sent is received by the same port. A packet has 4,096 bytes, or is the rest of a
 * request. */
static size_t counter(const char *path, char *text, size_t size)
{
	const struct traffic t = count_traffic();
	return (size_t)snprintf(text, size, "%llu\n", (unsigned long long)(strstr(path, "data") != NULL ? t.bytes / 4 : t.requests + t.bytes / 4096));
}

size_t softnd_device_file(const char *path, char *text, size_t size)
{
	const struct addresses own = own_addresses();
	int i;
	if (strcmp(path, "node_guid") == 0 || strcmp(path, "sys_image_guid") == 0)
		return words(&own.gids[0].global.interface_id, 4, text, size);
	if (strcmp(path, "ports/1/lid") == 0)
		return (size_t)snprintf(text, size, "%#x\n", own.lid);
	if (strcmp(path, "ports/1/link_layer") == 0)
		return (size_t)snprintf(text, size, "%s\n", is_ethernet() ? "Ethernet" : "InfiniBand");
	if (strncmp(path, COUNTERS, sizeof COUNTERS - 1) == 0)
		return counter(path, text, size);
	if ((i = entry(path, "ports/1/gids/", &own)) >= 0)
		return words(&own.gids[i], 8, text, size);
	if ((i = entry(path, "ports/1/gid_attrs/types/", &own)) >= 0)
		return (size_t)snprintf(text, size, "%s\n", gid_type((uint32_t)i) == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
	return 0;
}

/* Returns the length of the text, without its last newline, or -1 with errno. It ends with a zero if there is space. */
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size)
{
	SND_UNCANCELED;
	char path[PATH_MAX], placed[PATH_MAX], live[DEVICE_FILE];
	(void)snprintf(path, sizeof path, "%s/%s", folder, file);
	const char *found = place(path, placed);
	const int fd = snd_above_standard(open(found, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return -1;
	ssize_t n = read(fd, text, size);
	(void)close(fd);
	if (n == 0 && found == placed && (n = (ssize_t)softnd_device_file(in_device(placed), live, sizeof live)) > 0) {
		n = n < (ssize_t)size ? n : (ssize_t)size;
		memcpy(text, live, (size_t)n);
	}
	if (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	else if (n >= 0 && (size_t)n < size)
		text[n] = '\0';
	return (int)n;
}

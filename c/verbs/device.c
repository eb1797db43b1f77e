/* The list of devices. Listing them opens nothing. */
#include "objects.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "settings.h"

/* The system's libraries of cards read the pointer after ibv_device, which their own devices have there, and find that this is
 * another one. */
static struct {
	struct ibv_device public;
	const void *no_driver;
} device = {.public = {.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB}};
static pthread_once_t named = PTHREAD_ONCE_INIT;

static void name_device(void)
{
	const char *name = getenv("SOFTND_VERBS_DEVICE");
	struct ibv_device *d = &device.public;
	if (name == NULL || name[0] == '\0')
		name = DEVICE_NAME;
	if (strlen(name) >= sizeof d->name || name[0] == '.' || strchr(name, '/') != NULL)
		return;
	(void)snprintf(d->name, sizeof d->name, "%s", name);
	(void)snprintf(d->dev_name, sizeof d->dev_name, "%s", DEVICE_NODE);
	(void)snprintf(d->dev_path, sizeof d->dev_path, "%s", DEVICE_NODE_SYSFS);
	(void)snprintf(d->ibdev_path, sizeof d->ibdev_path, "%s%s", DEVICE_SYSFS, d->name);
}

/* the_device returns the only one, or NULL with errno if SOFTND_VERBS_DEVICE is not a name, or SOFTND_VERBS_LINK not a link layer. The program itself can say
 * only that there is no device. TWIN cmd/internal/verbs/settings.go. */
static struct ibv_device *the_device(void)
{
	const char *link = snd_value_of("SOFTND_VERBS_LINK");
	(void)pthread_once(&named, name_device);
	if (*link != '\0' && strcmp(link, "infiniband") != 0 && !is_ethernet()) {
		(void)report_status(snd_fail(SND_INVALID_PARAMETER, "list devices: SOFTND_VERBS_LINK: \"%s\": want infiniband or roce", link));
		return NULL;
	}
	if (device.public.name[0] == '\0') {
		(void)report_status(snd_fail(SND_INVALID_PARAMETER, "list devices: SOFTND_VERBS_DEVICE: \"%s\": want 1 to %zu bytes without /, and no . first", snd_value_of("SOFTND_VERBS_DEVICE"),
			sizeof device.public.name - 1));
		return NULL;
	}
	return &device.public;
}

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device *d = the_device();
	if (count != NULL)
		*count = 0;
	if (d == NULL)
		return NULL;
	struct ibv_device **list = calloc(2, sizeof(struct ibv_device *)); /* a NULL ends it */
	if (list == NULL)
		return NULL;
	list[0] = d;
	if (count != NULL)
		*count = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }

const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

__be64 ibv_get_device_guid(struct ibv_device *d)
{
	(void)d;
	return htobe64(own_addresses().guid);
}

/* The kernel's number of the device: it has none. */
int ibv_get_device_index(struct ibv_device *d)
{
	(void)d;
	return -1;
}

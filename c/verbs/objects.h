/* Structures of the library. The first field of each is the one of verbs.h, which programs see. */
#ifndef SOFTND_VERBS_OBJECTS_H
#define SOFTND_VERBS_OBJECTS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>

struct pd {
	struct ibv_pd public;
	atomic_uint users; /* objects in the domain */
};

struct ah {
	struct ibv_ah public;
	struct ibv_ah_attr attr;
};

/* The port has the number 1. The first entry of its tables of GIDs and partition keys is in use. */
enum { PORT = 1, ENTRY = 0 };

/* port_gid returns the GID of the port. */
union ibv_gid port_gid(void);
/* query_device_ex and query_port are entries of the context's table. They fill size bytes: attributes that the caller's structure has
 * and this library does not know are 0. */
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size);
int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);

/* new_event_descriptor returns a descriptor that becomes readable with an event, or -1 with errno. */
int new_event_descriptor(void);

#endif

/* Handles. The memory of every object behind a handle is never unmapped while the library is loaded,
 * and reads as zero in a forked child. So the magic number of a handle can always be checked. */
#ifndef SND_OBJECT_H
#define SND_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softnd/softnd.h"

#include "atomic.h"

struct snd_fabric;

enum snd_type { SND_TYPE_FABRIC, SND_TYPE_ADAPTER, SND_TYPE_MR, SND_TYPE_WINDOW, SND_TYPE_CQ, SND_TYPE_SRQ, SND_TYPE_ENDPOINT,
	SND_TYPE_CONNECTOR, SND_TYPE_LISTENER, SND_TYPE_JOB, SND_TYPES };

#define SND_MAGIC_OF(type) (0x736e6400u + (uint32_t)(type))

struct snd_object {
	uint32_t magic; /* SND_MAGIC_OF the type; 0: closed, or in a forked child */
	uint32_t type;
	struct snd_fabric *fabric;
	struct snd_object *next_free;
};

/* snd_object_new returns zeroed memory for an object, NULL if there is none. */
void *snd_object_new(enum snd_type type, size_t size, struct snd_fabric *fabric);
/* snd_object_hide makes the handle invalid. snd_object_free also lets its memory be used again. */
void snd_object_hide(struct snd_object *o);
void snd_object_free(struct snd_object *o);

/* snd_forked reports whether the process is a forked child of one that used the library. */
bool snd_forked(void);
/* snd_start prepares the library; it fails in a forked child. */
snd_status snd_start(const char *op);

/* snd_in_use counts the open fabrics: while there are any, the library keeps its memory when it is unloaded, or the
 * process exits. */
void snd_in_use(int change);

snd_status snd_bad_handle(const char *op, const char *what);

#define SND_VALID(h, type) snd_likely((h) != NULL && (h)->object.magic == SND_MAGIC_OF(type))
#define SND_CHECK(h, type, op) \
	do { \
		if (!SND_VALID(h, type)) \
			return snd_bad_handle(op, #h); \
	} while (0)

#endif

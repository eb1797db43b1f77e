/* Handles. The memory of an object is never unmapped while the library is loaded, and never becomes an object of another
 * type. In a forked child it reads as zero. So the magic number of a handle can always be checked. */
#ifndef SND_OBJECT_H
#define SND_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softnd/softnd.h"

struct snd_fabric;

enum snd_type { SND_TYPE_FABRIC, SND_TYPE_ADAPTER, SND_TYPE_MR, SND_TYPE_WINDOW, SND_TYPE_MAPPING, SND_TYPE_CQ, SND_TYPE_SRQ, SND_TYPE_ENDPOINT,
	SND_TYPE_CONNECTOR, SND_TYPE_LISTENER, SND_TYPE_JOB, SND_TYPES };

#define SND_MAGIC_OF(type) (0x736e6400u + (uint32_t)(type))

/* A call reads magic and fabric before it has the lock, perhaps while another thread closes the handle. So both are written
 * by atomic stores; all other fields are guarded by the fabric's lock. */
struct snd_object {
	uint32_t magic; /* SND_MAGIC_OF the type; 0: closed, or in a forked child */
	uint16_t type;
	bool safe;  /* of a fabric with SND_THREAD_SAFE, now and after each reuse */
	bool freed; /* the last call that holds the object lets it be used again */
	uint32_t holds;
	struct snd_fabric *fabric;
	struct snd_object *next_free;
};

/* snd_object_new returns memory for an object, zeroed except for the first kept bytes; NULL if there is none. Those bytes
 * are as the previous object of this type left them, or zero. Unless fabric is NULL the handle is valid. */
void *snd_object_new(enum snd_type type, size_t size, size_t kept, struct snd_fabric *fabric, bool safe);
/* snd_object_show makes the handle of an object valid that was made without a fabric. */
void snd_object_show(struct snd_object *o, struct snd_fabric *fabric);
/* snd_object_hide makes the handle invalid. snd_object_free also lets its memory be used again, when no call holds it. */
void snd_object_hide(struct snd_object *o);
void snd_object_free(struct snd_object *o);

/* A call holds an object while it waits, so that the memory stays that of the object. Afterwards it checks whether another
 * call has closed the handle. The caller has the lock. */
static inline void snd_hold(struct snd_object *o) { o->holds++; }
void snd_let_go(struct snd_object *o);
static inline bool snd_is_closed(const struct snd_object *o) { return o->magic == 0; }

/* snd_forked reports whether the process is a forked child of one that used the library, and has not used it itself. */
bool snd_forked(void);
/* snd_start prepares the library. In a forked child it does so again. */
snd_status snd_start(const char *op);

/* snd_in_use counts the open fabrics: while there are any, the library keeps its memory when it is unloaded, or the
 * process exits. */
void snd_in_use(int change);

/* snd_not_drained is the status of a close that has waited in vain for the end of copies. */
snd_status snd_not_drained(snd_status s, int64_t timeout, const char *op);
/* snd_closed_meanwhile is the status of a close during which another call has closed the handle. */
snd_status snd_closed_meanwhile(const char *op);
snd_status snd_bad_handle(const char *op, const char *what);

static inline bool snd_has_magic(const struct snd_object *o, enum snd_type type)
{
	return __atomic_load_n(&o->magic, __ATOMIC_ACQUIRE) == SND_MAGIC_OF(type);
}
static inline struct snd_fabric *snd_fabric_of(const struct snd_object *o) { return __atomic_load_n(&o->fabric, __ATOMIC_RELAXED); }

#endif

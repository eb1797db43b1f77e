/* Regions, windows and the drain of a token. The fabric's lock guards everything here. */
#ifndef SND_WINDOW_H
#define SND_WINDOW_H

#include "fabric.h"

/* Limits of an adapter. */
#define SND_MAX_REGISTRATION (UINT64_C(64) << 30)
#define SND_MAX_TRANSFER (UINT64_C(1) << 30)
enum {
	SND_MIN_SGE = 4,
	SND_MAX_QUEUE_DEPTH = 4096,
	SND_DEFAULT_QUEUE_DEPTH = 64,
	SND_MAX_CQ_DEPTH = 65536,
	SND_MAX_READS = 128,
	SND_MAX_INLINE = 1024,
	SND_INLINE_THRESHOLD = 256,
};

struct snd_adapter {
	struct snd_object object;
	struct snd_link link;
	struct snd_link connections; /* attached ones: their peers' hazards can name tokens of this adapter */
	uint64_t number;             /* unique in the arena */
	uint32_t objects;            /* that still use it */
	bool closed;
};

/* snd_region is registered memory. */
struct snd_region {
	struct snd_adapter *adapter;
	struct snd_own_entry *local, *remote;
	unsigned char *memory; /* NULL: not registered */
	uint64_t length;
	uint32_t flags;
	uint32_t local_token, remote_token; /* the latest */
	uint32_t windows;                   /* bound to it, or prepared */
	bool draining;
};

struct snd_mr {
	struct snd_object object;
	struct snd_link link;
	struct snd_region region;
	uint64_t offset; /* arena memory that snd_mr_allocate made; 0 = none */
	uint64_t length;
	void *buffer;
};

/* snd_binding is a bind that has been checked and has its token. */
struct snd_binding {
	struct snd_region *region; /* NULL: none */
	unsigned char *memory;
	uint64_t base, length, offset, scope, bound_on;
	uint32_t token, bind, rights;
};

struct snd_window {
	struct snd_object object;
	struct snd_link link;
	struct snd_link bound_link; /* in the list of the endpoint on which it is bound */
	struct snd_adapter *adapter;
	struct snd_own_entry *entry;
	struct snd_region *region; /* of the bind that is in effect, or waits for its release; NULL = none */
	uint64_t bound_on;
	snd_window_descriptor latest;
	uint32_t references;  /* of queued requests */
	uint32_t close_token; /* that snd_window_close is draining */
	bool retired;         /* it must not be bound again */
	bool freed;           /* closed; the last reference frees it */
};

/* snd_drained reports whether no live executor uses an invalid token. */
bool snd_drained(const struct snd_adapter *a, uint32_t token);

snd_status snd_region_init(struct snd_region *r, struct snd_adapter *a, const char *op);
void snd_region_register(struct snd_region *r, void *memory, uint64_t length, uint32_t flags);
void snd_region_revoke(struct snd_region *r);
bool snd_region_drained(const struct snd_region *r);
void snd_region_end(struct snd_region *r);

/* snd_prepare checks a bind and makes its token. The caller then calls snd_apply or snd_cancel_binding. */
bool snd_prepare(struct snd_window *w, struct snd_region *r, void *memory, uint64_t length, uint32_t rights, uint64_t endpoint,
	bool only, struct snd_binding *b);
bool snd_apply(struct snd_window *w, struct snd_binding *b);
void snd_cancel_binding(struct snd_binding *b);
/* snd_invalidate_window makes the token invalid and returns it; 0 if the window is not bound on the endpoint (0: any). */
uint32_t snd_invalidate_window(struct snd_window *w, uint64_t endpoint);
/* snd_release_window ends an invalidation whose token is drained. */
void snd_release_window(struct snd_window *w);
void snd_unreference_window(struct snd_window *w);

#endif

/* Regions, windows and the drain of a token. The fabric's lock guards everything here. */
#ifndef SND_WINDOW_H
#define SND_WINDOW_H

#include "shm/fabric.h"

/* The flags of regions: rights, and those that have an effect on other adapters and systems only. */
#define SND_REGION_RIGHTS (SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE)
#define SND_REGION_FLAGS (SND_REGION_RIGHTS | SND_RDMA_READ_SINK | SND_DO_NOT_SECURE_VM)

/* Limits of an adapter. */
#define SND_MAX_REGISTRATION (UINT64_C(64) << 30)
#define SND_MAX_TRANSFER (UINT64_C(1) << 30)
enum {
	SND_MAX_QUEUE_DEPTH = 4096, /* of any peer */
	SND_DEFAULT_QUEUE_DEPTH = 64,
	SND_MAX_READS = 128, /* of any peer */
	SND_INLINE_THRESHOLD = 256,
	SND_MAX_FAST_PAGES = 4096, /* scattered pages may need a kernel mapping each, and a process has about 65,000 */
};

/* snd_limits are the limits in which a small card differs from a large one. */
struct snd_limits {
	uint32_t sge;
	uint32_t least_sge; /* granted even if the program asks for less */
	uint32_t inline_size, queue_depth, cq_depth, reads;
	uint32_t private_data; /* of a request or answer to connect */
};
/* snd_large_limits are those of softnd, snd_small_limits those with a weak order: little hardware has less. */
extern const struct snd_limits snd_large_limits, snd_small_limits;

struct snd_adapter {
	struct snd_object object;
	struct snd_link link;
	struct snd_link connections; /* attached ones: their peers' hazards can name tokens of this adapter */
	struct snd_link mappings;
	uint32_t privileged;         /* local token for the memory of the mappings; 0 = not made yet */
	struct snd_own_entry *privileged_entry;
	uint64_t number;             /* unique in the arena */
	uint32_t objects;            /* that still use it */
};

/* snd_invalidatable is what an Invalidate ends: a bound window, or a region that a request has registered. It is part of
 * every window and region. */
struct snd_invalidatable {
	struct snd_adapter *adapter;
	struct snd_own_entry *local; /* of a region's local token; NULL for a window */
	struct snd_own_entry *remote;
	enum {
		SND_UNBOUND,
		SND_BOUND,    /* the tokens are valid */
		SND_DRAINING, /* the tokens are invalid, but peers may still access the memory */
	} state;
	uint64_t number;           /* among the windows and regions of the process, from 1 */
	bool retired;              /* it must not be bound or registered again */
	bool freed;                /* closed; the last reference frees it */
	uint32_t references;       /* of queued requests, and of an endpoint that invalidates it */
	uint32_t windows;          /* of a region: bound to it, or prepared */
	uint64_t bound_on;         /* endpoint whose request bound or registered it; 0 = no request can invalidate it */
	struct snd_link bound_link; /* in the list of that endpoint */
	struct snd_endpoint *ended; /* of the work: the endpoint at whose end it was invalidated */
	struct snd_work work;       /* releases it then */
};

/* snd_region is registered memory. */
struct snd_region {
	struct snd_invalidatable i;
	unsigned char *memory;
	uint64_t address; /* of memory[0] for peers */
	uint64_t length;
	uint32_t flags;
	uint32_t local_token, remote_token; /* the latest */
	struct snd_registration *registration; /* by a request; NULL = none */
};

/* snd_mapping lists the pages of a part of an allocated region, for fast registrations. */
struct snd_mapping {
	struct snd_object object;
	struct snd_link link; /* of the adapter */
	struct snd_mr *mr;
	struct snd_region region; /* for requests with the privileged token */
	uint64_t start, end;      /* in the arena */
	uint32_t registrations;   /* that use its pages, also posted ones */
	bool closing;             /* no further registrations */
};

/* snd_registration is a fast registration, from its post to its end. */
struct snd_registration {
	unsigned char *memory;
	uint64_t address, length;
	uint32_t rights, local_token, remote_token, local_bind, remote_bind;
	uint64_t bound_on;
	void *alias; /* second mapping of pages that are not adjacent in the arena; NULL = they are adjacent */
	uint64_t alias_length;
	uint32_t count;
	struct snd_mapping *mappings[]; /* an entry for each time that a mapping is used */
};

struct snd_mr {
	struct snd_object object;
	struct snd_link link;
	struct snd_region region;
	struct snd_allocation *allocation; /* of snd_mr_allocate; NULL = none */
	struct snd_hold *hold;             /* keeps allocated memory of other regions in place; NULL = none */
	uint64_t address, length; /* of the latest registration, as peers name it */
	void *buffer;
	uint32_t mappings;   /* of its memory */
	uint32_t fast_pages; /* limit of one fast registration; 0 = the region is not for them */
	bool fast_remote;    /* fast registrations may have remote rights */
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
	struct snd_invalidatable i;
	struct snd_region *region; /* of the bind that is in effect, or waits for its release */
	snd_window_descriptor latest;
};

/* invalidatable.c */
/* snd_invalidate makes the tokens of i invalid. It returns false, and does nothing, unless a request of the endpoint has
 * bound or registered i. The same holds while a window is bound to i, except at_end: the endpoint has ended. */
bool snd_invalidate(struct snd_invalidatable *i, uint64_t endpoint, bool at_end);
/* snd_revoke_all makes the tokens invalid if they are valid. */
void snd_revoke_all(struct snd_invalidatable *i);
/* snd_end_invalidation ends an invalidation, so that i can be bound or registered again. It returns false while a peer uses
 * one of the tokens. Without an invalidation it does nothing and returns true. */
bool snd_end_invalidation(struct snd_invalidatable *i);
/* snd_is_released is snd_end_invalidation for a wait. It is also true if another call has closed the object. */
bool snd_is_released(void *invalidatable);
/* snd_release_later releases what was invalidated at the end of an endpoint, when it is drained. It takes over one
 * reference. */
void snd_release_later(struct snd_endpoint *ep, struct snd_invalidatable *i);
/* snd_find_bound returns what an Invalidate of a token on an endpoint ends, NULL if there is none. kind is
 * SNDL_RIGHT_REMOTE, or SNDL_RIGHT_LOCAL for the local token of a region. */
struct snd_invalidatable *snd_find_bound(struct snd_endpoint *ep, uint32_t token, uint32_t kind);
void snd_unreference(struct snd_invalidatable *i);
/* snd_free_closed frees the closed object that i is a part of, now or with its last reference. */
void snd_free_closed(struct snd_invalidatable *i);
static inline bool snd_is_region(const struct snd_invalidatable *i) { return i->local != NULL; }

/* mr.c */
snd_status snd_region_init(struct snd_region *r, struct snd_adapter *a, const char *op);
void snd_region_register(struct snd_region *r, void *memory, uint64_t length, uint32_t flags);
/* snd_region_apply makes both tokens of a fast registration valid. It returns false, and frees the registration, if the
 * region is registered or closed. */
bool snd_region_apply(struct snd_region *r, struct snd_registration *g);
/* snd_region_end gives the entries of a released region back. */
void snd_region_end(struct snd_region *r);
/* snd_detach_window undoes the reference of a window, or a prepared bind, to its region. */
void snd_detach_window(struct snd_region *r);

/* mr_fastreg.c */
/* snd_end_registration ends a fast registration whose tokens are released, if no window uses the region. */
void snd_end_registration(struct snd_region *r);
void snd_free_registration(struct snd_registration *g);

/* mr_mapping.c */
/* snd_find_mapping finds the mapping of an adapter that contains the bytes from lo to hi of a page, hi excluded. */
struct snd_mapping *snd_find_mapping(struct snd_adapter *a, uint64_t page, uint64_t lo, uint64_t hi);
void snd_forget_mappings(struct snd_adapter *a);
/* snd_resolve gives an entry with the privileged token that of its mapping, so that no copy uses the privileged token, and
 * each mapping can be drained on its own. It returns false for any other entry, and for memory that is not mapped. */
bool snd_resolve(const struct snd_adapter *a, uint64_t address, uint32_t length, uint32_t *token);

/* mw.c */
/* snd_prepare checks a bind and makes its token. The caller then calls snd_apply or snd_cancel_binding. */
bool snd_prepare(struct snd_window *w, struct snd_region *r, void *memory, uint64_t length, uint32_t rights, uint64_t endpoint,
	bool only, struct snd_binding *b);
bool snd_apply(struct snd_window *w, struct snd_binding *b);
void snd_cancel_binding(struct snd_binding *b);

#endif

/* Regions, windows and the drain of a token. The fabric's lock guards everything here. */
#ifndef SND_WINDOW_H
#define SND_WINDOW_H

#include "shm/fabric.h"
#include "window/table.h"

/* The flags of regions: rights, and those that have an effect on other adapters and systems only. */
#define SND_REGION_RIGHTS (SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC)
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

struct snd_adapter {
	struct snd_object object;
	struct snd_link link;
	struct snd_link hazards;     /* of the peers of its attached connections */
	struct snd_link mappings;
	uint32_t privileged;         /* local token for the memory of the mappings; 0 = not made yet */
	struct snd_own_entry *privileged_entry;
	uint64_t number;             /* unique in the arena */
	uint32_t objects;            /* that still use it */
	bool of_job;                 /* snd_job_close closes it */
	struct snd_work free_work;
};

/* snd_peer_hazard is the hazard of a peer, which can name tokens of an adapter. */
struct snd_peer_hazard {
	struct snd_link link;
	const snd_word *word; /* NULL: the death of the peer was handled, and its memory may be reused */
	struct snd_peer peer;
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
	uint64_t bound_on;         /* endpoint whose request bound or registered it; 0 = no request can invalidate it, but see any_endpoint */
	bool any_endpoint;         /* of a window: requests of every endpoint of the adapter bind and invalidate it, also while it is bound */
	struct snd_link bound_link; /* in the list of that endpoint */
	uint32_t *pending; /* of the work: counts what the endpoint at whose end it was invalidated waits for */
	struct snd_work work;       /* ends its invalidation then */
};

/* snd_region is registered memory. */
struct snd_region {
	struct snd_invalidatable i;
	unsigned char *memory;
	uint64_t address; /* of memory[0] for peers */
	uint64_t length;
	struct snd_location place;
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
	struct snd_adopted *adopted;       /* pages of the program that are the arena's; NULL = none */
	const char *private_because;       /* why it has none; NULL = it has, or needs none */
	struct snd_hold *hold;             /* keeps allocated memory of other regions in place; NULL = none */
	uint64_t address, length; /* of the latest registration, as peers name it */
	void *buffer;
	uint32_t placement;  /* of SND_HUGE_PAGES and so on, what the memory was given */
	uint32_t mappings;   /* of its memory */
	uint32_t fast_pages; /* limit of one fast registration; 0 = the region is not for them */
	bool fast_remote;    /* fast registrations may have remote rights */
};

/* snd_binding is a bind that has been checked and has its token. */
struct snd_binding {
	struct snd_region *region; /* NULL: none */
	unsigned char *memory;
	struct snd_location place;
	uint64_t base, length, scope, bound_on;
	uint32_t token, bind, rights;
};

struct snd_window {
	struct snd_object object;
	struct snd_link link;
	struct snd_invalidatable i;
	struct snd_region *region; /* of the bind that is in effect, or waits for the end of its invalidation */
	snd_window_descriptor latest;
};

/* window.c */
/* snd_prepare checks a bind and makes its token. The caller then calls snd_apply or snd_cancel_binding. */
struct snd_bind_wish {
	void *memory;
	uint64_t length;
	uint32_t rights;
	uint32_t like;     /* token whose tag the new one has; 0 = the next tag */
	uint64_t endpoint;
	bool only;         /* the peer of the endpoint alone may use the token */
	bool zero_based;   /* peers count from the begin of the window */
};
bool snd_prepare(struct snd_window *w, struct snd_region *r, const struct snd_bind_wish *wish, struct snd_binding *b);
bool snd_apply(struct snd_window *w, struct snd_binding *b);
void snd_cancel_binding(struct snd_binding *b);

#endif

/* Structures of the library. The first field of each is the one of verbs.h, which programs see, but for a context. */
#ifndef SOFTND_VERBS_OBJECTS_H
#define SOFTND_VERBS_OBJECTS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "identity.h"
#include "softnd/softnd.h"

/* event_queue has a descriptor that is readable while events are queued. */
struct event_queue {
	pthread_mutex_t lock; /* the fabric's lock comes before it */
	struct event *first;
	int fd;
};

/* event is in a queue, or not: one that repeats before the program takes it counts once, and no event needs memory. */
struct event {
	struct event *next;
	bool queued;
	uint32_t *taken; /* how many events of the object the program has taken, and has to acknowledge */
	struct ibv_async_event async; /* of a completion, its element.cq */
};

struct context {
	struct event_queue events;
	snd_adapter *queues; /* of the completion queues, which all domains use; NULL before the first */
	atomic_uint queue_count;
	unsigned joined; /* number of the process that has joined its fabric for this context; 0 = none */
	struct pd *domains;
	struct verbs_context verbs; /* last, for its own last field is the public one */
};

/* pd is an adapter of the fabric: the core refuses keys of another one. */
struct pd {
	struct ibv_pd public;
	atomic_uint users; /* objects in the domain */
	snd_adapter *adapter; /* NULL before the first object that needs it */
	struct pd *next; /* of the context */
};

struct ah {
	struct ibv_ah public;
	struct ibv_ah_attr attr;
};

struct mr {
	struct ibv_mr public;
	snd_mr *core;
	uint64_t iova;
	unsigned access;
};

struct mw {
	struct ibv_mw public;
	snd_window *core;
};

struct channel {
	struct ibv_comp_channel public;
	struct event_queue events;
};

struct cq {
	struct ibv_cq_ex public; /* begins with the fields of ibv_cq */
	snd_cq *core;
	atomic_uint users; /* queue pairs */
	struct event completion, overrun;
	uint32_t completions_taken, overruns_taken;
	pthread_mutex_t polling; /* from start_poll to end_poll */
	snd_result current;      /* in between */
	bool single_threaded, stamps;
	uint64_t stamp; /* when the current result was taken */
};

struct srq {
	struct ibv_srq public;
	snd_srq *core;
	atomic_uint users; /* queue pairs */
	struct event low;
	uint32_t taken;
	struct ibv_srq_attr attr; /* its srq_limit is asked of the core */
};

/* The port has the number 1, and one partition key. */
enum { PORT = 1, ENTRY = 0 };

/* Results of a completion queue: as many as those of a card, for programs that do not read the limit. A queue uses the memory of those that
 * it has held at once. */
enum { MAX_CQE = 1 << 22 };

/* softnd_has_objects reports whether the program has a protection domain or a completion queue, or is about to end one. librdmacm calls it. */
bool softnd_has_objects(struct ibv_context *context);

static inline struct context *context_of(struct ibv_context *public)
{
	return (struct context *)(void *)((char *)public - offsetof(struct context, verbs.context));
}

/* addresses are those of a fabric, which is known by the name of an abstract socket: of its members, or of the job. */
#define FABRIC_SOCKET "softnd-fabric-" /* and the user, -, and the name of the fabric */
#define JOB_SOCKET "softnd-job-"
enum { FABRIC_NAME = 108 };
struct addresses {
	uint64_t guid;
	uint16_t lid; /* 0 on Ethernet */
	union ibv_gid gids[PORT_GIDS];
};
bool is_ethernet(void);
void name_own_fabric(char name[FABRIC_NAME]);
struct addresses addresses_of(const char *fabric);
struct addresses own_addresses(void);
/* has_gid reports whether an entry of the table is in use. */
bool has_gid(const struct addresses *a, int64_t index);
enum ibv_gid_type gid_type(uint32_t index);
/* check_path returns EINVAL for a path that the port does not have. One to another fabric is explained. op names the call. */
int check_path(const char *op, const struct ibv_ah_attr *path);

/* query_device_ex and query_port are entries of the context's table. They fill size bytes: attributes that the caller's structure has
 * and this library does not know are 0. */
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size);
int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);

/* Keys. A local key is the local token. The low 12 bits of a remote key are the tag of the remote token. */
static inline uint32_t rkey_of(uint32_t token) { return token << 12 | token >> 20; }
static inline uint32_t token_of(uint32_t rkey) { return rkey >> 12 | rkey << 20; }

/* The process joins its fabric with the first object that needs it, and leaves with the last context. adapter_of and queues_of return the
 * adapter of a domain and that of the completion queues of a context, or NULL with errno. */
snd_adapter *adapter_of(struct pd *pd);
snd_adapter *queues_of(struct context *c);
/* give_back keeps the adapter of a domain that ends, or NULL, for another one. */
void give_back(snd_adapter *adapter);
/* count_traffic returns what the queue pairs of all processes of the fabric have transferred; 0 if it has no members. */
struct traffic { uint64_t bytes, requests; } count_traffic(void);
/* leave_fabric ends all that a context still has in the fabric. */
void leave_fabric(struct context *c);

/* is_asked reports whether SOFTND_DEBUG is 1. Only then say prints a line. */
bool is_asked(void);
void say(const char *format, ...) __attribute__((format(printf, 1, 2), cold));
/* refuse prints why a call fails if SOFTND_DEBUG is 1, sets errno, and returns it. refuse_status does so for a status of the core, with the
 * text of snd_last_error. */
int refuse(int error, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
int refuse_status(snd_status status) __attribute__((cold));
/* report_status is refuse_status, but prints the text in any case. */
int report_status(snd_status status) __attribute__((cold));
/* explain prints why a request has failed, likewise, unless another failure before it has canceled it. */
void explain(snd_cq *cq, const snd_result *r) __attribute__((cold));
/* refuse_end is refuse_status for a call that ends an object, which may have ended with its context or in a fork. 0: it has ended. */
int refuse_end(snd_status status);

/* Events. Hooks of the core call raise_event with the fabric's lock held. */
bool open_events(struct event_queue *q);
void close_events(struct event_queue *q);
void raise_event(struct event_queue *q, struct event *e);
/* drop_event takes an event out of its queue. The core's object has ended, so that no hook raises it again. */
void drop_event(struct event_queue *q, struct event *e);
/* await_acknowledged blocks until the program has acknowledged the events of an object that it has taken. The others are the fields of the public
 * structure. */
void await_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acknowledged, const uint32_t *taken);

/* Results. */
enum ibv_wc_status wc_status(const snd_result *r);
enum ibv_wc_opcode wc_opcode(const snd_result *r);
unsigned int wc_flags(const snd_result *r);
__be32 wc_number(const snd_result *r); /* the immediate data, or the key that the peer has invalidated */
void fill_wc(struct ibv_wc *wc, const snd_result *r);

/* new_cq makes a completion queue, or returns NULL with errno. */
struct cq *new_cq(struct ibv_context *context, int64_t depth, void *cq_context, struct ibv_comp_channel *channel, int64_t vector);

/* Entries of the context's tables. */
int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited);
struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int dealloc_mw(struct ibv_mw *mw);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif

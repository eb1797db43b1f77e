/* Communication identifiers. The first field of a structure is the one of rdma_cma.h, which programs see.
 *
 * The library has no thread and shares no memory with its peers. A port is the name of an abstract Unix socket, and a connection is a pair of
 * such sockets: the kernel gives the order of messages, and the death of a peer is the end of its socket. Calls and descriptors of a channel
 * drive everything. One lock guards all: nothing here is on a path that moves data. */
#ifndef SOFTND_RDMACM_CM_H
#define SOFTND_RDMACM_CM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <rdma/rdma_verbs.h>

/* How far an identifier is. One side requests, the other one accepts. */
enum state {
	IDLE,
	BOUND,
	ADDRESSED, /* rdma_resolve_addr has found the peer's address */
	ROUTED,
	LISTENING,
	REQUESTING, /* the request is sent */
	RESPONDED,  /* it was accepted: the program, which has a queue pair of its own, must confirm it */
	INCOMING,   /* of a listener: the socket of a peer whose request has not come */
	REQUESTED,
	ACCEPTING, /* the response is sent */
	CONNECTED,
	DISCONNECTING, /* the peer is asked to end the connection */
	DISCONNECTED,
};

enum kind { REQUEST = 1, RESPONSE, CONFIRMATION, REJECTION, END, END_SEEN };

enum { PRIVATE_DATA = 256, PRIVATE_DATA_OF_REQUEST = 56, PRIVATE_DATA_OF_RESPONSE = 196, PRIVATE_DATA_OF_REJECTION = 148 };
#define MESSAGE_MAGIC UINT32_C(0x6d436e53)

/* The reasons of a rejection that a card reports. */
enum { NO_LISTENER = 8, BY_PROGRAM = 28 };

/* message is all that one side tells the other in one step. */
struct message {
	uint32_t magic;
	uint32_t kind;
	uint32_t qp_num;
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq, private_length, reason; /* the last one of a rejection */
	struct sockaddr_storage source, destination; /* of a request */
	unsigned char private_data[PRIVATE_DATA];
};

struct event {
	struct rdma_cm_event public;
	struct event *next;
	struct id *of; /* which counts it until it is acknowledged: for a request, the listener */
	unsigned char private_data[PRIVATE_DATA];
};

/* channel has the descriptor of an epoll instance over the sockets of its identifiers, and over wake, which is readable while events are queued. */
struct channel {
	struct rdma_event_channel public;
	int wake;
	unsigned users; /* the program, and threads in rdma_get_cm_event */
	struct event *first, **last;
};

struct id {
	struct rdma_cm_id public;
	struct channel *channel;
	bool synchronous; /* its calls wait for their events. It has a channel of its own */
	enum state state;
	int port;       /* socket with the name of its port; -1 = none */
	int connection; /* -1 = none */
	bool has_no_qp; /* the program has destroyed it, perhaps with ibv_destroy_qp */
	int timer;      /* while a request waits for a listener, or an end for the program; else -1 */
	unsigned tries; /* of such a wait */
	struct message *request; /* the latest that was sent, or waits; NULL = none */
	struct id *listener; /* of an identifier that is INCOMING; else NULL */
	struct id *next;
	unsigned taken, acknowledged; /* events */
	bool has_default_pd;
	struct ibv_qp_init_attr *attr; /* of the queue pairs of requests, see rdma_create_ep; NULL = none */
	/* Of the connection. */
	uint32_t peer_qp;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count, ack_timeout;
};

/* The time-out of requests without an answer that the kernel computes for a path as short as this one: 67 ms. */
enum { ACK_TIMEOUT = 14 };

static inline struct id *id_of(struct rdma_cm_id *public) { return (struct id *)(void *)public; }

void lock(void);
void unlock(void);
/* fail sets errno and returns -1. */
int fail(int error);
/* result returns 0 if error is 0, and fails otherwise. */
static inline int result(int error) { return error == 0 ? 0 : fail(error); }

/* The functions below are called with the lock held. */

/* Identifiers. new_id returns one without a channel, or NULL. */
struct id *new_id(enum rdma_port_space ps, enum ibv_qp_type type, void *context);
void free_id(struct id *id);
/* use_device gives the identifier the device and a protection domain, which it keeps. */
bool use_device(struct id *id);
struct ibv_context *device_context(void);
bool use_default_pd(struct id *id);
void leave_default_pd(struct id *id);
/* next_incoming returns an identifier of a listener whose request has not come, NULL if there is none. */
struct id *next_incoming(struct id *after, const struct id *listener);
/* take_request makes an identifier of a request that has come. */
bool take_request(struct id *id, const struct message *m);

/* Channels. */
struct channel *new_channel(void);
void free_channel(struct channel *c);
/* watch adds a socket of the identifier to its channel, unwatch takes it out. */
bool watch(struct id *id, int socket);
void unwatch(struct id *id, int socket);
/* queue_event queues an event of an identifier. m has its parameters; NULL = it has none. */
bool queue_event(struct id *id, enum rdma_cm_event_type type, int status, const struct message *m);
/* drop_events takes the events of an identifier that the program has not taken out of the queue. */
void drop_events(struct id *id);
/* move moves an identifier, its events and its socket to another channel. */
bool move(struct id *id, struct channel *to);
/* await_acknowledged waits, without the lock, until the program has acknowledged all events that it has taken. */
void await_acknowledged(struct id *id);

/* Sockets. All names begin with the user and the fabric: others are not found. */
bool is_local(const struct sockaddr *address);
socklen_t address_size(const struct sockaddr *address);
/* reserve_port binds a socket to the identifier's source address, and chooses a port if that is 0. It returns an errno. */
int reserve_port(struct id *id);
/* reach returns a connected socket, or -1 with errno. */
int reach(const struct sockaddr *address);
/* take_peer returns the socket of the next peer that has reached the listener, or -1. */
int take_peer(int listener);

/* Connections. on_socket handles the next message of a socket of the identifier, or a tick of its timer. */
void on_socket(struct id *id);
/* close_connection ends the connection, or the wait for a listener. */
void close_connection(struct id *id);

/* Calls of our libibverbs: the first reports whether completions of a queue pair may wait to be polled, the second whether the program has objects of a
 * device, the third sets what it calls before it destroys a queue pair. */
bool softnd_has_completions(struct ibv_qp *qp);
bool softnd_has_objects(struct ibv_context *context);
void softnd_watch_destroyed(void (*call)(struct ibv_qp *qp));

/* complete waits for the event of a call that has begun, if the identifier is synchronous. The lock is not held. */
int complete(struct id *id, int begun);

#endif

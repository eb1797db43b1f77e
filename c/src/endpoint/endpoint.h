/* Endpoints and their connections. The fabric's lock guards all fields. */
#ifndef SND_ENDPOINT_H
#define SND_ENDPOINT_H

#include "endpoint/req_credit.h"
#include "endpoint/ring.h"
#include "shm/fabric.h"
#include "window/window.h"
#include "xxh64.h"

enum snd_qp_state {
	SND_QP_IDLE,
	SND_QP_CONNECTING,
	SND_QP_ACCEPTED, /* active side: the peer has accepted, the program has not completed */
	SND_QP_CONNECTED,
	SND_QP_PEER_DISCONNECTED,
	SND_QP_FAILED,
	SND_QP_DISCONNECTING,
	SND_QP_CLOSED,
};

/* snd_entry is a scatter/gather entry as an address: only a check of the token makes memory of it. */
struct snd_entry {
	uint64_t address;
	uint32_t length;
	uint32_t token;
};

/* snd_slots counts the slots of one queue of an endpoint that are free again because their results were taken. */
struct snd_slots {
	uint64_t freed;
	uint64_t context; /* of the endpoint */
};

enum { SND_ACTIVE = 0, SND_PASSIVE = 1 };

enum {
	SND_SLOW_OVERRUN = 1, /* a completion queue has overrun */
	SND_SLOW_FAULTS = 2,  /* the fault plan has rules for this member */
	SND_SLOW_CHECKS = 4,  /* the endpoint asks for payload checks */
	SND_SLOW_WEAK = 8,    /* a weak order delays everything */
};

struct snd_connection {
	/* What small requests and messages need comes first. */
	struct snd_producer out;
	struct snd_consumer in;
	struct snd_credit credit;
	struct snd_connection_record *record;
	struct snd_shared_qp *peer_qp;
	snd_half *peer_disconnected;
	uint64_t peer_adapter, peer_endpoint;
	struct snd_peer peer;
	uint32_t remote; /* address of the process of another host for which the peer, a relay, acts; 0 = none */
	bool peer_has_srq;
	bool peer_copies; /* only the peer copies: every request of this side goes through the ring */

	bool attached;
	bool peer_dead; /* its death was handled: its memory may be reused */
	bool detached;
	bool released;       /* everything of the connection is freed, or will be by its last user */
	bool inbound_failed; /* a message of the peer failed here: later ones do not count */
	uint32_t users;      /* connector and endpoint that refer to it */
	int side;
	uint64_t offset; /* of the record */
	struct snd_fabric *fabric;
	struct snd_endpoint *endpoint;
	struct snd_link link;         /* of the fabric */
	struct snd_link adapter_link; /* while its peer's hazard counts */
	struct snd_link queue_link;   /* of a listener */
	struct snd_link request_link; /* of the requests with this record's hash */
	struct snd_work work;         /* release */

	uint64_t *descriptors; /* of the peer's receives */
	uint64_t stride;       /* words */
	uint64_t receive_count;

	uint64_t reads_sent;
	uint64_t read_ends[SND_MAX_READS];
	struct {
		bool read;
		uint64_t entry; /* number plus one; 0 = none */
		snd_status status;
	} fault;
};

static inline uint32_t snd_connection_state(const struct snd_connection *c)
{
	if (c->released)
		return SNDL_CONN_ABORTED; /* the record may be reused memory by now */
	return snd_load32(&c->record->state); /* ORDER conn-state: pairs with the swap in snd_transition */
}

/* snd_was_established reports, for the passive side, whether the active side has completed the connection. An active side that ends
 * a connection before it has completed it withdraws it. So only an established one becomes aborted, unless this side has aborted it. */
static inline bool snd_was_established(const struct snd_connection *c)
{
	const uint32_t s = snd_connection_state(c);
	return s == SNDL_CONN_ESTABLISHED || s == SNDL_CONN_ABORTED;
}
static inline bool snd_is_peer_gone(const struct snd_connection *c) { return c->peer_dead || snd_peer_gone(&c->peer); }

/* snd_is_open reports whether neither side has ended the connection. ORDER hazard: after snd_publish_hazard;
 * pairs with the change of either word before the load of the hazard. ORDER conn-state: after a push. */
static inline bool snd_is_open(const struct snd_connection *c)
{
	return snd_load32(&c->record->state) == SNDL_CONN_ESTABLISHED && snd_load32(c->peer_disconnected) == 0;
}

/* snd_send_request is a request of the initiator queue. */
struct snd_send_request {
	uint32_t kind;
	uint32_t flags;
	uint64_t context;
	struct snd_entry *entries;
	uint32_t count;
	snd_status status;
	uint64_t total;
	unsigned char *inline_data;
	uint64_t remote_address;
	uint32_t remote_token;
	uint64_t local_bind, remote_bind; /* words of the binds in use; 0 = none yet */
	uint64_t transferred;
	uint64_t first_entry, end_entry; /* ring entries; end 0 = none */
	int64_t deadline;                /* of a Send that has no receive */
	uint32_t stalls;                 /* how often it has found none */
	struct snd_invalidatable *object; /* which a Bind or Invalidate changes */
	struct snd_binding binding;
	struct snd_registration *registration; /* of a fast registration that is not executed */
	struct snd_entry bounce_entry;
	struct snd_payload_sum *sum; /* NULL = the payload is not checked, or has been */
	int bounce_index; /* bounce buffer that receives the data of a Read; -1 = none */
	bool invalidate;
	bool must_cancel;
	bool responder_copies;
	bool has_receive;
	bool draining;
	bool has_invalidated; /* a Read whose region is invalidated */
	bool needs_ack;
	bool finished;
};

struct snd_receive {
	uint64_t context;
	uint64_t capacity;
	struct snd_entry single; /* the only entry, if count is 1 */
	struct snd_entry *list;
	uint32_t count;
};

enum { SND_BOUNCE_COUNT = 2, SND_REASON = 376, SND_READ_HASHES = 8 };

/* snd_fired is a rule of the fault plan that acts, see fault.h. */
struct snd_fired {
	const struct snd_fault_rule *rule; /* NULL = none */
	uint32_t number;                   /* in the plan, from 1 */
};

/* snd_pending_fault is a rule that acts on a request or a message. */
struct snd_pending_fault {
	struct snd_fired fired;
	int64_t until; /* of a delay */
	bool done;     /* the action is complete */
};

/* snd_request_fault is what the fault plan has to do with a request. */
struct snd_request_fault {
	struct snd_pending_fault pending;
	uint64_t window;     /* number of the window or token for rules; 0 = none, or no rule asks for it */
	unsigned char *copy; /* of the data, with a wrong byte */
	uint8_t asked;       /* a bit for each phase in which the plan has been asked */
};

/* snd_fault says why a copy was refused. */
enum snd_fault {
	SND_NO_FAULT,
	SND_FAULT_BAD_TOKEN,
	SND_FAULT_REVOKED,
	SND_FAULT_OTHER_SCOPE,
	SND_FAULT_NO_RIGHT,
	SND_FAULT_OUT_OF_RANGE,
	SND_FAULT_UNREACHABLE, /* private memory of the peer */
	SND_FAULT_DISCONNECTED,
};

/* snd_operand is the memory at one end of a copy. */
struct snd_operand {
	unsigned char *memory; /* plain memory without a token; else NULL */
	uint64_t address;
	uint64_t *bind;    /* see snd_send_request.local_bind; NULL for a single part */
	uint64_t endpoint; /* own token in a peer's request: our endpoint; 0 = our own request */
	uint32_t token;
	uint32_t rights;
	bool peers; /* a token of the peer */
};

struct snd_endpoint {
	struct snd_object object;

	enum snd_qp_state state;
	uint8_t slow; /* bits: why the fast path does not run */
	bool requester_copies;
	bool wakeup_requested;
	bool serving; /* in_entry is decoded and not finished */
	struct snd_connection *conn;
	struct snd_own_entry *cached; /* of the local token that was used last */
	struct snd_shared_qp *local_qp;
	uint64_t adapter_number;
	uint32_t unreachable; /* the last token whose memory was found to be private */
	uint32_t max_receive_sge;

	/* Initiator queue. */
	uint64_t posted, completed, adjustment, initiator_depth;
	struct snd_cq *initiator_cq;
	struct snd_slots initiator_slots;
	/* Receive queue. */
	uint64_t rposted, rcompleted, receive_depth, receive_mask;
	struct snd_cq *receive_cq;
	struct snd_slots receive_slots;
	struct snd_receive *receives;
	uint64_t *descriptors; /* in the arena */
	uint64_t stride;       /* words */

	uint64_t small_end, small_bytes;
	struct snd_srq *srq;      /* where receives come from; NULL = they are posted to the endpoint */
	struct snd_link srq_link; /* while a message waits for a receive of it */
	uint64_t number;
	uint64_t local_qp_offset;
	uint32_t max_initiator_sge, inline_size;
	struct snd_adapter *adapter;
	struct snd_link link;
	struct snd_link bound; /* the objects that its requests have bound or registered */

	/* Requester, slow path. */
	uint32_t read_limit;
	struct snd_send_request *requests;
	struct snd_entry *request_entries, *receive_entries;
	unsigned char *inline_memory;
	uint64_t request_mask;
	uint64_t submitted, next;
	bool has_failed; /* a request has failed and is not completed; no other may run */
	struct snd_entry remote_entries[SNDL_MAX_SGE];
	uint32_t remote_count;
	uint64_t remote_capacity;
	struct snd_region bounce;
	uint64_t bounce_offset;
	uint64_t bounce_freed_by[SND_BOUNCE_COUNT];

	/* Responder. */
	struct {
		uint32_t kind, flags, payload_length, token, sender_token;
		uint64_t sender_address, receiver_address, fragment_length, request_length, status, hash;
		unsigned char payload[SNDL_MAX_SEND_IN_ENTRY];
		uint64_t copied;
	} in_entry;
	uint64_t message_received;
	uint64_t next_fragment; /* number of the entry that alone may continue that message */
	uint64_t local_bind, remote_bind;
	struct snd_invalidatable *invalidating;

	/* Payload checks. */
	struct snd_payload_sum *sums; /* of the requests; NULL = this side does not ask for checks */
	struct snd_hash served;       /* of the peer's request that is being served */
	struct snd_send_request *hashed_reads[SND_READ_HASHES]; /* Reads that wait for a hash in the peer's word of that index */

	/* Fault plan. */
	struct snd_request_fault *faults; /* of the requests; NULL = the plan has no rules for this member */
	struct snd_pending_fault message_fault;
	bool message_asked; /* the plan has been asked about the current message */

	struct snd_weak *weak; /* NULL = no weak order, see weak.h */

	/* Life. */
	struct snd_connector *connector;
	bool request_failed; /* a request has completed with a failure that this side found; the rest is canceled */
	bool was_connected, flushed, remote_released, disconnect_timed_out, both_disconnected, close_called, freeing;
	int64_t disconnect_deadline;
	uint32_t pending_drains;
	snd_status cause;
	char cause_text[SND_REASON];
	struct snd_work teardown_work, free_work;
	bool teardown_pending;
};

enum snd_outcome { SND_BLOCKED, SND_PARTIAL, SND_EXECUTED };

#define SND_QUANTUM (UINT64_C(256) << 10)
#define SND_CHUNK_BYTES (UINT64_C(64) << 10) /* copied between two checks of the tokens */

/* guard.c */
void snd_copy_ordered(unsigned char *sink, const unsigned char *source, uint64_t n);
/* snd_copy copies n bytes while both tokens are valid. The last word is stored last. */
bool snd_copy(struct snd_endpoint *ep, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
	enum snd_fault *sink_fault, enum snd_fault *source_fault);
enum snd_fault snd_check_operand(struct snd_endpoint *ep, const struct snd_operand *o, uint64_t n);
/* snd_is_private reports whether an own operand is memory that no peer can reach. */
bool snd_is_private(struct snd_endpoint *ep, const struct snd_operand *o, uint64_t n, enum snd_fault *fault);
bool snd_cache_entry(struct snd_endpoint *ep, uint32_t token);
const char *snd_fault_text(enum snd_fault f);
/* snd_describe_range names n bytes that o is to access, and the access that its token allows. */
void snd_describe_range(struct snd_endpoint *ep, const struct snd_operand *o, uint64_t n, char *text, size_t size);
/* snd_describe_request says what a request asks of the peer. */
void snd_describe_request(struct snd_endpoint *ep, const struct snd_send_request *r, char *text, size_t size);

/* qp.c */
static inline struct snd_send_request *snd_request_at(struct snd_endpoint *ep, uint64_t number) { return &ep->requests[number & ep->request_mask]; }
static inline struct snd_receive *snd_receive_at(struct snd_endpoint *ep, uint64_t number) { return &ep->receives[number & ep->receive_mask]; }
static inline const struct snd_entry *snd_entries_of(const struct snd_receive *r) { return r->count == 1 ? &r->single : r->list; }
static inline bool snd_has_overrun(const struct snd_endpoint *ep) { return (ep->slow & SND_SLOW_OVERRUN) != 0; }
struct snd_entry snd_entry_at(const struct snd_entry *entries, uint32_t count, uint64_t at);
void snd_set_state(struct snd_endpoint *ep, enum snd_qp_state s);
void snd_close_endpoint(struct snd_endpoint *ep);
void snd_forget_endpoint(struct snd_endpoint *ep);

/* req_execute.c */
const char *snd_request_name(const struct snd_send_request *r);
struct snd_send_request *snd_enqueue_pushed(struct snd_endpoint *ep, uint32_t kind, uint64_t context);
bool snd_run_requests(struct snd_endpoint *ep, uint64_t *budget);
/* snd_execute runs or continues request r. */
enum snd_outcome snd_execute(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget);
void snd_complete_request(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_cancel_preparation undoes what the post of a bind or fast registration has prepared. */
void snd_cancel_preparation(struct snd_send_request *r);
void snd_cancel_request(struct snd_send_request *r);
/* snd_drop_request drops what a request refers to, without a result. */
void snd_drop_request(struct snd_endpoint *ep, struct snd_send_request *r);
void snd_finish(struct snd_send_request *r, snd_status s);
enum snd_outcome snd_reject(struct snd_endpoint *ep, struct snd_send_request *r, snd_status s, const char *format, ...) __attribute__((format(printf, 4, 5)));
enum snd_outcome snd_reject_local(struct snd_endpoint *ep, struct snd_send_request *r, const struct snd_entry *e, enum snd_fault f);
void snd_set_operand(struct snd_send_request *r, struct snd_operand *o, const struct snd_entry *e, uint32_t rights);
void snd_request_wakeup(struct snd_endpoint *ep);
static inline void snd_cancel_wakeup(struct snd_endpoint *ep)
{
	if (snd_unlikely(ep->wakeup_requested)) {
		ep->wakeup_requested = false;
		snd_set32(&ep->local_qp->need_wakeup, 0);
	}
}
bool snd_has_free_entry(struct snd_endpoint *ep);
bool snd_push_entry(struct snd_endpoint *ep, struct snd_send_request *r, const uint64_t words[7]);
bool snd_gather_payload(struct snd_endpoint *ep, struct snd_send_request *r, void *to);
enum snd_outcome snd_send_fragments(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget);
uint32_t snd_entry_flags(const struct snd_send_request *r);

/* req_send.c */
enum snd_outcome snd_execute_send(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget);
bool snd_has_receive(struct snd_connection *c);

/* req_bind.c */
/* snd_execute_bind applies a bind, or a fast registration. */
enum snd_outcome snd_execute_bind(struct snd_endpoint *ep, struct snd_send_request *r);
enum snd_outcome snd_execute_invalidate(struct snd_endpoint *ep, struct snd_send_request *r);
void snd_complete_invalidate(struct snd_send_request *r);
/* snd_find_sink finds the region that a Read with SND_READ_LOCAL_INVALIDATE ends. */
bool snd_find_sink(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_invalidate_sink follows such a Read when its data has arrived, or is on its way through the ring. */
enum snd_outcome snd_invalidate_sink(struct snd_endpoint *ep, struct snd_send_request *r);

/* mr_fastreg.c */
snd_status snd_prepare_registration(struct snd_endpoint *ep, struct snd_mr *mr, const snd_fast_registration *p, struct snd_registration **registration, const char *op);

/* resp_serve.c */
uint32_t snd_serve_sends_fast(struct snd_endpoint *ep, snd_result *results, uint32_t room);
bool snd_serve_ring(struct snd_endpoint *ep, uint64_t *budget);
bool snd_decode_entry(struct snd_endpoint *ep, const struct snd_slot *slot);
bool snd_fill_receive(struct snd_endpoint *ep, struct snd_receive *r, uint64_t at, struct snd_operand *source, uint64_t n);
void snd_release_entries(struct snd_endpoint *ep, bool always_ring);
snd_status snd_receive_status(const struct snd_endpoint *ep);
/* snd_fail_serving fails the connection because of the entry being served. status is that of the peer's request. */
void snd_fail_serving(struct snd_endpoint *ep, snd_status status, snd_status cause, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* snd_fail_receive is snd_fail_serving for a fault of an entry of the receive. */
void snd_fail_receive(struct snd_endpoint *ep, const struct snd_entry *e, enum snd_fault f);
/* snd_refuse_access fails the connection because a Read or Write of the peer may not access o. */
void snd_refuse_access(struct snd_endpoint *ep, const struct snd_operand *o, uint64_t n, enum snd_fault f);

/* fault.c */
uint64_t snd_until_rule(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n);
bool snd_has_rule_within(struct snd_endpoint *ep, const struct snd_send_request *r);
/* snd_until_fault limits n, the next bytes of r, to those that come before the action of a fault rule. */
static inline uint64_t snd_until_fault(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n)
{
	return snd_likely(ep->faults == NULL) ? n : snd_until_rule(ep, r, n);
}
/* snd_has_fault_within reports whether a fault rule acts between two bytes of r. */
static inline bool snd_has_fault_within(struct snd_endpoint *ep, const struct snd_send_request *r)
{
	return snd_unlikely(ep->faults != NULL) && snd_has_rule_within(ep, r);
}

/* srq.c */
/* snd_assign_receive gives the oldest receive of the shared queue to an endpoint at which a message has begun. It returns
 * false if the endpoint has to wait. */
bool snd_assign_receive(struct snd_endpoint *ep);
/* snd_remove_waiter is called when the endpoint's connection ends. */
void snd_remove_waiter(struct snd_endpoint *ep);
void snd_copy_receive(struct snd_receive *to, const struct snd_receive *from);

/* qp_receive.c */
/* snd_set_receive sets context and entries of a receive, and checks them. */
snd_status snd_set_receive(struct snd_receive *r, uint64_t context, const snd_sge *sge, uint32_t count, uint32_t most, const char *op);
void snd_complete_receive(struct snd_endpoint *ep, struct snd_receive *r, snd_status s, uint64_t bytes, uint32_t invalidated);
snd_status snd_post_receive(struct snd_endpoint *ep, uint64_t context, const snd_sge *sge, uint32_t count);

/* cm_teardown.c */
void snd_terminate(struct snd_endpoint *ep, snd_status cause, const char *format, ...) __attribute__((format(printf, 3, 4)));
void snd_end_by_close(struct snd_endpoint *ep, snd_status cause, const char *what);
void snd_set_cause(struct snd_endpoint *ep, snd_status s, const char *format, ...) __attribute__((format(printf, 3, 4)));
void snd_peer_aborted(struct snd_endpoint *ep);
void snd_peer_died(struct snd_connection *c);
void snd_tear_down(struct snd_endpoint *ep);
void snd_detach_if_done(struct snd_endpoint *ep);
bool snd_handle_peer_disconnect(struct snd_endpoint *ep);
bool snd_begin_disconnect(struct snd_endpoint *ep);
void snd_complete_disconnect(struct snd_endpoint *ep);
void snd_cancel_receives(struct snd_endpoint *ep);

/* cm_connection.c */
struct snd_connection *snd_connection_new(struct snd_fabric *f, struct snd_connection_record *r, uint64_t offset, int side, struct snd_peer peer);
/* snd_name_peer writes the name of the process at the other side, for messages. Behind the relay, this is the rank of another host, or its
 * host while the ranks are not known. */
void snd_name_peer(const struct snd_connection *c, char *text, size_t size);
/* snd_say_lost writes that the peer is gone. If the relay is, no connection to another host can be made. */
void snd_say_lost(const struct snd_connection *c, char *text, size_t size);
/* snd_attach checks the peer's shared queue-pair state. The reason of a failure is in the text. */
bool snd_attach(struct snd_connection *c, struct snd_endpoint *ep);
bool snd_transition(struct snd_connection *c, uint32_t to, uint32_t from);
void snd_detach(struct snd_connection *c);
void snd_unuse(struct snd_connection *c);
void snd_refuse(struct snd_connection *c);
void snd_handle_request(struct snd_fabric *f, uint64_t offset);
void snd_release_dead(struct snd_fabric *f, uint64_t id);
void snd_fail_all(struct snd_fabric *f);
void snd_check_peers(struct snd_fabric *f, uint64_t *watched, uint32_t *count, bool *died);
void snd_clear_forged_hazards(struct snd_fabric *f);
/* snd_endpoint_closed tells a connector that its endpoint's memory is freed. */
void snd_endpoint_closed(struct snd_connector *c);
void snd_forget_connection(struct snd_connection *c);
bool snd_begin_connecting(struct snd_endpoint *ep, struct snd_connection *c, struct snd_connector *by);
/* snd_listener_enqueue gives a request to the listener of a port; false if there is none or its backlog is full. */
bool snd_listener_enqueue(struct snd_fabric *f, struct snd_connection *c, uint16_t port);
void snd_forget_listener(struct snd_listener *l);
void snd_forget_connector(struct snd_connector *c);

/* progress.c */
bool snd_progress(struct snd_endpoint *ep);
/* snd_progress_into is snd_progress that may store results of receives directly. */
uint32_t snd_progress_into(struct snd_endpoint *ep, struct snd_cq *q, snd_result *results, uint32_t room);
void snd_settle_deliveries(struct snd_fabric *f, struct snd_adapter *a);
/* snd_poll_interval is how long a wait sleeps at most while there is such work, in nanoseconds. */
int64_t snd_poll_interval(const struct snd_fabric *f);
bool snd_needs_polling(struct snd_fabric *f);

/* snd_must_not_overtake reports whether the ring holds an entry that a direct copy must not overtake. */
static inline bool snd_must_not_overtake(struct snd_connection *c)
{
	uint64_t last = snd_credit_barrier(&c->credit, c->out.next);
	return last != 0 && (int64_t)(last - c->out.released) > 0 && (int64_t)(last - snd_load_released(&c->out)) > 0;
}

#endif

/* Endpoints, their connections and requests. The fabric's lock guards all fields.
 * TWIN endpoint/qp.go, endpoint/qp_request.go, endpoint/cm_connection.go. */
#ifndef SND_ENDPOINT_H
#define SND_ENDPOINT_H

#include "endpoint/entry.h"
#include "endpoint/req_credit.h"
#include "endpoint/ring.h"
#include "endpoint/state.h"
#include "shm/member.h"
#include "window/guard.h"
#include "window/window.h"
#include "xxh64.h"

struct snd_aside;
struct snd_cq;
struct snd_connector;
struct snd_hook;
struct snd_payload_sum;
struct snd_srq;
struct snd_weak;

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
	SND_SLOW_HOOK = 2,    /* the endpoint has a mode */
	SND_SLOW_COUNTS = 4,  /* results are counted by type */
};

struct snd_connection {
	/* What small requests and messages need comes first. */
	struct snd_producer out;
	struct snd_consumer in;
	struct snd_credit credit;
	uint64_t overtaken; /* a direct copy may overtake the entries before this number */
	struct snd_connection_record *record;
	struct snd_shared_qp *peer_qp;
	struct snd_far_end far;
	struct snd_peer peer;
	uint32_t remote; /* address of the process of another host for which the peer, a relay, acts; 0 = none */
	bool peer_has_srq;
	bool peer_extended; /* the peer understands immediate data and atomics */
	bool peer_copies; /* only the peer copies: every request of this side goes through the ring */

	bool attached;
	bool peer_dead; /* its death was handled: its memory may be reused */
	bool detached;
	bool ended_early;    /* this side has ended the connection before it was established */
	bool released;       /* everything of the connection is freed, or will be by its last user */
	bool inbound_failed; /* a message of the peer failed here: later ones do not count */
	uint32_t users;      /* connector and endpoint that refer to it */
	int side;
	uint64_t offset; /* of the record */
	struct snd_fabric *fabric;
	struct snd_endpoint *endpoint;
	struct snd_link link;         /* of the fabric */
	struct snd_peer_hazard hazard; /* in the list of the adapter while it counts */
	struct snd_link queue_link;   /* of a listener */
	struct snd_link request_link; /* of the requests with this record's hash */
	struct snd_work work;         /* release */

	uint64_t *descriptors; /* of the peer's receives */
	uint64_t stride;       /* words */
	uint64_t receive_count;

	uint64_t atomics_sent;             /* to the peer */
	uint64_t atomics_taken;            /* of them, those whose result was taken from the peer's results */
	uint64_t reads_sent;               /* Reads and atomics */
	uint64_t read_ends[SND_MAX_READS]; /* of the latest: number after the last ring entry */
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
	return snd_load32(&c->record->state); /* ORDER conn-state: pairs with the swap in move_record */
}

/* snd_was_established reports, for the passive side, whether the active side has completed the connection. An active side that ends
 * a connection before it has completed it withdraws it. So only an established one becomes aborted, unless this side has ended it early. */
static inline bool snd_was_established(const struct snd_connection *c)
{
	const uint32_t s = snd_connection_state(c);
	return s == SNDL_CONN_ESTABLISHED || (s == SNDL_CONN_ABORTED && !c->ended_early);
}
static inline bool snd_is_peer_gone(const struct snd_connection *c) { return c->peer_dead || snd_peer_gone(&c->peer); }

/* snd_request_state says how far a request is. It goes down this list, and leaves out what does not apply. Only a Read with
 * SND_READ_LOCAL_INVALIDATE goes from finished to draining, to invalidate its sink, and is finished once more. */
enum snd_request_state {
	SND_REQ_WAITING,  /* it has not run, or in part */
	SND_REQ_ASIDE,    /* the same, and later requests may run before it */
	SND_REQ_SENT,     /* it has run, and the peer must confirm it */
	SND_REQ_DRAINING, /* an Invalidate has revoked its tokens, and waits for the end of accesses with them */
	SND_REQ_FINISHED, /* status is final; the result follows those of the requests before it */
};

/* snd_send_request is a request of the initiator queue, of any type: also a Read, an atomic or a Bind. */
struct snd_send_request {
	uint64_t number; /* in the order of posting */
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
	uint32_t immediate;
	uint64_t result_index;    /* of an atomic: in the results of the peer */
	struct snd_change change; /* likewise */
	uint64_t local_bind, remote_bind; /* words of the binds in use; 0 = none yet */
	uint64_t transferred;
	uint64_t first_entry, end_entry; /* ring entries; end 0 = none */
	int64_t waits_since;             /* without a receive, of a Send or Write with immediate data; 0: it does not */
	uint32_t stalls;                 /* how often it has found none */
	uint32_t stalled;                /* a bit for each cause for which it has waited */
	struct snd_invalidatable *object; /* which a Bind or Invalidate changes */
	struct snd_binding binding;
	struct snd_registration *registration; /* of a fast registration that is not executed */
	struct snd_entry bounce_entry;
	uint64_t hash; /* the word SNDL_HASH_WORD of its entries */
	int bounce_index; /* bounce buffer that receives the data of a Read; -1 = none */
	bool has_immediate;
	bool hashed; /* its entries have SNDL_FLAG_HASHED, and the peer checks the data */
	bool invalidate;
	bool posted_after_end; /* posted when the connection had ended: it can only be canceled */
	bool responder_copies;
	bool has_receive;
	bool needs_ack;
	bool in_order; /* a mode forbids that it is set aside */
	enum snd_request_state state;
};

static inline bool snd_is_atomic(const struct snd_send_request *r) { return r->kind >= SND_REQUEST_FETCH_AND_ADD && r->kind <= SND_REQUEST_SWAP; }
static inline bool snd_is_silent(const struct snd_send_request *r) { return r->status == SND_SUCCESS && (r->flags & SND_SILENT_SUCCESS) != 0; }
static inline bool snd_takes_receive(const struct snd_send_request *r) { return r->kind == SND_REQUEST_SEND || r->has_immediate; }

struct snd_receive {
	uint64_t context;
	uint64_t capacity;
	struct snd_entry single; /* the only entry, if count is 1 */
	struct snd_entry *list;
	uint32_t count;
};

#define SND_BOUNCE_BYTES (UINT64_C(64) << 10)
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

/* snd_teardown says how far the end of a connection has come. */
enum snd_teardown {
	SND_USES_PEER_STATE,
	SND_LEFT_PEER_STATE, /* no code uses the peer's shared queue-pair state from now on */
	SND_FLUSHED,  /* all requests and receives are completed, and no other is accepted */
};

/* Why a request waits. */
enum snd_stall_cause {
	SND_STALL_RECEIVE, /* the peer has no receive posted */
	SND_STALL_QUEUE,   /* the ring or the bounce buffers are full */
	SND_STALL_ORDER,   /* earlier requests must complete first */
	SND_STALL_DRAIN,   /* the peer uses a token that an Invalidate has revoked */
	SND_STALLS
};

/* snd_counters are the counters that no other words of an endpoint have. The fast path changes none. */
struct snd_counters {
	uint64_t posts_refused, accesses_refused, fragments, retries, shared_stalls, silent;
	uint64_t stalls[SND_STALLS];
	snd_operation_stats operations; /* with SND_SLOW_COUNTS */
};

struct snd_endpoint {
	struct snd_object object;

	enum snd_qp_state state;
	uint8_t slow; /* bits: why the fast path does not run */
	uint8_t requester_copies; /* 1; 0: every request goes through the ring */
	bool wakeup_requested;
	bool serving; /* in_entry is decoded and not finished */
	struct snd_connection *conn;
	struct snd_guard guard;
	struct snd_shared_qp *local_qp;
	uint64_t adapter_number;
	uint32_t max_receive_sge;

	/* Initiator queue. */
	uint64_t posted, completed; /* without the requests that the fast path has completed */
	uint64_t adjustment; /* those requests, minus the silent successes that have freed their slots: posted + adjustment - freed slots are in use */
	uint64_t initiator_depth;
	uint64_t bytes; /* of the requests that have succeeded */
	struct snd_cq *initiator_cq;
	struct snd_slots initiator_slots;
	/* Receive queue. */
	uint64_t rposted, rcompleted, receive_depth, receive_mask;
	struct snd_cq *receive_cq;
	struct snd_slots receive_slots;
	struct snd_receive *receives;
	uint64_t *descriptors; /* in the arena */
	uint64_t stride;       /* words */

	uint16_t write_header; /* of the ring entries that serve_write_fast takes; 0 = none */
	uint64_t small_end, small_bytes;
	struct snd_srq *srq;      /* where receives come from; NULL = they are posted to the endpoint */
	struct snd_link srq_link; /* while a message waits for a receive of it */
	uint64_t number;
	uint64_t local_qp_offset;
	uint32_t max_initiator_sge, inline_size;
	struct snd_adapter *adapter;
	struct snd_link link;
	struct snd_endpoint *beside; /* the other side of the connection, if it is of this process; NULL = it is not */
	struct snd_link bound; /* the objects that its requests have bound or registered */

	/* Requester, slow path. */
	uint32_t read_limit;
	struct snd_send_request *requests;
	struct snd_entry *request_entries, *receive_entries;
	unsigned char *inline_memory;
	uint64_t request_mask;
	uint64_t submitted, next;
	/* Silent successes of an endpoint with a number keep their slots until a later result is taken. */
	uint64_t silent, silent_end; /* how many keep theirs; how many there were */
	uint64_t *results_before;    /* of each of them, at its number & request_mask: the results of earlier requests */
	bool has_failed; /* a request has failed and is not completed; no other may run */
	struct snd_entry remote_entries[SNDL_MAX_SGE];
	uint32_t remote_count;
	uint64_t remote_capacity;
	struct snd_region bounce;
	uint64_t bounce_offset;
	uint64_t bounce_freed_by[SND_BOUNCE_COUNT];

	/* Responder. */
	struct snd_ring_entry in_entry;
	uint64_t in_copied; /* bytes of it */
	uint64_t message_received;
	uint64_t next_fragment; /* number of the entry that alone may continue that message */
	uint64_t local_bind, remote_bind;
	struct snd_invalidatable *invalidating;

	/* The modes. Only they use what follows the hook. */
	const struct snd_hook *hook; /* NULL = no mode */
	struct snd_aside *aside; /* NULL = requests run in order */
	struct snd_payload_sum *sums; /* of the requests; NULL = this side does not ask for checks */
	struct snd_hash served;       /* of the peer's request that is being served */
	struct snd_send_request *hashed_reads[SND_READ_HASHES]; /* Reads that wait for a hash in the peer's word of that index */

	/* Fault plan. */
	struct snd_request_fault *faults; /* of the requests; NULL = the plan has no rules for this member */
	struct snd_pending_fault message_fault;
	bool message_asked; /* the plan has been asked about the current message */

	struct snd_weak *weak; /* NULL = no weak order, see weak.h */

	struct snd_counters counters;
	struct {
		uint64_t number; /* of the oldest request at the last check */
		int64_t since;   /* 0: none waited */
		bool reported;
	} waiting; /* see snd_events_of_waiting */

	/* By number, see cm_number.h. */
	bool numbered; /* it behaves as a queue pair of a card; so does its peer */
	bool ends_silently;    /* its program takes no more results: the end drops them */
	struct {
		struct snd_link link; /* of the fabric, while the endpoint waits for its peer */
		uint32_t own, dest;   /* numbers */
		uint32_t inbound_reads, outbound_reads;
		uint32_t peer_reads; /* inbound limit of the peer */
		uint32_t rnr_retry;
		int64_t retry_deadline;
		int64_t looked_at, waited; /* see snd_requests_waited; looked_at 0 = no request waits for the peer */
		uint64_t offered_to, refused_by; /* uses of the peer's number; 0 = none: that of the present record, and that with which none leads to a connection */
	} match;

	/* Life. */
	struct snd_connector *connector;
	bool request_failed; /* a request has completed with a failure that this side found; the rest is canceled */
	bool was_connected, disconnect_timed_out, both_disconnected;
	bool lost;          /* with a number, in state failed: the peer has ended, without a fault of this side. The next request fails */
	bool takes_back;    /* rights of the peer's requests, after the connection was made */
	uint32_t end_cause; /* why this side ends the connection, if it does: SNDL_END_LOCAL and so on */
	snd_status fault;   /* with a number: of this side as the responder; 0 = none */
	void (*failed)(void *arg, snd_status fault); /* called once, with the lock, when the endpoint is broken; NULL = nothing is */
	void *failed_arg;
	enum snd_teardown teardown;
	int64_t disconnect_deadline;
	uint32_t pending_drains;
	snd_status cause;
	char cause_text[SND_REASON];
	struct snd_work teardown_work, free_work;
	bool teardown_pending;
};

enum snd_outcome { SND_BLOCKED, SND_PARTIAL, SND_EXECUTED };

/* snd_stall counts, once for a request and a cause, that the request waits. */
static inline enum snd_outcome snd_stall(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_stall_cause cause)
{
	ep->counters.stalls[cause] += (r->stalled >> cause & 1) == 0;
	r->stalled |= UINT32_C(1) << cause;
	return SND_BLOCKED;
}

/* A request of up to so many bytes runs within the post. Polls and the progress engine run longer ones. */
#define SND_SMALL_BYTES (UINT64_C(64) << 10)

/* What one call of progress transfers at most in each direction, so that a large transfer delays neither the program nor other endpoints. */
#define SND_QUANTUM (UINT64_C(1) << 20)

#endif

/* The hooks: at named moments of the slow path, that of an endpoint lets modes act, which are faults, weak order and payload checks. That of
 * a fabric does so before calls. Only modes.c knows the modes. TWIN endpoint/internal/mode/hook.go. */
#ifndef SND_ENDPOINT_HOOK_H
#define SND_ENDPOINT_HOOK_H

#include "endpoint/endpoint.h"

/* snd_hook is the hook of an endpoint, which is NULL without a mode. The fabric's lock is held at every moment. A moment that has out
 * as an argument returns true if *out replaces the outcome of what its caller is about to do. */
struct snd_hook {
	/* The requester. */
	snd_status (*post)(struct snd_endpoint *ep, struct snd_send_request *r); /* r is complete, and not queued */
	bool (*before_run)(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out); /* before each attempt to run r: the next one, or one that is set aside */
	uint64_t (*until)(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n); /* how many of the next n bytes of r come before before_run acts */
	bool (*splits)(struct snd_endpoint *ep, const struct snd_send_request *r); /* before_run acts between two bytes of r */
	uint64_t (*bytes)(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t *n); /* the next byte to copy; *n becomes less, 0 = not now */
	bool (*copy)(struct snd_endpoint *ep, struct snd_send_request *r, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
		enum snd_fault *sink_fault, enum snd_fault *source_fault); /* of a hashed r, instead of snd_copy; false: it has rejected r */
	void (*copied)(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n);
	bool (*before_read)(struct snd_endpoint *ep, struct snd_send_request *r); /* a hashed Read is about to go to the peer; false: not now */
	void (*arrived)(struct snd_endpoint *ep, struct snd_send_request *r); /* all bytes of r are there; may be called again */
	bool (*settle_arrived)(struct snd_endpoint *ep); /* a local token is about to be revoked; false: a Read has wrong data */
	bool (*before_completion)(struct snd_endpoint *ep, struct snd_send_request *r); /* false: not now */
	void (*forget)(struct snd_endpoint *ep, struct snd_send_request *r); /* r has ended */

	/* The responder. */
	snd_status (*post_receive)(struct snd_endpoint *ep, const struct snd_receive *r);
	bool (*before_serving)(struct snd_endpoint *ep, enum snd_outcome *out); /* before each attempt to serve the entry */
	bool (*before_receive)(struct snd_endpoint *ep, struct snd_receive *r, enum snd_outcome *out);
	bool (*before_write)(struct snd_endpoint *ep, enum snd_outcome *out); /* the entry has the data of a Write */
	uint64_t (*served_bytes)(struct snd_endpoint *ep, uint64_t *n); /* as bytes, of the entry */
	bool (*copy_served)(struct snd_endpoint *ep, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
		enum snd_fault *sink_fault, enum snd_fault *source_fault); /* of a hashed entry; false: it has failed the connection */
	void (*copied_served)(struct snd_endpoint *ep, uint64_t n);
	bool (*received)(struct snd_endpoint *ep, struct snd_receive *r, uint64_t total); /* a message has filled r; false: it has failed the connection */
	void (*served)(struct snd_endpoint *ep, struct snd_receive *r, snd_status s, uint64_t bytes); /* r completes */

	/* Time. */
	void (*step)(struct snd_endpoint *ep); /* a call drives the endpoint */
	bool (*engine_turn)(struct snd_endpoint *ep); /* of a stepwise fabric: the engine drives the endpoint now */
	bool (*waits)(struct snd_endpoint *ep); /* something waits that no ring announces */
};

/* snd_new_call is a call of the program that has not begun. */
struct snd_new_call {
	struct snd_object *object;
	const char *op;    /* as in errors */
	int32_t peer;      /* rank; -1 = none, or not known */
	uint64_t size;     /* bytes */
	uint64_t endpoint; /* number; 0 = none */
	int64_t *timeout;  /* of which a delay is part; NULL = none */
};

/* snd_call_hook is the hook of a fabric, which is NULL without a mode. The fabric's lock is held at every moment. */
struct snd_call_hook {
	/* A failure is that of the call. During a delay other threads may close any handle. If they have closed the object, or cancelled the calls
	 * of a connector, the call fails. */
	snd_status (*before)(const struct snd_new_call *c);
	snd_status (*post_shared_receive)(struct snd_fabric *f, uint64_t size);
	bool (*refuses)(const struct snd_connection *c); /* a connection request that has arrived */
	void (*before_return)(struct snd_fabric *f, void (*drive)(void *), void *arg); /* of a notify, which drives by calling drive */
};

/* snd_load_modes loads the modes of a fabric whose arena is attached, for a rank; -1 = a member that is no rank. snd_begin_modes begins them when
 * it has joined. */
snd_status snd_load_modes(struct snd_fabric *f, int32_t rank, const char *op);
void snd_begin_modes(struct snd_fabric *f);
void snd_end_modes(struct snd_fabric *f);

/* snd_before_call asks about a call of an object. */
static inline snd_status snd_before_call(struct snd_object *o, const char *op, uint64_t size, uint64_t endpoint, int64_t *timeout)
{
	const struct snd_call_hook *hook = snd_fabric_of(o)->call_hook;
	return snd_likely(hook == NULL) ? SND_SUCCESS : hook->before(&(struct snd_new_call){o, op, -1, size, endpoint, timeout});
}
/* snd_before_connect asks about Connect. A failure that unbinds the connector does so. */
snd_status snd_before_connect(struct snd_connector *c, const char *op, struct snd_endpoint *ep, snd_address to, int64_t *timeout);
/* snd_before_phase_call asks about a call for the connection of c, which must be in a phase. A failure after which the connector cannot be used
 * again ends the connection. */
snd_status snd_before_phase_call(struct snd_connector *c, const char *op, enum snd_phase want, struct snd_endpoint *ep, int64_t *timeout);

/* snd_add_modes gives an endpoint the hook of the modes that its fabric has, and of payload checks if it asks for them. It returns false if
 * there is no memory. An endpoint without them gets the hook with the first hashed entry of its peer. */
bool snd_add_modes(struct snd_endpoint *ep, size_t requests, bool checks);
void snd_add_payload_checks(struct snd_endpoint *ep);
void snd_free_modes(struct snd_endpoint *ep);

static inline uint64_t snd_bytes_until(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n)
{
	return snd_likely(ep->hook == NULL) ? n : ep->hook->until(ep, r, n);
}
static inline bool snd_is_split(struct snd_endpoint *ep, const struct snd_send_request *r) { return snd_unlikely(ep->hook != NULL) && ep->hook->splits(ep, r); }

/* snd_next_bytes returns which byte of r this process copies next, and in *n how many at most; 0: *out says why. */
static inline uint64_t snd_next_bytes(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t *n, enum snd_outcome *out)
{
	if (snd_likely(ep->hook == NULL))
		return r->transferred;
	*out = SND_PARTIAL;
	if ((*n = ep->hook->until(ep, r, *n)) == 0)
		return 0;
	*out = SND_BLOCKED;
	return ep->hook->bytes(ep, r, n);
}
static inline bool snd_copy_request(struct snd_endpoint *ep, struct snd_send_request *r, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
	enum snd_fault *sink_fault, enum snd_fault *source_fault)
{
	if (snd_unlikely(r->hashed))
		return ep->hook->copy(ep, r, sink, source, n, sink_fault, source_fault);
	snd_copy(&ep->guard, sink, source, n, sink_fault, source_fault);
	return true;
}
static inline void snd_count_copied(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t n)
{
	r->transferred += n;
	if (snd_unlikely(ep->hook != NULL))
		ep->hook->copied(ep, r, n);
}
static inline void snd_data_arrived(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (snd_unlikely(ep->hook != NULL))
		ep->hook->arrived(ep, r);
}
/* Go's settleArrived takes the results of atomics, too. */
static inline bool snd_settle_arrived(struct snd_endpoint *ep) { return snd_likely(ep->hook == NULL) || ep->hook->settle_arrived(ep); }

#endif

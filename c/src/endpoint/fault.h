/* Fault plans: operations fail on purpose. docs/faults.md describes the rules. The fabric's lock guards everything here.
 *
 * If a plan has rules for this member, its endpoints take the slow path only. There, three places ask the plan about a
 * request: its post, the moment before it runs, and the moment before its result is queued. A message is looked up before it
 * is stored into its receive. Each place asks once for a request, however often the request is tried. */
#ifndef SND_FAULTS_H
#define SND_FAULTS_H

#include "endpoint/endpoint.h"

struct snd_new_call;

/* snd_fault_event is a moment in the life of an operation. */
struct snd_fault_event {
	uint32_t operation, phase;
	int32_t peer;      /* rank at the other end; -1 = it is no rank, or not known */
	uint64_t endpoint; /* number; 0 = the operation has none */
	uint64_t window;   /* number of the window or token; 0 = the operation has none */
	uint64_t size;     /* bytes */
};

/* faultplan.c: which operation meets which rule. */
/* snd_load_faults copies and checks the rules of the arena, and keeps those about a rank; -1 = a member that is no rank. */
snd_status snd_load_faults(struct snd_fabric *f, int32_t rank, const char *op);
void snd_free_faults(struct snd_fabric *f);
/* snd_next_fault counts an event, and returns the rule that acts at it; rule NULL = none. */
struct snd_fired snd_next_fault(struct snd_fabric *f, const struct snd_fault_event *e);
/* snd_fault_window numbers the remote tokens, and the windows and regions, that requests name: the first one is 1. It returns 0
 * if no rule asks for these numbers, or the request names neither. */
uint64_t snd_fault_window(struct snd_fabric *f, uint32_t token, const struct snd_invalidatable *object);

/* snd_fault_text is room for the name of a rule in messages. */
struct snd_fault_text {
	char text[112];
};
struct snd_fault_text snd_describe_fault(const struct snd_fired *fired);

/* fault.c: requests and messages. Endpoints without ep->faults do not call these. */
/* snd_fault_at_post asks the plan about a post whose request is complete but not queued. It returns the status of the post. */
snd_status snd_fault_at_post(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_fault_before_execute acts on a request that is the next to run. If it returns true, *out replaces the outcome. */
bool snd_fault_before_execute(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out);
/* snd_corrupt_sink changes a byte that a Read has received, if a rule asks for it. */
void snd_corrupt_sink(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_fault_before_complete acts on a request that has ended, and reports whether it completes now. */
bool snd_fault_before_complete(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_end_fault drops what a plan keeps about a request. */
void snd_end_fault(struct snd_endpoint *ep, struct snd_send_request *r);
/* snd_is_delayed reports whether a rule delays a request or a message, which no ring announces. */
bool snd_is_delayed(struct snd_endpoint *ep);

snd_status snd_fault_at_receive(struct snd_endpoint *ep, const struct snd_receive *r);
/* snd_fault_at_shared_receive asks the plan about the post of size bytes to a shared receive queue. */
snd_status snd_fault_at_shared_receive(struct snd_fabric *f, uint64_t size);
/* snd_fault_before_receive acts on the message that the current entry begins or continues. If it returns true, *out replaces
 * the outcome of serving the entry. */
bool snd_fault_before_receive(struct snd_endpoint *ep, struct snd_receive *r, enum snd_outcome *out);
/* snd_corrupt_message changes a byte of the bytes of a message that r has received, if a rule asks for it. It does so before a payload
 * check of the message, which finds the byte, or when the receive ends. */
void snd_corrupt_message(struct snd_endpoint *ep, struct snd_receive *r, uint64_t bytes);
/* snd_fault_at_receive_end ends the rules of a message. */
void snd_fault_at_receive_end(struct snd_endpoint *ep, struct snd_receive *r, snd_status s, uint64_t bytes);

/* fault_call.c: calls. Fabrics without f->faults do not call these. */
/* snd_fault_before_call asks the plan about a call, and acts. It returns the status of the call. */
snd_status snd_fault_before_call(const struct snd_new_call *c);
/* snd_fault_refuses reports whether the plan refuses a connection request that has arrived. */
bool snd_fault_refuses(const struct snd_connection *c);

/* snd_signal_self stops or kills this process, if a rule asks for it. */
void snd_signal_self(const struct snd_fired *fired);

uint64_t snd_until_rule(struct snd_endpoint *ep, const struct snd_send_request *r, uint64_t n);
bool snd_has_rule_within(struct snd_endpoint *ep, const struct snd_send_request *r);
#endif

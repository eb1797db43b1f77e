/* The slow path of a request: it runs in the order of posting, and is the only place that reports errors.
 * TWIN endpoint/req_execute.go, endpoint/req_fragment.go, endpoint/req_entry.go, endpoint/req_queue.go, endpoint/req_complete.go, endpoint/qp_request.go. */
#include "endpoint/req_execute.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/cq.h"
#include "endpoint/describe.h"
#include "endpoint/hook.h"
#include "endpoint/qp.h"
#include "endpoint/qp_post.h"
#include "endpoint/req_aside.h"
#include "endpoint/req_atomic.h"
#include "endpoint/req_bind.h"
#include "endpoint/req_send.h"
#include "shm/doorbell.h"
#include "window/fastreg.h"
#include "window/invalidatable.h"
#include "window/region.h"

const char *snd_request_name(const struct snd_send_request *r)
{
	switch (r->kind) {
	case SND_REQUEST_SEND: return r->invalidate ? "send and invalidate" : r->has_immediate ? "send immediate" : "send";
	case SND_REQUEST_WRITE: return r->has_immediate ? "write immediate" : "write";
	case SND_REQUEST_READ: return "read";
	case SND_REQUEST_FETCH_AND_ADD: return "fetch and add";
	case SND_REQUEST_COMPARE_AND_SWAP: return "compare and swap";
	case SND_REQUEST_SWAP: return "swap";
	case SND_REQUEST_BIND: return "bind";
	case SND_REQUEST_INVALIDATE: return "invalidate";
	case SND_REQUEST_FAST_REGISTER: return "fast register";
	default: return "unknown request";
	}
}

void snd_finish(struct snd_send_request *r, snd_status s)
{
	r->state = SND_REQ_FINISHED;
	r->status = s;
}

enum snd_outcome snd_reject(struct snd_endpoint *ep, struct snd_send_request *r, snd_status s, const char *format, ...)
{
	char text[SND_REASON];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	snd_finish(r, s);
	snd_set_cause(ep, s, "%s: %s", snd_request_name(r), text);
	return SND_EXECUTED;
}

enum snd_outcome snd_reject_local(struct snd_endpoint *ep, struct snd_send_request *r, const struct snd_entry *e, enum snd_fault f)
{
	struct snd_operand o = {.address = e->address, .token = e->token, .rights = SNDL_RIGHT_LOCAL};
	char why[SND_REASON];
	ep->counters.accesses_refused++;
	snd_describe_range(ep, &o, e->length, why, sizeof why);
	return snd_reject(ep, r, snd_by_number(ep, SND_INVALID_ADDRESS, SND_ACCESS_VIOLATION), "scatter/gather entry of %s: %s", why, snd_fault_text(f));
}

enum snd_outcome snd_reject_remote(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_fault f)
{
	char why[SND_REASON], peer[64];
	ep->counters.accesses_refused++;
	snd_describe_request(ep, r, why, sizeof why);
	snd_name_peer(ep->conn, peer, sizeof peer);
	return snd_reject(ep, r, f == SND_FAULT_UNALIGNED ? snd_by_number(ep, SND_INVALID_DEVICE_REQUEST, SND_ACCESS_VIOLATION) : SND_ACCESS_VIOLATION, "%s: %s; the peer is %s",
		why, snd_fault_text(f), peer);
}

void snd_set_operand(struct snd_send_request *r, struct snd_operand *o, const struct snd_entry *e, uint32_t rights)
{
	if ((r->flags & SND_INLINE) != 0)
		*o = (struct snd_operand){.memory = r->inline_data + e->address};
	else
		*o = (struct snd_operand){.address = e->address, .token = e->token, .rights = SNDL_RIGHT_LOCAL | rights, .bind = &r->local_bind};
}

uint32_t snd_entry_flags(const struct snd_send_request *r)
{
	return (r->invalidate ? SNDL_FLAG_INVALIDATE : 0) | ((r->flags & SND_SOLICIT_EVENT) ? SNDL_FLAG_SOLICITED : 0) |
		snd_data_flags(r);
}

/* snd_enqueue_pushed queues a request for the entry that the fast path has just pushed. It completes when the
 * peer has consumed that entry. */
struct snd_send_request *snd_enqueue_pushed(struct snd_endpoint *ep, uint32_t kind, uint64_t context, uint32_t flags)
{
	struct snd_send_request *r = snd_request_at(ep, ep->posted);
	*r = (struct snd_send_request){.number = ep->posted, .kind = kind, .flags = flags & SND_SILENT_SUCCESS, .context = context, .entries = r->entries, .inline_data = r->inline_data, .bounce_index = -1};
	r->end_entry = ep->conn->out.next;
	r->first_entry = r->end_entry - 1;
	r->needs_ack = true;
	ep->conn->credit.ack_request_end = r->end_entry;
	ep->posted++;
	ep->submitted = ep->next = ep->posted;
	return r;
}

/* snd_request_wakeup asks the peer to ring when it has released slots or posted a receive, if a wait of this
 * process or its engine sleeps or is about to. The caller checks once more afterwards. */
void snd_request_wakeup(struct snd_endpoint *ep)
{
	if (ep->wakeup_requested || (ep->object.fabric->sleepers == 0 && !ep->object.fabric->engine_armed))
		return;
	ep->wakeup_requested = true;
	snd_store_full32(&ep->local_qp->need_wakeup, 1); /* ORDER need-wakeup: pairs with the loads in publish_posted and snd_release_entries */
	snd_heavy_global();                              /* for peers that store without a barrier */
}

bool snd_has_free_entry(struct snd_endpoint *ep)
{
	if (snd_free_slots(&ep->conn->out) != 0)
		return true;
	snd_request_wakeup(ep);
	return snd_free_slots(&ep->conn->out) != 0;
}

bool snd_push_entry(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t words[7], bool takes_receive)
{
	struct snd_connection *c = ep->conn;
	if (!snd_has_free_entry(ep))
		return false;
	if ((words[0] >> SNDL_ENTRY_FLAGS_SHIFT & SNDL_FLAG_IMMEDIATE) != 0)
		snd_entry_put_immediate(words, r->immediate);
	struct snd_slot *slot = snd_next_slot(&c->out);
	for (int i = 0; i < 7; i++)
		snd_set(&slot->words[i], words[i]);
	snd_publish(&c->out);
	snd_credit_count_entry(&c->credit, c->out.next - 1, takes_receive);
	snd_cancel_wakeup(ep);
	if (r->end_entry == 0)
		r->first_entry = c->out.next - 1;
	r->end_entry = c->out.next;
	if (r->needs_ack)
		c->credit.ack_request_end = r->end_entry;
	return true;
}

/* snd_gather_payload copies the data of a Send or Write together. It returns false if it has rejected r. */
bool snd_gather_payload(struct snd_endpoint *ep, struct snd_send_request *r, void *payload)
{
	unsigned char *to = payload;
	for (uint32_t i = 0; i < r->count; i++) {
		struct snd_operand source, sink = {.memory = to};
		enum snd_fault sink_fault, source_fault;
		snd_set_operand(r, &source, &r->entries[i], SNDL_RIGHT_READ);
		source.bind = NULL;
		if (!snd_copy(&ep->guard, &sink, &source, r->entries[i].length, &sink_fault, &source_fault)) {
			snd_reject_local(ep, r, &r->entries[i], source_fault);
			return false;
		}
		to += r->entries[i].length;
	}
	return true;
}

static enum snd_outcome push_write_in_entry(struct snd_endpoint *ep, struct snd_send_request *r)
{
	uint64_t words[7] = {0};
	if (!snd_has_free_entry(ep))
		return snd_stall(ep, r, SND_STALL_QUEUE);
	if (!snd_gather_payload(ep, r, words + 2))
		return SND_EXECUTED;
	words[0] = snd_entry_header(SNDL_KIND_WRITE_IN_ENTRY, SNDL_FLAG_FIRST | SNDL_FLAG_LAST | SNDL_FLAG_ACK_REQUEST | snd_entry_flags(r), r->total, r->remote_token);
	words[1] = r->remote_address;
	if (r->hashed)
		words[SNDL_HASH_WORD] = r->hash;
	snd_push_entry(ep, r, words, r->has_immediate);
	snd_ring_peer(ep->object.fabric, &ep->conn->peer);
	return SND_EXECUTED;
}

/* Bounce buffers: arena memory through which a peer copies to or from private memory of this process. */
static bool allocate_bounce(struct snd_endpoint *ep)
{
	struct snd_fabric *f = ep->object.fabric;
	if (ep->bounce_offset != 0)
		return true;
	uint64_t offset;
	if (snd_alloc(&f->heap, SND_BOUNCE_COUNT * SND_BOUNCE_BYTES, false, &offset, "bounce buffers") != SND_SUCCESS)
		return false;
	if (snd_region_init(&ep->bounce, ep->adapter, "bounce buffers") != SND_SUCCESS) {
		snd_free(&f->heap, offset);
		return false;
	}
	snd_region_register(&ep->bounce, f->arena.base + offset, SND_BOUNCE_COUNT * SND_BOUNCE_BYTES, SND_ALLOW_LOCAL_WRITE);
	ep->bounce_offset = offset;
	return true;
}

static unsigned char *bounce_at(struct snd_endpoint *ep, int index) { return ep->bounce.memory + (uint64_t)index * SND_BOUNCE_BYTES; }

/* bounce_out takes a free buffer for as much of the private entry e as fits, and changes e to name the buffer.
 * Unless r is a Read, it copies the data. */
static enum snd_outcome bounce_out(struct snd_endpoint *ep, struct snd_send_request *r, struct snd_entry *e, int *buffer)
{
	if (!allocate_bounce(ep))
		return snd_reject(ep, r, SND_INTERNAL_ERROR, "no memory for bounce buffers: %s", snd_last_error());
	*buffer = -1;
	uint64_t released = snd_load_released(&ep->conn->out);
	for (int i = 0; i < SND_BOUNCE_COUNT; i++)
		if ((int64_t)(released - ep->bounce_freed_by[i]) >= 0)
			*buffer = i;
	if (*buffer < 0)
		return snd_stall(ep, r, SND_STALL_QUEUE);
	uint64_t n = e->length < SND_BOUNCE_BYTES ? e->length : SND_BOUNCE_BYTES;
	unsigned char *memory = bounce_at(ep, *buffer);
	if (r->kind != SND_REQUEST_READ) {
		struct snd_operand source, sink = {.memory = memory};
		enum snd_fault sink_fault, source_fault;
		snd_set_operand(r, &source, e, SNDL_RIGHT_READ);
		if (!snd_copy(&ep->guard, &sink, &source, n, &sink_fault, &source_fault))
			return snd_reject_local(ep, r, e, source_fault);
	}
	*e = (struct snd_entry){(uint64_t)(uintptr_t)memory, (uint32_t)n, ep->bounce.local_token};
	return SND_EXECUTED;
}

/* bounce_in copies a fragment of a Read from its buffer to private memory, once the peer has filled the buffer. */
static enum snd_outcome bounce_in(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if ((int64_t)(snd_load_released(&ep->conn->out) - r->end_entry) < 0)
		return SND_BLOCKED;
	uint64_t n = r->bounce_entry.length;
	struct snd_entry e = snd_entry_at(r->entries, r->count, r->transferred - n);
	struct snd_operand sink, source = {.memory = bounce_at(ep, r->bounce_index)};
	enum snd_fault sink_fault, source_fault;
	snd_set_operand(r, &sink, &e, SNDL_RIGHT_WRITE);
	r->bounce_index = -1;
	if (!snd_copy(&ep->guard, &sink, &source, n, &sink_fault, &source_fault))
		return snd_reject_local(ep, r, &e, sink_fault);
	return SND_EXECUTED;
}

bool snd_has_reads_in_flight(struct snd_connection *c, uint64_t n)
{
	return c->reads_sent >= n && (int64_t)(c->read_ends[(c->reads_sent - n) % SND_MAX_READS] - snd_load_released(&c->out)) > 0;
}

/* snd_send_fragments sends a request to the peer, which copies the data: one fragment for each entry. */
enum snd_outcome snd_send_fragments(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget)
{
	struct snd_connection *c = ep->conn;
	const bool read = r->kind == SND_REQUEST_READ;
	r->needs_ack = true;
	if (r->kind == SND_REQUEST_WRITE && r->total <= snd_room(r) && !snd_is_split(ep, r))
		return push_write_in_entry(ep, r);
	for (;;) {
		if (r->bounce_index >= 0) {
			enum snd_outcome out = bounce_in(ep, r);
			if (out != SND_EXECUTED)
				return out;
		}
		if (r->state == SND_REQ_FINISHED || r->transferred == r->total)
			return SND_EXECUTED;
		if (snd_bytes_until(ep, r, *budget) == 0)
			return SND_PARTIAL;
		if (read && r->transferred == 0 && (snd_has_reads_in_flight(c, ep->read_limit) || (r->hashed && !ep->hook->before_read(ep, r))))
			return snd_stall(ep, r, SND_STALL_ORDER);
		struct snd_entry e = snd_entry_at(r->entries, r->count, r->transferred);
		e.length = (uint32_t)snd_bytes_until(ep, r, e.length);
		struct snd_operand local;
		enum snd_fault fault;
		snd_set_operand(r, &local, &e, read ? SNDL_RIGHT_WRITE : SNDL_RIGHT_READ);
		bool is_private = snd_is_private(&ep->guard, &local, e.length, &fault);
		if (fault != SND_NO_FAULT)
			return snd_reject_local(ep, r, &e, fault);
		if (!snd_has_free_entry(ep))
			return snd_stall(ep, r, SND_STALL_QUEUE);
		int buffer = -1;
		if (is_private) {
			enum snd_outcome out = bounce_out(ep, r, &e, &buffer);
			if (out != SND_EXECUTED || r->state == SND_REQ_FINISHED)
				return out;
			*budget -= e.length < *budget ? e.length : *budget;
		}
		uint64_t n = e.length;
		uint32_t flags = SNDL_FLAG_ACK_REQUEST | snd_entry_flags(r) | (r->transferred == 0 ? SNDL_FLAG_FIRST : 0) |
			(r->transferred + n == r->total ? SNDL_FLAG_LAST : 0);
		uint32_t kind = read ? SNDL_KIND_READ_FRAGMENT : r->kind == SND_REQUEST_WRITE ? SNDL_KIND_WRITE_FRAGMENT : SNDL_KIND_SEND_FRAGMENT;
		uint64_t words[7] = {snd_entry_header(kind, flags, 0, r->remote_token), e.address, (uint64_t)e.length | (uint64_t)e.token << 32,
			r->remote_address + r->transferred, r->total, 0, r->hash};
		snd_push_entry(ep, r, words, r->kind == SND_REQUEST_SEND ? r->transferred == 0 : r->has_immediate && (flags & SNDL_FLAG_LAST) != 0);
		ep->counters.fragments++;
		snd_ring_peer(ep->object.fabric, &c->peer);
		r->transferred += n;
		if (read && r->transferred == r->total)
			snd_count_read(c, r->end_entry);
		if (buffer >= 0) {
			ep->bounce_freed_by[buffer] = r->end_entry;
			if (read) {
				r->bounce_index = buffer;
				r->bounce_entry = e;
			}
		}
	}
}

/* push_write_placed tells the peer that a Write with immediate data is in its memory. */
static enum snd_outcome push_write_placed(struct snd_endpoint *ep, struct snd_send_request *r)
{
	uint32_t flags = SNDL_FLAG_FIRST | SNDL_FLAG_LAST | (r->needs_ack ? SNDL_FLAG_ACK_REQUEST : 0) | (snd_entry_flags(r) & ~SNDL_FLAG_HASHED);
	uint64_t words[7] = {snd_entry_header(SNDL_KIND_WRITE_PLACED, flags, 0, 0), r->total};
	if (!snd_push_entry(ep, r, words, true))
		return snd_stall(ep, r, SND_STALL_QUEUE);
	snd_ring_peer(ep->object.fabric, &ep->conn->peer);
	if (!r->needs_ack)
		snd_complete_if_open(ep, r);
	return SND_EXECUTED;
}

static struct snd_operand remote_of(struct snd_send_request *r)
{
	return (struct snd_operand){.token = r->remote_token, .rights = SNDL_RIGHT_REMOTE | (r->kind == SND_REQUEST_WRITE ? SNDL_RIGHT_WRITE : SNDL_RIGHT_READ),
		.peers = true, .bind = &r->remote_bind, .address = r->remote_address};
}

/* check_range checks the whole range of a Read or Write, and refuse_range ends one that it has refused. */
static enum snd_fault check_range(struct snd_endpoint *ep, struct snd_send_request *r)
{
	const struct snd_operand remote = remote_of(r);
	return snd_check_operand(&ep->guard, &remote, r->total);
}

static enum snd_outcome refuse_range(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_fault f)
{
	return f == SND_FAULT_DISCONNECTED ? SND_BLOCKED : snd_reject_remote(ep, r, f);
}

/* copy_one_sided runs a Read or Write in this process. It leaves the copy to the peer if only the peer can reach
 * its memory. */
static enum snd_outcome copy_one_sided(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget)
{
	const bool write = r->kind == SND_REQUEST_WRITE;
	struct snd_operand local, remote = remote_of(r);
	if (r->transferred == 0 && r->total > 0 && (r->count > 1 || r->total > *budget || ep->hook != NULL)) {
		/* The whole range is checked before the first byte is copied. */
		const enum snd_fault f = check_range(ep, r);
		if (f == SND_FAULT_UNREACHABLE) { /* a part of it, which the copy may reach last */
			r->responder_copies = true;
			return snd_send_fragments(ep, r, budget);
		}
		if (f != SND_NO_FAULT)
			return refuse_range(ep, r, f);
	}
	while (r->transferred < r->total) {
		if (*budget == 0)
			return SND_PARTIAL;
		enum snd_outcome out;
		uint64_t n = *budget;
		const uint64_t at = snd_next_bytes(ep, r, &n, &out);
		if (n == 0)
			return out;
		struct snd_entry e = snd_entry_at(r->entries, r->count, at);
		n = e.length < n ? e.length : n;
		enum snd_fault local_fault, remote_fault;
		snd_set_operand(r, &local, &e, write ? SNDL_RIGHT_READ : SNDL_RIGHT_WRITE);
		remote.address = r->remote_address + at;
		const bool matches = write ? snd_copy_request(ep, r, &remote, &local, n, &remote_fault, &local_fault)
			: snd_copy_request(ep, r, &local, &remote, n, &local_fault, &remote_fault);
		if (remote_fault == SND_FAULT_DISCONNECTED)
			return SND_BLOCKED; /* the next check of the connection notices the end too */
		if (remote_fault == SND_FAULT_UNREACHABLE && r->transferred == 0) {
			r->responder_copies = true;
			return snd_send_fragments(ep, r, budget);
		}
		if (remote_fault != SND_NO_FAULT)
			return snd_reject_remote(ep, r, remote_fault);
		if (local_fault != SND_NO_FAULT)
			return snd_reject_local(ep, r, &e, local_fault);
		if (!matches)
			return SND_EXECUTED;
		snd_count_copied(ep, r, n);
		*budget -= n;
	}
	if (r->has_immediate)
		return push_write_placed(ep, r);
	snd_finish(r, SND_SUCCESS);
	return SND_EXECUTED;
}

bool snd_ask_hook(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out)
{
	if (snd_likely(ep->hook == NULL))
		return false;
	if (ep->hook->before_run(ep, r, out))
		return true;
	*out = SND_BLOCKED; /* such a Send waits in the ring, without limit; no Read may get behind it */
	return snd_takes_receive(r) && r->transferred == 0 && snd_has_reads_aside(ep) && ep->conn->peer_has_srq;
}

/* before_execute makes request r, the next to run, wait for earlier Reads, and asks the hook. If it returns true, *out replaces the
 * outcome of its execution. */
static bool before_execute(struct snd_endpoint *ep, struct snd_send_request *r, enum snd_outcome *out)
{
	if ((r->flags & SND_READ_FENCE) != 0 && (snd_has_reads_in_flight(ep->conn, 1) || snd_has_reads_aside(ep) || snd_awaits_results(ep))) {
		*out = snd_stall(ep, r, SND_STALL_ORDER);
		return true;
	}
	return snd_ask_hook(ep, r, out);
}

/* execute_one_sided is snd_execute for a Read or Write. */
static enum snd_outcome execute_one_sided(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget)
{
	if (r->has_immediate && !r->has_receive) {
		const enum snd_fault f = r->total > 0 && !snd_peer_must_copy(ep) ? check_range(ep, r) : SND_NO_FAULT; /* before it waits for a Receive */
		if (f != SND_NO_FAULT && f != SND_FAULT_UNREACHABLE)
			return refuse_range(ep, r, f);
		const enum snd_outcome out = snd_take_receive(ep, r);
		if (!r->has_receive)
			return out;
	}
	if (r->total == 0 && !r->has_immediate) { /* an empty Read or Write only checks the connection */
		snd_finish(r, SND_SUCCESS);
		return SND_EXECUTED;
	}
	if ((r->flags & SND_READ_LOCAL_INVALIDATE) != 0 && r->object == NULL && !snd_find_sink(ep, r))
		return SND_EXECUTED;
	if (!r->responder_copies && r->transferred == 0)
		r->responder_copies = snd_peer_must_copy(ep) || snd_copy_would_overtake(ep->conn);
	return r->responder_copies ? snd_send_fragments(ep, r, budget) : copy_one_sided(ep, r, budget);
}

enum snd_outcome snd_execute(struct snd_endpoint *ep, struct snd_send_request *r, uint64_t *budget)
{
	if (r->state == SND_REQ_DRAINING)
		return snd_execute_invalidate(ep, r);
	switch (r->kind) {
	case SND_REQUEST_FAST_REGISTER:
	case SND_REQUEST_BIND: return snd_execute_bind(ep, r);
	case SND_REQUEST_INVALIDATE: return snd_execute_invalidate(ep, r);
	case SND_REQUEST_SEND: return snd_execute_send(ep, r, budget);
	case SND_REQUEST_WRITE: return execute_one_sided(ep, r, budget);
	case SND_REQUEST_READ:
	case SND_REQUEST_FETCH_AND_ADD:
	case SND_REQUEST_COMPARE_AND_SWAP:
	case SND_REQUEST_SWAP:
		if (ep->read_limit == 0)
			return snd_reject(ep, r, SND_INVALID_DEVICE_REQUEST, "the connection was made with an outbound read limit of 0: pass outbound_reads, and the peer inbound_reads, in snd_connect_params");
		return r->kind == SND_REQUEST_READ ? execute_one_sided(ep, r, budget) : snd_execute_atomic(ep, r);
	default: return snd_reject(ep, r, SND_NOT_SUPPORTED, "no code executes requests of type %" PRIu32, r->kind);
	}
}

void snd_cancel_preparation(struct snd_send_request *r)
{
	snd_cancel_binding(&r->binding);
	snd_free_registration(r->registration);
	r->registration = NULL;
}

void snd_cancel_request(struct snd_send_request *r)
{
	snd_cancel_preparation(r);
	snd_finish(r, SND_CANCELED);
}

void snd_drop_request(struct snd_endpoint *ep, struct snd_send_request *r)
{
	snd_cancel_preparation(r);
	if (snd_unlikely(ep->hook != NULL))
		ep->hook->forget(ep, r);
	if (r->object != NULL)
		snd_unreference(r->object);
}

/* snd_complete_request adds the result of a finished request to the completion queue. */
void snd_complete_request(struct snd_endpoint *ep, struct snd_send_request *r)
{
	snd_data_arrived(ep, r);
	if (r->object != NULL)
		snd_unreference(r->object);
	if (snd_unlikely(ep->hook != NULL))
		ep->hook->forget(ep, r);
	const bool silent = snd_is_silent(r);
	const uint64_t bytes = r->status == SND_SUCCESS && r->kind != SND_REQUEST_BIND && r->kind != SND_REQUEST_INVALIDATE ? r->total : 0;
	ep->bytes += bytes;
	if (!silent)
		snd_cq_limit(ep->initiator_cq, ep);
	if (snd_unlikely((ep->slow & SND_SLOW_COUNTS) != 0))
		snd_count_result(ep, silent ? NULL : ep->initiator_cq, r->status, r->kind, bytes);
	if (silent)
		snd_complete_silently(ep, r->number);
	else
		snd_cq_push(ep->initiator_cq, &ep->initiator_slots, r->status, r->kind, r->context, bytes, 0, false);
}

void snd_finish_released(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if (snd_unlikely(snd_is_atomic(r)))
		snd_take_result(ep, r);
	else
		snd_finish(r, SND_SUCCESS);
}

/* complete_requests completes executed requests in the order of posting. */
static bool complete_requests(struct snd_endpoint *ep)
{
	bool progressed = false;
	while (ep->completed != ep->next) {
		struct snd_send_request *r = snd_request_at(ep, ep->completed);
		if (r->state != SND_REQ_FINISHED) {
			if (ep->teardown != SND_USES_PEER_STATE || r->state == SND_REQ_ASIDE)
				return progressed;
			if ((int64_t)(snd_load_released(&ep->conn->out) - r->end_entry) >= 0)
				snd_finish_released(ep, r);
			else if (snd_likely(!ep->numbered) || !snd_receive_is_late(ep, r))
				return progressed;
		}
		if (snd_unlikely(ep->hook != NULL) && !ep->hook->before_completion(ep, r))
			return progressed;
		ep->completed++;
		snd_complete_request(ep, r);
		bool failed = r->status != SND_SUCCESS && !r->posted_after_end;
		progressed = true;
		if (failed) {
			ep->request_failed = true;
			if (ep->numbered)
				snd_blame_peer(ep, r);
			snd_terminate(ep, SND_UNSUCCESSFUL, "a request has failed"); /* its cause is set already */
			return true;
		}
	}
	return progressed;
}

bool snd_run_requests(struct snd_endpoint *ep, uint64_t *budget)
{
	if (snd_unlikely(ep->lost))
		return snd_fail_lost(ep);
	bool progressed = false;
	for (;;) {
		progressed = complete_requests(ep) || progressed;
		if (snd_unlikely(snd_has_reads_aside(ep))) {
			progressed = snd_run_reads_aside(ep, budget) || progressed;
			if (snd_has_begun_aside(ep))
				return progressed;
		}
		if (ep->next == ep->submitted || ep->has_failed)
			return progressed;
		struct snd_send_request *r = snd_request_at(ep, ep->next);
		if (r->posted_after_end) {
			snd_cancel_request(r);
			ep->next++;
			continue;
		}
		/* An Invalidate that has begun continues even if the peer has disconnected. */
		if ((ep->state != SND_QP_CONNECTED && !(r->state == SND_REQ_DRAINING && ep->state == SND_QP_PEER_DISCONNECTED)) || *budget == 0)
			return progressed;
		uint64_t before = r->transferred;
		enum snd_outcome out;
		if (!before_execute(ep, r, &out))
			out = snd_execute(ep, r, budget);
		if ((r->flags & SND_READ_LOCAL_INVALIDATE) != 0 && out == SND_EXECUTED)
			out = snd_invalidate_sink(ep, r);
		if (snd_unlikely(ep->numbered) && out == SND_BLOCKED && snd_receive_is_late(ep, r))
			out = SND_EXECUTED;
		switch (out) {
		case SND_BLOCKED:
			ep->counters.retries++;
			return progressed || r->transferred != before;
		case SND_PARTIAL: return true;
		case SND_EXECUTED: break;
		}
		if (r->state == SND_REQ_WAITING)
			r->state = SND_REQ_SENT;
		/* After a failed request no other runs. It completes after the requests before it. */
		ep->has_failed = r->state == SND_REQ_FINISHED && r->status != SND_SUCCESS;
		ep->next++;
		progressed = true;
	}
}

/* Payload checks: docs/integrity.md says between which two moments a change is found, endpoint/internal/mode/integrity how.
 * TWIN endpoint/internal/mode/integrity/integrity.go. */
#include "endpoint/integrity.h"

#include <inttypes.h>
#include <stdio.h>

#include "endpoint/qp.h"
#include "endpoint/qp_receive.h"
#include "endpoint/req_execute.h"
#include "endpoint/resp_serve.h"

static struct snd_payload_sum *sum_of(struct snd_endpoint *ep, const struct snd_send_request *r) { return &ep->sums[r - ep->requests]; }

#define CHANGED "the %" PRIu64 " bytes of the transfer have changed in flight: do not change a buffer before its request is complete"

/* hash_entries hashes the first n bytes of entries: those of request r, or those of a receive if r is NULL. If the guard
 * refuses an entry, it returns the fault and stores the entry in bad. */
static enum snd_fault hash_entries(struct snd_endpoint *ep, struct snd_hash *h, struct snd_send_request *r, const struct snd_entry *entries,
	uint32_t count, uint64_t n, struct snd_entry *bad)
{
	unsigned char *staging = ep->object.fabric->staging;
	snd_hash_begin(h);
	for (uint64_t at = 0; at < n;) {
		struct snd_operand source, sink = {.memory = staging};
		enum snd_fault sink_fault, source_fault;
		*bad = snd_entry_at(entries, count, at);
		uint64_t part = bad->length < n - at ? bad->length : n - at;
		part = part < SND_STAGING ? part : SND_STAGING;
		if (r != NULL)
			snd_set_operand(r, &source, bad, SNDL_RIGHT_READ);
		else
			source = (struct snd_operand){.address = bad->address, .token = bad->token, .rights = SNDL_RIGHT_LOCAL | SNDL_RIGHT_READ};
		if (!snd_copy(&ep->guard, &sink, &source, part, &sink_fault, &source_fault))
			return source_fault;
		snd_hash_add(h, staging, part);
		at += part;
	}
	return SND_NO_FAULT;
}

static enum snd_fault hash_data(struct snd_endpoint *ep, struct snd_send_request *r, struct snd_entry *bad)
{
	struct snd_payload_sum *s = sum_of(ep, r);
	enum snd_fault f = hash_entries(ep, &s->hash, r, r->entries, r->count, r->total, bad);
	s->want = r->hash = snd_hash_sum(&s->hash);
	s->made = f == SND_NO_FAULT;
	snd_hash_begin(&s->hash);
	return f;
}

void snd_hash_posted(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_entry bad;
	if (ep->sums == NULL || r->total == 0 || snd_is_atomic(r)) /* an atomic has no data that waits */
		return;
	struct snd_payload_sum *s = sum_of(ep, r);
	r->hashed = true;
	s->made = r->kind == SND_REQUEST_READ;
	s->place = -1;
	snd_hash_begin(&s->hash);
	/* An earlier Read may bring the data of a fenced request, and an earlier fast registration make its token valid. */
	if (!s->made && !r->posted_after_end && (r->flags & SND_READ_FENCE) == 0)
		hash_data(ep, r, &bad);
}

bool snd_hash_late(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_entry bad;
	if (!r->hashed || sum_of(ep, r)->made)
		return true;
	enum snd_fault f = hash_data(ep, r, &bad);
	if (f != SND_NO_FAULT)
		snd_reject_local(ep, r, &bad, f);
	return f == SND_NO_FAULT;
}

static void advance(struct snd_operand *o, uint64_t n)
{
	if (o->memory != NULL)
		o->memory += n;
	else
		o->address += n;
}

/* copy_hashed copies n bytes by way of the staging buffer, and adds them to h. If want is not NULL, these are the last
 * bytes of a request: it stores the last of them only if the hash is *want, and returns false otherwise. */
static bool copy_hashed(struct snd_endpoint *ep, struct snd_operand sink, struct snd_operand source, uint64_t n, struct snd_hash *h, const uint64_t *want,
	enum snd_fault *sink_fault, enum snd_fault *source_fault)
{
	struct snd_operand staging = {.memory = ep->object.fabric->staging};
	enum snd_fault none;
	for (;;) {
		uint64_t part = n < SND_STAGING ? n : SND_STAGING;
		if (!snd_copy(&ep->guard, &staging, &source, part, sink_fault, source_fault))
			return true;
		snd_hash_add(h, staging.memory, part);
		n -= part;
		if (n == 0 && want != NULL && snd_hash_sum(h) != *want)
			return false;
		if (!snd_copy(&ep->guard, &sink, &staging, part, sink_fault, &none) || n == 0)
			return true;
		advance(&sink, part);
		advance(&source, part);
	}
}

static enum snd_outcome reject(struct snd_endpoint *ep, struct snd_send_request *r) { return snd_reject(ep, r, SND_DATA_CHECKSUM_ERROR, CHANGED, r->total); }

bool snd_copy_hashed(struct snd_endpoint *ep, struct snd_send_request *r, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
	enum snd_fault *sink_fault, enum snd_fault *source_fault)
{
	struct snd_payload_sum *s = sum_of(ep, r);
	const bool last = r->transferred + n == r->total;
	if (!copy_hashed(ep, *sink, *source, n, &s->hash, last && r->kind == SND_REQUEST_WRITE ? &s->want : NULL, sink_fault, source_fault)) {
		reject(ep, r);
		return false;
	}
	if (last && r->kind == SND_REQUEST_READ)
		s->want = snd_hash_sum(&s->hash); /* of what the Read has found; snd_check_read compares */
	return true;
}

/* take_read_hash takes the hash that the peer has computed for Read r, which is sent as a whole. It returns false if the
 * peer has not served the Read. */
static bool take_read_hash(struct snd_endpoint *ep, struct snd_send_request *r)
{
	if ((int64_t)(snd_load_released(&ep->conn->out) - r->end_entry) < 0)
		return false;
	struct snd_payload_sum *s = sum_of(ep, r);
	s->want = snd_load(&ep->conn->peer_qp->read_hashes[s->place]); /* ORDER read-hash: after the release of the entry; pairs with the store in snd_copy_served */
	ep->hashed_reads[s->place] = NULL;
	s->place = -1;
	return true;
}

bool snd_take_read_place(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_payload_sum *s = sum_of(ep, r);
	for (int i = 0; i < SND_READ_HASHES && s->place < 0; i++)
		if (ep->hashed_reads[i] == NULL || take_read_hash(ep, ep->hashed_reads[i])) {
			ep->hashed_reads[i] = r;
			s->place = i;
			r->hash = (uint64_t)i;
		}
	return s->place >= 0;
}

void snd_check_read(struct snd_endpoint *ep, struct snd_send_request *r)
{
	struct snd_entry bad;
	if (!r->hashed || r->kind != SND_REQUEST_READ || r->status != SND_SUCCESS)
		return;
	struct snd_payload_sum *s = sum_of(ep, r);
	if (s->place >= 0)
		take_read_hash(ep, r);
	r->hashed = false; /* checked */
	enum snd_fault f = hash_entries(ep, &s->hash, r, r->entries, r->count, r->total, &bad);
	if (f != SND_NO_FAULT && ep->state != SND_QP_CONNECTED && ep->state != SND_QP_PEER_DISCONNECTED)
		snd_cancel_request(r); /* the data has arrived after snd_tear_down has revoked tokens */
	else if (f != SND_NO_FAULT)
		snd_reject_local(ep, r, &bad, f);
	else if (snd_hash_sum(&s->hash) != s->want)
		reject(ep, r);
}

/* fail_write fails a Write of the peer of n bytes whose data has changed. */
static void fail_write(struct snd_endpoint *ep, uint64_t n)
{
	snd_fail_serving(ep, SND_DATA_CHECKSUM_ERROR, SND_CONNECTION_ABORTED, "serve: a write of the peer: " CHANGED, n);
}

bool snd_check_write(struct snd_endpoint *ep)
{
	const struct snd_ring_entry *e = &ep->in_entry;
	if ((e->flags & SNDL_FLAG_HASHED) == 0 || snd_xxh64(e->payload, e->payload_length) == e->hash)
		return true;
	fail_write(ep, e->payload_length);
	return false;
}

bool snd_copy_served(struct snd_endpoint *ep, const struct snd_operand *sink, const struct snd_operand *source, uint64_t n,
	enum snd_fault *sink_fault, enum snd_fault *source_fault)
{
	const uint32_t flags = ep->in_entry.flags;
	if ((flags & SNDL_FLAG_FIRST) != 0 && ep->in_copied == 0)
		snd_hash_begin(&ep->served);
	const bool end = (flags & SNDL_FLAG_LAST) != 0 && ep->in_copied + n == ep->in_entry.fragment_length;
	const bool read = ep->in_entry.kind == SNDL_KIND_READ_FRAGMENT;
	if (!copy_hashed(ep, *sink, *source, n, &ep->served, end && !read ? &ep->in_entry.hash : NULL, sink_fault, source_fault)) {
		fail_write(ep, ep->in_entry.request_length);
		return false;
	}
	if (end && read)
		snd_release(&ep->local_qp->read_hashes[ep->in_entry.hash % SND_READ_HASHES], snd_hash_sum(&ep->served)); /* ORDER read-hash: before the release of the entry; pairs with the load in take_read_hash */
	return true;
}

bool snd_check_message(struct snd_endpoint *ep, struct snd_receive *r, uint64_t total)
{
	struct snd_entry bad;
	enum snd_fault f = hash_entries(ep, &ep->served, NULL, snd_entries_of(r), r->count, total, &bad);
	if (f != SND_NO_FAULT) {
		snd_complete_receive(ep, r, SND_ACCESS_VIOLATION, 0, 0);
		snd_fail_receive(ep, &bad, f);
		return false;
	}
	if (snd_hash_sum(&ep->served) == ep->in_entry.hash)
		return true;
	snd_complete_receive(ep, r, SND_DATA_CHECKSUM_ERROR, 0, 0);
	snd_fail_serving(ep, SND_DATA_CHECKSUM_ERROR, SND_DATA_CHECKSUM_ERROR, "receive: " CHANGED, total);
	return false;
}

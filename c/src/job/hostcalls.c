/* Collective calls over several hosts. The ranks of a host meet at the barrier of their arena. Then the leaders exchange what
 * their hosts have, and the others wait at the next barrier, at which the leader publishes what it has got. TWIN hostcalls.go. */
#include "job/hostcalls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encoding.h"
#include "job/collective.h"
#include "job/group.h"
#include "job/hostrelay.h"
#include "job/hosts.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"

/* The first byte of what a leader publishes. */
enum {
	NOTICE_PACKS = 1,  /* followed by the packs of all hosts, each behind its length of 8 bytes */
	NOTICE_FAILED = 2, /* followed by a status of 4 bytes, a byte that is 1 if the ranks are still in step, and a text */
	NOTICE_HEADER = 6,
};

/* outcome is what becomes of a call. */
struct outcome {
	snd_status status;
	bool in_step; /* despite the status */
	char text[512];
	struct snd_pack packs; /* of all hosts, as they are published */
};

/* fails stores a failure and its text, and returns false. */
static bool fails(struct outcome *o, snd_status s, bool in_step)
{
	o->status = s;
	o->in_step = in_step;
	snprintf(o->text, sizeof o->text, "%s", snd_last_error());
	return false;
}

/* published copies what a rank of this host has published for the last barrier behind the first used bytes of a pack. With blob,
 * its length goes in front. It returns false if the rank has published nothing. */
static bool published(struct snd_job *j, uint32_t local, struct snd_pack *to, bool blob, uint64_t limit, struct outcome *o, const char *op)
{
	const struct snd_arena *a = &j->fabric->arena;
	const struct snd_rank_record *r = snd_rank(a, local);
	struct snd_peer p;
	/* Ordered by the barrier: the rank stored all three before it arrived. Each is loaded once. The next member of the rank takes it before it
	 * changes them. */
	const uint64_t offset = snd_load(&r->blob), n = snd_load(&r->length), round = snd_load(&r->published_round), used = to->length;
	if (!snd_member_of_rank(j, local, &p))
		return fails(o, snd_fail(SND_CONNECTION_ABORTED, "%s: rank %" PRIu32 " has died or left", op, snd_rank_at(j, local)), false);
	if (round != j->round)
		return fails(o, snd_fail(SND_INVALID_DEVICE_STATE, "%s: rank %" PRIu32 " makes another collective call", op, snd_rank_at(j, local)), false);
	if (n > limit)
		return fails(o, snd_fail(SND_INVALID_BUFFER_SIZE, "%s: the bytes of all ranks together are more than %" PRIu64, op, (uint64_t)SND_MAX_EXCHANGE), true);
	if (n > 0 && !snd_peer_owns(j->fabric, &p, offset, n))
		return fails(o, snd_fail(SND_CONNECTION_ABORTED, "%s: the bytes of rank %" PRIu32 " are not in its memory", op, snd_rank_at(j, local)), false);
	const uint64_t size = used + (blob ? 8 : 0) + n;
	unsigned char *b = realloc(to->bytes, size > 0 ? size : 1);
	if (b == NULL)
		return fails(o, snd_no_memory(size, "private memory", op), false);
	to->bytes = b;
	to->length = size;
	if (blob)
		snd_put_number(b + used, n, 8);
	if (n > 0)
		memcpy(b + size - n, a->base + offset, n);
	return true;
}

/* cut takes a blob from the front of a pack. */
static bool cut(struct snd_pack *from, struct snd_pack *blob)
{
	const uint64_t n = from->length < 8 ? 0 : snd_get_number(from->bytes, 8);
	if (from->length < 8 || n > from->length - 8)
		return false;
	*blob = (struct snd_pack){from->bytes + 8, n};
	from->bytes += 8 + n;
	from->length -= 8 + n;
	return true;
}

/* local_pack makes the pack of this host: the number of bytes of all blobs, and then each blob behind its length. Blobs that are too
 * long make a number that no limit allows. */
static bool local_pack(struct snd_job *j, struct snd_pack *pack, struct outcome *o, const char *op)
{
	uint64_t left = SND_MAX_EXCHANGE;
	if ((pack->bytes = malloc(8)) == NULL)
		return fails(o, snd_no_memory(8, "private memory", op), false);
	pack->length = 8;
	for (uint32_t local = 0; local < j->group; local++) {
		const uint64_t before = pack->length + 8;
		if (!published(j, local, pack, true, left, o, op)) {
			snd_put_number(pack->bytes, UINT64_MAX, 8);
			pack->length = 8;
			return o->in_step;
		}
		left -= pack->length - before;
	}
	snd_put_number(pack->bytes, SND_MAX_EXCHANGE - left, 8);
	return true;
}

/* check_packs checks the lengths of the packs of all hosts. */
static bool check_packs(const struct snd_hosts *h, struct outcome *o, const char *op)
{
	struct snd_pack rest = {o->packs.bytes + 1, o->packs.length - 1}, pack = {NULL, 0};
	uint64_t total = 0;
	for (uint32_t host = 0; host < h->count; host++) {
		if (!cut(&rest, &pack) || pack.length < 8)
			return fails(o, snd_fail(SND_INTERNAL_ERROR, "%s: host %" PRIu32 ": the pack of its leader is damaged", op, host), false);
		const uint64_t n = snd_get_number(pack.bytes, 8);
		if (n > SND_MAX_EXCHANGE || total + n > SND_MAX_EXCHANGE)
			return fails(o, snd_fail(SND_INVALID_BUFFER_SIZE, "%s: the bytes of all ranks together are more than %" PRIu64, op, (uint64_t)SND_MAX_EXCHANGE), true);
		total += n;
	}
	o->packs.bytes[0] = NOTICE_PACKS;
	return true;
}

/* are_barriers reports whether the other ranks of this host make no exchange. */
static bool are_barriers(struct snd_job *j, struct outcome *o, const char *op)
{
	const snd_status s = snd_check_barrier(j, op);
	j->broken = false; /* until the others have read the outcome */
	return s == SND_SUCCESS || fails(o, s, false);
}

/* lead exchanges the blobs of this host with the other leaders. The caller has the lock. */
static void lead(struct snd_job *j, enum snd_call_kind kind, struct outcome *o, int64_t deadline, const char *op)
{
	const struct snd_hosts *h = j->hosts;
	struct snd_pack own = {NULL, 0};
	const bool good = kind == SND_CALL_EXCHANGE ? local_pack(j, &own, o, op) : are_barriers(j, o, op);
	free(o->packs.bytes);
	o->packs = (struct snd_pack){NULL, 0};
	if (h->failed != SND_SUCCESS) {
		(void)fails(o, snd_fail(h->failed, "%s", h->why), false);
	} else if (good) {
		const snd_status s = snd_relay_exchange(j, kind, &own, &o->packs, deadline, op);
		if (s != SND_SUCCESS)
			(void)fails(o, s, false);
		else if (kind == SND_CALL_EXCHANGE)
			(void)check_packs(h, o, op);
	}
	free(own.bytes);
}

/* leave_step tells the other leaders, if this rank is one, that its host takes part in no further call. They may have made this call with
 * success, and then fail in the next one. A close tells them by the end of the relay's input. */
static void leave_step(struct snd_job *j, snd_status status, const char *text)
{
	if (snd_is_leader(j->hosts) && !j->fabric->closed && j->hosts->failed == SND_SUCCESS)
		snd_relay_fail(j, status, text);
}

/* meet is the barrier of a host that takes part in no further call if it fails. */
static snd_status meet(struct snd_job *j, int64_t deadline, const char *op)
{
	char text[512];
	const snd_status s = snd_barrier(j, snd_time_left(deadline), op);
	if (s == SND_SUCCESS)
		return s;
	snprintf(text, sizeof text, "%s", snd_last_error());
	leave_step(j, s, text);
	return snd_fail(s, "%s", text);
}

/* publish_outcome publishes what the other ranks of this host must know. It returns memory to free, 0 if none. */
static uint64_t publish_outcome(struct snd_job *j, enum snd_call_kind kind, struct outcome *o, const char *op)
{
	struct snd_fabric *f = j->fabric;
	uint64_t offset = 0;
	if (o->status == SND_SUCCESS && kind == SND_CALL_EXCHANGE) {
		const snd_status s = snd_publish_blob(j, o->packs.bytes, o->packs.length, &offset, op);
		if (s == SND_SUCCESS)
			return offset;
		(void)fails(o, s, false);
	}
	if (o->status == SND_SUCCESS)
		return 0;
	unsigned char *b = f->arena.base + j->hosts->notice;
	const size_t n = strlen(o->text), most = SND_NOTICE - NOTICE_HEADER, length = n < most ? n : most;
	b[0] = NOTICE_FAILED;
	snd_put_number(b + 1, o->status, 4);
	b[5] = o->in_step;
	memcpy(b + NOTICE_HEADER, o->text, length);
	snd_publish_at(j, j->hosts->notice, NOTICE_HEADER + length);
	return 0;
}

/* read_outcome reads what the leader of this host has published. */
static void read_outcome(struct snd_job *j, enum snd_call_kind kind, struct outcome *o, const char *op)
{
	const uint64_t limit = SND_MAX_EXCHANGE + 8 * (uint64_t)j->size + 16 * (uint64_t)j->hosts->count + SND_NOTICE;
	if (!published(j, 0, &o->packs, false, limit, o, op)) {
		if (o->status == SND_INVALID_DEVICE_STATE && kind == SND_CALL_BARRIER)
			o->status = SND_SUCCESS; /* a barrier has nothing to tell */
		else
			o->in_step = false;
		return;
	}
	const unsigned char *b = o->packs.bytes;
	if (o->packs.length >= NOTICE_HEADER && b[0] == NOTICE_FAILED) {
		o->status = (snd_status)snd_get_number(b + 1, 4);
		if (o->status == SND_SUCCESS)
			o->status = SND_INTERNAL_ERROR;
		o->in_step = b[5] == 1;
		snprintf(o->text, sizeof o->text, "%.*s", (int)(o->packs.length - NOTICE_HEADER), (const char *)b + NOTICE_HEADER);
	} else if (o->packs.length == 0 || b[0] != NOTICE_PACKS) {
		(void)fails(o, snd_fail(SND_INTERNAL_ERROR, "%s: the result of the leader is damaged", op), false);
	}
}

/* unpack stores the blobs of all ranks, which must have one length. */
static snd_status unpack(struct snd_job *j, const struct outcome *o, uint64_t length, unsigned char *all, const char *op)
{
	const struct snd_hosts *h = j->hosts;
	struct snd_pack rest = {o->packs.bytes + 1, o->packs.length - 1}, pack = {NULL, 0}, blob = {NULL, 0};
	for (uint32_t host = 0; host < h->count; host++) {
		bool good = cut(&rest, &pack) && pack.length >= 8;
		pack = (struct snd_pack){good ? pack.bytes + 8 : NULL, good ? pack.length - 8 : 0};
		for (uint32_t rank = 0; rank < h->size; rank++) {
			if (h->of[rank] != host)
				continue;
			if (!good || !cut(&pack, &blob)) {
				j->broken = true;
				return snd_fail(SND_INTERNAL_ERROR, "%s: host %" PRIu32 ": the pack of its leader is damaged", op, host);
			}
			if (blob.length != length)
				return snd_wrong_length(rank, blob.length, length, op);
			if (length > 0)
				memcpy(all + rank * length, blob.bytes, length);
		}
	}
	return SND_SUCCESS;
}

/* finish is the rest of a call after the barrier at which the leader has published the outcome. */
static snd_status finish(struct snd_job *j, enum snd_call_kind kind, const struct outcome *o, uint64_t length, void *all, int64_t deadline, const char *op)
{
	if (o->status != SND_SUCCESS && !o->in_step) {
		(void)snd_barrier(j, snd_time_left(deadline), op); /* all ranks have read the outcome, whose memory ends when the leader closes the job */
		j->broken = true;
		return snd_fail(o->status, "%s", o->text);
	}
	if (kind == SND_CALL_BARRIER)
		return SND_SUCCESS;
	const snd_status s = meet(j, deadline, op); /* the leader's memory is free then */
	if (s != SND_SUCCESS)
		return s;
	return o->status != SND_SUCCESS ? snd_fail(o->status, "%s", o->text) : unpack(j, o, length, all, op);
}

snd_status snd_across_hosts(struct snd_job *j, const struct snd_exchange *x, int64_t timeout, const char *op)
{
	struct snd_fabric *f = j->fabric;
	const int64_t deadline = timeout < 0 ? -1 : snd_deadline(timeout);
	const enum snd_call_kind kind = x == NULL ? SND_CALL_BARRIER : SND_CALL_EXCHANGE;
	const bool leads = snd_is_leader(j->hosts);
	struct outcome o = {.status = SND_SUCCESS};
	uint64_t offset = 0, packed = 0;
	snd_status s = x != NULL ? snd_publish_blob(j, x->mine, x->length, &offset, op) : SND_SUCCESS;
	if (s != SND_SUCCESS)
		return s;
	s = meet(j, deadline, op);
	if (s == SND_SUCCESS && leads) {
		lead(j, kind, &o, deadline, op);
		/* Then it does not arrive at the next barrier, as a rank on one host. */
		const bool is_late = f->closed || (o.status == SND_IO_TIMEOUT && snd_time_left(deadline) == 0);
		if (!is_late)
			packed = publish_outcome(j, kind, &o, op);
		if (o.status != SND_SUCCESS && !o.in_step)
			leave_step(j, o.status, o.text);
		j->broken = is_late;
		if (is_late)
			s = f->closed ? snd_fail(SND_CANCELED, "%s: the job was closed", op) : snd_fail(o.status, "%s", o.text);
	}
	if (s == SND_SUCCESS)
		s = meet(j, deadline, op);
	if (s == SND_SUCCESS) {
		if (!leads)
			read_outcome(j, kind, &o, op);
		s = finish(j, kind, &o, x != NULL ? x->length : 0, x != NULL ? x->all : NULL, deadline, op);
	}
	free(o.packs.bytes);
	if (j->broken) /* a rank that is late may still copy from there; there is no further exchange */
		return s;
	if (offset != 0)
		snd_free(&f->heap, offset);
	if (packed != 0)
		snd_free(&f->heap, packed);
	return s;
}

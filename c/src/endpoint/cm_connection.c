/* One side's private, checked view of a connection record.
 * TWIN endpoint/cm_connection.go, endpoint/cm_attach.go, endpoint/cm_inbox.go, endpoint/cm_deaths.go, endpoint/internal/cm/record.go. */
#include "endpoint/cm_connection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/cm_listener.h"
#include "endpoint/cm_number.h"
#include "endpoint/cm_ports.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/cq.h"
#include "endpoint/qp.h"
#include "shm/doorbell.h"
#include "shm/watch.h"
#include "shm/work.h"

enum { OWNER_SHIFT = SNDL_ADAPTER_MEMBER_SHIFT };

static bool release(struct snd_work *work);

struct snd_connection *snd_connection_new(struct snd_fabric *f, struct snd_connection_record *r, uint64_t offset, int side, struct snd_peer peer)
{
	struct snd_connection *c = snd_alloc_lines(sizeof *c);
	if (c == NULL)
		return NULL;
	memset(c, 0, sizeof *c);
	c->fabric = f;
	c->record = r;
	c->offset = offset;
	c->side = side;
	c->peer = peer;
	c->work.run = release;
	snd_list_init(&c->hazard.link);
	snd_list_init(&c->queue_link);
	snd_list_init(&c->request_link);
	snd_list_init(&c->work.link);
	snd_list_append(&f->connections, &c->link);
	snd_watch_also(f, peer.id);
	return c;
}

void snd_name_peer(const struct snd_connection *c, char *text, size_t size)
{
	const struct snd_fabric *f = c->fabric;
	uint32_t rank = 0;
	while (rank < f->addressed && f->addresses[rank] != c->remote)
		rank++;
	if (c->remote == 0)
		snd_peer_name(&c->peer, text, size);
	else if (rank < f->addressed)
		snprintf(text, size, "rank %" PRIu32 " on another host", rank);
	else
		snprintf(text, size, "a process of host %" PRIu32, snd_number_of_host(c->remote));
}

void snd_say_lost(const struct snd_connection *c, char *text, size_t size)
{
	char peer[64];
	snd_name_peer(c, peer, sizeof peer);
	if (c->remote != 0)
		snprintf(text, size, "the relay of this host, which reached %s, has died or left: start the job again: hosts that have lost each other are not connected again", peer);
	else
		snprintf(text, size, "%s has died or left", peer);
}

static bool is_power_of_two(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

/* attach_receives checks where the peer's receives are, unless they are in a shared queue. */
static bool attach_receives(struct snd_connection *c, const struct snd_shared_qp *q)
{
	uint64_t receives = snd_relaxed(&q->receives), count = snd_relaxed(&q->receive_count), stride = snd_relaxed(&q->receive_stride),
		shared = snd_relaxed(&q->shared_receive); /* loaded once */
	if (shared == 1) {
		c->peer_has_srq = true;
		return true;
	}
	if (shared != 0 || !is_power_of_two(count) || count > SND_MAX_QUEUE_DEPTH || stride % 64 != 0 || stride < 64 || stride > 4096)
		return false;
	c->descriptors = snd_at(&c->fabric->arena, receives, count * stride, 8);
	c->receive_count = count;
	c->stride = stride / 8;
	return c->descriptors != NULL && snd_peer_owns(c->fabric, &c->peer, receives, count * stride);
}

/* The upper half of a word. */
enum { UPPER = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ };

void snd_obey_access(struct snd_connection *c)
{
	c->far.access = &c->peer_qp->access;
	c->far.bar = (const snd_half *)(const void *)c->far.access + UPPER; /* endpoints with numbers do not disconnect */
}

/* meet notes that the other side, whose state is at an offset, is of this process. */
static void meet(struct snd_connection *c, struct snd_endpoint *ep, uint64_t at)
{
	struct snd_fabric *f = c->fabric;
	c->far.own = f->table;
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next) {
		struct snd_endpoint *other = SND_OF(l, struct snd_endpoint, link);
		if (other->local_qp_offset != at || other == ep)
			continue;
		snd_part(ep);
		snd_part(other);
		ep->beside = other;
		other->beside = ep;
		snd_cq_drives_beside(ep->initiator_cq);
		snd_cq_drives_beside(ep->receive_cq);
	}
}

bool snd_attach(struct snd_connection *c, struct snd_endpoint *ep)
{
	struct snd_arena *a = &c->fabric->arena;
	const int other = 1 - c->side;
	uint64_t at = snd_relaxed(&c->record->qp[other]), owner = snd_relaxed(&c->record->adapter[other]);
	if (owner >> OWNER_SHIFT != c->peer.id || !snd_peer_owns(c->fabric, &c->peer, at, sizeof(struct snd_shared_qp)))
		return false;
	struct snd_shared_qp *q = snd_at(a, at, sizeof *q, 64);
	if (q == NULL)
		return false;
	uint64_t ring = snd_relaxed(&q->ring), slots = snd_relaxed(&q->ring_slots); /* loaded once; the copies are checked and used */
	if (!attach_receives(c, q) || !is_power_of_two(slots) || slots > SND_MAX_SLOTS || !snd_peer_owns(c->fabric, &c->peer, ring, slots * SNDL_SIZEOF_SLOT))
		return false;
	struct snd_slot *inbound = snd_at(a, ring, slots * SNDL_SIZEOF_SLOT, SNDL_SIZEOF_SLOT);
	if (inbound == NULL)
		return false;
	c->peer_copies = snd_relaxed(&q->responder_copies) != 0;
	c->peer_extended = snd_relaxed(&q->extended) == 1;
	ep->requester_copies = !c->fabric->target && !c->peer_copies;
	c->in = (struct snd_consumer){inbound, slots - 1, &ep->local_qp->released, 0, 0};
	uint64_t own = ep->local_qp_offset + SNDL_SIZEOF_SHARED_QP, size = ep->initiator_depth < 64 ? 64 : ep->initiator_depth > 256 ? 256 : ep->initiator_depth;
	uint64_t mask = 63;
	while (mask + 1 < size)
		mask = mask * 2 + 1;
	c->out = (struct snd_producer){(struct snd_slot *)(void *)(a->base + own), mask, &q->released, 0, 0,
		snd_relaxed(&q->membarrier) == 1 && snd_has_heavy_global()};
	c->peer_qp = q;
	c->far.adapter = owner;
	c->far.endpoint = snd_relaxed(&q->endpoint);
	c->far.disconnected = &c->record->disconnected[other];
	c->far.state = &c->record->state;
	c->far.bar = c->far.disconnected;
	if (ep->numbered)
		snd_obey_access(c);
	if (c->peer.id == c->fabric->id)
		meet(c, ep, at);
	ep->guard.far = &c->far;
	c->hazard.peer = c->peer;
	c->hazard.word = c->peer_dead ? NULL : &q->hazard;
	snd_list_append(&ep->adapter->hazards, &c->hazard.link); /* before the connection is established: then the peer may use our tokens */
	c->attached = true;
	return true;
}

/* move_record changes the state of the record by an event. It stores the previous state in *before. */
static bool move_record(struct snd_connection_record *r, enum snd_conn_event e, uint32_t *before)
{
	uint32_t s = snd_load32(&r->state), to; /* ORDER conn-state: pairs with the swap below, at the other side */
	for (int tries = 0; tries < SND_STATES && snd_find_state(&snd_conn_states, s, e, &to); tries++) /* the other side may change it at the same time */
		if (atomic_compare_exchange_strong(&r->state, &s, to)) { /* ORDER conn-state: pairs with the load in snd_connection_state, at the other side */
			*before = s;
			return true;
		}
	return false;
}

bool snd_transition(struct snd_connection *c, enum snd_conn_event e)
{
	uint32_t before;
	if (c->peer_dead || c->released || !move_record(c->record, e, &before)) /* the record may have been the dead process's */
		return false;
	if (before == SNDL_CONN_ACCEPTED && (e == SND_EVENT_ABANDONS || e == SND_EVENT_ABORTS))
		c->ended_early = true;
	snd_ring_peer(c->fabric, &c->peer);
	return true;
}

/* snd_detach ends this side's use of the other side's memory permanently. */
void snd_detach(struct snd_connection *c)
{
	if (c->detached)
		return;
	c->detached = true;
	if (!c->peer_dead)
		snd_store_full32(&c->record->detached[c->side], SNDL_DETACHED_QP); /* ORDER detached: pairs with the load in release */
	snd_ring_peer(c->fabric, &c->peer);
	snd_run_or_defer(c->fabric, &c->work);
}

/* release frees what the connection holds, once the other side has detached too. The record is freed last. The passive
 * side still reads a word of it, so it says when it has done so for the last time. */
static bool release(struct snd_work *work)
{
	struct snd_connection *c = SND_OF(work, struct snd_connection, work);
	if (!snd_is_peer_gone(c)) {
		uint32_t theirs = snd_load32(&c->record->detached[1 - c->side]); /* ORDER detached: pairs with the stores in snd_detach and below */
		if ((c->side == SND_ACTIVE && theirs != SNDL_DETACHED_RECORD) || (c->attached && theirs == 0))
			return false;
	}
	struct snd_fabric *f = c->fabric;
	struct snd_peer peer = c->peer;
	snd_list_remove(&c->hazard.link);
	snd_list_remove(&c->request_link);
	snd_list_remove(&c->link);
	c->released = true;
	if (c->side == SND_PASSIVE && !c->peer_dead)
		snd_store_full32(&c->record->detached[SND_PASSIVE], SNDL_DETACHED_RECORD); /* ORDER detached: pairs with the load above */
	if (c->side == SND_ACTIVE)
		snd_free(&f->heap, c->offset);
	if (c->users == 0)
		free(c);
	snd_ring_peer(f, &peer);
	return true;
}

void snd_unuse(struct snd_connection *c)
{
	if (--c->users == 0 && c->released)
		free(c);
}

/* snd_forget_connection frees the private part, when the fabric is closed. */
void snd_forget_connection(struct snd_connection *c)
{
	snd_list_remove(&c->link);
	snd_list_remove(&c->hazard.link);
	snd_list_remove(&c->request_link);
	snd_list_remove(&c->work.link);
	c->released = true;
	if (c->users == 0)
		free(c);
}

void snd_refuse(struct snd_connection *c)
{
	snd_transition(c, SND_EVENT_REFUSES);
	snd_detach(c);
}

/* requests_at returns the list that contains the request with a record at an offset. A hostile peer can send thousands of
 * requests, so they are not in one list. The address of f is private, so the peer cannot choose offsets of one list. */
static struct snd_link *requests_at(struct snd_fabric *f, uint64_t offset)
{
	const uint64_t key[2] = {offset, (uint64_t)(uintptr_t)f};
	return &f->requests[snd_xxh64(key, sizeof key) % SND_REQUEST_LISTS];
}

/* snd_handle_request handles one connection request. Every word of it was written by a peer. */
void snd_handle_request(struct snd_fabric *f, uint64_t offset)
{
	struct snd_connection_record *r = snd_at(&f->arena, offset, sizeof *r, 8);
	struct snd_peer peer;
	if (r == NULL || !snd_peer_of(f, snd_relaxed(&r->member[SND_ACTIVE]), &peer) || snd_peer_gone(&peer) ||
		!snd_peer_owns(f, &peer, offset, sizeof *r) || snd_relaxed(&r->member[SND_PASSIVE]) != f->id)
		return; /* no correct peer sends this, or no peer is left to answer */
	struct snd_link *requests = requests_at(f, offset);
	for (struct snd_link *l = requests->next; l != requests; l = l->next) {
		struct snd_connection *known = SND_OF(l, struct snd_connection, request_link);
		if (known->peer.id == peer.id && known->offset == offset)
			return; /* sent twice, which no correct peer does */
	}
	struct snd_connection *c = snd_connection_new(f, r, offset, SND_PASSIVE, peer);
	if (c == NULL) { /* no memory: the words that snd_refuse would change, without a private part */
		uint32_t before;
		if (move_record(r, SND_EVENT_REFUSES, &before))
			snd_set32(&r->data_len[SND_PASSIVE], 0);
		snd_store_full32(&r->detached[SND_PASSIVE], SNDL_DETACHED_RECORD); /* ORDER detached: pairs with the load in release */
		snd_ring_peer(f, &peer);
		return;
	}
	snd_list_append(requests, &c->request_link);
	if (snd_peer_gone(&peer) || f->marked_dead)
		snd_peer_died(c);
	const bool is_here = snd_relaxed32(&r->address[SND_PASSIVE]) == snd_host_of(f, f->slot);
	if (is_here && snd_is_by_number(c))
		snd_number_request(f, c);
	else if (!is_here || !snd_listener_enqueue(f, c, (uint16_t)snd_relaxed32(&r->port[SND_PASSIVE])))
		snd_refuse(c);
	snd_wake(f);
}

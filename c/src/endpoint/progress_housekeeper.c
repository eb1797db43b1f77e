/* Periodic work: checks of the peers' processes, answers to joining processes, the status page.
 * TWIN endpoint/progress_housekeeper.go. */
#include "endpoint/progress_housekeeper.h"

#include "endpoint/cm_connection.h"
#include "endpoint/cm_teardown.h"
#include "endpoint/cq.h"
#include "endpoint/event.h"
#include "endpoint/progress_statuspage.h"
#include "shm/fabric_name.h"
#include "shm/inbox.h"
#include "shm/liveness.h"
#include "shm/watch.h"

#define CHECK_INTERVAL INT64_C(100000000)
#define LOCK_INTERVAL INT64_C(50000000) /* without a thread that waits for events: waiting calls end within 100 ms of a death */
#define QUIET_INTERVAL INT64_C(2000000000) /* while nothing is under way, and another thread waits for events */
#define JOIN_INTERVAL INT64_C(20000000)

/* snd_release_dead ends all use of a dead member's memory permanently. */
void snd_release_dead(struct snd_fabric *f, uint64_t id)
{
	snd_read_inbox(f, snd_handle_request); /* requests in the list behind those of the dead member would be lost with it */
	for (struct snd_link *l = f->connections.next, *next; l != &f->connections; l = next) {
		struct snd_connection *c = SND_OF(l, struct snd_connection, link);
		next = l->next;
		if (c->peer.id == id && !c->peer_dead)
			snd_peer_died(c);
	}
	snd_wake(f);
}

static void fail_all(struct snd_fabric *f)
{
	for (struct snd_link *l = f->connections.next, *next; l != &f->connections; l = next) {
		struct snd_connection *c = SND_OF(l, struct snd_connection, link);
		next = l->next;
		if (!c->peer_dead)
			snd_peer_died(c);
	}
	snd_wake(f);
}

/* check_peers tests the locks of connected peers. It adds them to the members that are to be watched. */
static void check_peers(struct snd_fabric *f, uint64_t *watched, uint32_t *count, bool *died)
{
	uint64_t checked = 0;
	for (struct snd_link *l = f->connections.next; l != &f->connections; l = l->next) {
		struct snd_connection *c = SND_OF(l, struct snd_connection, link);
		if (c->peer.id == checked || c->peer_dead)
			continue;
		checked = c->peer.id;
		if (!snd_is_alive(f, &c->peer, died))
			continue;
		uint32_t i = 0;
		while (i < *count && watched[i] != checked)
			i++;
		if (i == *count && i < SNDL_MEMBERS)
			watched[(*count)++] = checked;
	}
}

/* clear_forged_hazards clears hazards that other processes have set in the name of this one: no copy is in progress
 * while the lock is free. */
static void clear_forged_hazards(struct snd_fabric *f)
{
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next) {
		struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		if (snd_relaxed(&ep->local_qp->hazard) != 0)
			snd_release(&ep->local_qp->hazard, 0);
	}
	for (struct snd_link *l = f->closing.next; l != &f->closing; l = l->next) {
		struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		if (snd_relaxed(&ep->local_qp->hazard) != 0)
			snd_release(&ep->local_qp->hazard, 0);
	}
}

/* snd_check_liveness is Member.CheckLiveness with releaseDead. TWIN shm/watch.go. */
void snd_check_liveness(struct snd_fabric *f)
{
	f->liveness_seen = snd_load32(&f->record->liveness_requests);
	uint64_t watched[SNDL_MEMBERS];
	bool died = false;
	uint32_t n = snd_check_neighbours(f, watched, &died);
	check_peers(f, watched, &n, &died);
	if (died)
		snd_wake_all(f);
	snd_watch_only(f, watched, n);
	f->deaths = snd_deaths(f);
	bool dead_records = false;
	f->processes = 0;
	const uint32_t slots = snd_used_slots(&f->arena);
	for (uint32_t slot = 0; slot < slots; slot++) {
		uint32_t status = snd_state_status(snd_load(&snd_member(&f->arena, slot)->state));
		dead_records = dead_records || status == SNDL_STATUS_DEAD;
		f->processes += status == SNDL_STATUS_LIVE;
	}
	f->processes = f->processes > f->arena.ranks ? f->processes : f->arena.ranks;
	struct snd_peer self = {.id = f->id, .record = f->record};
	if (dead_records || snd_load(&f->record->deaths_seen) != f->deaths || snd_peer_gone(&self))
		snd_acknowledge_deaths(f, snd_release_dead);
	if (f->marked_dead)
		fail_all(f);
}

void snd_housekeep(struct snd_fabric *f, int64_t now)
{
	if (f->closed)
		return;
	if (snd_unlikely(f->socket >= 0) && f->watch == NULL && now - f->last_housekeeping >= CHECK_INTERVAL / 20)
		snd_serve_joiners(f, now);
	if (snd_deaths(f) != f->deaths || snd_load32(&f->record->liveness_requests) != f->liveness_seen || /* ORDER liveness-request: pairs with the addition in snd_request_liveness_checks */
		now - f->last_housekeeping >= (f->watch == NULL ? LOCK_INTERVAL : CHECK_INTERVAL)) {
		f->last_housekeeping = now;
		snd_check_liveness(f);
		clear_forged_hazards(f);
		if (now - f->status_at >= CHECK_INTERVAL) {
			f->status_at = now;
			snd_events_of_waiting(f, now);
			snd_update_status_page(f, now);
			snd_show_traffic(f);
		}
	}
}

int64_t snd_idle_time(const struct snd_fabric *f)
{
	if (f->watch == NULL)
		return f->socket >= 0 ? JOIN_INTERVAL : LOCK_INTERVAL;
	return snd_status_page_is_old(f) ? CHECK_INTERVAL : QUIET_INTERVAL;
}

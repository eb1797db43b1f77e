/* Periodic work: checks of the peers' processes, answers to joining processes, the status page.
 * TWIN endpoint/progress_housekeeper.go. */
#include "endpoint/progress_housekeeper.h"

#include "endpoint/cm_connection.h"
#include "endpoint/cq.h"
#include "endpoint/event.h"
#include "endpoint/progress_statuspage.h"
#include "shm/fabric_name.h"
#include "shm/liveness.h"
#include "shm/watch.h"

#define CHECK_INTERVAL INT64_C(100000000)
#define LOCK_INTERVAL INT64_C(50000000) /* without a thread that waits for events: waiting calls end within 100 ms of a death */
#define QUIET_INTERVAL INT64_C(2000000000) /* while nothing is under way, and another thread waits for events */
#define JOIN_INTERVAL INT64_C(20000000)

/* snd_check_liveness is Member.CheckLiveness with releaseDead. TWIN shm/watch.go. */
void snd_check_liveness(struct snd_fabric *f)
{
	f->liveness_seen = snd_load32(&f->record->liveness_requests);
	uint64_t watched[SNDL_MEMBERS];
	bool died = false;
	uint32_t n = snd_check_neighbours(f, watched, &died);
	snd_check_peers(f, watched, &n, &died);
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
		snd_fail_all(f);
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
		snd_clear_forged_hazards(f);
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

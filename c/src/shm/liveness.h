/* Deaths of members. */
#ifndef SND_SHM_LIVENESS_H
#define SND_SHM_LIVENESS_H

#include "shm/fabric.h"

bool snd_lock_record(int fd, const struct snd_arena *a, uint32_t slot);
void snd_unlock_record(int fd, const struct snd_arena *a, uint32_t slot);
/* snd_check_alive reports whether the peer's process still runs, and marks the peer dead if it does not. */
bool snd_check_alive(struct snd_fabric *f, const struct snd_peer *p);
/* snd_is_alive is that for a caller that checks several members. It sets died instead of waking all members, which the caller
 * does once: a hostile process can make thousands of records look alive. */
bool snd_is_alive(struct snd_fabric *f, const struct snd_peer *p, bool *died);
bool snd_mark_dead(struct snd_fabric *f, uint32_t slot, uint64_t id);
/* snd_process_runs reports whether the process that has or had a member's record still runs, whether it is a member or not. */
bool snd_process_runs(const struct snd_peer *p);
/* snd_has_next_owner reports whether another member has taken the peer's record, or has begun to. The words of the record and of its
 * status page may be those of that member then, so a caller loads them before it asks. */
bool snd_has_next_owner(const struct snd_peer *p);
bool snd_count_death(struct snd_fabric *f, uint32_t slot, bool first);
void snd_request_liveness_checks(struct snd_fabric *f);
/* snd_check_neighbours tests the locks of the next two live members and of one more, a different one each time. It returns how
 * many neighbours there are. */
uint32_t snd_check_neighbours(struct snd_fabric *f, uint64_t *neighbours, bool *died);
/* snd_wake_all wakes all members, armed or not: the dead member may have died between a mark and its wake. */
void snd_wake_all(struct snd_fabric *f);
/* snd_deaths returns the arena's number of deaths. */
uint64_t snd_deaths(const struct snd_fabric *f);
/* snd_acknowledge_deaths has release end all use of the memory of each dead member, says so in the record of f, and reaps members
 * whose death all have acknowledged. */
void snd_acknowledge_deaths(struct snd_fabric *f, void (*release)(struct snd_fabric *, uint64_t id));
uint64_t snd_not_counted(uint32_t incarnation);
void snd_record_lost_peer(struct snd_fabric *f, uint64_t peer);

#endif

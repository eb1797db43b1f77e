/* Periodic work. */
#ifndef SND_ENDPOINT_PROGRESS_HOUSEKEEPER_H
#define SND_ENDPOINT_PROGRESS_HOUSEKEEPER_H

#include "shm/fabric.h"

/* snd_release_dead ends all use of a dead member's memory permanently. */
void snd_release_dead(struct snd_fabric *f, uint64_t id);
void snd_check_liveness(struct snd_fabric *f);
/* snd_housekeep does the periodic work if it is due. */
void snd_housekeep(struct snd_fabric *f, int64_t now);
/* snd_idle_time is how long a thread may sleep while nothing is under way. */
int64_t snd_idle_time(const struct snd_fabric *f);

#endif

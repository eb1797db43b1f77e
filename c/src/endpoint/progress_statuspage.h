/* The status page of this member in the arena. It says to observers such as ndrun what the process waits for. */
#ifndef SND_STATUS_PAGE_H
#define SND_STATUS_PAGE_H

#include "shm/fabric.h"

/* snd_reset_status_page begins the page of a new member, whose record is not live yet. */
void snd_reset_status_page(struct snd_fabric *f);
/* snd_update_status_page notes progress since the last call, or publishes what the process waits for. It is called at most
 * ten times a second, under the fabric's lock. */
void snd_update_status_page(struct snd_fabric *f, int64_t now);
/* snd_status_page_is_old reports whether the page has to be updated soon: it is outdated, or the request of an
 * observer is not answered. */
bool snd_status_page_is_old(const struct snd_fabric *f);
/* snd_is_asked reports whether the request of an observer is not answered. Its ring may have come when no update was due. */
bool snd_is_asked(const struct snd_fabric *f);

/* snd_begin_call shows a call to observers until snd_end_call. The caller holds the lock. */
void snd_begin_call(struct snd_fabric *f, struct snd_call *c);
void snd_end_call(struct snd_fabric *f, struct snd_call *c, bool progress);

#endif

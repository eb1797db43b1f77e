/* Deferred work. */
#ifndef SND_SHM_WORK_H
#define SND_SHM_WORK_H

#include "shm/fabric.h"

/* snd_wake_progress makes a wait, or else the engine, drive the endpoints: work has come up that no peer announces. */
void snd_wake_progress(struct snd_fabric *f);
void snd_run_deferred(struct snd_fabric *f);
/* snd_run_or_defer runs work now; if it is not done, it runs again later. */
void snd_run_or_defer(struct snd_fabric *f, struct snd_work *w);
void snd_defer(struct snd_fabric *f, struct snd_work *w);

#endif

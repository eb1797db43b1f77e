/* Connection events, for programs that wait with poll or epoll. */
#ifndef SND_ENDPOINT_CM_EVENT_H
#define SND_ENDPOINT_CM_EVENT_H

#include "shm/fabric.h"

/* snd_raise_event makes the descriptor readable. */
void snd_raise_event(struct snd_fabric *f);
/* snd_announce_steps raises an event for each connector whose step can be finished now. */
void snd_announce_steps(struct snd_fabric *f);

#endif

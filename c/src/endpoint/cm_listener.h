/* Listeners. */
#ifndef SND_ENDPOINT_CM_LISTENER_H
#define SND_ENDPOINT_CM_LISTENER_H

#include "endpoint/endpoint.h"

struct snd_listener {
	struct snd_object object;
	struct snd_link link;
	struct snd_link queue; /* of requests, oldest first */
	struct snd_adapter *adapter;
	snd_address address;
	uint32_t backlog; /* 0: no limit */
	uint32_t cancels; /* how often its waits were cancelled */
	uint32_t queued, refused; /* refused: requests that came to a full queue since the last one that found room */
	bool bound, listening;
	bool paused; /* no call takes a request */
};

/* snd_listener_enqueue gives a request to the listener of a port; false if there is none or its backlog is full. */
bool snd_listener_enqueue(struct snd_fabric *f, struct snd_connection *c, uint16_t port);
/* snd_forget_listener refuses the requests that wait, and frees the listener. */
void snd_forget_listener(struct snd_listener *l);

#endif

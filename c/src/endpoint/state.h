/* A connection has three states: that of its record in shared memory, and for each side that of the endpoint and of the connector.
 * Each has a table. internal/layout/STATES.txt has the tables as text, and docs/states.md draws them. TWIN endpoint/internal/cm/state.go. */
#ifndef SND_ENDPOINT_STATE_H
#define SND_ENDPOINT_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "endpoint/state_table.h"
#include "shm/layout.h"

enum { SND_STATES = 8 };

struct snd_states {
	const char *text[SND_STATES];
	unsigned char after[SND_STATES][SND_EVENTS]; /* the state after an event, plus one; 0 = the event is impossible */
};

extern const struct snd_states snd_conn_states, snd_phases, snd_qp_states;
extern const char *const snd_event_text[SND_EVENTS];

/* snd_find_state stores the state after an event. It returns false if the event is impossible in state s, which a peer may have written. */
bool snd_find_state(const struct snd_states *t, uint32_t s, enum snd_conn_event e, uint32_t *to);
/* snd_next_state returns the state after an event. The event must be possible in state s. */
uint32_t snd_next_state(const struct snd_states *t, uint32_t s, enum snd_conn_event e);

#endif

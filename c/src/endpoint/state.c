/* The state that follows an event, by the tables. TWIN endpoint/internal/cm/state.go. */
#include "endpoint/state.h"

#include <stdio.h>
#include <stdlib.h>

bool snd_find_state(const struct snd_states *t, uint32_t s, enum snd_conn_event e, uint32_t *to)
{
	if (s >= SND_STATES || t->after[s][e] == 0)
		return false;
	*to = t->after[s][e] - 1u;
	return true;
}

uint32_t snd_next_state(const struct snd_states *t, uint32_t s, enum snd_conn_event e)
{
	uint32_t to;
	if (!snd_find_state(t, s, e, &to)) {
		fprintf(stderr, "softnd: event \"%s\" in state \"%s\"\n", snd_event_text[e], t->text[s]);
		abort();
	}
	return to;
}

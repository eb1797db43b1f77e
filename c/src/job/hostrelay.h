/* Collective calls of the leader of a host through its relay: the relays of all hosts match them. */
#ifndef SND_JOB_HOSTRELAY_H
#define SND_JOB_HOSTRELAY_H

#include "job/job.h"

/* snd_pack is what a leader passes for its host. */
struct snd_pack {
	unsigned char *bytes; /* of malloc; NULL = none */
	uint64_t length;
};

/* snd_max_pack returns the bytes of the longest pack: it has 8 for each rank and 8 more. */
uint64_t snd_max_pack(const struct snd_job *j);
/* snd_relay_exchange passes mine to the other leaders. It stores the packs of all hosts in one, behind one byte, each behind its length of
 * 8 bytes. The caller holds the lock, and frees packs, also after a failure. */
snd_status snd_relay_exchange(struct snd_job *j, enum snd_call_kind kind, const struct snd_pack *mine, struct snd_pack *packs, int64_t deadline, const char *op);
/* snd_relay_fail lets the exchange of the other leaders fail with this status and text. */
void snd_relay_fail(struct snd_job *j, snd_status status, const char *text);

#endif

/* Progress of endpoints. */
#ifndef SND_ENDPOINT_PROGRESS_H
#define SND_ENDPOINT_PROGRESS_H

#include "endpoint/cq.h"

bool snd_progress_all(struct snd_fabric *f);
bool snd_progress_by_engine(struct snd_fabric *f);
bool snd_progress(struct snd_endpoint *ep);
/* snd_progress_into is snd_progress that may store results of receives directly. */
uint32_t snd_progress_into(struct snd_endpoint *ep, struct snd_cq *q, snd_result *results, uint32_t room);
void snd_settle_deliveries(struct snd_fabric *f, struct snd_adapter *a);
/* snd_poll_interval is how long a wait sleeps at most while there is such work, in nanoseconds. */
int64_t snd_poll_interval(const struct snd_fabric *f);
bool snd_needs_polling(struct snd_fabric *f);

#endif

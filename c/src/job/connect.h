/* Connections between ranks. */
#ifndef SND_JOB_CONNECT_H
#define SND_JOB_CONNECT_H

#include "job/job.h"

/* snd_forget_kept frees what no call has taken, when the job is closed. */
void snd_forget_kept(struct snd_job *j);

#endif

/* The end of a job by one of its ranks. */
#ifndef SND_JOB_ABORT_H
#define SND_JOB_ABORT_H

#include "job/job.h"

/* snd_job_is_current makes j the job that snd_job_abort takes if it gets none. */
void snd_job_is_current(struct snd_job *j);
/* snd_job_ends is called when another rank has ended the job, and no launcher ends this process. It ends the process if the options of the
 * job ask for that. It does nothing if the job is retired. Any thread may call it before the job is freed. */
void snd_job_ends(void *job, int code, const char *why);
/* snd_job_retire makes the handle of j invalid. Then snd_job_abort does not take j, unless the ranks meet at SOFTND_ROOT. There rank 0
 * may wait for the others, and can still abort. Before j is freed, snd_job_forget makes snd_job_abort forget it. */
void snd_job_retire(struct snd_job *j);
void snd_job_forget(const struct snd_job *j);

#endif

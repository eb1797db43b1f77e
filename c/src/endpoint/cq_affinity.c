/* The processors that serve notifications: those on which the main thread of this process may run.
 * TWIN endpoint/cq_affinity.go. */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "endpoint/cq.h"
#include "endpoint/srq.h"

static const char op[] = "notify affinity";

/* process_affinity finds the first group of 64 processors that has one of them, and the mask of those in the group. */
static snd_status process_affinity(uint16_t *group, uint64_t *mask)
{
	if (group == NULL || mask == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: group or mask is NULL", op);
	*group = 0;
	*mask = 0;
	cpu_set_t set;
	if (sched_getaffinity(getpid(), sizeof set, &set) != 0)
		return snd_fail(SND_NOT_SUPPORTED, "%s: sched_getaffinity: %s", op, snd_errno_text(errno));
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		if (*mask == 0)
			*group = (uint16_t)(cpu / 64);
		if (cpu / 64 == *group)
			*mask |= UINT64_C(1) << (cpu % 64);
	}
	return SND_SUCCESS;
}

snd_status snd_cq_notify_affinity(snd_cq *cq, uint16_t *group, uint64_t *mask)
{
	SND_KEEP_ERRNO;
	SND_ENTER(cq, SND_TYPE_CQ, op);
	return snd_leave_with(cq->object.fabric, process_affinity(group, mask));
}

snd_status snd_srq_notify_affinity(snd_srq *srq, uint16_t *group, uint64_t *mask)
{
	SND_KEEP_ERRNO;
	SND_ENTER(srq, SND_TYPE_SRQ, op);
	return snd_leave_with(srq->object.fabric, process_affinity(group, mask));
}

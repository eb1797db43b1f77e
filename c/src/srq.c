/* Shared receive queues are not built yet. */
#include "error.h"
#include "object.h"

static snd_status not_built(const char *op) { return snd_fail(SND_NOT_SUPPORTED, "%s: shared receive queues are not built yet", op); }

snd_status snd_srq_create(snd_adapter *adapter, const snd_srq_config *config, snd_srq **srq)
{
	(void)adapter;
	(void)config;
	if (srq != NULL)
		*srq = NULL;
	return not_built("create shared receive queue");
}

snd_status snd_srq_receive(snd_srq *srq, uint64_t context, const snd_sge *sge, uint32_t count)
{
	(void)srq;
	(void)context;
	(void)sge;
	(void)count;
	return not_built("receive");
}

snd_status snd_srq_close(snd_srq *srq)
{
	(void)srq;
	return not_built("close shared receive queue");
}

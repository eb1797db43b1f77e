/* Fault plans. This library does not act on fault rules yet, so a rank that a rule names does not join. */
#include <inttypes.h>

#include "error.h"
#include "fabric.h"

/* names_rank reports whether a rule names a rank; -1 is a member that is no rank. */
static bool names_rank(const struct snd_fault_rule *r, int32_t rank)
{
	bool all = true;
	for (int i = 0; i < 16; i++)
		all = all && snd_relaxed(&r->ranks[i]) == 0;
	return all || (rank >= 0 && rank < (int32_t)SNDL_RANKS && (snd_relaxed(&r->ranks[rank / 64]) >> (rank % 64) & 1) != 0);
}

snd_status snd_check_faults(const struct snd_arena *a, int32_t rank, const char *op)
{
	const struct snd_fault_record *records = (const struct snd_fault_record *)(const void *)(a->base + a->fault_rules);
	for (uint32_t i = 0; i < a->rules; i++)
		if (names_rank(&records[i].rule, rank))
			return snd_fail(SND_NOT_SUPPORTED, "%s: rule %" PRIu32 " of the job's fault plan is about this rank, and libsoftnd does not act on fault plans yet: "
				"limit the rule to Go ranks, or start the job without --faults", op, i + 1);
	return SND_SUCCESS;
}

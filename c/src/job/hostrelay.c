/* TWIN hostrelay.go. */
#include "job/hostrelay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/progress_wait.h"
#include "error.h"
#include "job/collective.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"

#define FAIL_LIMIT INT64_C(1000000000) /* for which a failure waits until all hosts know */

uint64_t snd_max_pack(const struct snd_job *j) { return SND_MAX_EXCHANGE + 8 * ((uint64_t)j->size + 1); }

/* answer_wait is a wait for the answer to the latest message. */
struct answer_wait {
	struct snd_relay *relay;
	uint64_t limit;
	int state; /* of snd_relay_poll */
	struct snd_answer answer;
};

static bool answer_ready(void *arg)
{
	struct answer_wait *w = arg;
	w->state = snd_relay_poll(w->relay, w->limit, &w->answer);
	return w->state != 0;
}

static snd_status await(struct snd_job *j, struct answer_wait *w, int64_t timeout, const char *op)
{
	*w = (struct answer_wait){.relay = &j->hosts->relay, .limit = j->hosts->count * (snd_max_pack(j) + 8) + SND_NOTICE};
	const snd_status s = snd_wait(j->fabric, timeout, answer_ready, NULL, w, &(struct snd_call){.op = op, .round = j->round});
	if (s != SND_SUCCESS)
		return s == SND_CANCELED ? snd_fail(s, "%s: the job was closed", op) : snd_fail(s, "%s: not all hosts have arrived", op);
	return w->state > 0 ? s : snd_fail(SND_CONNECTION_ABORTED, "%s: the relay of this host has ended: start the job again", op);
}

snd_status snd_relay_exchange(struct snd_job *j, enum snd_call_kind kind, const struct snd_pack *mine, struct snd_pack *packs, int64_t deadline, const char *op)
{
	struct answer_wait w;
	if (!snd_relay_post(&j->hosts->relay, kind, 0, mine->bytes, mine->length))
		return snd_no_memory(mine->length, "private memory", op);
	snd_status s = await(j, &w, snd_time_left(deadline), op);
	if (s != SND_SUCCESS)
		return s;
	const struct snd_answer *a = &w.answer;
	*packs = (struct snd_pack){a->bytes, a->length + 1};
	if (a->outcome == SND_CALL_MET)
		return SND_SUCCESS;
	if (a->host < j->hosts->count)
		switch (a->outcome) {
		case SND_CALL_FAILED_AT: /* a cancel there is none of this rank */
			s = a->status == SND_CANCELED || a->status == SND_SUCCESS ? SND_CONNECTION_ABORTED : (snd_status)a->status;
			return snd_fail(s, "%s: host %" PRIu32 ": %.*s", op, a->host, (int)(a->length < SND_NOTICE ? a->length : SND_NOTICE), (const char *)a->bytes + 1);
		case SND_CALL_ANOTHER:
			return snd_fail(SND_INVALID_DEVICE_STATE, "%s: the ranks of host %" PRIu32 " make another collective call: let all ranks make the same collective calls in the same order", op, a->host);
		case SND_CALL_TOO_LONG:
			return snd_fail(SND_INVALID_BUFFER_SIZE, "%s: host %" PRIu32 " passes more than %" PRIu64 " bytes", op, a->host, snd_max_pack(j));
		case SND_CALL_LOST:
			return snd_fail(SND_CONNECTION_ABORTED, "%s: host %" PRIu32 ": rank %" PRIu32 ", the first of that host, has died or left, or the host is not reachable", op, a->host,
				snd_first_of(j->hosts, a->host));
		default:
			break;
		}
	return snd_fail(SND_INTERNAL_ERROR, "%s: the answer of the relay of this host is damaged", op);
}

void snd_relay_fail(struct snd_job *j, snd_status status, const char *text)
{
	struct answer_wait w = {.state = 0};
	const size_t n = strlen(text);
	if (snd_relay_post(&j->hosts->relay, SND_CALL_FAILED, status, text, n < SND_NOTICE ? n : SND_NOTICE) &&
		await(j, &w, FAIL_LIMIT, "fail") == SND_SUCCESS) /* else a close could come before */
		free(w.answer.bytes);
}

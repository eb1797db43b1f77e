/* Memory that a process reserves without reading the limits is bounded in bytes and in time. */
#include "calls.h"
#include "check.h"
#include "linux/memory_limit.h"

#define SHARE (SND_MAX_SPARE / 2)
#define START UINT64_C(1000000000)

static void test_spare(void)
{
	struct snd_spare_memory s = {0};
	CHECK(!snd_take_spare(&s, 1, START));
	snd_refill_spare(&s, SHARE * SND_SPARE_SHARE, START);
	CHECK(!snd_take_spare(&s, SHARE + 1, START));
	CHECK(snd_take_spare(&s, SHARE / 2, START));
	CHECK(!snd_take_spare(&s, SHARE / 2 + 1, START));
	CHECK(!snd_take_spare(&s, 1, START + SND_SPARE_AGE));
	CHECK(snd_take_spare(&s, SHARE / 2, START + SND_SPARE_AGE - 1));
	CHECK(!snd_take_spare(&s, 1, START));
	/* A process with much memory left takes no more than SND_MAX_SPARE. */
	snd_refill_spare(&s, UINT64_C(1) << 40, START);
	CHECK(!snd_take_spare(&s, SND_MAX_SPARE + 1, START));
	CHECK(snd_take_spare(&s, SND_MAX_SPARE, START));
	/* Near a limit, a chunk of the heap is not taken without reading the limits. */
	snd_refill_spare(&s, (UINT64_C(256) << 20) - 1, START);
	CHECK(!snd_take_spare(&s, UINT64_C(64) << 10, START));
}

int main(void)
{
	uint64_t left = 0;
	test_spare();
	CHECK(!snd_can_reserve(UINT64_C(1) << 60, &left));
	CHECK(left > 0 && left < UINT64_C(1) << 60);
	CHECK(snd_can_reserve(4096, &left));
	return 0;
}

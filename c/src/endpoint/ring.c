/* The prefetch of ring slots by a producer. TWIN endpoint/internal/ring/producer.go. */
#include "endpoint/ring.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* A consumer's core has copies of the slots that the producer fills next. A prefetch for write takes such a
 * line back early. On Intel, PREFETCHW does that without waiting: one slot for each entry. On AMD it does
 * nothing for a shared line, so the producer stores into the slot, in batches. */
enum { DISTANCE = 8 };

unsigned snd_prefetch_batch;
static bool by_store;

#if defined(__x86_64__)
__attribute__((constructor)) static void detect(void)
{
	unsigned a, b, c, d;
	if (__get_cpuid(0, &a, &b, &c, &d) == 0)
		return;
	by_store = b == 0x68747541 && d == 0x69746e65 && c == 0x444d4163; /* AuthenticAMD */
	snd_prefetch_batch = by_store ? 8 : 1;
}
#endif

void snd_prefetch_slots(struct snd_producer *p)
{
	if (p->next - p->released + DISTANCE + snd_prefetch_batch >= p->mask + 1)
		return; /* those slots may hold entries that the consumer has not read */
	for (unsigned i = 0; i < snd_prefetch_batch; i++) {
		struct snd_slot *s = &p->slots[(p->next + DISTANCE + i) & p->mask];
		if (by_store)
			snd_set(&s->words[6], 0);
#if defined(__x86_64__)
		else
			__asm__ volatile("prefetchw %0" : : "m"(s->seq));
#endif
	}
}

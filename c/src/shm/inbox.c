/* The inbox: a list of connection requests, newest first, that any member adds to. TWIN shm/inbox.go. */
#include "shm/inbox.h"

#include <stdlib.h>

#include "shm/doorbell.h"
#include "shm/member.h"

enum { MAX_MAIL = 1 << 16 };

void snd_send_mail(struct snd_fabric *f, const struct snd_peer *p, uint64_t offset, snd_word *link)
{
	if (snd_peer_gone(p))
		return; /* another member may have the record now; the caller's wait notices */
	uint64_t head = snd_load(&p->record->inbox);
	do
		snd_set(link, head);
	while (!atomic_compare_exchange_weak(&p->record->inbox, &head, offset)); /* ORDER mail: pairs with the exchange in snd_read_inbox */
	snd_ring_peer(f, p);
}

bool snd_read_inbox(struct snd_fabric *f, void (*take)(struct snd_fabric *, uint64_t offset))
{
	if (snd_likely(snd_acquire(&f->record->inbox) == 0))
		return false;
	SND_KEEP_ERRNO;
	uint64_t at = atomic_exchange(&f->record->inbox, 0); /* ORDER mail: pairs with the swap in snd_send_mail */
	/* Every offset and link comes from a peer. The list is bounded, so a loop ends; a request that is in it
	 * twice is handled once. */
	size_t n = 0, capacity = 0, found = 0;
	uint64_t *list = NULL;
	for (; at != 0 && found < MAX_MAIL; found++) {
		struct snd_connection_record *r = snd_at(&f->arena, at, sizeof *r, 8);
		if (r == NULL)
			break;
		if (n == capacity) {
			size_t size = capacity == 0 ? 16 : capacity * 2;
			uint64_t *larger = realloc(list, size * sizeof *list);
			if (larger != NULL) {
				list = larger;
				capacity = size;
			}
		}
		uint64_t next = snd_acquire(&r->link);
		if (n < capacity)
			list[n++] = at;
		else
			take(f, at); /* no memory: out of order */
		at = next;
	}
	while (n-- > 0) /* oldest first */
		take(f, list[n]);
	free(list);
	return found > 0;
}

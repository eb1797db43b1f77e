/* The hosts of a job: the memory of their table, and the numbers of ranks. TWIN hosts.go. */
#include "meet/hosts.h"

#include <stdlib.h>

struct snd_hosts *snd_hosts_new(uint32_t size)
{
	struct snd_hosts *h = calloc(1, sizeof *h);
	if (h == NULL)
		return NULL;
	h->size = size;
	h->relay.socket = -1;
	h->of = calloc(size, sizeof *h->of);
	h->position = calloc(size, sizeof *h->position);
	h->addresses = calloc(size, sizeof *h->addresses);
	if (h->of != NULL && h->position != NULL && h->addresses != NULL)
		return h;
	snd_hosts_free(h);
	return NULL;
}

void snd_hosts_free(struct snd_hosts *h)
{
	if (h == NULL)
		return;
	snd_relay_release(&h->relay);
	free(h->of);
	free(h->position);
	free(h->addresses);
	free(h);
}

void snd_hosts_place(struct snd_hosts *h, uint32_t rank)
{
	uint32_t seen[SND_HOSTS] = {0};
	for (uint32_t i = 0; i < h->size; i++)
		h->position[i] = seen[h->of[i]]++;
	h->number = h->of[rank];
	h->local = h->position[rank];
	h->group = seen[h->number];
}

uint32_t snd_first_of(const struct snd_hosts *h, uint32_t host)
{
	uint32_t rank = 0;
	while (rank + 1 < h->size && h->of[rank] != host)
		rank++;
	return rank;
}

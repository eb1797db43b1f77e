/* The end of a fast registration. TWIN window/fastreg.go. */
#include "window/fastreg.h"

#include <stdlib.h>
#include <sys/mman.h>

void snd_free_registration(struct snd_registration *g)
{
	if (g == NULL)
		return;
	if (g->alias != NULL)
		munmap(g->alias, g->alias_length);
	for (uint32_t i = 0; i < g->count; i++)
		g->mappings[i]->registrations--;
	free(g);
}

void snd_end_registration(struct snd_region *r)
{
	if (r->i.state != SND_UNBOUND || r->i.windows > 0)
		return;
	snd_free_registration(r->registration);
	r->registration = NULL;
}

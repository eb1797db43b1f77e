/* Adopted memory: pages of the program that become pages of the arena while regions cover them, at the same addresses and with the same contents. Peers
 * then access them without the owner's engine. The caller has the fabric's lock, so that the library's threads write to no region meanwhile. */
#ifndef SND_ADOPT_H
#define SND_ADOPT_H

#include "window/window.h"

struct snd_adopted;

/* snd_adopts makes regions that are registered later adopt their pages. SND_ADOPT_ALWAYS: also while other threads of the program run, if the kernel can
 * make them wait. One fabric of the process may adopt. */
void snd_adopts(struct snd_fabric *f, enum snd_adopting how);
/* snd_check_pages makes each access of regions that are registered later check that the program has not unmapped their memory. */
void snd_check_pages(struct snd_fabric *f);
/* snd_adopt adopts the whole pages of a region for peers, and stores where they are in the arena. If the region stays private, it returns NULL, and
 * the reason if the fabric adopts and the region has a whole page. */
struct snd_adopted *snd_adopt(struct snd_fabric *f, unsigned char *memory, uint64_t length, struct snd_location *place, const char **reason);
/* snd_return ends that for a region whose tokens are drained. With the last one, the pages are private again. */
void snd_return(struct snd_fabric *f, struct snd_adopted *a);
/* snd_has_adopted reports whether the arena still has pages that the process maps as its own memory. Then the process must not leave it. */
bool snd_has_adopted(struct snd_fabric *f);

#endif

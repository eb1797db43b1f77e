/* Regions: their two tokens. */
#ifndef SND_WINDOW_REGION_H
#define SND_WINDOW_REGION_H

#include "window/window.h"

snd_status snd_region_init(struct snd_region *r, struct snd_adapter *a, const char *op);
void snd_region_register(struct snd_region *r, void *memory, uint64_t length, uint32_t flags);
/* snd_region_register_at gives the memory the address base, in requests of both sides, and says where in the arena it is. */
void snd_region_register_at(struct snd_region *r, void *memory, uint64_t length, struct snd_location place, uint64_t base, uint32_t flags);
/* snd_location_of_part returns where length bytes of the region are. */
struct snd_location snd_location_of_part(const struct snd_region *r, uint64_t at, uint64_t length);
/* snd_region_apply makes both tokens of a fast registration valid. It returns false, and frees the registration, if the
 * region is registered or closed. */
bool snd_region_apply(struct snd_region *r, struct snd_registration *g);
/* snd_region_inherit gives r, whose tokens no peer knows yet, the tokens of a region that has ended. They name other binds. */
void snd_region_inherit(struct snd_region *r, struct snd_region *from);
/* snd_region_end gives the entries of a deregistered region back. */
void snd_region_end(struct snd_region *r);
/* snd_detach_window undoes the reference of a window, or a prepared bind, to its region. */
void snd_detach_window(struct snd_region *r);

#endif

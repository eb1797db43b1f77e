/* Arena memory of snd_mr_allocate. As on a card, it stays in place while any registration covers it: it is freed when its
 * region is closed and the last of these registrations has ended. One fabric of the process may register the memory of another. */
#ifndef SND_ALLOCATION_H
#define SND_ALLOCATION_H

#include "shm/fabric.h"

struct snd_allocation;
struct snd_hold;

/* snd_allocate allocates memory of the fabric's arena that registrations hold, with the placement of flags, and stores what it has of it. */
snd_status snd_allocate(struct snd_fabric *f, uint64_t length, uint32_t flags, struct snd_allocation **allocation, uint32_t *placement, const char *op);
unsigned char *snd_allocated(const struct snd_allocation *a);
/* snd_end_allocation is called when the region of an allocation is closed. */
void snd_end_allocation(struct snd_fabric *f, struct snd_allocation *a);
/* snd_hold_memory keeps a range of allocated memory in place until snd_release_hold. hold is NULL for memory of the program. It
 * fails for other ranges of arenas that the process has mapped. */
snd_status snd_hold_memory(const unsigned char *memory, uint64_t length, struct snd_hold **hold, const char *op);
void snd_release_hold(struct snd_fabric *f, struct snd_hold *hold);
/* snd_free_released frees memory of the fabric that another fabric has held last. */
void snd_free_released(struct snd_fabric *f);
/* snd_add_mapping makes the arena of a fabric known as memory that only regions may register. */
snd_status snd_add_mapping(struct snd_fabric *f, const char *op);
/* snd_leave_allocations ends those of a fabric that leaves the arena: its departure frees them. Memory that another fabric of the
 * process has registered becomes private, at the same addresses and with the same content. It is unmapped when the last of these
 * registrations has ended. Afterwards the fabric accesses only the tables of the arena. */
void snd_leave_allocations(struct snd_fabric *f);

#endif

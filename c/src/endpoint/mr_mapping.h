/* Logical mappings: lists of pages of allocated memory, for fast registrations. */
#ifndef SND_ENDPOINT_MR_MAPPING_H
#define SND_ENDPOINT_MR_MAPPING_H

#include "window/window.h"

/* snd_find_mapping finds the mapping of an adapter that contains the bytes from lo to hi of a page, hi excluded. */
struct snd_mapping *snd_find_mapping(struct snd_adapter *a, uint64_t page, uint64_t lo, uint64_t hi);
void snd_forget_mappings(struct snd_adapter *a);
/* snd_resolve gives an entry with the privileged token that of its mapping, so that no copy uses the privileged token, and
 * each mapping can be drained on its own. It returns false for any other entry, and for memory that is not mapped. */
bool snd_resolve(const struct snd_adapter *a, uint64_t address, uint32_t length, uint32_t *token);

#endif

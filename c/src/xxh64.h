/* XXH64 with seed 0. */
#ifndef SND_XXH64_H
#define SND_XXH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t snd_xxh64(const void *data, size_t length);

#endif

/* XXH64 with seed 0. */
#ifndef SND_XXH64_H
#define SND_XXH64_H

#include <stddef.h>
#include <stdint.h>

/* snd_hash is the hash of the bytes that were added so far. */
struct snd_hash {
	uint64_t lanes[4];
	uint64_t length;
	unsigned char rest[32]; /* length % 32 bytes that no lane has yet */
};

void snd_hash_begin(struct snd_hash *h);
void snd_hash_add(struct snd_hash *h, const void *data, size_t length);
uint64_t snd_hash_sum(const struct snd_hash *h);

uint64_t snd_xxh64(const void *data, size_t length);

#endif

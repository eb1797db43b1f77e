/* A key-value space. Each key gets one value. */
#ifndef SND_KEY_VALUES_H
#define SND_KEY_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snd_key_values {
	void *tree;
	uint64_t stored; /* bytes of all keys and values */
};

/* snd_key_values_put sets the value of a key, or writes why it cannot. Limits are those of PMI, and 64 MiB in all. */
bool snd_key_values_put(struct snd_key_values *v, const char *key, const char *value, char *why, size_t size);
/* snd_key_values_get returns the value of a key, or NULL. */
const char *snd_key_values_get(const struct snd_key_values *v, const char *key);
void snd_key_values_free(struct snd_key_values *v);

#endif

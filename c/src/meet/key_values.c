/* A key-value space is a tree of pairs. TWIN internal/meet/rendezvous/root.go. */
#include "meet/key_values.h"

#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meet/pmi.h"

static const uint64_t max_stored = UINT64_C(64) << 20;

/* pair is a node of the tree. */
struct pair {
	const char *value;
	char key[]; /* the value is behind it */
};

static int compare(const void *a, const void *b) { return strcmp(((const struct pair *)a)->key, ((const struct pair *)b)->key); }

const char *snd_key_values_get(const struct snd_key_values *v, const char *key)
{
	union {
		struct pair pair;
		char bytes[sizeof(struct pair) + SND_PMI_KEY + 1];
	} wanted;
	const size_t n = strlen(key);
	if (n > SND_PMI_KEY)
		return NULL;
	memcpy(wanted.bytes + offsetof(struct pair, key), key, n + 1);
	struct pair *const *found = tfind(&wanted.pair, &v->tree, compare);
	return found == NULL ? NULL : (*found)->value;
}

bool snd_key_values_put(struct snd_key_values *v, const char *key, const char *value, char *why, size_t size)
{
	const size_t k = strlen(key), n = strlen(value);
	struct pair *p = NULL;
	if (k == 0 || k > SND_PMI_KEY || n > SND_PMI_VALUE)
		snprintf(why, size, "a key has 1 to %d bytes, and a value at most %d", SND_PMI_KEY, SND_PMI_VALUE);
	else if (snd_key_values_get(v, key) != NULL)
		snprintf(why, size, "key %s has a value already", key);
	else if (v->stored + k + n > max_stored)
		snprintf(why, size, "the job has %" PRIu64 " bytes of keys and values already", v->stored);
	else if ((p = malloc(sizeof *p + k + n + 2)) == NULL)
		snprintf(why, size, "rank 0 has no memory left");
	if (p == NULL)
		return false;
	p->value = p->key + k + 1;
	memcpy(p->key, key, k + 1);
	memcpy(p->key + k + 1, value, n + 1);
	if (tsearch(p, &v->tree, compare) == NULL) {
		free(p);
		snprintf(why, size, "rank 0 has no memory left");
		return false;
	}
	v->stored += k + n;
	return true;
}

void snd_key_values_free(struct snd_key_values *v)
{
	tdestroy(v->tree, free);
	v->tree = NULL;
}

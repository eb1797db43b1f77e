/* SHA-256, of FIPS 180-4, and HMAC with it, of RFC 2104. */
#ifndef SND_SHA256_H
#define SND_SHA256_H

#include <stddef.h>

enum { SND_SHA256 = 32 }; /* bytes of a digest */

void snd_sha256(const void *data, size_t length, unsigned char digest[SND_SHA256]);

struct snd_bytes {
	const void *data;
	size_t length;
};
/* snd_hmac_sha256 authenticates parts, one behind the other. */
void snd_hmac_sha256(const void *key, size_t length, const struct snd_bytes *parts, size_t count, unsigned char mac[SND_SHA256]);

#endif

/* SHA-256, of FIPS 180-4. */
#ifndef SND_SHA256_H
#define SND_SHA256_H

#include <stddef.h>

void snd_sha256(const void *data, size_t length, unsigned char digest[32]);

#endif

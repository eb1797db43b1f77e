

#include "sha256.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK = 64 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void compress(uint32_t state[8], const unsigned char *block)
{
	uint32_t w[64], v[8];
	for (size_t i = 0; i < 16; i++)
		w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
	for (int i = 16; i < 64; i++) {
		const uint32_t a = w[i - 15], b = w[i - 2];
		w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
	}
	memcpy(v, state, sizeof v);
	for (int i = 0; i < 64; i++) {
		const uint32_t a = v[0], e = v[4];
		const uint32_t first = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + constants[i] + w[i];
		const uint32_t second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
		memmove(v + 1, v, 7 * sizeof v[0]);
		v[4] += first;
		v[0] = first + second;
	}
	for (int i = 0; i < 8; i++)
		state[i] += v[i];
}

struct state {
	uint32_t h[8];
	uint64_t length;             /* bytes so far */
	unsigned char block[BLOCK]; /* the last length % BLOCK of them */
};

static const struct state fresh = {.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};

static void add(struct state *s, const void *data, size_t length)
{
	const unsigned char *at = data;
	while (length > 0) {
		const size_t filled = s->length % BLOCK, n = length < BLOCK - filled ? length : BLOCK - filled;
		memcpy(s->block + filled, at, n);
		if (filled + n == BLOCK)
			compress(s->h, s->block);
		s->length += n;
		at += n;
		length -= n;
	}
}

static void finish(struct state *s, unsigned char digest[SND_SHA256])
{
	static const unsigned char padding[BLOCK] = {0x80};
	const uint64_t bits = s->length * 8;
	unsigned char end[8];
	for (size_t i = 0; i < sizeof end; i++)
		end[i] = (unsigned char)(bits >> (56 - 8 * i));
	add(s, padding, 1 + (2 * BLOCK - 1 - sizeof end - s->length % BLOCK) % BLOCK);
	add(s, end, sizeof end);
	for (size_t i = 0; i < SND_SHA256; i++)
		digest[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void snd_sha256(const void *data, size_t length, unsigned char digest[SND_SHA256])
{
	struct state s = fresh;
	add(&s, data, length);
	finish(&s, digest);
}

void snd_hmac_sha256(const void *key, size_t length, const struct snd_bytes *parts, size_t count, unsigned char mac[SND_SHA256])
{
	unsigned char k[BLOCK] = {0}, pad[BLOCK];
	if (length > BLOCK)
		snd_sha256(key, length, k);
	else
		memcpy(k, key, length);
	struct state s = fresh;
	for (size_t i = 0; i < BLOCK; i++)
		pad[i] = k[i] ^ 0x36;
	add(&s, pad, BLOCK);
	for (size_t i = 0; i < count; i++)
		add(&s, parts[i].data, parts[i].length);
	finish(&s, mac);
	s = fresh;
	for (size_t i = 0; i < BLOCK; i++)
		pad[i] = k[i] ^ 0x5c;
	add(&s, pad, BLOCK);
	add(&s, mac, SND_SHA256);
	finish(&s, mac);
}

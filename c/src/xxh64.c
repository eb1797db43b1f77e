#include "xxh64.h"

static const uint64_t prime1 = UINT64_C(0x9E3779B185EBCA87), prime2 = UINT64_C(0xC2B2AE3D27D4EB4F), prime3 = UINT64_C(0x165667B19E3779F9),
	prime4 = UINT64_C(0x85EBCA77C2B2AE63), prime5 = UINT64_C(0x27D4EB2F165667C5);

static uint64_t rotate(uint64_t x, unsigned n) { return x << n | x >> (64 - n); }

static uint64_t little(const unsigned char *p, unsigned bytes)
{
	uint64_t v = 0;
	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static uint64_t round1(uint64_t acc, uint64_t lane) { return rotate(acc + lane * prime2, 31) * prime1; }

static uint64_t merge(uint64_t h, uint64_t acc) { return (h ^ round1(0, acc)) * prime1 + prime4; }

uint64_t snd_xxh64(const void *data, size_t length)
{
	const unsigned char *p = data, *end = p + length;
	uint64_t h = prime5;
	if (length >= 32) {
		uint64_t a = prime1 + prime2, b = prime2, c = 0, d = 0 - prime1;
		for (; end - p >= 32; p += 32) {
			a = round1(a, little(p, 8));
			b = round1(b, little(p + 8, 8));
			c = round1(c, little(p + 16, 8));
			d = round1(d, little(p + 24, 8));
		}
		h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
		h = merge(merge(merge(merge(h, a), b), c), d);
	}
	h += length;
	for (; end - p >= 8; p += 8)
		h = rotate(h ^ round1(0, little(p, 8)), 27) * prime1 + prime4;
	if (end - p >= 4) {
		h = rotate(h ^ little(p, 4) * prime1, 23) * prime2 + prime3;
		p += 4;
	}
	for (; p < end; p++)
		h = rotate(h ^ *p * prime5, 11) * prime1;
	h = (h ^ h >> 33) * prime2;
	h = (h ^ h >> 29) * prime3;
	return h ^ h >> 32;
}

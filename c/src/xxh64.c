

#include "xxh64.h"

#include <string.h>

static const uint64_t prime1 = UINT64_C(0x9E3779B185EBCA87), prime2 = UINT64_C(0xC2B2AE3D27D4EB4F), prime3 = UINT64_C(0x165667B19E3779F9),
	prime4 = UINT64_C(0x85EBCA77C2B2AE63), prime5 = UINT64_C(0x27D4EB2F165667C5);

static uint64_t rotate(uint64_t x, unsigned n) { return x << n | x >> (64 - n); }

static uint64_t little64(const unsigned char *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof v);
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? v : __builtin_bswap64(v);
}

static uint64_t little32(const unsigned char *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? v : __builtin_bswap32(v);
}

static uint64_t round1(uint64_t acc, uint64_t lane) { return rotate(acc + lane * prime2, 31) * prime1; }

static uint64_t merge(uint64_t h, uint64_t acc) { return (h ^ round1(0, acc)) * prime1 + prime4; }

/* add_stripes adds the whole stripes of 32 bytes before end to the lanes, and returns where the rest begins. */
static const unsigned char *add_stripes(uint64_t lanes[4], const unsigned char *p, const unsigned char *end)
{
	uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
	for (; end - p >= 32; p += 32) {
		a = round1(a, little64(p));
		b = round1(b, little64(p + 8));
		c = round1(c, little64(p + 16));
		d = round1(d, little64(p + 24));
	}
	lanes[0] = a;
	lanes[1] = b;
	lanes[2] = c;
	lanes[3] = d;
	return p;
}

void snd_hash_begin(struct snd_hash *h)
{
	h->lanes[0] = prime1 + prime2;
	h->lanes[1] = prime2;
	h->lanes[2] = 0;
	h->lanes[3] = 0 - prime1;
	h->length = 0;
}

void snd_hash_add(struct snd_hash *h, const void *data, size_t length)
{
	const unsigned char *p = data, *end = p + length;
	const size_t have = h->length % 32;
	h->length += length;
	if (have + length < 32) {
		if (length > 0)
			memcpy(h->rest + have, p, length);
		return;
	}
	if (have > 0) {
		memcpy(h->rest + have, p, 32 - have);
		add_stripes(h->lanes, h->rest, h->rest + 32);
		p += 32 - have;
	}
	p = add_stripes(h->lanes, p, end);
	memcpy(h->rest, p, (size_t)(end - p));
}

uint64_t snd_hash_sum(const struct snd_hash *h)
{
	const unsigned char *p = h->rest, *end = p + h->length % 32;
	const uint64_t *lanes = h->lanes;
	uint64_t v = prime5;
	if (h->length >= 32) {
		v = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
		v = merge(merge(merge(merge(v, lanes[0]), lanes[1]), lanes[2]), lanes[3]);
	}
	v += h->length;
	for (; end - p >= 8; p += 8)
		v = rotate(v ^ round1(0, little64(p)), 27) * prime1 + prime4;
	if (end - p >= 4) {
		v = rotate(v ^ little32(p) * prime1, 23) * prime2 + prime3;
		p += 4;
	}
	for (; p < end; p++)
		v = rotate(v ^ *p * prime5, 11) * prime1;
	v = (v ^ v >> 33) * prime2;
	v = (v ^ v >> 29) * prime3;
	return v ^ v >> 32;
}

uint64_t snd_xxh64(const void *data, size_t length)
{
	struct snd_hash h;
	snd_hash_begin(&h);
	snd_hash_add(&h, data, length);
	return snd_hash_sum(&h);
}

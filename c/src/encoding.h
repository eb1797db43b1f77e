/* Texts that processes exchange: values of PMI, and lines of JSON. Each function writes at most size bytes, with the zero. */
#ifndef SND_ENCODING_H
#define SND_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* snd_escape writes text as part of a query of a URL, as long as it fits. It returns false if it does not. */
bool snd_escape(const char *text, char *to, size_t size);
/* snd_unescape undoes snd_escape for length bytes. It fails if text is malformed or does not fit. */
bool snd_unescape(const char *text, size_t length, char *to, size_t size);
/* snd_unhex reads 2*size hexadecimal digits, and nothing else. snd_hex writes them, with a zero. */
bool snd_unhex(const char *text, unsigned char *to, size_t size);
void snd_hex(const unsigned char *bytes, size_t length, char *to);
/* snd_base64 writes 4 characters for 3 bytes, with padding and a zero. */
void snd_base64(const unsigned char *bytes, size_t length, char *to);
/* snd_json_quote writes a string of JSON with its quotation marks. It cuts what does not fit; size is 3 at least. */
void snd_json_quote(const char *text, char *to, size_t size);
/* snd_json_text reads the string with a name from a flat object. It fails if there is none, and cuts what does not fit. */
bool snd_json_text(const char *object, const char *name, char *to, size_t size);
/* snd_json_number reads the whole number with a name from a flat object. */
bool snd_json_number(const char *object, const char *name, int64_t *to);

/* snd_random_text writes random letters and digits of at least 128 bits; false if there are no random numbers. */
enum { SND_RANDOM_TEXT = 27 };
bool snd_random_text(char to[SND_RANDOM_TEXT]);

/* snd_put_number writes a number of 1 to 8 bytes, little-endian. snd_get_number reads it. */
static inline void snd_put_number(unsigned char *to, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		to[i] = (unsigned char)(v >> (8 * i));
}
static inline uint64_t snd_get_number(const unsigned char *from, int bytes)
{
	uint64_t v = 0;
	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)from[i] << (8 * i);
	return v;
}

#endif

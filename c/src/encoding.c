

#include "encoding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

bool snd_escape(const char *text, char *to, size_t size)
{
	size_t n = 0;
	for (; *text != 0 && n + 4 <= size; text++) {
		const unsigned char c = (unsigned char)*text;
		if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-_.~", c) != NULL)
			to[n++] = (char)c;
		else if (c == ' ')
			to[n++] = '+';
		else
			n += (size_t)snprintf(to + n, size - n, "%%%02X", c);
	}
	to[n] = 0;
	return *text == 0;
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c == 0 ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
	return at == NULL ? -1 : (int)(at - digits);
}

bool snd_unescape(const char *text, size_t length, char *to, size_t size)
{
	size_t n = 0;
	for (size_t i = 0; i < length; i++) {
		char c = (char)(text[i] == '+' ? ' ' : text[i]);
		if (n + 1 >= size)
			return false;
		if (c == '%') {
			const int high = i + 2 < length ? hex_digit(text[i + 1]) : -1, low = i + 2 < length ? hex_digit(text[i + 2]) : -1;
			if (high < 0 || low < 0)
				return false;
			c = (char)(high << 4 | low);
			i += 2;
		}
		to[n++] = c;
	}
	to[n] = 0;
	return true;
}

bool snd_unhex(const char *text, unsigned char *to, size_t size)
{
	if (strlen(text) != 2 * size)
		return false;
	for (size_t i = 0; i < size; i++) {
		const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		to[i] = (unsigned char)(high << 4 | low);
	}
	return true;
}

void snd_hex(const unsigned char *bytes, size_t length, char *to)
{
	for (size_t i = 0; i < length; i++)
		snprintf(to + 2 * i, 3, "%02x", bytes[i]);
}

void snd_base64(const unsigned char *bytes, size_t length, char *to)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	for (size_t i = 0; i < length; i += 3) {
		const size_t n = length - i < 3 ? length - i : 3;
		const unsigned three = (unsigned)bytes[i] << 16 | (n > 1 ? (unsigned)bytes[i + 1] << 8 : 0) | (n > 2 ? bytes[i + 2] : 0u);
		for (size_t k = 0; k <= n; k++)
			*to++ = letters[three >> (18 - 6 * k) & 63];
		for (size_t k = n; k < 3; k++)
			*to++ = '=';
	}
	*to = 0;
}

bool snd_random_text(char to[SND_RANDOM_TEXT])
{
	unsigned char b[SND_RANDOM_TEXT - 1];
	if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
		return false;
	for (size_t i = 0; i < sizeof b; i++)
		to[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[b[i] % 32];
	to[sizeof b] = 0;
	return true;
}

void snd_json_quote(const char *text, char *to, size_t size)
{
	size_t n = 0;
	to[n++] = '"';
	for (; *text != 0; text++) {
		char c[7] = {*text};
		if (*text == '"' || *text == '\\')
			snprintf(c, sizeof c, "\\%c", *text);
		else if ((unsigned char)*text < ' ' || *text == 127)
			snprintf(c, sizeof c, "\\u%04x", (unsigned)*text);
		const size_t length = strlen(c);
		if (n + length + 2 > size)
			break;
		memcpy(to + n, c, length);
		n += length;
	}
	to[n++] = '"';
	to[n] = 0;
}

/* put appends a character in UTF-8 while it fits, and leaves room for the zero. */
static void put(unsigned c, char *to, size_t *n, size_t size)
{
	char b[3];
	size_t k = 0;
	if (c >= 0xd800 && c < 0xe000)
		c = '?'; /* half of a pair: rare, and for people only */
	if (c >= 0x800)
		b[k++] = (char)(0xe0 | c >> 12);
	if (c >= 0x80)
		b[k++] = (char)(c >= 0x800 ? 0x80 | (c >> 6 & 63) : 0xc0 | c >> 6);
	b[k++] = (char)(c >= 0x80 ? 0x80 | (c & 63) : c);
	if (*n + k >= size)
		return;
	memcpy(to + *n, b, k);
	*n += k;
}

/* escaped reads what follows a backslash, and moves *at behind it. It returns 0 if that is malformed. */
static unsigned escaped(const char **at)
{
	static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
	const char c = *(*at)++;
	if (c == 'u') {
		unsigned code = 0;
		for (int i = 0; i < 4; i++) {
			const int digit = hex_digit(**at);
			if (digit < 0)
				return 0;
			code = code << 4 | (unsigned)digit;
			(*at)++;
		}
		return code != 0 ? code : '?'; /* a text ends with a zero */
	}
	const char *known = c == 0 ? NULL : strchr(from, c);
	return known == NULL ? 0 : (unsigned char)into[known - from];
}

/* read_string reads a string whose quotation mark is at *at, and moves *at behind it. to may be NULL. */
static bool read_string(const char **at, char *to, size_t size)
{
	size_t n = 0;
	if (*(*at)++ != '"')
		return false;
	while (**at != '"') {
		const char byte = *(*at)++;
		unsigned c = 0;
		if (byte == 0 || (byte == '\\' && (c = escaped(at)) == 0))
			return false;
		if (to == NULL)
			continue;
		if (byte == '\\')
			put(c, to, &n, size);
		else if (n + 1 < size)
			to[n++] = byte;
	}
	(*at)++;
	if (to != NULL)
		to[n] = 0;
	return true;
}

/* value_in returns the value of a name in a flat object, or NULL. */
static const char *value_in(const char *object, const char *name)
{
	const char *at = object + strspn(object, " ");
	if (*at++ != '{')
		return NULL;
	for (;;) {
		char key[40];
		at += strspn(at, " ,");
		if (!read_string(&at, key, sizeof key))
			return NULL;
		at += strspn(at, " :");
		if (strcmp(key, name) == 0)
			return at;
		if (*at == '"' ? !read_string(&at, NULL, 0) : (at += strcspn(at, ",}"), *at != ','))
			return NULL;
	}
}

bool snd_json_text(const char *object, const char *name, char *to, size_t size)
{
	const char *at = value_in(object, name);
	return at != NULL && read_string(&at, to, size);
}

bool snd_json_number(const char *object, const char *name, int64_t *to)
{
	const char *at = value_in(object, name);
	char *end;
	if (at == NULL || (*at != '-' && (*at < '0' || *at > '9')))
		return false;
	*to = strtoll(at, &end, 10);
	return end > at + (*at == '-');
}

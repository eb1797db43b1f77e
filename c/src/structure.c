#include "structure.h"

#include <string.h>

#include "error.h"

snd_status snd_check_size(size_t size, const char *type, const char *op)
{
	if (size == 0 || size > SND_MAX_STRUCTURE)
		return snd_fail(SND_INVALID_PARAMETER, "%s: size of %s is %zu, allowed 1 to %d: pass sizeof(%s)", op, type, size, SND_MAX_STRUCTURE, type);
	return SND_SUCCESS;
}

void snd_store_known(void *to, size_t size, const void *from, size_t known)
{
	memset(to, 0, size);
	memcpy(to, from, size < known ? size : known);
}

snd_status snd_copy_known(void *to, size_t known, const void *from, size_t size, const char *type, const char *op)
{
	memset(to, 0, known);
	if (from == NULL)
		return SND_SUCCESS;
	const snd_status s = snd_check_size(size, type, op);
	if (s != SND_SUCCESS)
		return s;
	for (size_t i = known; i < size; i++)
		if (((const unsigned char *)from)[i] != 0)
			return snd_fail(SND_INVALID_PARAMETER, "%s: byte %zu of %s is set, but libsoftnd %s knows %zu: leave newer members 0, or install a newer library",
				op, i, type, snd_version(), known);
	memcpy(to, from, size < known ? size : known);
	return SND_SUCCESS;
}

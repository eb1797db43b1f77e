#include <dirent.h>
#include <inttypes.h>
#include <string.h>

#include "error.h"
#include "fuzz.h"
#include "linux/memory_limit.h"

uint8_t fuzz_byte(struct input *in) { return in->at < in->end ? *in->at++ : 0; }

uint64_t fuzz_word(struct input *in)
{
	uint64_t v = 0;
	for (int i = 0; i < 8; i++)
		v |= (uint64_t)fuzz_byte(in) << (8 * i);
	return v;
}

int fuzz_descriptors(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d != NULL && readdir(d) != NULL)
		n++;
	if (d != NULL)
		closedir(d);
	return n;
}

int fuzz_known(snd_status s) { return strcmp(snd_status_name(s), "unknown status") != 0; }

uint64_t snd_memory_available(void) { return UINT64_C(1) << 30; }

bool snd_can_reserve(uint64_t wanted, uint64_t *left)
{
	*left = snd_memory_available();
	return wanted <= *left;
}

void snd_record_no_memory(uint64_t size, const char *what, const char *op)
{
	snd_record_failure("%s: %s of %" PRIu64 " bytes has failed", op, what, size);
}

/* The checks and helpers of all fuzz targets. */
#ifndef SND_FUZZ_H
#define SND_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "softnd/softnd.h"

/* EXPECT ends the process if a promise of the library is broken. */
#define EXPECT(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s is false (last error: %s)\n", __FILE__, __LINE__, #condition, snd_last_error()); \
			abort(); \
		} \
	} while (0)

/* Options of fabrics without threads, so that an input has one outcome. */
#define MANUAL (&(const snd_fabric_options){.threading = SND_THREAD_DOMAIN, .progress = SND_PROGRESS_MANUAL})

/* The bytes of an input, in order; zeros after its end. */
struct input {
	const uint8_t *at, *end;
};
uint8_t fuzz_byte(struct input *in);
uint64_t fuzz_word(struct input *in);

/* fuzz_pass lets time pass. */
void fuzz_pass(int64_t ns);
/* fuzz_together runs two blocking calls in two threads, of which one runs at a time. */
void fuzz_together(void (*mine)(void), void (*theirs)(void));

/* fuzz_descriptors returns the number of open descriptors. */
int fuzz_descriptors(void);
/* fuzz_known reports whether a status has a name. */
int fuzz_known(snd_status s);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif

/* Checks for tests: a failed one prints its place and ends the process. */
#ifndef SND_CHECK_TEST_H
#define SND_CHECK_TEST_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "softnd/softnd.h"

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s is false (last error: %s)\n", __FILE__, __LINE__, #condition, snd_last_error()); \
			exit(1); \
		} \
	} while (0)

/* A call that succeeds leaves errno as it was. */
#define OK(call) \
	do { \
		errno = 4711; \
		snd_status s_ = (call); \
		CHECK(errno == 4711); \
		if (s_ != SND_SUCCESS) { \
			fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, snd_status_name(s_), snd_last_error()); \
			exit(1); \
		} \
	} while (0)

/* Options for a program that makes one call at a time, and leaves progress to its calls. */
#define MANUAL (&(const snd_fabric_options){.threading = SND_THREAD_DOMAIN, .progress = SND_PROGRESS_MANUAL})

/* test_options returns the options that the environment asks for: TEST_PROGRESS=auto, TEST_THREADS=safe. */
static inline const snd_fabric_options *test_options(void)
{
	static _Thread_local snd_fabric_options o;
	const char *progress = getenv("TEST_PROGRESS"), *threads = getenv("TEST_THREADS");
	o.progress = progress != NULL && progress[0] == 'a' ? SND_PROGRESS_AUTO : SND_PROGRESS_MANUAL;
	o.threading = threads != NULL && threads[0] == 's' ? SND_THREAD_SAFE : SND_THREAD_DOMAIN;
	return &o;
}

/* descriptors returns the number of open descriptors, and a constant. */
static inline int descriptors(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	CHECK(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

#endif

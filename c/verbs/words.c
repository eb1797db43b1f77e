/* Failures: the errno of a status, and words for people who ask for them with SOFTND_DEBUG=1. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

static bool asked(void)
{
	const char *debug = getenv("SOFTND_DEBUG");
	return debug != NULL && strcmp(debug, "1") == 0;
}

int refuse(int error, const char *format, ...)
{
	if (asked()) {
		char text[512];
		va_list arguments;
		va_start(arguments, format);
		(void)vsnprintf(text, sizeof text, format, arguments);
		va_end(arguments);
		(void)fprintf(stderr, "softnd: %s\n", text);
	}
	errno = error;
	return error;
}

static int error_of(snd_status status)
{
	switch (status) {
	case SND_NO_MEMORY:
	case SND_NO_MORE_ENTRIES:
	case SND_INSUFFICIENT_RESOURCES: return ENOMEM;
	case SND_BUFFER_OVERFLOW:
	case SND_INVALID_BUFFER_SIZE:
	case SND_INVALID_DEVICE_STATE:
	case SND_INVALID_HANDLE:
	case SND_INVALID_PARAMETER: return EINVAL;
	case SND_ACCESS_VIOLATION: return EFAULT;
	case SND_DEVICE_BUSY: return EBUSY;
	case SND_NOT_SUPPORTED: return EOPNOTSUPP;
	case SND_CONNECTION_REFUSED: return EACCES;
	case SND_DEVICE_REMOVED: return ENODEV;
	case SND_IO_TIMEOUT: return ETIMEDOUT;
	default: return EIO;
	}
}

int refuse_status(snd_status status) { return refuse(error_of(status), "%s", snd_last_error()); }

int refuse_end(snd_status status) { return status == SND_SUCCESS || status == SND_INVALID_HANDLE || status == SND_DEVICE_REMOVED ? 0 : refuse_status(status); }

/* Failures: the errno of a status, and words for people who ask for them with SOFTND_DEBUG=1. */
#include "endpoint/cq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

bool is_asked(void)
{
	const char *debug = getenv("SOFTND_DEBUG");
	return debug != NULL && strcmp(debug, "1") == 0;
}

static void print(const char *format, va_list arguments)
{
	SND_UNCANCELED;
	char text[512];
	if (!is_asked())
		return;
	(void)vsnprintf(text, sizeof text, format, arguments);
	(void)fprintf(stderr, "softnd: %s\n", text);
}

void say(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	print(format, arguments);
	va_end(arguments);
}

int refuse(int error, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	print(format, arguments);
	va_end(arguments);
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
	case SND_DATA_OVERRUN:
	case SND_CONNECTION_INVALID: /* of a post that a change of the state has overtaken */
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

int report_status(snd_status status)
{
	SND_UNCANCELED;
	(void)fprintf(stderr, "softnd: %s\n", snd_last_error());
	errno = error_of(status);
	return errno;
}

int refuse_status(snd_status status) { return refuse(error_of(status), "%s", snd_last_error()); }

int refuse_end(snd_status status) { return status == SND_SUCCESS || status == SND_INVALID_HANDLE || status == SND_DEVICE_REMOVED ? 0 : refuse_status(status); }

/* cause_of copies the words that the endpoint of a result has for its end. */
static void cause_of(snd_cq *cq, const snd_result *r, char text[SND_REASON])
{
	struct snd_fabric *f = cq->object.fabric;
	text[0] = '\0';
	snd_lock(f);
	for (struct snd_link *l = f->endpoints.next; l != &f->endpoints; l = l->next) {
		const struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		if (ep->receive_slots.context == r->endpoint_context)
			(void)snprintf(text, SND_REASON, "%s", ep->cause_text);
	}
	snd_unlock(f);
}

void explain(snd_cq *cq, const snd_result *r)
{
	SND_UNCANCELED; /* the results that the poll has taken would be lost */
	char cause[SND_REASON];
	if (r->status == SND_CANCELED || !is_asked())
		return;
	cause_of(cq, r, cause);
	(void)fprintf(stderr, "softnd: queue pair %#06" PRIx64 ", request %" PRIu64 ": %s%s%s\n", r->endpoint_context, r->request_context, ibv_wc_status_str(wc_status(r)),
		cause[0] != '\0' ? ": " : "", cause);
}

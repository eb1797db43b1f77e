

#include "error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char text[512];

void snd_record_failure(const char *format, ...)
{
	SND_KEEP_ERRNO;
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
}

const char *snd_errno_text(int e)
{
	switch (e) {
	case EMFILE: return "too many open files: raise the limit of the process (ulimit -n)";
	case ENFILE: return "too many open files in the system: close files of other processes, or raise fs.file-max";
	default: return strerror(e);
	}
}

struct snd_duration_text snd_duration(int64_t ns)
{
	static const struct {
		int64_t ns;
		const char *name;
	} units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
	struct snd_duration_text t;
	unsigned u = 0;
	while (u < 3 && ns != 0 && ns < units[u].ns)
		u++;
	if (ns % units[u].ns == 0)
		snprintf(t.text, sizeof t.text, "%" PRId64 " %s", ns / units[u].ns, units[u].name);
	else
		snprintf(t.text, sizeof t.text, "%.4g %s", (double)ns / (double)units[u].ns, units[u].name);
	return t;
}

const char *snd_last_error(void) { return text; }

const char *snd_version(void) { return SOFTND_VERSION; }

const char *snd_status_name(snd_status status)
{
	switch (status) {
	case SND_SUCCESS: return "success";
	case SND_BUFFER_OVERFLOW: return "buffer overflow";
	case SND_DEVICE_BUSY: return "device busy";
	case SND_NO_MORE_ENTRIES: return "no more entries";
	case SND_UNSUCCESSFUL: return "unsuccessful";
	case SND_ACCESS_VIOLATION: return "access violation";
	case SND_INVALID_HANDLE: return "invalid handle";
	case SND_INVALID_PARAMETER: return "invalid parameter";
	case SND_INVALID_DEVICE_REQUEST: return "invalid device request";
	case SND_NO_MEMORY: return "no memory";
	case SND_DATA_OVERRUN: return "data overrun";
	case SND_DATA_ERROR: return "data error";
	case SND_DATA_CHECKSUM_ERROR: return "data checksum error";
	case SND_SHARING_VIOLATION: return "sharing violation";
	case SND_INSUFFICIENT_RESOURCES: return "insufficient resources";
	case SND_IO_TIMEOUT: return "I/O timeout";
	case SND_NOT_SUPPORTED: return "not supported";
	case SND_BAD_NETWORK_NAME: return "bad network name";
	case SND_INTERNAL_ERROR: return "internal error";
	case SND_CANCELED: return "canceled";
	case SND_REMOTE_ERROR: return "remote error";
	case SND_INVALID_ADDRESS: return "invalid address";
	case SND_INVALID_DEVICE_STATE: return "invalid device state";
	case SND_INVALID_BUFFER_SIZE: return "invalid buffer size";
	case SND_TOO_MANY_ADDRESSES: return "too many addresses";
	case SND_CONNECTION_DISCONNECTED: return "connection disconnected";
	case SND_CONNECTION_REFUSED: return "connection refused";
	case SND_ADDRESS_ALREADY_ASSOCIATED: return "address already associated";
	case SND_CONNECTION_INVALID: return "connection invalid";
	case SND_CONNECTION_ACTIVE: return "connection active";
	case SND_NETWORK_UNREACHABLE: return "network unreachable";
	case SND_HOST_UNREACHABLE: return "host unreachable";
	case SND_CONNECTION_ABORTED: return "connection aborted";
	case SND_DEVICE_REMOVED: return "device removed";
	default: return "unknown status";
	}
}

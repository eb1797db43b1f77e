/* TWIN internal/linux/mappings.go. */
#include "linux/procmaps.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "error.h"
#include "linux/descriptor.h"

struct mapping {
	uint64_t start, end;
	bool readable, writable;
};

/* struct procmap_query of linux/fs.h, which headers before 6.11 do not have. */
struct procmap_query {
	uint64_t size, flags, addr, start, end, access, page_size, offset, inode;
	uint32_t device[2], name_size, build_id_size;
	uint64_t name, build_id;
};
#define QUERY _IOWR('f', 17, struct procmap_query)
enum { READABLE = 1, WRITABLE = 2, COVERING_OR_NEXT = 16 };

/* maps is /proc/self/maps. */
struct maps {
	int fd;
	bool listed; /* the kernel is too old for QUERY: read the text */
	struct mapping last; /* of the text */
	char text[4096];
	size_t at, length;
};

enum found { FOUND, NONE, FAILED };

/* query finds the mapping that contains at, or else the next one above it. */
static enum found query(struct maps *f, uint64_t at, struct mapping *m)
{
	struct procmap_query q = {.size = sizeof q, .flags = COVERING_OR_NEXT, .addr = at};
	if (ioctl(f->fd, QUERY, &q) != 0)
		return errno == ENOENT ? NONE : FAILED;
	*m = (struct mapping){q.start, q.end, (q.access & READABLE) != 0, (q.access & WRITABLE) != 0};
	return FOUND;
}

/* next_char returns the next character of the text, -1 at its end, -2 if it cannot be read. */
static int next_char(struct maps *f)
{
	if (f->at == f->length) {
		const ssize_t n = read(f->fd, f->text, sizeof f->text);
		if (n <= 0)
			return n == 0 ? -1 : -2;
		f->at = 0;
		f->length = (size_t)n;
	}
	return f->text[f->at++];
}

/* hex reads a number and the character behind it. */
static int hex(struct maps *f, uint64_t *value)
{
	static const char digits[] = "0123456789abcdef";
	for (*value = 0;;) {
		const int c = next_char(f);
		const char *digit = c > 0 ? strchr(digits, c) : NULL;
		if (digit == NULL)
			return c;
		*value = *value << 4 | (uint64_t)(digit - digits);
	}
}

/* list is query for the text, whose lines are sorted by address: "7f0000001000-7f0000003000 rw-p ...". */
static enum found list(struct maps *f, uint64_t at, struct mapping *m)
{
	while (f->last.end <= at) {
		int c = hex(f, &f->last.start);
		if (c == -1)
			return NONE;
		if (c != '-' || hex(f, &f->last.end) != ' ')
			return FAILED;
		f->last.readable = next_char(f) == 'r';
		f->last.writable = next_char(f) == 'w';
		while ((c = next_char(f)) != '\n')
			if (c < 0)
				return FAILED;
	}
	*m = f->last;
	return FOUND;
}

static enum found find(struct maps *f, uint64_t at, struct mapping *m)
{
	if (!f->listed) {
		const enum found found = query(f, at, m);
		if (found != FAILED || errno != ENOTTY)
			return found;
		f->listed = true;
	}
	return list(f, at, m);
}

/* check finds the first part of a range that the process must not access in the way asked for. */
static enum found check(struct maps *f, uint64_t at, uint64_t end, bool write, struct snd_inaccessible *bad)
{
	struct mapping m = {0};
	for (; at < end; at = m.end) {
		const enum found found = find(f, at, &m);
		if (found == FAILED)
			return FAILED;
		if (found == NONE || m.start > at)
			*bad = (struct snd_inaccessible){at, found == NONE || m.start > end ? end : m.start, "not mapped"};
		else if (!m.readable || (write && !m.writable))
			*bad = (struct snd_inaccessible){at, m.end < end ? m.end : end, m.readable ? "not writable" : "not readable"};
		if (bad->reason != NULL)
			return FOUND;
	}
	return NONE;
}

snd_status snd_check_access(uint64_t start, uint64_t length, bool write, struct snd_inaccessible *bad, const char *op)
{
	struct maps f = {.fd = snd_above_standard(open("/proc/self/maps", O_RDONLY | O_CLOEXEC))};
	snd_status s = SND_SUCCESS;
	*bad = (struct snd_inaccessible){0, 0, NULL};
	if (f.fd < 0 || check(&f, start, start + length, write, bad) == FAILED)
		s = snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: /proc/self/maps: %s: registering needs a mounted /proc and a free descriptor", op, snd_errno_text(errno));
	if (f.fd >= 0)
		close(f.fd);
	return s;
}

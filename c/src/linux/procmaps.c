/* TWIN internal/linux/mappings.go. */
#include "linux/procmaps.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "error.h"
#include "linux/descriptor.h"
#include "linux/fork.h"
#include "linux/proc.h"

/* struct procmap_query of linux/fs.h, which headers before 6.11 do not have. */
struct procmap_query {
	uint64_t size, flags, addr, start, end, access, page_size, offset, inode;
	uint32_t device[2], name_size, build_id_size;
	uint64_t name, build_id;
};
#define QUERY _IOWR('f', 17, struct procmap_query)
enum { READABLE = 1, WRITABLE = 2, SHARED = 8, COVERING_OR_NEXT = 16 };

/* maps is /proc/self/maps. */
struct maps {
	int fd;
	bool listed; /* the kernel is too old for QUERY: read the text */
	struct snd_vma last; /* of the text */
	char text[4096];
	size_t at, length;
};

enum found { FOUND, NONE, FAILED };

/* query finds the mapping that contains at, or else the next one above it. */
static enum found query(struct maps *f, uint64_t at, struct snd_vma *m)
{
	struct procmap_query q = {.size = sizeof q, .flags = COVERING_OR_NEXT, .addr = at, .name_size = sizeof f->text, .name = (uint64_t)(uintptr_t)f->text};
	if (ioctl(f->fd, QUERY, &q) != 0)
		return errno == ENOENT ? NONE : FAILED;
	*m = (struct snd_vma){.start = q.start, .end = q.end, .offset = q.offset, .inode = q.inode, .device = makedev(q.device[0], q.device[1]),
		.readable = (q.access & READABLE) != 0, .writable = (q.access & WRITABLE) != 0, .shared = (q.access & SHARED) != 0};
	memcpy(m->name, f->text, q.name_size < sizeof m->name ? q.name_size : sizeof m->name - 1);
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
	return (unsigned char)f->text[f->at++]; /* a path may have any bytes */
}

/* number reads a number and the character behind it. */
static int number(struct maps *f, uint64_t base, uint64_t *value)
{
	static const char digits[] = "0123456789abcdef";
	for (*value = 0;;) {
		const int c = next_char(f);
		const char *digit = c > 0 ? strchr(digits, c) : NULL;
		if (digit == NULL)
			return c;
		*value = *value * base + (uint64_t)(digit - digits);
	}
}

/* read_line reads a line of the text: "7f0000001000-7f0000003000 rw-p 00002000 00:01 1234   /file". */
static enum found read_line(struct maps *f, struct snd_vma *m)
{
	uint64_t major, minor;
	*m = (struct snd_vma){0};
	int c = number(f, 16, &m->start);
	if (c == -1)
		return NONE;
	if (c != '-' || number(f, 16, &m->end) != ' ')
		return FAILED;
	m->readable = next_char(f) == 'r';
	m->writable = next_char(f) == 'w';
	(void)next_char(f);
	m->shared = next_char(f) == 's';
	if (next_char(f) != ' ' || number(f, 16, &m->offset) != ' ' || number(f, 16, &major) != ':' || number(f, 16, &minor) != ' ')
		return FAILED;
	m->device = makedev((unsigned)major, (unsigned)minor);
	for (c = number(f, 10, &m->inode); c == ' ';)
		c = next_char(f);
	for (size_t n = 0; c != '\n'; c = next_char(f)) {
		if (c < 0)
			return FAILED;
		if (n < sizeof m->name - 1)
			m->name[n++] = (char)c;
	}
	return FOUND;
}

/* list is query for the text, whose lines are sorted by address. */
static enum found list(struct maps *f, uint64_t at, struct snd_vma *m)
{
	while (f->last.end <= at) {
		const enum found found = read_line(f, &f->last);
		if (found != FOUND)
			return found;
	}
	*m = f->last;
	return FOUND;
}

static enum found find(struct maps *f, uint64_t at, struct snd_vma *m)
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
	struct snd_vma m = {0};
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

bool snd_each_vma(uint64_t start, uint64_t end, bool (*visit)(void *arg, const struct snd_vma *v), void *arg)
{
	struct maps f = {.fd = snd_open_proc("self/maps", 0)};
	struct snd_vma v = {.end = start};
	enum found found = f.fd < 0 ? FAILED : FOUND;
	bool go_on = true;
	while (go_on && found == FOUND && v.end < end)
		if ((found = find(&f, v.end, &v)) == FOUND && v.start < end)
			go_on = visit(arg, &v);
	if (f.fd >= 0)
		close(f.fd);
	return go_on && found != FAILED;
}

/* open_maps opens the mappings for a caller that has not called snd_fork_hold. */
static int open_maps(void)
{
	int fd = snd_above_standard(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
	if (fd < 0 && errno == ENOENT) { /* the process may have changed its root directory */
		snd_fork_hold();
		fd = snd_open_proc("self/maps", 0);
		const int e = errno;
		snd_fork_release();
		errno = e;
	}
	return fd;
}

snd_status snd_check_access(uint64_t start, uint64_t length, bool write, struct snd_inaccessible *bad, const char *op)
{
	struct maps f = {.fd = open_maps()};
	snd_status s = SND_SUCCESS;
	*bad = (struct snd_inaccessible){0, 0, NULL};
	if (f.fd < 0 || check(&f, start, start + length, write, bad) == FAILED)
		s = snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: /proc/self/maps: %s: registering this memory needs a mounted /proc and a free descriptor", op, snd_errno_text(errno));
	if (f.fd >= 0)
		close(f.fd);
	return s;
}

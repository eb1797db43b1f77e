/* A job that a user starts without a launcher: the variables with which the ranks meet at SOFTND_ROOT. See internal/meet/bootstrap/root.go.
 * TWIN internal/meet/bootstrap/root.go. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "linux/fork.h"
#include "linux/socket.h"
#include "meet/bootstrap.h"
#include "meet/root_rank.h"
#include "settings.h"

enum { MIN_SECRET = 16, MAX_SECRET = 4096 /* bytes */ };

/* own_numbers reads the rank and the size that the user has set, or that a launcher has set which does not help its ranks to meet. */
static snd_status own_numbers(struct snd_place *p, const char *op)
{
	const struct snd_launcher_variables *const launchers[] = {&snd_open_mpi, &snd_slurm};
	const char *rank_name = "SOFTND_RANK", *size_name = "SOFTND_SIZE";
	if (*snd_value_of(rank_name) == 0 && *snd_value_of(size_name) == 0) {
		for (int i = 0; i < 2; i++) {
			if (*snd_value_of(launchers[i]->rank) == 0)
				continue;
			rank_name = launchers[i]->rank;
			size_name = launchers[i]->size;
			break;
		}
	}
	const int64_t rank = snd_number_in(rank_name), size = snd_number_in(size_name);
	if (rank < 0 || size < 0 || rank >= size)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s=\"%s\" with %s=\"%s\": want a rank from 0 to size-1; SOFTND_ROOT is set, so set both for each rank",
			op, rank_name, snd_value_of(rank_name), size_name, snd_value_of(size_name));
	p->rank = (uint32_t)rank;
	p->size = (uint32_t)size;
	return SND_SUCCESS;
}

/* read_private reads a file that only this user and root can access. It returns the number of bytes, at most MAX_SECRET + 1. */
static snd_status read_private(const char *name, char *to, size_t *length, const char *op)
{
	struct stat st;
	snd_fork_hold();
	const int fd = snd_above_standard(open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK)); /* of a pipe without a writer it would wait */
	const int e = errno;
	snd_fork_release();
	snd_status s = SND_SUCCESS;
	if (fd < 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_SECRET_FILE: open %.300s: %s", op, name, snd_errno_text(e));
	if (fstat(fd, &st) != 0) /* of the open file: another process may replace the name */
		s = snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_SECRET_FILE: %.300s: %s", op, name, snd_errno_text(errno));
	else if (st.st_uid != geteuid() && st.st_uid != 0)
		s = snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_SECRET_FILE: %.300s belongs to user %u and not to you: use a file of your own, with mode 600", op, name, (unsigned)st.st_uid);
	else if ((st.st_mode & 077) != 0)
		s = snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_SECRET_FILE: %.300s has mode %#o, so other users have access to the secret: run chmod 600 %.300s, and then make a new secret",
			op, name, (unsigned)st.st_mode & 0777, name);
	*length = 0;
	while (s == SND_SUCCESS && *length <= MAX_SECRET) {
		const ssize_t n = read(fd, to + *length, MAX_SECRET + 1 - *length);
		if (n == 0)
			break;
		if (n > 0)
			*length += (size_t)n;
		else if (errno != EINTR && (errno != EAGAIN || !snd_socket_await(fd, POLLIN, -1))) /* of a pipe */
			s = snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_SECRET_FILE: read %.300s: %s", op, name, snd_errno_text(errno));
	}
	close(fd);
	return s;
}

/* user_secret reads the secret that the user has given, without the white space around it. */
static snd_status user_secret(char to[MAX_SECRET + 1], struct snd_bytes *secret, const char *op)
{
	static const char space[] = " \t\n\v\f\r";
	const char *text = snd_value_of("SOFTND_SECRET"), *file = snd_value_of("SOFTND_SECRET_FILE"), *from = "SOFTND_SECRET";
	size_t n = strlen(text), first = 0;
	if (*file != 0) {
		if (n > 0)
			return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_SECRET and SOFTND_SECRET_FILE are both set: set one of them", op);
		from = "SOFTND_SECRET_FILE";
		snd_status s = read_private(file, to, &n, op);
		if (s != SND_SUCCESS)
			return s;
	} else {
		(void)snprintf(to, MAX_SECRET + 1, "%s", text); /* of a longer one, which is refused, a part */
	}
	if (n > MAX_SECRET)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s: the secret has more than %d bytes: use a shorter one", op, from, MAX_SECRET);
	while (n > 0 && memchr(space, to[n - 1], sizeof space - 1) != NULL)
		n--;
	while (first < n && memchr(space, to[first], sizeof space - 1) != NULL)
		first++;
	*secret = (struct snd_bytes){to + first, n - first};
	if (secret->length < MIN_SECRET)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s: the secret has %zu bytes: SOFTND_ROOT needs one of %d or more, the same at all ranks, in SOFTND_SECRET or in a file that SOFTND_SECRET_FILE names (such as one of: openssl rand -hex 32)",
			op, from, secret->length, MIN_SECRET);
	return SND_SUCCESS;
}

static snd_status read_keepalive(int64_t *silence, const char *op)
{
	const char *text = snd_value_of("SOFTND_RELAY_KEEPALIVE");
	*silence = INT64_C(5000000000);
	if (*text == 0 || (snd_parse_duration(text, silence) && *silence > 0))
		return SND_SUCCESS;
	return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_RELAY_KEEPALIVE=\"%s\": want a duration such as 5s", op, text);
}

snd_status snd_place_at_root(struct snd_place *p, const snd_fabric_options *o, int64_t deadline, snd_fabric **fabric, const char *op)
{
	char bytes[MAX_SECRET + 1], at[SND_TCP_TEXT], choice[SND_TCP_CHOICE] = "";
	struct snd_root_config config = {0};
	snd_status s = own_numbers(p, op);
	if (s == SND_SUCCESS)
		s = user_secret(bytes, &config.secret, op);
	if (s == SND_SUCCESS)
		s = snd_tcp_resolve(snd_value_of("SOFTND_ROOT"), &config.at, choice, op);
	if (*choice != 0)
		dprintf(STDERR_FILENO, "softnd: rank %" PRIu32 " of %" PRIu32 ": SOFTND_ROOT=%s: %s\n", p->rank, p->size, snd_value_of("SOFTND_ROOT"), choice);
	if (s == SND_SUCCESS)
		s = read_keepalive(&config.silence, op);
	config.rank = p->rank;
	config.size = p->size;
	if (s == SND_SUCCESS)
		s = snd_root_join(&p->root, &config, deadline, op);
	if (s == SND_SUCCESS) {
		snd_tcp_text(&config.at, true, at);
		snprintf(p->launcher, sizeof p->launcher, "of the job at %s", at);
		s = snd_place_meet(p, &config.secret, o, deadline, fabric, op);
	}
	if (s == SND_SUCCESS && p->hosts != NULL)
		snd_root_local(p->root, p->hosts->known);
	explicit_bzero(bytes, sizeof bytes);
	return s;
}

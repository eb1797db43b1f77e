/* TWIN internal/meet/relayclient/relayclient.go. */
#include "meet/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "encoding.h"
#include "error.h"
#include "linux/clock.h"
#include "linux/fork.h"
#include "meet/bootstrap.h"
#include "meet/hosts.h"
#include "shm/arena.h"

#ifndef SYS_close_range
#define SYS_close_range 436 /* since Linux 5.9, everywhere */
#endif

enum { PATH = 4096, FIRST_FREE = 10 };

static const char *setting(const char *name, const char *other)
{
	const char *text = getenv(name);
	return text != NULL && *text != 0 ? text : other;
}

static bool is_program(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* find writes the path of ndrelay. */
static snd_status find(char path[PATH], const char *op)
{
	const char *name = setting("SOFTND_RELAY", NULL), *wanted = name != NULL ? name : "ndrelay", *dirs = setting("PATH", "");
	if (strchr(wanted, '/') != NULL) {
		snprintf(path, PATH, "%s", wanted);
		dirs = "";
		if (strlen(wanted) < PATH && is_program(path))
			return SND_SUCCESS;
	}
	while (*dirs != 0) {
		const int n = (int)strcspn(dirs, ":");
		if (n > 0 && snprintf(path, PATH, "%.*s/%s", n, dirs, wanted) < PATH && is_program(path))
			return SND_SUCCESS;
		dirs += n + (dirs[n] == ':');
	}
	if (name != NULL)
		return snd_fail(SND_BAD_NETWORK_NAME, "%s: SOFTND_RELAY=\"%.200s\" is no program that can be run: it has to name the program ndrelay", op, name);
	return snd_fail(SND_BAD_NETWORK_NAME, "%s: a job over several hosts needs the program ndrelay at each host, and PATH has none: install libfabric-dev, "
		"run go -C relay install ./cmd/ndrelay in the source of softnd, and put ndrelay into PATH or set SOFTND_RELAY to its path", op);
}

/* split makes a child whose end sends no signal, so that the program does not notice it. It runs no handlers of fork. */
static pid_t split(void) { return (pid_t)syscall(SYS_clone, 0UL, NULL, NULL, NULL, 0UL); }

/* become is the rest of a child: it runs the relay. It calls only what is safe in a child of a process with threads. */
static _Noreturn void become(const char *path, int socket, int arena, int launcher)
{
	static const char failed[] = "{\"error\":\"the kernel refuses to run the program\"}\n";
	extern char **environ;
	char *arguments[] = {(char *)(uintptr_t)path, NULL};
	int told = socket;
	(void)setsid(); /* a signal that ends the ranks must not end the relay before them */
	const int s = fcntl(socket, F_DUPFD_CLOEXEC, FIRST_FREE), a = fcntl(arena, F_DUPFD_CLOEXEC, FIRST_FREE);
	const int l = launcher >= 0 ? fcntl(launcher, F_DUPFD_CLOEXEC, FIRST_FREE) : -1;
	if (s >= 0 && a >= 0 && (l >= 0 || launcher < 0) && dup2(s, 0) >= 0 && dup2(s, 1) >= 0 && dup2(a, 3) >= 0 && (l < 0 || dup2(l, 4) >= 0)) {
		told = 1;
		(void)syscall(SYS_close_range, l < 0 ? 4U : 5U, ~0U, 0U); /* a container may refuse it: then only descriptors with close-on-exec are closed */
		/* No handler of the program may run here. */
		for (int n = 1; n < NSIG; n++)
			(void)signal(n, SIG_DFL);
		sigset_t none;
		sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		(void)execve(path, arguments, environ);
	}
	(void)!write(told, failed, sizeof failed - 1);
	_exit(1);
}

/* run starts the relay as an orphan: its parent ends at once. So no wait of the program gets its end. If it fails, it sets
 * errno. */
static bool run(const char *path, int socket, int arena, int launcher)
{
	sigset_t all, before;
	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before); /* also in the children: they must run no handler of the program */
	const pid_t first = split();
	if (first == 0) {
		const pid_t second = split();
		if (second == 0)
			become(path, socket, arena, launcher);
		_exit(second < 0 ? errno : 0);
	}
	int e = errno, status = 0;
	if (first > 0) {
		/* A program that ignores SIGCHLD has no child to wait for: the socket reports a failure then. */
		while (waitpid(first, &status, (int)__WCLONE) < 0 && errno == EINTR)
			;
		e = WIFEXITED(status) ? WEXITSTATUS(status) : EAGAIN;
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = e;
	return e == 0;
}

/* start_process connects this process with a new relay. */
static snd_status start_process(struct snd_relay *r, const char *path, int arena, int launcher, const char *op)
{
	int ends[2], own = snd_reopen(arena); /* the description of arena has the lock of this member */
	if (own < 0)
		return snd_fail(SND_UNSUCCESSFUL, "%s: start %.200s: re-open the arena: %s", op, path, snd_errno_text(errno));
	snd_fork_hold();
	snd_stream_pair(ends);
	r->socket = snd_fork_closes(ends[0]);
	const bool made = r->socket >= 0 && ends[1] >= 0 && snd_identify(r->socket, &r->identity) && run(path, ends[1], own, launcher);
	const int e = errno;
	if (ends[1] >= 0)
		close(ends[1]);
	snd_fork_release();
	close(own);
	return made ? SND_SUCCESS : snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: start %.200s: %s", op, path, snd_errno_text(e));
}

#define CHECK_INTERVAL INT64_C(100000000)

/* ask sends a line, and reads the answer into r->line. If place is not NULL, it fails when another rank has ended the job. */
static snd_status ask(struct snd_relay *r, const struct snd_place *place, const char *line, int64_t deadline, const char *op)
{
	(void)send(r->socket, line, strlen(line), MSG_NOSIGNAL); /* fails if the relay has ended, which may have said why */
	for (size_t n = 0; n + 1 < sizeof r->line;) {
		const int64_t left = snd_time_left(deadline);
		struct pollfd p = {r->socket, POLLIN, 0};
		const int ready = poll(&p, 1, left < 0 || left > CHECK_INTERVAL ? (int)(CHECK_INTERVAL / 1000000) : (int)(left / 1000000) + 1);
		if (ready == 0 && left == 0)
			return snd_fail(SND_IO_TIMEOUT, "%s: it has not answered within the time limit of snd_job_init", op);
		const snd_status s = ready == 0 && place != NULL ? snd_place_has_ended(place, op) : SND_SUCCESS;
		if (s != SND_SUCCESS)
			return s;
		if (ready <= 0)
			continue;
		const ssize_t got = recv(r->socket, r->line + n, 1, 0); /* one byte: the next line is another answer */
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return snd_fail(SND_UNSUCCESSFUL, "%s: it has ended without an answer", op);
		if (r->line[n] == '\n') {
			char why[301];
			r->line[n] = 0;
			if (snd_json_text(r->line, "error", why, sizeof why))
				return snd_fail(SND_UNSUCCESSFUL, "%s: %s", op, why);
			return SND_SUCCESS;
		}
		n++;
	}
	return snd_fail(SND_UNSUCCESSFUL, "%s: malformed answer \"%.80s\"", op, r->line);
}

snd_status snd_relay_start(struct snd_relay *r, int arena, int launcher, const struct snd_hosts *h, uint64_t pack, const char *address, char control[SND_RELAY_ADDRESS], int64_t deadline, const char *op)
{
	char path[PATH], secret[2 * SND_SECRET], provider[100], keepalive[60], line[SND_RELAY_LINE], who[400];
	snd_status s = find(path, op);
	if (s == SND_SUCCESS)
		s = start_process(r, path, arena, launcher, op);
	if (s != SND_SUCCESS)
		return s;
	snd_base64(h->secret, sizeof h->secret, secret);
	snd_json_quote(setting("SOFTND_RELAY_PROVIDER", "tcp"), provider, sizeof provider);
	snd_json_quote(setting("SOFTND_RELAY_KEEPALIVE", "5s"), keepalive, sizeof keepalive);
	snprintf(line, sizeof line, "{\"job\":\"%s\",\"secret\":\"%s\",\"host\":%" PRIu32 ",\"hosts\":%" PRIu32 ",\"provider\":%s,\"address\":\"%s\",\"keepalive\":%s,\"pack\":%" PRIu64 "%s}\n",
		h->job, secret, h->number, h->count, provider, address, keepalive, pack, launcher >= 0 ? ",\"launcher\":true" : "");
	snprintf(who, sizeof who, "%s: the relay of host %" PRIu32 " (%.300s)", op, h->number, path);
	r->has_launcher = launcher >= 0;
	s = ask(r, NULL, line, deadline, who);
	if (s == SND_SUCCESS && !snd_json_text(r->line, "control", control, SND_RELAY_ADDRESS))
		s = snd_fail(SND_UNSUCCESSFUL, "%s: its first answer has no address", who);
	return s;
}

snd_status snd_relay_connect(struct snd_relay *r, const struct snd_place *place, uint32_t host, const char *relays, int64_t deadline, const char *op)
{
	char line[SND_RELAY_LINE], who[60], why[300];
	snprintf(line, sizeof line, "{\"relays\":%s}\n", relays);
	snprintf(who, sizeof who, "%s: the relay of host %" PRIu32, op, host);
	snd_status s = ask(r, place, line, deadline, who);
	if (s == SND_SUCCESS)
		return strncmp(r->line, "{\"ready\":true", 13) == 0 ? s : snd_fail(SND_UNSUCCESSFUL, "%s: its second answer is not that it is ready", who);
	if (s == SND_CONNECTION_ABORTED)
		return s;
	snprintf(why, sizeof why, "%s", snd_last_error());
	return snd_fail(s, "%s; check that the hosts reach %.120s, or set SOFTND_HOST_ADDRESS", why, relays);
}

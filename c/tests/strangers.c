/* Connections to the socket of a named fabric that say nothing do not keep others from joining it. */
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { SILENT = 300, NOBODY = 65534 };

static const snd_fabric_options options = {.progress = SND_PROGRESS_AUTO};

/* stay_silent makes connections, and returns their number. */
static int stay_silent(const char *name, uid_t owner, int sockets[SILENT])
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const int length = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "softnd-fabric-%lu-%s", (unsigned long)owner, name);
	for (int i = 0; i < SILENT; i++) {
		sockets[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (connect(sockets[i], (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) != 0)
			return i;
	}
	return SILENT;
}

/* join joins the fabric again. It would fail after 10 s. */
static void join(const char *name)
{
	snd_fabric *f;
	OK(snd_fabric_open(name, 0, 0, -1, &options, &f));
	OK(snd_fabric_close(f));
}

int main(void)
{
	char name[40];
	snd_fabric *first;
	int sockets[SILENT], said[2], end[2];
	alarm(100); /* a hang ends the test */
	snprintf(name, sizeof name, "strangers-%d", (int)getpid());
	CHECK(pipe(said) == 0 && pipe(end) == 0);
	const pid_t child = geteuid() == 0 ? fork() : 0; /* another user, if this one is root */
	if (child == 0 && geteuid() == 0) {
		char byte;
		close(end[1]);
		CHECK(read(end[0], &byte, 1) == 1); /* the fabric exists */
		CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
		CHECK(stay_silent(name, 0, sockets) == SILENT && write(said[1], "x", 1) == 1);
		(void)!read(end[0], &byte, 1);
		_exit(0);
	}
	OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, &options, &first));
	CHECK(stay_silent(name, geteuid(), sockets) == SILENT);
	join(name);
	if (child != 0) {
		char byte;
		int status;
		CHECK(write(end[1], "x", 1) == 1 && read(said[0], &byte, 1) == 1);
		join(name);
		close(end[1]);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	} else {
		puts("skipped: a stranger of another user, which needs root");
	}
	for (int i = 0; i < SILENT; i++)
		close(sockets[i]);
	OK(snd_fabric_close(first));
	puts("ok");
	return 0;
}

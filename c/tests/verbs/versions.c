/* A library, an ndrun and an arena of several releases: each combination ends with one error that names them. */
#include "../answers.h"
#include "sides.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "shm/arena.h"
#include "shm/layout.h"

enum { RECORD = 64 };

static socklen_t name_socket(struct sockaddr_un *at, const char *name)
{
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(at->sun_path + 1, name, strlen(name));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

/* refused registers memory in a child, which cannot join, and checks its words. answer is sent to the process that connects to the socket. */
static void refused(const char *socket_name, const void *answer, size_t size, const char *want)
{
	struct sockaddr_un at;
	int words[2], listener = -1;
	char text[1024];
	CHECK(pipe(words) == 0);
	if (socket_name != NULL) {
		const socklen_t length = name_socket(&at, socket_name);
		listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&at, length) == 0 && listen(listener, 1) == 0);
	}
	const pid_t child = fork();
	if (child == 0) {
		CHECK(dup2(words[1], STDERR_FILENO) >= 0 && close(words[0]) == 0);
		struct ibv_pd *pd = ibv_alloc_pd(open_device());
		_exit(pd != NULL && ibv_reg_mr(pd, text, sizeof text, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EOPNOTSUPP ? 0 : 1);
	}
	close(words[1]);
	if (listener >= 0) {
		(void)answer_one(listener, text, sizeof text, answer, size);
		close(listener);
	}
	size_t n = 0;
	for (ssize_t got; (got = read(words[0], text + n, sizeof text - 1 - n)) > 0;)
		n += (size_t)got;
	text[n] = '\0';
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	if (status != 0 || strncmp(text, "softnd: join fabric: ", 21) != 0 || strstr(text, want) == NULL || strstr(text, "arena of another version (") == NULL || strchr(text, '\n') != text + n - 1)
		fprintf(stderr, "status %d, want %s, got %s\n", status, want, text);
	CHECK(status == 0 && strstr(text, want) != NULL && strstr(text, "arena of another version (") != NULL && strchr(text, '\n') == text + n - 1);
}

/* An ndrun of another release has made the arena that the rank inherits, or refuses the rank that asks for it. */
static void test_jobs(void)
{
	struct snd_arena a;
	char fd[16], name[60], address[200];
	CHECK(snd_arena_create(&a, 2, 0, UINT64_C(256) << 20, "test") == SND_SUCCESS);
	snprintf(fd, sizeof fd, "%d", a.fd);
	CHECK(setenv("SOFTND_ARENA_FD", fd, 1) == 0 && setenv("SOFTND_RANK", "0", 1) == 0 && setenv("SOFTND_SIZE", "2", 1) == 0);
	snd_set(&snd_header(&a)->layout, 5);
	refused(NULL, NULL, 0, "the arena's layout has hash 0x5, this program's");
	snd_set32(&snd_header(&a)->version, 99);
	refused(NULL, NULL, 0, "the arena's layout has version 99, this program's");
	snd_arena_close(&a);
	const char *refusal = "{\"kind\":\"refusal\",\"text\":\"the launcher contains softnd v9, this program contains softnd v1: arena of another version (control channel versions 9 and 1 differ): "
		"build all programs with one release of softnd\"}";
	snprintf(name, sizeof name, "softnd-job-versions%d", (int)getpid());
	snprintf(address, sizeof address, "%s:00112233445566778899aabbccddeeff:ffeeddccbbaa99887766554433221100", name);
	CHECK(setenv("SOFTND_CONTROL", address, 1) == 0 && unsetenv("SOFTND_ARENA_FD") == 0);
	refused(name, refusal, strlen(refusal), "the launcher contains softnd v9");
	CHECK(unsetenv("SOFTND_CONTROL") == 0 && unsetenv("SOFTND_RANK") == 0 && unsetenv("SOFTND_SIZE") == 0);
}

/* The members of a named fabric are of another release, and so is a process that wants to join this one. */
static void test_fabrics(void)
{
	static struct side s;
	unsigned char record[RECORD] = {'S', 'O', 'F', 'T', 'N', 'D', 'F', 'B', 1, 0, 0, 0, 3, 0, 0, 0, 9}, answer[RECORD + 1];
	const uint32_t user = geteuid();
	char name[100];
	memcpy(record + 48, "v9.1", 4);
	snprintf(name, sizeof name, "softnd-fabric-%u-%s", user, getenv("SOFTND_VERBS_FABRIC"));
	refused(name, record, sizeof record, "the members of the fabric contain softnd v9.1");
	open_side(&s, open_device(), 0);
	struct sockaddr_un at;
	const socklen_t length = name_socket(&at, name);
	const int joiner = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	record[12] = 1;
	CHECK(connect(joiner, (struct sockaddr *)&at, length) == 0 && send(joiner, record, sizeof record, 0) == RECORD && recv(joiner, answer, sizeof answer, 0) == RECORD);
	const uint32_t version = SNDL_LAYOUT_VERSION;
	const uint64_t hash = SNDL_LAYOUT_HASH;
	CHECK(answer[12] == 3 && memcmp(answer + 16, &version, 4) == 0 && memcmp(answer + 20, &user, 4) == 0 && memcmp(answer + 24, &hash, 8) == 0 && strncmp((char *)answer + 48, "libsoftnd ", 10) == 0);
	close(joiner);
	CHECK(ibv_close_device(s.context) == 0);
}

int main(void)
{
	name_fabric("versions");
	test_jobs();
	test_fabrics();
	return 0;
}

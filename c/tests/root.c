/* The meeting of ranks at SOFTND_ROOT: the service of rank 0, its strangers, and messages that are not genuine. Programs of several
 * ranks are in tests/launchers/c_root_test.go. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "few_descriptors.h"
#include "linux/clock.h"
#include "linux/fork.h"
#include "meet/root_channel.h"
#include "meet/root_rank.h"
#include "shm/arena.h"

#define MS INT64_C(1000000)
#define LIMIT (60 * 1000 * MS)

/* Internal functions may change errno. */
#define FINE(call) CHECK((call) == SND_SUCCESS)

enum { RANKS = 3, ROUNDS = 20, MANY = 70 /* more than the service lets wait */ };

static char address[SND_TCP_TEXT];
static const struct snd_bytes secret = {"a secret of the tests", 21};

/* take_address finds a port at which no process listens, of those that the kernel gives to no socket by itself. */
static void take_address(void)
{
	char choice[SND_TCP_CHOICE];
	struct snd_tcp_address a;
	int s;
	do {
		snprintf(address, sizeof address, "127.0.0.1:%d", 15500 + (int)((unsigned)rand() % 4500)); /* other tests have other ports */
		FINE(snd_tcp_resolve(address, &a, choice, "test"));
	} while ((s = snd_tcp_listen(&a)) < 0);
	snd_fork_close(s);
}

static struct snd_root_config config_of(uint32_t rank, uint32_t size)
{
	char choice[SND_TCP_CHOICE];
	struct snd_root_config c = {.secret = secret, .rank = rank, .size = size, .silence = 5000 * MS};
	FINE(snd_tcp_resolve(address, &c.at, choice, "test"));
	return c;
}

static struct snd_root *join(uint32_t rank, uint32_t size)
{
	struct snd_root *r;
	const struct snd_root_config c = config_of(rank, size);
	FINE(snd_root_join(&r, &c, snd_deadline(LIMIT), "test"));
	return r;
}

/* meet is the life of a rank: it meets the others, and leaves. */
static void meet(uint32_t rank)
{
	char key[SND_PMI_KEY + 1], value[SND_PMI_VALUE + 1];
	struct snd_root *r = join(rank, RANKS);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		snprintf(key, sizeof key, "key-%u-%u", round, rank);
		memset(value, 'a' + (int)rank, SND_PMI_VALUE); /* the longest */
		value[SND_PMI_VALUE] = 0;
		value[round] = '"';
		FINE(snd_root_put(r, key, value, snd_deadline(LIMIT), "test"));
		FINE(snd_root_barrier(r, snd_deadline(LIMIT), "test"));
		for (uint32_t other = 0; other < RANKS; other++) {
			snprintf(key, sizeof key, "key-%u-%u", round, other);
			FINE(snd_root_get(r, key, value, snd_deadline(LIMIT), "test"));
			CHECK(strlen(value) == SND_PMI_VALUE && value[round] == '"' && value[round + 1] == (char)('a' + (int)other));
		}
	}
	FINE(snd_root_leave(r, "test"));
	snd_root_close(r);
}

/* meet_again meets a few times. A rank that is early waits for the next service. */
static void *meet_again(void *rank)
{
	for (int n = 0; n < 5; n++)
		meet((uint32_t)(uintptr_t)rank);
	return NULL;
}

static void test_meeting(void)
{
	pthread_t threads[RANKS];
	for (uintptr_t rank = 0; rank < RANKS; rank++)
		CHECK(pthread_create(&threads[rank], NULL, meet_again, (void *)rank) == 0);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		CHECK(pthread_join(threads[rank], NULL) == 0);
}

/* Requests that rank 0 refuses, and a barrier to which not all ranks come. */
static void test_refused(void)
{
	char value[SND_PMI_VALUE + 1], longer[SND_PMI_VALUE + 2];
	take_address();
	struct snd_root *r = join(0, 3);
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	FINE(snd_root_put(r, "key", "value", snd_deadline(LIMIT), "test"));
	CHECK(snd_root_put(r, "key", "other", snd_deadline(LIMIT), "test") == SND_UNSUCCESSFUL && strstr(snd_last_error(), "key key has a value already") != NULL);
	CHECK(snd_root_put(r, "", "value", snd_deadline(LIMIT), "test") == SND_UNSUCCESSFUL && strstr(snd_last_error(), "a key has 1 to 64 bytes") != NULL);
	CHECK(snd_root_put(r, "long", longer, snd_deadline(LIMIT), "test") == SND_UNSUCCESSFUL && strstr(snd_last_error(), "a value at most 960") != NULL);
	CHECK(snd_root_get(r, "none", value, snd_deadline(LIMIT), "test") == SND_UNSUCCESSFUL && strstr(snd_last_error(), "key \"none\" has no value") != NULL);
	FINE(snd_root_get(r, "key", value, snd_deadline(LIMIT), "test"));
	CHECK(strcmp(value, "value") == 0);
	CHECK(snd_root_barrier(r, snd_deadline(50 * MS), "test") == SND_IO_TIMEOUT && strstr(snd_last_error(), "missing: rank 1, rank 2") != NULL);
	snd_root_hang_up(r);
}

static struct {
	pthread_mutex_t mutex;
	int code;
	char why[300];
} ended = {PTHREAD_MUTEX_INITIALIZER, 0, ""};

static void note_end(void *arg, int code, const char *why)
{
	(void)arg;
	pthread_mutex_lock(&ended.mutex);
	ended.code = code;
	snprintf(ended.why, sizeof ended.why, "%s", why);
	pthread_mutex_unlock(&ended.mutex);
}

/* want_end waits until the last rank that is watched has ended with this. */
static void want_end(int code, const char *why)
{
	for (const int64_t deadline = snd_deadline(LIMIT);; nanosleep(&(struct timespec){0, 1000000}, NULL)) {
		pthread_mutex_lock(&ended.mutex);
		const bool has = ended.code == code && strncmp(ended.why, why, strlen(why)) == 0;
		if (has)
			ended.code = 0;
		pthread_mutex_unlock(&ended.mutex);
		if (has)
			return;
		CHECK(snd_clock() < deadline);
	}
}

/* The end of a rank ends the job of all; that of rank 0 too. */
static void test_ends(void)
{
	take_address();
	struct snd_root *zero = join(0, 3), *one = join(1, 3), *two = join(2, 3);
	FINE(snd_root_put(one, "first", "request", snd_deadline(LIMIT), "test"));
	snd_root_watch(two, note_end, NULL);
	FINE(snd_root_has_ended(two, "test"));
	snd_root_hang_up(one);
	want_end(1, "rank 1 (at 127.0.0.1:");
	CHECK(snd_root_has_ended(two, "test") == SND_CONNECTION_ABORTED);
	CHECK(snd_root_barrier(two, snd_deadline(LIMIT), "test") == SND_CONNECTION_ABORTED && strstr(snd_last_error(), "has died") != NULL);
	CHECK(snd_root_leave(zero, "test") == SND_CONNECTION_ABORTED);
	FINE(snd_root_leave(two, "test")); /* its process ends otherwise */
	snd_root_close(zero);
	snd_root_close(two);

	take_address();
	zero = join(0, 2);
	one = join(1, 2);
	snd_root_watch(zero, note_end, NULL);
	CHECK(snd_root_abort(one, 7, "the \"disk\" is full"));
	want_end(7, "rank 1 has aborted the job with code 7: the \"disk\" is full");
	CHECK(!snd_root_abort(one, 7, "too late"));
	snd_root_hang_up(one);
	snd_root_hang_up(zero);

	take_address();
	zero = join(0, 2);
	one = join(1, 2);
	snd_root_hang_up(zero);
	while (snd_root_has_ended(one, "test") == SND_SUCCESS)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	snd_root_watch(one, note_end, NULL); /* at once */
	want_end(1, "rank 0 has ended without leaving the job");
	snd_root_hang_up(one);
}

/* is_closed waits until the other end has closed a connection. */
static bool is_closed(int s)
{
	char byte;
	struct timeval limit = {20, 0};
	CHECK(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	ssize_t n;
	while ((n = recv(s, &byte, 1, 0)) == 1)
		;
	return n == 0 || errno == ECONNRESET;
}

static int dial(void)
{
	const struct snd_root_config c = config_of(1, 2);
	const int s = snd_tcp_dial(&c.at, snd_deadline(LIMIT));
	CHECK(s >= 0 && fcntl(s, F_SETFL, 0) == 0);
	return s;
}

/* printed is what a service prints instead of the standard error. */
struct printed {
	FILE *file;
	int saved;
};

static struct printed begin_print(void)
{
	const struct printed p = {tmpfile(), dup(STDERR_FILENO)};
	CHECK(p.file != NULL && p.saved >= 0 && dup2(fileno(p.file), STDERR_FILENO) == STDERR_FILENO);
	return p;
}

/* end_print waits until a line has been printed. */
static void end_print(const struct printed *p, const char *line)
{
	char text[1000] = "";
	for (const int64_t deadline = snd_deadline(LIMIT); strstr(text, line) == NULL && snd_clock() < deadline; nanosleep(&(struct timespec){0, 1000000}, NULL))
		CHECK(pread(fileno(p->file), text, sizeof text - 1, 0) >= 0);
	CHECK(dup2(p->saved, STDERR_FILENO) == STDERR_FILENO && close(p->saved) == 0 && fclose(p->file) == 0);
	fputs(text, stderr);
	CHECK(strstr(text, line) != NULL);
}

/* Strangers are refused, and cost the job nothing. */
static void test_strangers(void)
{
	static const char garbage[100] = "GET / HTTP/1.1\r\n\r\n";
	unsigned char greeting[SND_ROOT_GREETING];
	int silent[MANY];
	take_address();
	struct snd_root *zero = join(0, 2), *one;
	const int http = dial();
	CHECK(send(http, garbage, sizeof garbage, 0) == sizeof garbage && is_closed(http));
	const int other = dial(); /* another version */
	CHECK(snd_root_greet(greeting));
	greeting[8]++;
	CHECK(send(other, greeting, sizeof greeting, 0) == sizeof greeting && is_closed(other));
	for (int i = 0; i < MANY; i++) {
		silent[i] = dial();
		CHECK(send(silent[i], greeting, 20, 0) == 20);
	}
	CHECK(is_closed(silent[0]));
	one = join(1, 2);
	FINE(snd_root_put(one, "first", "request", snd_deadline(LIMIT), "test"));
	struct snd_root_config wrong = config_of(1, 2);
	wrong.secret.data = "b secret of the tests";
	struct snd_root *no = NULL;
	const struct printed p = begin_print();
	const snd_status s = snd_root_join(&no, &wrong, snd_deadline(LIMIT), "test");
	end_print(&p, "it has another one, or belongs to another job: give all ranks the same secret");
	CHECK(s == SND_CONNECTION_REFUSED && strstr(snd_last_error(), "does not know the secret") != NULL);
	const struct snd_root_config second = config_of(1, 2), larger = config_of(1, 3), beyond = config_of(2, 2);
	CHECK(snd_root_join(&no, &second, snd_deadline(LIMIT), "test") == SND_CONNECTION_REFUSED && strstr(snd_last_error(), "is this rank already") != NULL);
	CHECK(snd_root_join(&no, &larger, snd_deadline(LIMIT), "test") == SND_CONNECTION_REFUSED && strstr(snd_last_error(), "has 3 as the number of ranks, rank 0 has 2") != NULL);
	CHECK(snd_root_join(&no, &beyond, snd_deadline(LIMIT), "test") == SND_CONNECTION_REFUSED && strstr(snd_last_error(), "the job has ranks 0 to 1") != NULL);
	CHECK(no == NULL);
	FINE(snd_root_leave(one, "test"));
	FINE(snd_root_leave(zero, "test"));
	snd_root_close(one);
	snd_root_close(zero);
	for (int i = 0; i < MANY; i++) {
		CHECK(is_closed(silent[i]));
		snd_fork_close(silent[i]);
	}
	snd_fork_close(http);
	snd_fork_close(other);
}

/* A process that listens and says nothing, and one that is no rank 0. */
static void test_wrong_roots(void)
{
	char text[100];
	take_address();
	struct snd_root *r = NULL;
	struct snd_root_config c = config_of(1, 2);
	CHECK(snd_root_join(&r, &c, snd_deadline(50 * MS), "test") == SND_IO_TIMEOUT && strstr(snd_last_error(), "check that rank 0 runs") != NULL);
	const int listener = snd_tcp_listen(&c.at);
	CHECK(listener >= 0);
	CHECK(snd_root_join(&r, &c, snd_deadline(50 * MS), "test") == SND_IO_TIMEOUT);
	memset(text, 'x', sizeof text);
	CHECK(fcntl(listener, F_SETFL, 0) == 0);
	const int inherited = dup(listener); /* which children do not close */
	pid_t child = fork();
	if (child == 0) { /* also connections of the call before wait */
		alarm(100);
		for (;;) {
			const int s = accept(inherited, NULL, NULL);
			(void)!send(s, text, sizeof text, MSG_NOSIGNAL);
		}
	}
	CHECK(snd_root_join(&r, &c, snd_deadline(LIMIT), "test") == SND_NOT_SUPPORTED && strstr(snd_last_error(), "does not speak the protocol") != NULL);
	c.rank = 0;
	CHECK(snd_root_join(&r, &c, snd_deadline(LIMIT), "test") == SND_SHARING_VIOLATION && strstr(snd_last_error(), "give each job a port of its own") != NULL);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	snd_fork_close(listener);
	close(inherited);
	CHECK(r == NULL);
}

/* in_child runs a role of this program in a process of its own, which says when it has joined. The role waits for a byte at the same
 * socket if it needs one. */
static pid_t in_child(const char *role, int *ready)
{
	int ends[2];
	char byte, number[12];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	snprintf(number, sizeof number, "%d", ends[1]);
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)execl("/proc/self/exe", "test_root", role, address, number, (char *)NULL);
		_exit(1);
	}
	close(ends[1]);
	CHECK(read(ends[0], &byte, 1) == 1);
	*ready = ends[0];
	return child;
}

/* joins_and_forks is a rank whose forked child lives longer. */
static void joins_and_forks(int ready)
{
	CHECK(snd_fork_prepare());
	struct snd_root *r = join(1, 2);
	FINE(snd_root_put(r, "first", "request", snd_deadline(LIMIT), "test"));
	const pid_t child = fork();
	if (child == 0) {
		alarm(100);
		for (;;)
			pause();
	}
	CHECK(write(ready, "x", 1) == 1 && write(ready, &child, sizeof child) == sizeof child);
	for (;;)
		pause();
}

/* The end of a rank is noticed, although a forked child of it lives. */
static void test_fork(void)
{
	int ready, status;
	pid_t grandchild;
	take_address();
	struct snd_root *zero = join(0, 2);
	snd_root_watch(zero, note_end, NULL);
	const pid_t child = in_child("joins and forks", &ready);
	CHECK(read(ready, &grandchild, sizeof grandchild) == sizeof grandchild);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
	want_end(1, "rank 1 (at 127.0.0.1:");
	CHECK(kill(grandchild, SIGKILL) == 0);
	close(ready);
	snd_root_hang_up(zero);
}

/* closes_all is a rank whose program closes all descriptors, and opens others with their numbers, as daemons do. The library neither
 * uses those nor closes them, and the rank counts as dead. */
static void closes_all(uint32_t rank, int ready)
{
	struct snd_root *r = join(rank, 2);
	char byte;
	int pairs[40][2];
	FINE(snd_root_put(r, rank == 0 ? "zero" : "one", "request", snd_deadline(LIMIT), "test"));
	CHECK(write(ready, "x", 1) == 1);
	if (rank == 0)
		CHECK(read(ready, &byte, 1) == 1); /* the other one has joined */
	CHECK(syscall(SYS_close_range, 3u, ~0u, 0u) == 0);
	for (int i = 0; i < 40; i++)
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) == 0);
	while (snd_root_has_ended(r, "test") == SND_SUCCESS)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	(void)snd_root_abort(r, 7, "not sent");
	snd_root_hang_up(r);
	for (int i = 0; i < 40; i++) {
		for (int k = 0; k < 2; k++)
			CHECK(recv(pairs[i][k], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
		CHECK(write(pairs[i][0], "x", 1) == 1 && read(pairs[i][1], &byte, 1) == 1);
	}
}

__attribute__((unused)) static void test_closed_descriptors(void)
{
	for (uint32_t rank = 0; rank < 2; rank++) {
		int ready, status;
		struct snd_root *other = NULL;
		take_address();
		if (rank == 1)
			other = join(0, 2);
		const pid_t child = in_child(rank == 0 ? "0" : "1", &ready);
		if (rank == 0) {
			other = join(1, 2);
			FINE(snd_root_put(other, "first", "request", snd_deadline(LIMIT), "test"));
			CHECK(write(ready, "x", 1) == 1);
		}
		snd_root_watch(other, note_end, NULL);
		want_end(1, rank == 0 ? "rank 0 has died" : "rank 1 (at 127.0.0.1:");
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		close(ready);
		snd_root_hang_up(other);
	}
}

/* Many connections at a time need few descriptors, and ranks join and are served meanwhile. */
static void test_flood(void)
{
	take_address();
	struct snd_root *zero = join(0, 2), *one;
	const struct snd_root_config c = config_of(1, 2);
	char value[SND_PMI_VALUE + 1];
	FINE(snd_root_put(zero, "key", "value", snd_deadline(LIMIT), "test"));
	const int before = descriptors();
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct rlimit l;
		CHECK(getrlimit(RLIMIT_NOFILE, &l) == 0);
		l.rlim_cur = l.rlim_max < 4000 ? l.rlim_max : 4000; /* fewer than the ports of the system */
		CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
		alarm(100);
		for (;;)
			(void)snd_tcp_dial(&c.at, snd_deadline(LIMIT)); /* until there are no descriptors, and then in vain */
	}
	int most = 0;
	for (int i = 0; i < 300; i++) {
		const int now = descriptors();
		most = now > most ? now : most;
		FINE(snd_root_get(zero, "key", value, snd_deadline(LIMIT), "test"));
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	one = join(1, 2);
	FINE(snd_root_get(one, "key", value, snd_deadline(LIMIT), "test"));
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	snd_root_hang_up(one);
	if (most > before + 64 + 5)
		fprintf(stderr, "%d descriptors were open, %d before\n", most, before);
	CHECK(most <= before + 64 + 5);
	snd_root_hang_up(zero);
}

/* A rank that has too few descriptors to join says so, and does not wait for them. Rank 0 needs its listener and both ends of a
 * connection. */
static void test_few_descriptors(void)
{
	for (uint32_t rank = 0; rank < 2; rank++) {
		take_address();
		const struct snd_root_config c = config_of(rank, 2);
		for (int room = 0; room < (rank == 0 ? 3 : 1); room++) {
			struct snd_root *no = NULL;
			limit_to(STDERR_FILENO, room);
			const snd_status s = snd_root_join(&no, &c, -1, "test"); /* without a limit of time */
			limit_to(STDERR_FILENO, -1);
			CHECK(s != SND_SUCCESS && strstr(snd_last_error(), "too many open files: raise the limit of the process (ulimit -n)") != NULL && no == NULL);
		}
	}
	/* A rank whose connection rank 0 cannot accept waits, and rank 0 says why. */
	take_address();
	struct snd_root *zero = join(0, 2);
	const struct snd_root_config c = config_of(1, 2);
	const struct printed p = begin_print();
	limit_to(STDERR_FILENO, 1);
	const int one = snd_tcp_dial(&c.at, snd_deadline(LIMIT));
	end_print(&p, "rank 0: accept a connection to SOFTND_ROOT: too many open files");
	CHECK(one >= 0);
	snd_fork_close(one);
	limit_to(STDERR_FILENO, -1);
	snd_root_hang_up(zero);
}

/* A message that a stranger has changed, repeated, reflected, or taken from another connection is refused. */
static void test_forged(void)
{
	static const unsigned char nonces[SND_ROOT_GREETINGS] = {1}, others[SND_ROOT_GREETINGS] = {2};
	for (int kind = 0; kind < 6; kind++) {
		int ends[2];
		static struct snd_root_channel rank, root;
		struct snd_root_message m = {.kind = "put", .rank = 3, .code = -1, .key = "key", .value = "a \"value\"", .text = "text"}, got;
		unsigned char packet[SND_ROOT_PACKET];
		memset(&rank, 0, sizeof rank);
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		CHECK(snd_root_open(&root, ends[0]));
		snd_root_begin(&root, &secret, nonces, true);
		snd_root_begin(&rank, &secret, kind == 3 ? others : nonces, kind == 2); /* 2: reflected, 3: of another connection */
		size_t n = snd_root_pack(&rank, &m, packet);
		if (kind == 1)
			packet[20] ^= 1;
		if (kind == 5)
			packet[1] = 0x10, n = 4; /* 4 KiB and more */
		CHECK(send(ends[1], packet, 10 < n ? 10 : n, 0) > 0);
		if (kind == 5) {
			CHECK(snd_root_receive(&root, &got) == -1 && strstr(root.why, "too long") != NULL);
		} else {
			CHECK(snd_root_receive(&root, &got) == 0 && send(ends[1], packet + 10, n - 10, 0) == (ssize_t)n - 10);
			CHECK(snd_root_receive(&root, &got) == (kind == 0 || kind == 4 ? 1 : -1));
			CHECK(kind == 0 || kind == 4 ? memcmp(&got, &m, sizeof m) == 0 : root.why == snd_root_secret);
		}
		if (kind == 4) /* again */
			CHECK(send(ends[1], packet, n, 0) == (ssize_t)n && snd_root_receive(&root, &got) == -1 && root.why == snd_root_secret);
		close(ends[0]);
		close(ends[1]);
	}
}

/* A name that is an address of loopback here stands for another address of this host, unless it means loopback. */
static void test_addresses(void)
{
	char choice[SND_TCP_CHOICE];
	struct snd_tcp_address a;
	char text[SND_TCP_TEXT];
	CHECK(setenv("SOFTND_HOST_ADDRESS", "10.9.9.9", 1) == 0);
	FINE(snd_tcp_resolve("127.0.1.1:7000", &a, choice, "test"));
	CHECK(*choice == 0);
	snd_tcp_instead("localhost", &a, choice, "test");
	CHECK(*choice == 0);
	snd_tcp_instead("node1", &a, choice, "test");
	snd_tcp_text(&a, true, text);
	CHECK(strcmp(text, "10.9.9.9:7000") == 0);
	CHECK(strstr(choice, "node1 is 127.0.1.1 here, at which other hosts cannot connect; using 10.9.9.9") == choice);
	CHECK(unsetenv("SOFTND_HOST_ADDRESS") == 0);
	CHECK(snd_tcp_resolve("[fe80::1]:7000", &a, choice, "test") == SND_INVALID_PARAMETER && strstr(snd_last_error(), "link-local") != NULL);
}

int main(int argc, char **argv)
{
	if (argc == 4) {
		alarm(100);
		snprintf(address, sizeof address, "%s", argv[2]);
		if (strcmp(argv[1], "joins and forks") == 0)
			joins_and_forks(atoi(argv[3]));
		closes_all((uint32_t)atoi(argv[1]), atoi(argv[3]));
		return 0;
	}
	CHECK(snd_fork_prepare());
	srand((unsigned)getpid());
	const int open_before = descriptors();
	take_address();
	test_addresses();
	test_meeting();
	test_refused();
	test_ends();
	test_strangers();
	test_wrong_roots();
	test_fork();
#ifdef __SANITIZE_THREAD__
	fputs("skipped: the thread sanitizer takes another file with the number of a closed one for the same\n", stderr);
#else
	test_closed_descriptors();
#endif
	test_flood();
	test_few_descriptors();
	test_forged();
	CHECK(descriptors() == open_before);
	return 0;
}

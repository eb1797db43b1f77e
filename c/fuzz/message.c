/* A member reads bytes of other processes when it starts: the header of an arena, the messages of a named fabric, and the
 * answers of launchers. This target damages them. Each call returns with a known status, and leaves no descriptor behind. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz.h"
#include "linux/unix_socket.h"
#include "meet/control_channel.h"
#include "meet/pmi.h"
#include "shm/fabric.h"
#include "xxh64.h"

#define ARENA (UINT64_C(112) << 20)
#define SECOND INT64_C(1000000000)

static struct input *script;
static int listener = -1; /* of the process that the library asks */
static int arena_file = -1;
static char name[40];

void snd_fuzz_loaded(const volatile void *word) { (void)word; }

static socklen_t address_of(struct sockaddr_un *at, const char *text)
{
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(at->sun_path + 1, text, strlen(text));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text));
}

static void listen_as(const char *text)
{
	struct sockaddr_un at;
	socklen_t n = address_of(&at, text);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	EXPECT(listener >= 0 && bind(listener, (struct sockaddr *)&at, n) == 0 && listen(listener, 8) == 0);
}

static size_t message(unsigned char *to, size_t most)
{
	size_t n = fuzz_byte(script);
	n = n < most ? n : most;
	for (size_t i = 0; i < n; i++)
		to[i] = fuzz_byte(script);
	return n;
}

/* send_with sends bytes and some descriptors: of an arena, of a listening socket, of something else. */
static void send_with(int to, const void *bytes, size_t length, uint8_t which)
{
	const int choice[] = {arena_file, listener, STDERR_FILENO, arena_file};
	int fds[4], n = which & 3, first = which >> 2 & 3;
	for (int i = 0; i < n; i++)
		fds[i] = choice[(first + i) % 4];
	union {
		char bytes[CMSG_SPACE(sizeof fds)];
		struct cmsghdr align;
	} control;
	memset(&control, 0, sizeof control);
	struct iovec data = {(void *)(uintptr_t)bytes, length};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
	if (n > 0) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
	}
	(void)sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A welcome of a fabric's member, as the library sends it. */
static const struct snd_arena *welcomed;

static size_t welcome(unsigned char *b)
{
	memset(b, 0, 64);
	memcpy(b, "SOFTNDFB", 8);
	const uint32_t words[] = {1, 2, SNDL_LAYOUT_VERSION, (uint32_t)geteuid()};
	const uint64_t hash = SNDL_LAYOUT_HASH;
	memcpy(b + 8, words, sizeof words);
	memcpy(b + 24, &hash, 8);
	if (welcomed != NULL)
		memcpy(b + 32, welcomed->id, 16);
	return 64;
}

/* In place of snd_unix_receive: the other side answers first. */
ssize_t __real_snd_unix_receive(int socket, void *buffer, size_t size, int *descriptors, size_t most, size_t *count);
ssize_t __wrap_snd_unix_receive(int socket, void *buffer, size_t size, int *descriptors, size_t most, size_t *count);
ssize_t __wrap_snd_unix_receive(int socket, void *buffer, size_t size, int *descriptors, size_t most, size_t *count)
{
	unsigned char b[256];
	int s = listener >= 0 ? accept(listener, NULL, NULL) : -1;
	const uint8_t kind = fuzz_byte(script), which = fuzz_byte(script);
	size_t n;
	if (kind & 1) {
		n = welcome(b);
		for (int i = 0; i < (kind >> 4); i++)
			b[fuzz_byte(script) & 63] ^= fuzz_byte(script);
	} else if (kind & 2) {
		n = (size_t)snprintf((char *)b, sizeof b, "{\"kind\":\"welcome\"");
		n += message(b + n, 200);
	} else {
		n = message(b, sizeof b);
	}
	if (s >= 0) {
		send_with(s, b, n, which);
		close(s);
	}
	fuzz_pass(4 * SECOND);
	return __real_snd_unix_receive(socket, buffer, size, descriptors, most, count);
}

/* use does what a member does first. */
static void use(snd_fabric *f)
{
	snd_adapter *a;
	snd_mr *mr;
	snd_cq *cq;
	snd_endpoint *ep;
	EXPECT(snd_fabric_progress(f) == SND_SUCCESS);
	EXPECT(snd_adapter_open(f, &a) == SND_SUCCESS);
	if (snd_mr_allocate(a, 10000, SND_ALLOW_REMOTE_WRITE, &mr) == SND_SUCCESS)
		memset(snd_mr_buffer(mr), 1, 10000);
	if (snd_cq_create(a, 16, &cq) == SND_SUCCESS) {
		snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq};
		EXPECT(fuzz_known(snd_endpoint_create(a, &config, &ep)));
	}
	fuzz_pass(SECOND);
	EXPECT(snd_fabric_progress(f) == SND_SUCCESS);
	EXPECT(snd_fabric_close(f) == SND_SUCCESS);
}

/* attach: a file that claims to be an arena. Words of its tables are damaged, too. */
static void attach(void)
{
	struct snd_arena made;
	EXPECT(snd_arena_create(&made, 2, 0, ARENA, "fuzz") == SND_SUCCESS);
	unsigned char *header = made.base;
	const uint8_t how = fuzz_byte(script);
	for (int i = 0; i < (how & 7); i++) {
		uint64_t v = fuzz_word(script);
		memcpy(header + (fuzz_byte(script) & 31) * 8, &v, 8);
	}
	for (int i = 0; i < (how >> 3 & 7); i++) {
		uint64_t at = fuzz_word(script) % (made.heap / 8), v = fuzz_word(script);
		if (how & 0x80) /* the records that a member takes */
			at = made.member_table / 8 + at % 512;
		if (at > 16)
			memcpy(header + at * 8, &v, 8);
	}
	if (how & 0x40) {
		struct snd_header *h = snd_header(&made);
		uint64_t words[] = {h->magic, h->ranks, h->layout, h->size, h->secret[0], h->secret[1], h->id[0], h->id[1]};
		h->checksum = snd_xxh64(words, sizeof words);
	}
	snd_fabric *f = NULL;
	snd_status s = snd_fabric_attach(made.fd, (int32_t)(int8_t)fuzz_byte(script), MANUAL, &f);
	EXPECT(fuzz_known(s) && (s == SND_SUCCESS) == (f != NULL));
	if (f != NULL)
		use(f);
	snd_arena_close(&made);
}

/* plain_file: a file that is no arena at all. */
static void plain_file(void)
{
	unsigned char b[256];
	snd_fabric *f = NULL;
	const uint8_t how = fuzz_byte(script);
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t n = message(b, sizeof b);
	EXPECT(fd >= 0 && ftruncate(fd, (how & 15) * 4096 + (how >> 4)) == 0 && pwrite(fd, b, n, 0) == (ssize_t)n);
	if (how & 1)
		(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
	snd_status s = snd_fabric_attach(fd, -1, MANUAL, &f);
	EXPECT(fuzz_known(s) && s != SND_SUCCESS && f == NULL);
	close(fd);
}

/* join: the process that holds the name answers anything. */
static void join(void)
{
	struct snd_arena made;
	char full[80];
	snprintf(full, sizeof full, "softnd-fabric-%lu-%s", (unsigned long)geteuid(), name);
	EXPECT(snd_arena_create(&made, 2, 0, ARENA, "fuzz") == SND_SUCCESS);
	arena_file = made.fd;
	welcomed = &made;
	listen_as(full);
	snd_fabric *f = NULL;
	snd_status s = snd_fabric_open(name, fuzz_byte(script) & 3, 0, -1, MANUAL, &f);
	EXPECT(fuzz_known(s) && (s == SND_SUCCESS) == (f != NULL));
	if (f != NULL)
		EXPECT(snd_fabric_close(f) == SND_SUCCESS);
	close(listener);
	listener = arena_file = -1;
	welcomed = NULL;
	snd_arena_close(&made);
}

/* answer: processes that join say anything. */
static void answer(void)
{
	snd_fabric *f = NULL;
	char full[80];
	struct sockaddr_un at;
	snprintf(full, sizeof full, "softnd-fabric-%lu-%s", (unsigned long)geteuid(), name);
	EXPECT(snd_fabric_open(name, 0, ARENA, -1, MANUAL, &f) == SND_SUCCESS);
	int joiners[3], n = 1 + fuzz_byte(script) % 3;
	socklen_t length = address_of(&at, full);
	for (int i = 0; i < n; i++) {
		unsigned char b[256];
		size_t size;
		joiners[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		EXPECT(joiners[i] >= 0 && connect(joiners[i], (struct sockaddr *)&at, length) == 0);
		const uint8_t how = fuzz_byte(script);
		if (how & 1) {
			size = welcome(b);
			b[12] = 1; /* hello */
			for (int k = 0; k < (how >> 4); k++)
				b[fuzz_byte(script) & 63] ^= fuzz_byte(script);
		} else {
			size = message(b, sizeof b);
		}
		if ((how & 6) != 6)
			send_with(joiners[i], b, size, how >> 2 & 3);
	}
	for (int i = 0; i < 4; i++) {
		fuzz_pass(SECOND);
		EXPECT(snd_fabric_progress(f) == SND_SUCCESS);
	}
	for (int i = 0; i < n; i++) {
		unsigned char b[80];
		int fds[2];
		size_t count;
		ssize_t got = __real_snd_unix_receive(joiners[i], b, sizeof b, fds, 2, &count);
		EXPECT(got <= 0 || got == 64);
		while (count > 0)
			close(fds[--count]);
		close(joiners[i]);
	}
	for (int i = 0; i < SND_JOINERS; i++)
		EXPECT(f->joiners[i].socket < 0);
	EXPECT(snd_fabric_close(f) == SND_SUCCESS);
}

/* launch: the launcher answers anything. */
static void launch(void)
{
	char address[200], full[60];
	snprintf(full, sizeof full, "softnd-job-%s", name);
	snprintf(address, sizeof address, "%s:0123456789abcdef0123456789abcdef:0123456789abcdef0123456789abcdef", full);
	const uint8_t how = fuzz_byte(script);
	int file = -1;
	arena_file = STDOUT_FILENO;
	listen_as(full);
	int channel = snd_control_dial(address, how, how & 1 ? &file : NULL, "fuzz");
	EXPECT(channel >= 0 || file < 0);
	if (channel >= 0) {
		if (how & 2)
			(void)snd_control_abort(channel, how, "\"quoted\" \\ \n\xff");
		snd_control_leave(channel);
	}
	if (file >= 0)
		close(file);
	close(listener);
	listener = arena_file = -1;
}

/* speak_pmi: a launcher that speaks PMI, or should. All its answers are sent before the questions. */
static void speak_pmi(void)
{
	int pair[2];
	unsigned char b[256];
	char value[SND_PMI_VALUE + 1], text[20];
	struct snd_pmi c;
	EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	const uint8_t how = fuzz_byte(script);
	static const char *const answers[] = {"cmd=response_to_init pmi_version=1 rc=0\n", "cmd=my_kvsname kvsname=job\n", "cmd=put_result rc=0\n",
		"cmd=get_result rc=0 value=", "cmd=barrier_out\n", "cmd=finalize_ack\n"};
	for (int i = 0; i < 6; i++) {
		if ((how >> i & 1) == 0)
			EXPECT(write(pair[1], answers[i], strlen(answers[i])) > 0);
		size_t n = message(b, sizeof b);
		for (int k = 0; k < (n == 255 ? 40 : 1); k++)
			EXPECT(send(pair[1], b, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n);
	}
	if (how & 0x40)
		EXPECT(write(pair[1], "\n", 1) == 1);
	EXPECT(shutdown(pair[1], SHUT_WR) == 0);
	snprintf(text, sizeof text, "%d", pair[0]);
	setenv("PMI_FD", text, 1);
	setenv("PMI_RANK", "0", 1);
	setenv("PMI_SIZE", "2", 1);
	snd_status s = snd_pmi_dial(&c, -1, "fuzz");
	EXPECT(fuzz_known(s));
	if (s == SND_SUCCESS) {
		EXPECT(strlen(c.name) <= SND_PMI_NAME);
		EXPECT(fuzz_known(snd_pmi_put(&c, "key", "value", -1, "fuzz")));
		s = snd_pmi_get(&c, "key", value, -1, "fuzz");
		EXPECT(fuzz_known(s) && (s != SND_SUCCESS || strlen(value) <= SND_PMI_VALUE));
		EXPECT(fuzz_known(snd_pmi_barrier(&c, -1, "fuzz")));
		(void)snd_pmi_abort(&c, how);
		EXPECT(fuzz_known(snd_pmi_finalize(&c, -1, "fuzz")));
	}
	EXPECT(c.socket == -1);
	close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	const int before = fuzz_descriptors();
	script = &in;
	snprintf(name, sizeof name, "fuzz-%d", (int)getpid());
	switch (fuzz_byte(script) % 6) {
	case 0: attach(); break;
	case 1: plain_file(); break;
	case 2: join(); break;
	case 3: answer(); break;
	case 4: launch(); break;
	default: speak_pmi(); break;
	}
	EXPECT(fuzz_descriptors() == before);
	return 0;
}

/* Processes at the port of SOFTND_ROOT: strangers, and faulty ranks that know the secret. This target also lets a faulty rank 0, which
 * knows the secret, answer. It includes the sources, and serves connections of this process without threads. */
#include <fcntl.h>
#include <stdio.h>

#include <poll.h>
#include <unistd.h>

#include "meet/tcp.h"

/* The service handles what is there, and does not wait. The connections are no TCP. */
#define snd_tcp_tune(socket, silence) ((void)(socket), (void)(silence), true)
#define poll(polled, count, limit) poll(polled, count, 0 * (limit))
#define usleep(us) ((void)(us))
#define dprintf(fd, ...) ((void)(fd), snprintf(NULL, 0, __VA_ARGS__))

#include "meet/root_service.c"
#include "meet/root_rank.c"
#include "encoding.h"
#include "fuzz.h"

enum { RANKS_OF_JOB = 3, CONNECTIONS = 6 };

void snd_fuzz_loaded(const volatile void *word) { (void)word; }

static struct input *script;
static const struct snd_bytes user_secret = {"a secret of the tests", 21};

/* client is the other end of a connection. */
struct client {
	struct snd_root_channel channel;
	unsigned char greetings[SND_ROOT_GREETINGS];
	bool proved; /* it has sent a greeting, and derived the keys */
};

static void pair_of(int ends[2])
{
	EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
	snd_fork_hold();
	EXPECT(snd_fork_closes(ends[0]));
	snd_fork_release();
}

static void write_to(struct client *c, const void *bytes, size_t n) { (void)!send(c->channel.socket, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT); }

/* any_text reads a text of the input, of which some bytes repeat so that it becomes long. */
static void any_text(char *to, size_t size)
{
	size_t n = fuzz_byte(script), length = 0;
	n = n > 250 ? size - 1 : n % size;
	const char repeated = (char)fuzz_byte(script);
	for (; length < n; length++)
		to[length] = length > 10 ? repeated : (char)fuzz_byte(script);
	to[length] = 0;
	for (size_t i = 0; i < length; i++)
		if (to[i] == 0)
			to[i] = '0';
}

/* say sends a message that is authentic. */
static void say(struct client *c)
{
	static const char *const kinds[] = {"hello", "put", "get", "barrier", "absent", "leave", "abort", "welcome", "ok", "value", "end", "refusal", "?"};
	struct snd_root_message m = {0};
	unsigned char packet[SND_ROOT_PACKET];
	const uint8_t kind = fuzz_byte(script);
	snprintf(m.kind, sizeof m.kind, "%s", kinds[kind % 13]);
	m.rank = (int8_t)fuzz_byte(script);
	m.size = kind > 200 ? (int64_t)fuzz_word(script) : RANKS_OF_JOB;
	m.code = (int8_t)fuzz_byte(script);
	any_text(m.key, sizeof m.key);
	any_text(m.value, sizeof m.value);
	any_text(m.text, sizeof m.text);
	write_to(c, packet, snd_root_pack(&c->channel, &m, packet));
}

/* say_bytes sends an authentic message of any bytes. */
static void say_bytes(struct client *c)
{
	unsigned char packet[4 + 255 + SND_SHA256], number[8];
	const size_t n = fuzz_byte(script);
	for (size_t i = 0; i < n; i++)
		packet[4 + i] = fuzz_byte(script);
	snd_put_number(packet, n, 4);
	snd_put_number(number, c->channel.out++, 8);
	snd_hmac_sha256(c->channel.out_key, SND_SHA256, (const struct snd_bytes[]){{number, 8}, {packet, 4 + n}}, 2, packet + 4 + n);
	write_to(c, packet, 4 + n + SND_SHA256);
}

/* send_bytes sends any bytes. */
static void send_bytes(struct client *c)
{
	unsigned char b[255];
	const size_t n = fuzz_byte(script);
	for (size_t i = 0; i < n; i++)
		b[i] = fuzz_byte(script);
	write_to(c, b, n);
}

/* greet_root runs the rank's side of the handshake, and damages a byte of it now and then. */
static void greet_root(struct snd_root_service *s, struct client *c, bool damaged)
{
	unsigned char answer[SND_ROOT_ANSWER];
	if (c->proved)
		return;
	EXPECT(snd_root_greet(c->greetings));
	if (damaged)
		c->greetings[fuzz_byte(script) % SND_ROOT_GREETING] ^= fuzz_byte(script);
	write_to(c, c->greetings, SND_ROOT_GREETING);
	serve(s);
	if (recv(c->channel.socket, answer, sizeof answer, MSG_DONTWAIT) != (ssize_t)sizeof answer)
		return;
	memcpy(c->greetings + SND_ROOT_GREETING, answer, SND_ROOT_GREETING);
	snd_root_begin(&c->channel, &user_secret, c->greetings, false);
	c->proved = true;
}

static void run_service(void)
{
	struct client clients[CONNECTIONS];
	size_t count = 0;
	struct snd_root_service *s = new_service(&user_secret, RANKS_OF_JOB, SECOND);
	EXPECT(s != NULL);
	s->refused = 1; /* prints none */
	for (int step = 0; step < 60 && script->at < script->end; step++) {
		const uint8_t what = fuzz_byte(script);
		struct client *c = count == 0 ? NULL : &clients[what / 16 % count];
		if (c == NULL || (what % 16 == 0 && count < CONNECTIONS)) {
			int ends[2];
			pair_of(ends);
			c = &clients[count++];
			memset(c, 0, sizeof *c);
			c->channel.socket = ends[1];
			struct peer *p = calloc(1, sizeof *p);
			EXPECT(p != NULL && reserve(s));
			admit(s, p, ends[0]);
		}
		switch (what % 16) {
		case 0: case 1: greet_root(s, c, false); break;
		case 2: greet_root(s, c, true); break;
		case 3: send_bytes(c); break;
		case 4: (void)shutdown(c->channel.socket, SHUT_RDWR); break;
		case 5: if (c->proved) say_bytes(c); break;
		case 6: fuzz_pass(SECOND); break;
		default: if (c->proved) say(c); break;
		}
		serve(s);
	}
	for (size_t i = 0; i < s->count; i++) /* none is a rank that has not proved that it knows the secret */
		EXPECT(s->peers[i]->state < RANK || s->of[s->peers[i]->rank] == s->peers[i]);
	uint32_t left = 0;
	for (uint32_t i = 0; i < RANKS_OF_JOB; i++)
		left += s->of[i] != NULL && s->of[i]->left;
	EXPECT(left == s->leaves && s->values.stored <= UINT64_C(64) << 20);
	for (size_t i = 0; i < count; i++)
		close(clients[i].channel.socket);
	free_service(s);
}

static int ends_of_job;

static void count_end(void *arg, int code, const char *why)
{
	(void)arg;
	EXPECT(code >= 1 && code <= 255 && strlen(why) < sizeof ((struct snd_root *)0)->why);
	ends_of_job++;
}

/* run_member lets rank 0 send messages to a rank. */
static void run_member(void)
{
	static struct snd_root r;
	struct client root = {0};
	int ends[2];
	pair_of(ends);
	memset(&r, 0, sizeof r);
	pthread_mutex_init(&r.mutex, NULL);
	pthread_cond_init(&r.changed, NULL);
	EXPECT(snd_root_open(&r.channel, ends[0]));
	root.channel.socket = ends[1];
	r.ended = count_end;
	ends_of_job = 0;
	if (fuzz_byte(script) % 2 == 0) { /* the handshake */
		send_bytes(&root);
		close(root.channel.socket);
		EXPECT(exchange_nonces(&r.channel, &user_secret, -1) != NULL); /* which no input can guess */
	} else {
		snd_root_begin(&r.channel, &user_secret, root.greetings, false);
		snd_root_begin(&root.channel, &user_secret, root.greetings, true);
		for (int n = fuzz_byte(script) % 8; n > 0; n--) {
			switch (fuzz_byte(script) % 8) {
			case 0: send_bytes(&root); break;
			case 1: say_bytes(&root); break;
			default: say(&root); break;
			}
		}
		close(root.channel.socket);
		EXPECT(listen_to_root(&r) == NULL && r.closed && ends_of_job == (r.job_ended ? 1 : 0) && r.count <= ANSWERS);
	}
	pthread_cond_destroy(&r.changed);
	pthread_mutex_destroy(&r.mutex);
	snd_fork_close(ends[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	const int before = fuzz_descriptors();
	script = &in;
	if (fuzz_byte(script) % 4 == 0)
		run_member();
	else
		run_service();
	EXPECT(fuzz_descriptors() == before);
	return 0;
}

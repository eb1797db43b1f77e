/* The messages between a leader and its relay, played over a socket pair. TWIN internal/meet/relayclient/calls_test.go. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "encoding.h"
#include "meet/relay.h"

enum { HEADER = SND_CALL_HEADER, LONG = 1 << 20 };

static struct snd_relay relay;
static int other; /* the relay's end */

static void begin(void)
{
	int ends[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	memset(&relay, 0, sizeof relay);
	relay.socket = ends[0];
	CHECK(snd_identify(relay.socket, &relay.identity));
	other = ends[1];
}

static void end(void)
{
	if (other >= 0)
		close(other);
	snd_relay_release(&relay);
	CHECK(relay.socket < 0);
}

/* answer sends an answer, or as much of it as goes into the socket. */
static size_t answer(uint32_t outcome, uint32_t host, uint32_t status, uint64_t number, const unsigned char *bytes, uint64_t length, size_t sent)
{
	unsigned char head[HEADER];
	snd_put_number(head, outcome, 2);
	snd_put_number(head + 2, host, 2);
	snd_put_number(head + 4, status, 4);
	snd_put_number(head + 8, number, 8);
	snd_put_number(head + 16, length, 8);
	if (sent < HEADER) {
		CHECK(send(other, head + sent, HEADER - sent, 0) == (ssize_t)(HEADER - sent));
		sent = HEADER;
	}
	while (sent < HEADER + length) {
		const ssize_t n = send(other, bytes + (sent - HEADER), HEADER + length - sent, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			break;
		CHECK(n > 0);
		sent += (size_t)n;
	}
	return sent;
}

/* A call and an answer that the socket does not hold go through in parts. */
static void test_long(void)
{
	static unsigned char pack[LONG], got[HEADER + LONG], back[LONG];
	struct snd_answer a = {0};
	size_t n = 0, sent = 0;
	begin();
	for (size_t i = 0; i < LONG; i++)
		pack[i] = (unsigned char)(i * 7), back[i] = (unsigned char)(i * 11);
	CHECK(snd_relay_post(&relay, SND_CALL_EXCHANGE, 5, pack, LONG));
	CHECK(relay.length > 0);
	while (n < sizeof got) {
		CHECK(snd_relay_poll(&relay, LONG, &a) == 0);
		const ssize_t part = recv(other, got + n, sizeof got - n, MSG_DONTWAIT);
		CHECK(part > 0);
		n += (size_t)part;
	}
	CHECK(snd_get_number(got, 4) == SND_CALL_EXCHANGE && snd_get_number(got + 4, 4) == 5 && snd_get_number(got + 8, 8) == 1 && snd_get_number(got + 16, 8) == LONG);
	CHECK(memcmp(got + HEADER, pack, LONG) == 0);
	while (sent < HEADER + LONG) {
		sent = answer(SND_CALL_FAILED_AT, 16, 77, 1, back, LONG, sent);
		CHECK(snd_relay_poll(&relay, LONG, &a) == (sent == HEADER + LONG));
	}
	CHECK(a.outcome == SND_CALL_FAILED_AT && a.host == 16 && a.status == 77 && a.length == LONG && memcmp(a.bytes + 1, back, LONG) == 0);
	free(a.bytes);
	end();
}

/* The answer to a call that the leader has given up is not taken for that of a later call. */
static void test_earlier(void)
{
	struct snd_answer a = {0};
	begin();
	CHECK(snd_relay_post(&relay, SND_CALL_BARRIER, 0, NULL, 0) && snd_relay_poll(&relay, 10, &a) == 0);
	CHECK(snd_relay_post(&relay, SND_CALL_FAILED, 7, "given up", 8));
	(void)answer(SND_CALL_MET, 0, 0, 1, (const unsigned char *)"late", 4, 0);
	CHECK(snd_relay_poll(&relay, 10, &a) == 0);
	(void)answer(SND_CALL_MET, 0, 0, 2, NULL, 0, 0);
	CHECK(snd_relay_poll(&relay, 10, &a) == 1 && a.length == 0);
	free(a.bytes);
	end();
}

/* A relay that has ended, or answers what no relay answers. */
static void test_end(void)
{
	struct snd_answer a = {0};
	begin();
	CHECK(send(other, "0123456789", 10, 0) == 10); /* within an answer */
	CHECK(snd_relay_post(&relay, SND_CALL_BARRIER, 0, NULL, 0) && snd_relay_poll(&relay, 10, &a) == 0);
	close(other);
	other = -1;
	CHECK(snd_relay_poll(&relay, 10, &a) == -1);
	CHECK(snd_relay_post(&relay, SND_CALL_BARRIER, 0, NULL, 0) && snd_relay_poll(&relay, 10, &a) == -1);
	relay.has_launcher = true;
	CHECK(!snd_relay_finalize(&relay));
	end();
	begin();
	CHECK(snd_relay_post(&relay, SND_CALL_BARRIER, 0, NULL, 0));
	(void)answer(SND_CALL_MET, 0, 0, 1, (const unsigned char *)"too long", 8, 0);
	CHECK(snd_relay_poll(&relay, 7, &a) == -1);
	end();
}

/* A program that closes the socket, and opens another file in its place. */
static void test_closed(void)
{
	struct snd_answer a = {0};
	int ends[2];
	begin();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	CHECK(dup2(ends[0], relay.socket) == relay.socket && send(ends[1], "of the program", 14, 0) == 14);
	CHECK(snd_relay_post(&relay, SND_CALL_BARRIER, 0, NULL, 0) && snd_relay_poll(&relay, 10, &a) == -1);
	char text[20];
	CHECK(recv(ends[0], text, sizeof text, MSG_DONTWAIT) == 14 && recv(ends[1], text, sizeof text, MSG_DONTWAIT) < 0);
	close(ends[0]);
	close(ends[1]);
	end();
}

/* Finalize comes behind what the relay has not taken, and is left out without a launcher. */
static void test_finalize(void)
{
	unsigned char got[2 * HEADER + 3];
	begin();
	CHECK(!snd_relay_finalize(&relay));
	relay.has_launcher = true;
	CHECK(snd_relay_post(&relay, SND_CALL_FAILED, 1, "why", 3) && snd_relay_finalize(&relay));
	CHECK(recv(other, got, sizeof got, MSG_WAITALL) == sizeof got);
	CHECK(snd_get_number(got, 4) == SND_CALL_FAILED && snd_get_number(got + HEADER + 3, 4) == SND_CALL_FINALIZE);
	end();
}

int main(void)
{
	test_long();
	test_earlier();
	test_end();
	test_closed();
	test_finalize();
	return 0;
}

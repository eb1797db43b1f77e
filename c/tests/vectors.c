/* What C and Go must do alike, by the vectors in internal/vectors: Go tests read the same files. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "encoding.h"
#include "endpoint/entry.h"
#include "endpoint/fault.h"
#include "endpoint/req_credit.h"
#include "endpoint/state.h"
#include "meet/pmi.h"
#include "meet/root_channel.h"
#include "window/table.h"

enum { WORDS = 16, LINE = 16 << 10, BYTES = 4 << 10 };

/* A case is the words of a line before the colon. */
static char *word[WORDS];
static int words;
static char result[LINE];

static uint64_t number(int i) { return strtoull(word[i], NULL, 16); }
static size_t bytes(int i, unsigned char *to)
{
	const size_t n = strcmp(word[i], "-") == 0 ? 0 : strlen(word[i]) / 2;
	for (size_t k = 0; k < n; k++) {
		const char digits[3] = {word[i][2 * k], word[i][2 * k + 1], 0};
		to[k] = (unsigned char)strtoul(digits, NULL, 16);
	}
	to[n] = 0;
	return n;
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	va_list args;
	const size_t n = strlen(result);
	va_start(args, format);
	vsnprintf(result + n, sizeof result - n, format, args);
	va_end(args);
}
static void say_bytes(const void *from, size_t n)
{
	if (n == 0)
		say("-");
	for (size_t k = 0; k < n; k++)
		say("%02x", ((const unsigned char *)from)[k]);
}
static bool is(const char *kind) { return strcmp(word[0], kind) == 0; }

/* check compares the results of all cases of a file. */
static void check(const char *file, void (*compute)(void))
{
	static char line[LINE], want[LINE];
	char path[512];
	snprintf(path, sizeof path, "%s%s", SOFTND_VECTORS, file);
	FILE *f = fopen(path, "r");
	CHECK(f != NULL);
	int count = 0, wrong = 0;
	for (int at = 1; fgets(line, sizeof line, f) != NULL; at++) {
		char *colon = strstr(line, " : ");
		if (line[0] == '#' || colon == NULL)
			continue;
		colon[strcspn(colon, "\n")] = 0;
		snprintf(want, sizeof want, "%s", colon + 3);
		*colon = 0;
		words = 0;
		for (char *w = strtok(line, " "); w != NULL && words < WORDS; w = strtok(NULL, " "))
			word[words++] = w;
		result[0] = 0;
		compute();
		if (strcmp(result, want) != 0) {
			fprintf(stderr, "%s:%d: %s:\n have %s\n want %s\n", file, at, word[0], result, want);
			wrong++;
		}
		count++;
	}
	fclose(f);
	CHECK(count > 0 && wrong == 0);
}

static void entry(void)
{
	if (is("immediate")) {
		uint64_t w[7] = {number(1)};
		snd_entry_put_immediate(w, (uint32_t)number(2));
		say("%" PRIx64 " %" PRIx64 " %" PRIx64, w[0], w[5], w[6]);
		return;
	}
	if (is("header")) {
		say("%" PRIx64, snd_entry_header((uint32_t)number(1), (uint32_t)number(2), number(3), (uint32_t)number(4)));
		return;
	}
	struct snd_ring_entry e = {0};
	uint64_t w[7];
	for (int i = 0; i < 7; i++)
		w[i] = number(i + 1);
	if (!snd_entry_decode(&e, w)) {
		say("refused");
		return;
	}
	say("%x %x %x %x %" PRIx64 " %x %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %x ", e.kind, e.flags, e.payload_length, e.token, e.sender_address,
		e.sender_token, e.receiver_address, e.fragment_length, e.request_length, e.hash, snd_entry_receive_status(&e));
	say_bytes(e.payload, e.payload_length);
	if ((e.flags & SNDL_FLAG_IMMEDIATE) != 0)
		say(" immediate %x", e.immediate);
	if (e.kind == SNDL_KIND_ATOMIC)
		say(" atomic %" PRIx64 " %" PRIx64 " %" PRIx64 " %x", e.operation, e.operand, e.swap, e.result_index);
}

static void token(void)
{
	if (is("base")) {
		say("%x", snd_bind_base_of((const uint64_t[]){number(1), number(2)}, (uint32_t)number(3)));
		return;
	}
	struct snd_access_entry shared = {0};
	struct snd_own_entry own = {.entry = &shared, .index = (uint32_t)number(2), .bind_base = (uint32_t)number(1) - 1};
	uint32_t bind;
	const uint32_t t = snd_next_token(&own, &bind);
	snd_bind_entry(&own, t, bind, (uint32_t)number(3));
	say("%x %" PRIx64 " %" PRIx64, t, own.word & ~SND_WORD_VALID, snd_relaxed(&shared.word)); /* in Go, its own word has no valid bit */
}

/* The cases are the life of one credit. */
static void credit(void)
{
	static struct snd_credit k;
	uint64_t r = 0;
	if (is("new"))
		memset(&k, 0, sizeof k);
	else if (is("refresh"))
		r = snd_credit_refresh(&k, number(1), number(2), number(3), number(4), number(5));
	else if (is("fits"))
		r = snd_credit_fits(&k, number(1), number(2));
	else if (is("extend"))
		r = snd_credit_extend(&k, number(1), number(2));
	else if (is("count"))
		snd_credit_count_entry(&k, number(1), number(2) != 0);
	else if (is("ack"))
		k.ack_request_end = number(1);
	else if (is("barrier"))
		r = snd_credit_order_barrier(&k, number(1));
	say("%" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %x %x %" PRIx64 " %" PRIx64 " %" PRIx64, r, k.send_run_start, k.payload_end_before_run,
		k.ack_request_end, k.fast_limit, k.fast_max_length, k.small_receive_bytes, k.entries_without_receive, k.posted, k.small_receives_end);
}

/* The cases are rules, their digest, and then the events of a rank. */
static void fault(void)
{
	static struct snd_fault_record records[SNDL_FAULT_RULES];
	static struct snd_fabric f = {.arena.base = (unsigned char *)records};
	static char digest[2 * SND_SHA256 + 1];
	unsigned char b[BYTES], sum[SND_SHA256];
	if (is("rule")) {
		CHECK(bytes(1, b) == sizeof records[0].rule);
		memcpy(&records[f.arena.rules++].rule, b, sizeof records[0].rule);
		say("%x", f.arena.rules);
	} else if (is("digest")) {
		static struct snd_fault_rule rules[SNDL_FAULT_RULES];
		for (uint32_t i = 0; i < f.arena.rules; i++)
			rules[i] = records[i].rule;
		snd_sha256(rules, f.arena.rules * sizeof rules[0], sum);
		snd_hex(sum, sizeof sum, digest);
		CHECK(setenv("SOFTND_FAULTS", digest, 1) == 0);
		say("%s", digest);
	} else if (is("rank")) {
		snd_free_faults(&f);
		OK(snd_load_faults(&f, (int32_t)number(1), "test"));
		say(f.faults != NULL ? "true" : "false");
	} else {
		const struct snd_fault_event e = {.operation = (uint32_t)number(1), .phase = (uint32_t)number(2), .peer = (int32_t)number(3), .endpoint = number(4),
			.window = number(5), .size = number(6)};
		const struct snd_fired fired = snd_next_fault(&f, &e);
		say("%x", fired.rule != NULL ? fired.number : 0);
	}
}

static void descriptor(void)
{
	unsigned char b[BYTES];
	snd_window_descriptor d;
	if (is("encode")) {
		d = (snd_window_descriptor){number(1), number(2), (uint32_t)number(3), 0};
		snd_window_descriptor_encode(&d, b);
		say_bytes(b, SND_WINDOW_DESCRIPTOR_SIZE);
	} else {
		bytes(1, b);
		snd_window_descriptor_decode(b, &d);
		say("%" PRIx64 " %" PRIx64 " %x", d.address, d.length, d.token);
	}
}

static void value(void)
{
	unsigned char b[BYTES];
	char to[BYTES];
	const size_t n = bytes(1, b);
	if (is("escape") ? snd_escape((char *)b, to, sizeof to) : snd_unescape((char *)b, n, to, sizeof to))
		say_bytes(to, strlen(to));
	else
		say("refused");
}

static void pmi(void)
{
	unsigned char line[BYTES];
	struct snd_pmi_answer a;
	bytes(1, line);
	if (snd_pmi_parse((char *)line, &a) != NULL) {
		say("refused");
		return;
	}
	say("%s", a.values[0]);
	for (int i = 2; i < words; i++) {
		const char *v = snd_pmi_value(&a, word[i]);
		say(" %s", v == NULL ? "none" : *v == 0 ? "-" : v);
	}
}

static void message(void)
{
	unsigned char secret[BYTES], greetings[BYTES], packet[BYTES], text[BYTES];
	struct snd_root_channel c;
	struct snd_root_message m = {0};
	int ends[2];
	const struct snd_bytes s = {secret, bytes(1, secret)};
	CHECK(bytes(2, greetings) == SND_ROOT_GREETINGS);
	if (is("prove")) {
		snd_root_prove(&s, greetings, packet);
		say_bytes(packet, SND_SHA256);
		return;
	}
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && snd_root_open(&c, ends[0]));
	snd_root_begin(&c, &s, greetings, number(3) != 0);
	if (is("send")) {
		c.out = number(4);
		const struct {
			char *to;
			size_t size;
			int word;
		} texts[] = {{m.kind, sizeof m.kind, 5}, {m.key, sizeof m.key, 8}, {m.value, sizeof m.value, 9}, {m.text, sizeof m.text, 11}};
		for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
			bytes(texts[i].word, text);
			snprintf(texts[i].to, texts[i].size, "%s", (char *)text);
		}
		m.rank = (int64_t)number(6);
		m.size = (int64_t)number(7);
		m.code = (int64_t)number(10);
		static unsigned char sent[SND_ROOT_PACKET];
		say_bytes(sent, snd_root_pack(&c, &m, sent));
	} else {
		c.in = number(4);
		const size_t n = bytes(5, packet);
		CHECK(write(ends[1], packet, n) == (ssize_t)n);
		if (snd_root_receive(&c, &m) != 1) {
			CHECK(c.why == snd_root_secret);
			say("refused");
		} else {
			say_bytes(m.kind, strlen(m.kind));
			say(" %" PRIx64 " %" PRIx64 " ", m.rank, m.size);
			say_bytes(m.key, strlen(m.key));
			say(" ");
			say_bytes(m.value, strlen(m.value));
			say(" %" PRIx64 " ", m.code);
			say_bytes(m.text, strlen(m.text));
		}
	}
	close(ends[0]);
	close(ends[1]);
}

/* index_of returns the place of a name in a list. */
static uint32_t index_of(const char *name, const char *const *names, uint32_t count)
{
	uint32_t i = 0;
	while (i < count && (names[i] == NULL || strcmp(names[i], name) != 0))
		i++;
	CHECK(i < count);
	return i;
}

/* states compares the tables with internal/layout/STATES.txt: its transitions are possible, and no others. */
static void states(void)
{
	const struct {
		const char *name;
		const struct snd_states *table;
	} tables[] = {{"record\n", &snd_conn_states}, {"connector\n", &snd_phases}, {"endpoint\n", &snd_qp_states}};
	char line[LINE], name[64], event[64], after[64];
	const struct snd_states *t = NULL;
	uint32_t number, to, possible = 0, listed = 0, named = 0;
	FILE *f = fopen(SOFTND_VECTORS "../layout/STATES.txt", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL) {
		for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
			if (strcmp(line, tables[i].name) == 0)
				t = tables[i].table;
		if (t == NULL || strncmp(line, "  ", 2) != 0)
			continue;
		if (sscanf(line, " %63[^:]: %63[^-] -> %63[^\n]", name, event, after) == 3) {
			event[strlen(event) - 1] = 0;
			CHECK(snd_find_state(t, index_of(name, t->text, SND_STATES), index_of(event, snd_event_text, SND_EVENTS), &to) &&
				to == index_of(after, t->text, SND_STATES));
			listed++;
		} else {
			CHECK(sscanf(line, " %u %63[^:\n]", &number, name) == 2 && number == index_of(name, t->text, SND_STATES));
			named++;
		}
	}
	fclose(f);
	for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
		for (uint32_t s = 0; s < SND_STATES + 1; s++) {
			named -= s < SND_STATES && tables[i].table->text[s] != NULL;
			for (uint32_t e = 0; e < SND_EVENTS; e++)
				possible += snd_find_state(tables[i].table, s, e, &to);
		}
	CHECK(possible == listed && named == 0);
	CHECK(!snd_find_state(&snd_conn_states, UINT32_MAX, SND_EVENT_ABORTS, &to)); /* a peer has written it */
}

/* An event that is impossible in a state is an error of softnd, and ends the process. */
static void impossible_event(void)
{
	char text[BYTES] = {0};
	int ends[2], status;
	CHECK(pipe(ends) == 0);
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		snd_next_state(&snd_qp_states, SND_QP_CLOSED, SND_EVENT_COMPLETES);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	CHECK(read(ends[0], text, sizeof text - 1) > 0 && strcmp(text, "softnd: event \"completes\" in state \"closed\"\n") == 0);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	states();
	impossible_event();
	check("entries.txt", entry);
	check("tokens.txt", token);
	check("credits.txt", credit);
	check("faults.txt", fault);
	check("descriptors.txt", descriptor);
	check("values.txt", value);
	check("pmi.txt", pmi);
	check("messages.txt", message);
	return 0;
}

/* Tests of single parts, in one process. */
#include <string.h>
#include <time.h>

#include "check.h"
#include "encoding.h"
#include "endpoint/endpoint.h"
#include "endpoint/progress_statuspage.h"
#include "endpoint/progress_wait.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"
#include "sha256.h"
#include "shm/fabric.h"
#include "xxh64.h"

/* The hash is that of internal/layout/LAYOUT.txt, which has more than 32 bytes; short inputs have known values. */
static void test_hash(void)
{
	static char text[1 << 20];
	FILE *f = fopen(SOFTND_LAYOUT_TEXT, "rb");
	CHECK(f != NULL);
	size_t n = fread(text, 1, sizeof text, f);
	fclose(f);
	CHECK(snd_xxh64(text, n) == SNDL_LAYOUT_HASH);
	CHECK(snd_xxh64("", 0) == UINT64_C(0xef46db3751d8e999));
	CHECK(snd_xxh64("abc", 3) == UINT64_C(0x44bc2cf5ad770999));
	/* In parts of any size, the hash is the same. */
	for (size_t part = 1; part < 100; part++) {
		struct snd_hash h;
		snd_hash_begin(&h);
		for (size_t at = 0; at < n; at += part)
			snd_hash_add(&h, text + at, part < n - at ? part : n - at);
		CHECK(snd_hash_sum(&h) == SNDL_LAYOUT_HASH);
	}
}

/* The examples of FIPS 180-4, and lengths around the padding. */
static void test_sha256(void)
{
	static const struct {
		const char *text, *hex;
	} known[] = {
		{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
		{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
		{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "0e058e3f7d0439f9054d59c735587ae99655f6473a234ce494d82b5586f7eac6"},
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		unsigned char sum[32];
		char hex[65];
		snd_sha256(known[i].text, strlen(known[i].text), sum);
		for (int k = 0; k < 32; k++)
			snprintf(hex + 2 * k, 3, "%02x", sum[k]);
		CHECK(strcmp(hex, known[i].hex) == 0);
	}
}

/* Test cases 1, 2, 3 and 6 of RFC 4231: the last key is longer than a block. */
static void test_hmac(void)
{
	unsigned char many[131], mac[SND_SHA256];
	char hex[2 * SND_SHA256 + 1];
	static const struct {
		int key_byte;
		size_t key_length;
		const char *key, *first, *second, *hex;
	} known[] = {
		{0x0b, 20, NULL, "Hi ", "There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
		{0, 4, "Jefe", "what do ya want ", "for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
		{0xaa, 20, NULL, NULL, "", "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
		{0xaa, 131, NULL, "Test Using Larger Than Block-Size Key", " - Hash Key First", "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		unsigned char data[50];
		memset(many, known[i].key_byte, sizeof many);
		memset(data, 0xdd, sizeof data);
		const struct snd_bytes parts[] = {
			{known[i].first != NULL ? known[i].first : (const char *)data, known[i].first != NULL ? strlen(known[i].first) : sizeof data},
			{known[i].second, strlen(known[i].second)},
		};
		snd_hmac_sha256(known[i].key != NULL ? (const void *)known[i].key : many, known[i].key_length, parts, 2, mac);
		snd_hex(mac, sizeof mac, hex);
		CHECK(strcmp(hex, known[i].hex) == 0);
	}
}

/* Objects do not overlap, are zero, and all memory returns when they are freed. */
static void test_encoding(void)
{
	char text[40], small[4];
	unsigned char bytes[3];
	snd_base64((const unsigned char *)"any", 3, text);
	CHECK(strcmp(text, "YW55") == 0);
	snd_base64((const unsigned char *)"\xfb\xff", 2, text);
	CHECK(strcmp(text, "+/8=") == 0);
	snd_base64((const unsigned char *)"a", 1, text);
	CHECK(strcmp(text, "YQ==") == 0);
	CHECK(snd_unhex("00fFa7", bytes, 3) && bytes[0] == 0 && bytes[1] == 0xff && bytes[2] == 0xa7);
	CHECK(!snd_unhex("00ff", bytes, 3) && !snd_unhex("00ff0g", bytes, 3));
	CHECK(snd_escape("a b&\xc3\xa9", text, sizeof text) && strcmp(text, "a+b%26%C3%A9") == 0);
	CHECK(!snd_escape("a b&", small, sizeof small) && strcmp(small, "a") == 0);
	CHECK(snd_unescape("a+b%26", 6, text, sizeof text) && strcmp(text, "a b&") == 0);
	CHECK(!snd_unescape("a%2", 3, text, sizeof text) && !snd_unescape("a%zz", 4, text, sizeof text) && !snd_unescape("abcd", 4, small, sizeof small));
	snd_json_quote("a\"b\\c\n", text, sizeof text);
	CHECK(strcmp(text, "\"a\\\"b\\\\c\\u000a\"") == 0);
	snd_json_quote("\"\"", small, sizeof small);
	CHECK(strcmp(small, "\"\"") == 0);

	const char *object = "{\"n\":12,\"kind\":\"a \\\"b\\u003c\\u00e9\\n\",\"ok\":true, \"text\":\"x\"}\n";
	CHECK(snd_json_text(object, "kind", text, sizeof text) && strcmp(text, "a \"b<\xc3\xa9\n") == 0);
	CHECK(snd_json_text(object, "kind", small, sizeof small) && strcmp(small, "a \"") == 0);
	CHECK(snd_json_text(object, "text", text, sizeof text) && strcmp(text, "x") == 0);
	const char *bad[] = {"", "{", "{}", "x", "{\"text", "{\"text\"", "{\"text\":", "{\"text\":1}", "{\"text\":\"x", "{\"text\":\"x\\", "{\"text\":\"\\u00", "{\"other\":\"x\"}",
		"{\"other\":\"text\"}", "{\"a\":1,", "{\"a\":\"\\q\",\"text\":\"x\"}"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		CHECK(!snd_json_text(bad[i], "text", text, sizeof text));
}

static void test_heap(void)
{
	snd_fabric *f;
	enum { N = 400 };
	uint64_t at[N], size[N];
	OK(snd_fabric_create(0, UINT64_C(256) << 20, MANUAL, &f));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			size[i] = (uint64_t)(i * 977 % 40000 + 1) * (i % 37 == 0 ? 9 : 1);
			OK(snd_alloc(&f->heap, size[i], i % 2 == 0, &at[i], "test"));
			CHECK(at[i] % 64 == 0 && snd_owned(&f->arena, f->slot, at[i], size[i]));
			for (uint64_t k = 0; k < size[i]; k++)
				CHECK(f->arena.base[at[i] + k] == 0);
			memset(f->arena.base + at[i], i + 1, size[i]);
		}
		for (int i = 0; i < N; i++)
			CHECK(f->arena.base[at[i]] == (unsigned char)(i + 1) && f->arena.base[at[i] + size[i] - 1] == (unsigned char)(i + 1));
		for (int i = 0; i < N; i++)
			snd_free(&f->heap, at[(i * 7 + round) % N]);
		for (uint64_t i = 0; i < f->arena.chunks; i++)
			CHECK(snd_relaxed32(&f->arena.chunk_owners[i]) == 0);
	}
	uint64_t offset;
	CHECK(snd_alloc(&f->heap, UINT64_C(1) << 40, false, &offset, "test") == SND_NO_MEMORY);
	CHECK(strstr(snd_last_error(), "1099511627776 bytes: the arena of ") != NULL && strstr(snd_last_error(), "--arena-size") != NULL);
	/* The available memory is a part of the machine's. */
	uint64_t available = snd_memory_available();
	CHECK(available > UINT64_C(64) << 20 && available < UINT64_C(1) << 50);
	/* A peer that clears a word does not make the owner claim the chunk twice. */
	OK(snd_alloc(&f->heap, 100, false, &offset, "test"));
	uint64_t chunk = (offset - f->arena.heap) / SNDL_CHUNK_SIZE, other;
	snd_set32(&f->arena.chunk_owners[chunk], 0);
	f->heap.hint = 0;
	OK(snd_alloc(&f->heap, 70000, false, &other, "test"));
	CHECK((other - f->arena.heap) / SNDL_CHUNK_SIZE > chunk);
	OK(snd_fabric_close(f));
}

/* An arena of another version is refused, with the name of its build, whatever bytes that has. */
static void test_versions(void)
{
	struct snd_arena a, other;
	CHECK(snd_arena_create(&a, 2, 0, UINT64_C(256) << 20, "test") == SND_SUCCESS); /* an internal call, which may change errno */
	struct snd_header *h = snd_header(&a);
	snprintf(h->build, sizeof h->build, "v7.8.9\a");
	snd_set(&h->layout, 5);
	CHECK(snd_arena_attach(&other, a.fd, -1, "init") == SND_NOT_SUPPORTED);
	CHECK(strncmp(snd_last_error(), "init: the arena was made by softnd v7.8.9?, this program contains softnd libsoftnd ", 83) == 0);
	CHECK(strstr(snd_last_error(), ": arena of another version (the arena's layout has hash 0x5, this program's 0x") != NULL);
	snd_set32(&h->version, 99);
	memset(h->build, 'x', sizeof h->build);
	CHECK(snd_arena_attach(&other, a.fd, -1, "init") == SND_NOT_SUPPORTED && strstr(snd_last_error(), "xxx, this program") != NULL);
	CHECK(strstr(snd_last_error(), "(the arena's layout has version 99, this program's 2): build all programs with one release of softnd") != NULL);
	memset(h->build, 0, sizeof h->build);
	CHECK(snd_arena_attach(&other, a.fd, -1, "init") == SND_NOT_SUPPORTED && strstr(snd_last_error(), "softnd of an unnamed build, ") != NULL);
	snd_arena_close(&a);
}

/* The page of a member with more endpoints than fit: the text is balanced, within the page, and names how many are left
 * out. A member that dies while it writes leaves an odd number, which its successor makes even. */
static void test_status_page(void)
{
	enum { N = 200 };
	snd_fabric *f;
	snd_adapter *a;
	snd_cq *q;
	static snd_endpoint *ep[N];
	static char text[8129];
	OK(snd_fabric_create(0, UINT64_C(256) << 20, MANUAL, &f));
	OK(snd_adapter_open(f, &a));
	OK(snd_cq_create(a, 16, &q));
	for (int i = 0; i < N; i++) {
		OK(snd_endpoint_create(a, &(snd_endpoint_config){.receive_cq = q, .initiator_cq = q, .receive_depth = 1, .initiator_depth = 1}, &ep[i]));
		ep[i]->state = SND_QP_FAILED;
		snprintf(ep[i]->cause_text, sizeof ep[i]->cause_text, "the \"cause\" \\ of\n %d", i);
	}
	struct snd_call call = {.op = "barrier", .object = "a\tb", .round = 7};
	snd_begin_call(f, &call);
	snd_set(&f->page->seq, 5);
	snd_reset_status_page(f);
	CHECK(snd_relaxed(&f->page->seq) == 8 && snd_relaxed(&f->page->length) <= 8128);
	for (size_t i = 0; i < 1016; i++) {
		uint64_t word = snd_relaxed(&f->page->text[i]);
		memcpy(text + 8 * i, &word, 8);
	}
	text[snd_relaxed(&f->page->length)] = 0;
	int depth = 0, entries = 0, left_out = 0;
	for (char *at = text; *at != 0; at++) {
		CHECK(*at >= ' ');
		depth += *at == '{' || *at == '[' ? 1 : *at == '}' || *at == ']' ? -1 : 0;
	}
	for (char *at = text; (at = strstr(at, "{\"n\":")) != NULL; at++)
		entries++;
	char *tail = strstr(text, "],\"o\":");
	CHECK(depth == 0 && strncmp(text, "{\"m\":true,\"c\":[{\"t\":", 19) == 0 && strstr(text, ",\"op\":\"barrier\",\"x\":\"a?b\",\"r\":7}]") != NULL);
	CHECK(strstr(text, "\"f\":\"the \\\"cause\\\" \\\\ of? 0\"}") != NULL && tail != NULL && sscanf(tail + 6, "%d}", &left_out) == 1);
	CHECK(entries > 60 && entries <= 128 && entries + left_out == N);
	snd_end_call(f, &call, true);
	CHECK(snd_relaxed(&f->page->last_progress) <= snd_relaxed(&f->page->written_at));
	for (int i = 0; i < N; i++) {
		ep[i]->state = SND_QP_IDLE;
		OK(snd_endpoint_close(ep[i]));
	}
	OK(snd_fabric_close(f));
}

/* A request of an observer makes the page old, so that the next update is soon even if the process is idle. */
static void test_questions(void)
{
	snd_fabric *f;
	OK(snd_fabric_create(0, UINT64_C(256) << 20, MANUAL, &f));
	snd_update_status_page(f, snd_clock());
	snd_update_status_page(f, snd_clock()); /* the first one may have noted progress */
	CHECK(!snd_status_page_is_old(f) && !snd_is_asked(f));
	const uint32_t request = atomic_fetch_add(&f->page->requested, 1) + 1;
	CHECK(snd_status_page_is_old(f) && snd_is_asked(f));
	snd_reset_status_page(f); /* an observer may see a member before its page is prepared */
	CHECK(snd_is_asked(f));
	snd_update_status_page(f, snd_clock());
	CHECK(!snd_status_page_is_old(f) && snd_load32(&f->page->answered) == request);
	OK(snd_fabric_close(f));
}

static void test_bounds(void)
{
	CHECK(snd_within(10, 5, 10, 5) && !snd_within(10, 6, 10, 5) && !snd_within(9, 1, 10, 5));
	CHECK(!snd_within(UINT64_MAX, 2, 0, UINT64_MAX) && !snd_within(0, UINT64_MAX, 0, 10) && snd_within(UINT64_MAX - 1, 1, UINT64_MAX - 1, 1));
	snd_fabric *f;
	OK(snd_fabric_create(0, UINT64_C(256) << 20, MANUAL, &f));
	const struct snd_arena *a = &f->arena;
	CHECK(snd_heap_at(a, a->heap, 1) != NULL && snd_heap_at(a, a->heap - 1, 1) == NULL && snd_heap_at(a, a->size, 1) == NULL);
	CHECK(snd_heap_at(a, UINT64_MAX, 2) == NULL && snd_heap_at(a, a->heap, UINT64_MAX) == NULL && snd_heap_at(a, a->size - 1, 1) != NULL);
	CHECK(snd_at(a, 4, 8, 8) == NULL && snd_at(a, a->size - 8, 8, 8) != NULL && snd_at(a, a->size, 8, 8) == NULL);
	OK(snd_fabric_close(f));
}

/* Tokens differ with each bind of an entry, and repeat after 4,096. */
static void test_tokens(void)
{
	snd_fabric *f;
	struct snd_own_entry *e;
	OK(snd_fabric_create(0, UINT64_C(256) << 20, MANUAL, &f));
	OK(snd_take_entry(f->table, &e, "test"));
	uint32_t bind, first = snd_next_token(e, &bind), token = first;
	for (int i = 1; i < 4096; i++) {
		token = snd_next_token(e, &bind);
		CHECK(token != first && snd_index_of(token) == e->index);
	}
	CHECK(snd_next_token(e, &bind) == first);
	CHECK(e->index != 0);
	/* The entry that has been free for longest is used first, from a reserve of 128 at least. */
	uint32_t index = e->index;
	snd_give_back(f->table, e);
	for (int i = 0; i < 128; i++) {
		OK(snd_take_entry(f->table, &e, "test"));
		CHECK(e->index != index);
		snd_give_back(f->table, e);
	}
	OK(snd_fabric_close(f));
}

static void test_descriptor(void)
{
	const snd_window_descriptor d = {UINT64_C(0x0102030405060708), UINT64_C(0x1112131415161718), 0x21222324, 0};
	static const uint8_t want[] = {1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24};
	uint8_t b[SND_WINDOW_DESCRIPTOR_SIZE];
	snd_window_descriptor back;
	snd_window_descriptor_encode(&d, b);
	CHECK(memcmp(b, want, sizeof b) == 0);
	snd_window_descriptor_decode(b, &back);
	CHECK(back.address == d.address && back.length == d.length && back.token == d.token);
}

/* More memory than the machine has is refused, not promised: the first access would end the process. */
static void test_no_memory(void)
{
	snd_fabric *f;
	uint64_t offset;
	if (getenv("SOFTND_TEST_EMULATOR") != NULL) {
		printf("skipped: no lack of memory: an emulator does not map an arena of this size\n");
		return;
	}
	OK(snd_fabric_create(0, UINT64_C(1) << 39, MANUAL, &f));
	CHECK(snd_alloc(&f->heap, UINT64_C(1) << 38, false, &offset, "test") == SND_NO_MEMORY);
	CHECK(strstr(snd_last_error(), "left") != NULL);
	OK(snd_alloc(&f->heap, 1 << 20, false, &offset, "test"));
	OK(snd_fabric_close(f));
}

/* An adapter that is closed gives the entry of its privileged token back. */
static void test_privileged(void)
{
	snd_fabric *f;
	OK(snd_fabric_create(0, UINT64_C(256) << 20, MANUAL, &f));
	for (int i = 0; i < 2000; i++) {
		snd_adapter *a;
		uint32_t token;
		OK(snd_adapter_open(f, &a));
		OK(snd_adapter_privileged_token(a, &token));
		OK(snd_adapter_close(a, 0));
	}
	CHECK(f->table->entries <= 2 * SNDL_WINDOW_BLOCK_ENTRIES);
	OK(snd_fabric_close(f));
}

enum { SPINS = 500, YIELDS = 200 };

struct checks {
	snd_fabric *f;
	int n;
};

/* slow_check takes longer than a phase of a wait may, and returns true when the wait is about to sleep. */
static bool slow_check(void *arg)
{
	struct checks *c = arg;
	c->n++;
	const struct timespec pause = {.tv_nsec = 200 * 1000};
	nanosleep(&pause, NULL);
	return c->f->sleepers > 0;
}

/* A wait whose rounds take long ends its spins early, and on a host with a relay its yields, too. */
static void test_slow_wait(void)
{
	enum { FEW_SPINS = 32 };
	for (int relay = 0; relay < 2; relay++) {
		snd_fabric *f;
		OK(snd_fabric_create(0, UINT64_C(256) << 20, MANUAL, &f));
		f->processes = f->cores = 1;
		if (relay)
			snd_set(&snd_header(&f->arena)->relay, 1);
		struct checks c = {.f = f};
		struct snd_call call = {.op = "test"};
		snd_lock(f);
		OK(snd_wait(f, -1, slow_check, NULL, &c, &call));
		snd_unlock(f);
		/* One check before, the spins, the yields, and one with the doorbell armed. */
		CHECK(c.n == 1 + FEW_SPINS + (relay ? 1 : YIELDS) + 1);
		snd_set(&snd_header(&f->arena)->relay, 0);
		OK(snd_fabric_close(f));
	}
}

static bool soon(void *arg)
{
	struct checks *c = arg;
	return ++c->n > 2;
}

static bool late(void *arg)
{
	struct checks *c = arg;
	c->n++;
	return c->f->sleepers > 0;
}

/* checks_of returns how often a wait calls ready. */
static int checks_of(snd_fabric *f, bool (*ready)(void *))
{
	struct checks c = {.f = f};
	struct snd_call call = {.op = "test"};
	snd_lock(f);
	OK(snd_wait(f, -1, ready, NULL, &c, &call));
	snd_unlock(f);
	return c.n;
}

/* After waits whose events come late, a wait does not spin. One whose event comes soon makes the next ones spin. The
 * number of the options does not adapt. */
static void test_spins_adapt(void)
{
	snd_fabric *f;
	OK(snd_fabric_create(0, UINT64_C(256) << 20, MANUAL, &f));
	f->processes = f->cores = 1;
	for (int i = 0; i < 10; i++)
		checks_of(f, late);
	CHECK(checks_of(f, late) == 1 + YIELDS + 1); /* one before, and one with the doorbell armed */
	while (snd_spin_rounds(&f->spin, SPINS) == 0)
		; /* the rest is over */
	checks_of(f, soon);
	CHECK(snd_spin_rounds(&f->spin, SPINS) == SPINS);
	snd_spin_ended(&f->spin, false); /* after a success, one late event stops no spin */
	CHECK(snd_spin_rounds(&f->spin, SPINS) == SPINS / 2);
	OK(snd_fabric_close(f));

	OK(snd_fabric_create(0, UINT64_C(256) << 20, &(snd_fabric_options){.progress = SND_PROGRESS_MANUAL, .spin_budget = SND_NO_SPIN}, &f));
	CHECK(checks_of(f, late) == 1 + YIELDS + 1);
	OK(snd_fabric_close(f));
	OK(snd_fabric_create(0, UINT64_C(256) << 20, &(snd_fabric_options){.progress = SND_PROGRESS_MANUAL, .spin_budget = 2 * SPINS}, &f));
	for (int i = 0; i < 10; i++)
		CHECK(checks_of(f, late) == 1 + 2 * SPINS + YIELDS + 1);
	OK(snd_fabric_close(f));
}

/* The numbers are those of TestSpinAdapts in Go. */
static void test_spin(void)
{
	enum { FIRST_REST = 64, LAST_REST = 1024 };
	static const struct {
		bool found;
		uint32_t rounds;
	} steps[] = {{true, SPINS}, {true, SPINS}, {false, SPINS}, {true, SPINS / 2}, {false, SPINS}, {false, SPINS / 2}, {true, SPINS / 4}, {false, SPINS / 2},
		{false, SPINS / 4}, {true, SPINS / 8}, {false, SPINS / 4}, {false, SPINS / 8}};
	struct snd_spin s = {0};
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		CHECK(snd_spin_rounds(&s, SPINS) == steps[i].rounds);
		snd_spin_ended(&s, steps[i].found);
	}
	for (int rest = FIRST_REST, tries = 0; tries < 7; tries++, rest = 2 * rest < LAST_REST ? 2 * rest : LAST_REST) {
		for (int i = 0; i < rest; i++)
			CHECK(snd_spin_rounds(&s, SPINS) == 0);
		CHECK(snd_spin_rounds(&s, SPINS) == SPINS);
		snd_spin_ended(&s, false);
	}
	while (snd_spin_rounds(&s, SPINS) == 0)
		;
	for (int i = 0; i < 3; i++, snd_spin_ended(&s, true))
		CHECK(snd_spin_rounds(&s, SPINS) == SPINS);
}

struct spinning {
	snd_fabric *f;
	bool listed;
};

static bool is_listed(void *arg)
{
	struct spinning *s = arg;
	s->listed = s->listed || !snd_list_is_empty(&s->f->waiting);
	return false;
}

/* A wait that spins for long ends at its deadline, and observers see it. */
static void test_long_spin(void)
{
	snd_fabric *f;
	OK(snd_fabric_create(0, UINT64_C(256) << 20, &(snd_fabric_options){.progress = SND_PROGRESS_MANUAL, .spin_budget = SND_NO_SPIN - 1}, &f));
	struct spinning s = {.f = f};
	struct snd_call call = {.op = "test"};
	snd_lock(f);
	while (!s.listed) /* a loaded machine spins for less */
		CHECK(snd_wait(f, 100 * 1000 * 1000, is_listed, NULL, &s, &call) == SND_IO_TIMEOUT);
	CHECK(f->sleepers == 0 && snd_list_is_empty(&f->waiting));
	snd_unlock(f);
	OK(snd_fabric_close(f));
}

/* host_time is the time that a status page would show. */
static int64_t host_time(void) { return snd_clock() - snd_clock_ahead(); }

/* Processes in different time namespaces have one clock of the host. */
static void test_time_namespaces(void)
{
	enum { AHEAD = 10000000 }; /* in seconds; no machine runs a test for as long */
	char text[100] = "";
	FILE *other = popen("unshare --time --monotonic 10000000 /proc/$PPID/exe host-time 2>/dev/null", "r");
	CHECK(other != NULL);
	if (fgets(text, sizeof text, other) == NULL) {
		CHECK(pclose(other) != 0);
		fputs("unit: no time namespaces: they need root, unshare and Linux 5.6\n", stderr);
		return;
	}
	CHECK(pclose(other) == 0);
	const int64_t difference = atoll(text) - host_time(), limit = INT64_C(1000000000) * AHEAD / 2;
	CHECK(difference < limit && difference > -limit);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "host-time") == 0)
		return printf("%lld\n", (long long)host_time()) < 0;
	test_time_namespaces();
	test_slow_wait();
	test_spin();
	test_spins_adapt();
	test_long_spin();
	test_privileged();
	test_no_memory();
	test_hash();
	test_sha256();
	test_hmac();
	test_encoding();
	test_status_page();
	test_questions();
	test_versions();
	test_heap();
	test_bounds();
	test_tokens();
	test_descriptor();
	return 0;
}

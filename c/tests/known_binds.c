/* An endpoint never uses the fields that it remembers of a bind for another bind, and Writes and Reads of some words copy the same bytes as longer ones. */
#include "endpoint/endpoint.h"
#include "endpoint/mr.h"
#include "shm/fabric.h"
#include "two_members.h"

enum { SIZE = 4096, WINDOWS = 3 * SND_KNOWN_BINDS };

static snd_mr *mine, *theirs;
static unsigned char *from, *to; /* local memory, and that of the peer */
static bool reads;

/* post writes n bytes of local memory, or reads them, and returns the status of the result. A refused request ends the connection. */
static snd_status post(void *memory, uint32_t n, uint32_t local, uint64_t address, uint32_t token)
{
	const snd_sge s = {memory, n, local};
	OK((reads ? snd_endpoint_read : snd_endpoint_write)(a.ep, 1, &s, 1, address, token, 0));
	return next_result(a.cq).status;
}

/* transfer transfers n new bytes between local memory and that of the peer. */
static void transfer(unsigned char *at, uint32_t n, uint32_t local, uint64_t address, uint32_t token)
{
	static unsigned char fill;
	fill = (unsigned char)(fill % 32 + 1);
	memset(reads ? at : from, fill, n);
	memset(reads ? from : at, 0x55, n);
	CHECK(post(from, n, local, address, token) == SND_SUCCESS);
	for (uint32_t i = 0; i < n; i++)
		CHECK(from[i] == fill && at[i] == fill);
}

static void bind(snd_window *w, void *buffer, uint64_t n, snd_window_descriptor *d)
{
	OK(snd_endpoint_bind(b.ep, 2, theirs, w, buffer, n, SND_ALLOW_READ | SND_ALLOW_WRITE));
	WANT(b.cq, SND_REQUEST_BIND, 2, SND_SUCCESS);
	OK(snd_window_query(w, d));
}

static void invalidate(snd_window *w)
{
	OK(snd_endpoint_invalidate(b.ep, 3, w, 0));
	WANT(b.cq, SND_REQUEST_INVALIDATE, 3, SND_SUCCESS);
}

/* comes_again binds a window until its token has come again, for other memory. */
static void comes_again(bool old_range)
{
	snd_window *w;
	snd_window_descriptor first, last;
	OK(snd_window_create(b.adapter, &w));
	bind(w, to, SIZE / 2, &first);
	transfer(to, 8, snd_mr_local_token(mine), first.address, first.token);
	int binds = 0;
	do {
		invalidate(w);
		bind(w, to + SIZE / 2, SIZE / 2, &last);
		CHECK(++binds <= 4096);
	} while (last.token != first.token);
	memset(to, 0x33, SIZE);
	memset(from, 0x44, SIZE);
	if (old_range) {
		CHECK(post(from, 8, snd_mr_local_token(mine), first.address, first.token) == SND_ACCESS_VIOLATION);
		CHECK(to[0] == 0x33 && from[0] == 0x44);
		return;
	}
	for (int i = 0; i < 2; i++) {
		transfer(to + SIZE / 2, 8, snd_mr_local_token(mine), last.address, last.token);
		CHECK(to[0] == 0x33);
	}
}

/* wraps registers a region again and again, for other memory, while the numbers of its binds begin again: its tokens stay, and name the new memory. */
static void wraps(void)
{
	const uint32_t flags = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE;
	snd_mr *r, *next;
	OK(snd_mr_register(b.adapter, to, SIZE / 2, flags, &r));
	const uint32_t token = snd_mr_remote_token(r), local = snd_mr_local_token(r);
	struct snd_own_entry *entries[] = {r->region.i.remote, r->region.i.local};
	for (int i = 0; i < 2; i++) /* numbers three before the last with this tag */
		snd_set32(&entries[i]->entry->binds, snd_relaxed32(&entries[i]->entry->binds) + ((0U - 3 * 4096 - entries[i]->bind_base) & ~UINT32_C(4095)));
	bool wrapped = false;
	for (int i = 1; i <= 8; i++) {
		unsigned char *half = to + i % 2 * SIZE / 2;
		const uint64_t before = entries[0]->word;
		OK(snd_mr_register(b.adapter, half, SIZE / 2, flags, &next));
		OK(snd_mr_replace(r, next));
		r = next;
		wrapped |= entries[0]->word >> SNDL_WORD_GENERATION_SHIFT < before >> SNDL_WORD_GENERATION_SHIFT;
		CHECK(snd_mr_remote_token(r) == token && snd_mr_local_token(r) == local && entries[0]->word != before);
		memset(to, 0x33, SIZE);
		for (int k = 0; k < 2; k++) {
			transfer(half, 8, snd_mr_local_token(mine), snd_mr_address(r), token);
			CHECK(to[(i + 1) % 2 * SIZE / 2] == 0x33);
		}
	}
	CHECK(wrapped);
	CHECK(post(from, 8, snd_mr_local_token(mine), snd_mr_address(r), token + (1U << SNDL_TOKEN_TAG_SHIFT)) == SND_ACCESS_VIOLATION);
}

/* in_turn uses more tokens in turn than an endpoint remembers. */
static void in_turn(void)
{
	snd_window *w[WINDOWS];
	snd_window_descriptor d[WINDOWS];
	for (int i = 0; i < WINDOWS; i++) {
		OK(snd_window_create(b.adapter, &w[i]));
		bind(w[i], to + 64 * i, 64, &d[i]);
	}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < WINDOWS; i++)
			transfer(to + 64 * i, 64, snd_mr_local_token(mine), d[i].address, d[i].token);
}

/* overlaps transfers all numbers of words over themselves, at all distances. */
static void overlaps(void)
{
	unsigned char want[SIZE];
	unsigned char *same = a.fabric->arena.base + (to - b.fabric->arena.base); /* the memory of the peer, as this member sees it */
	CHECK(post(from, 8, snd_mr_local_token(mine), snd_mr_address(theirs), snd_mr_remote_token(theirs)) == SND_SUCCESS);
	struct snd_own_entry *e = a.ep->guard.last_entry;
	e->memory = same; /* no call registers memory of a peer */
	e->base = (uint64_t)(uintptr_t)same;
	for (uint32_t n = 1; n <= 80; n++)
		for (int distance = -80; distance <= 80; distance++) {
			for (int i = 0; i < SIZE; i++)
				to[i] = want[i] = (unsigned char)(i * 7 + (i >> 8));
			memmove(want + 512 + (reads ? distance : 0), want + 512 + (reads ? 0 : distance), n);
			CHECK(post(same + 512 + distance, n, snd_mr_local_token(mine), snd_mr_address(theirs) + 512, snd_mr_remote_token(theirs)) == SND_SUCCESS);
			CHECK(memcmp(to, want, SIZE) == 0);
		}
	e->memory = from;
	e->base = (uint64_t)(uintptr_t)from;
}

/* A request is refused for a right that its token lacks, although one of the other kind has just used it. */
static void other_rights(void)
{
	snd_window *w;
	snd_window_descriptor d;
	OK(snd_window_create(b.adapter, &w));
	OK(snd_endpoint_bind(b.ep, 2, theirs, w, to, SIZE, reads ? SND_ALLOW_WRITE : SND_ALLOW_READ));
	WANT(b.cq, SND_REQUEST_BIND, 2, SND_SUCCESS);
	OK(snd_window_query(w, &d));
	reads = !reads;
	transfer(to, 8, snd_mr_local_token(mine), d.address, d.token);
	reads = !reads;
	CHECK(post(from, 8, snd_mr_local_token(mine), d.address, d.token) == SND_ACCESS_VIOLATION);
}

/* A Read into memory that local requests may only read is refused, although a Write has just used its token; a Write of memory whose region
 * has ended is refused. */
static void own_rights(void)
{
	static unsigned char own[SIZE];
	snd_mr *r;
	OK(snd_mr_register(a.adapter, own, SIZE, reads ? 0 : SND_ALLOW_LOCAL_WRITE, &r));
	const uint32_t token = snd_mr_local_token(r);
	const bool refused = reads;
	reads = false;
	memset(own, 0x44, SIZE);
	CHECK(post(own, 8, token, snd_mr_address(theirs), snd_mr_remote_token(theirs)) == SND_SUCCESS);
	if (!refused)
		OK(snd_mr_close(r, SECOND));
	reads = refused;
	memset(to, 0x33, SIZE);
	CHECK(post(own, 8, token, snd_mr_address(theirs), snd_mr_remote_token(theirs)) == SND_ACCESS_VIOLATION);
	CHECK(own[0] == 0x44 && to[0] == 0x33);
}

/* A peer that lies makes the word of a local token come again for memory of another adapter: the token does not name that memory. */
static void other_adapter(void)
{
	static unsigned char own[SIZE], other[SIZE];
	snd_adapter *second;
	snd_mr *r, *next[2 * SNDL_WINDOW_BLOCK_ENTRIES];
	OK(snd_adapter_open(a.fabric, &second));
	OK(snd_mr_register(a.adapter, own, SIZE, SND_ALLOW_LOCAL_WRITE, &r));
	const uint32_t token = snd_mr_local_token(r);
	struct snd_own_entry *e = r->region.i.local;
	const uint64_t word = e->word;
	transfer(to, 8, snd_mr_local_token(mine), snd_mr_address(theirs), snd_mr_remote_token(theirs));
	memset(own, 0x44, SIZE);
	const bool reading = reads;
	reads = false;
	CHECK(post(own, 8, token, snd_mr_address(theirs), snd_mr_remote_token(theirs)) == SND_SUCCESS);
	OK(snd_mr_close(r, SECOND));
	snd_set32(&e->entry->binds, snd_relaxed32(&e->entry->binds) - 1);
	bool came_again = false;
	for (unsigned i = 0; i < sizeof next / sizeof *next && !came_again; i++) {
		OK(snd_mr_register(second, other, SIZE, SND_ALLOW_LOCAL_WRITE, &next[i]));
		came_again = e->word == word;
	}
	CHECK(came_again);
	reads = reading;
	memset(to, 0x33, SIZE);
	CHECK(post(other, 8, token, snd_mr_address(theirs), snd_mr_remote_token(theirs)) == SND_ACCESS_VIOLATION);
	CHECK(other[0] == 0 && to[0] == 0x33);
}

int main(void)
{
	for (int run = 0; run < 16; run++) {
		const int test = run / 2;
		reads = run % 2 == 1;
		open_members_with((snd_fabric_options){0});
		connect_members(NULL);
		OK(snd_mr_allocate(a.adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &mine));
		OK(snd_mr_allocate(b.adapter, SIZE, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, &theirs));
		from = snd_mr_buffer(mine);
		to = snd_mr_buffer(theirs);
		if (test < 2)
			comes_again(test == 1);
		else if (test == 2)
			in_turn();
		else if (test == 3)
			wraps();
		else if (test == 4)
			overlaps();
		else if (test == 5)
			other_rights();
		else if (test == 6)
			own_rights();
		else
			other_adapter();
		close_members();
	}
	return 0;
}

/* A fault plan in an arena, as ndrun plants it, and two connected members. The rules are about a, rank 0, and most are not about b,
 * rank 1. */
#ifndef SND_PLANTED_H
#define SND_PLANTED_H

#include <unistd.h>

#include "endpoint/cq.h"
#include "endpoint/fault.h"
#include "sha256.h"
#include "two_members.h"
#include "window/guard.h"
#include "xxh64.h"

enum { MOST = 3 * SND_CHUNK_BYTES, ALL = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE, RECORDS = 4 };

static snd_fabric *base; /* of a member without a rank: it has made the arena */
static struct snd_fault_record *records;
static snd_mr *mine, *theirs;
static unsigned char *here, *there;

static inline struct snd_fault_rule rule(uint32_t operation, uint32_t phase, uint32_t action)
{
	return (struct snd_fault_rule){.operations = UINT64_C(1) << operation, .max_size = UINT64_MAX, .phase = phase, .action = action, .ranks = {1}};
}

/* plant makes an arena of two ranks with a plan, and sets SOFTND_FAULTS. */
static inline void plant(const struct snd_fault_rule *rules, uint32_t n)
{
	unsigned char sum[32];
	char digest[65];
	OK(snd_fabric_create(2, UINT64_C(1) << 30, &(snd_fabric_options){.progress = SND_PROGRESS_MANUAL}, &base));
	struct snd_arena *arena = &base->arena;
	struct snd_header *h = snd_header(arena);
	CHECK(snd_reserve(arena, arena->fault_rules, RECORDS * sizeof *records, "test") == SND_SUCCESS);
	records = (struct snd_fault_record *)(void *)(arena->base + arena->fault_rules);
	for (uint32_t i = 0; i < n; i++)
		records[i].rule = rules[i];
	snd_set32(&h->rules, n);
	const uint64_t words[] = {snd_relaxed(&h->magic), snd_relaxed32(&h->ranks) | (uint64_t)n << 32, snd_relaxed(&h->layout), snd_relaxed(&h->size),
		snd_relaxed(&h->secret[0]), snd_relaxed(&h->secret[1]), snd_relaxed(&h->id[0]), snd_relaxed(&h->id[1]), snd_relaxed32(&h->host)};
	snd_set(&h->checksum, snd_xxh64(words, sizeof words));
	snd_sha256(rules, n * sizeof *rules, sum);
	for (size_t i = 0; i < sizeof sum; i++)
		snprintf(digest + 2 * i, 3, "%02x", (unsigned)sum[i]);
	CHECK(setenv("SOFTND_FAULTS", digest, 1) == 0);
}

static const snd_fabric_options automatic = {.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO};

/* open_side opens the fabric of a side as a rank. */
static inline void open_side(struct side *s, int32_t rank, snd_executor executor)
{
	snd_fabric_options o = automatic;
	o.executor = executor;
	OK(snd_fabric_attach(snd_fabric_descriptor(base), rank, &o, &s->fabric));
	OK(snd_adapter_open(s->fabric, &s->adapter));
}

static inline void allocate(struct side *s, bool private_memory, snd_mr **mr, unsigned char **bytes)
{
	if (private_memory)
		OK(snd_mr_register(s->adapter, malloc(MOST), MOST, ALL, mr));
	else
		OK(snd_mr_allocate(s->adapter, MOST, ALL, mr));
	*bytes = snd_mr_buffer(*mr);
}

/* open_pair connects a, which follows rules, with b. In private setups the memory of both is private, so the responder copies. */
static inline void open_pair(const struct snd_fault_rule *rules, uint32_t n, int setup)
{
	plant(rules, n);
	open_side(&a, 0, setup == 1 ? SND_EXECUTOR_TARGET : SND_EXECUTOR_AUTO);
	open_side(&b, 1, setup == 1 ? SND_EXECUTOR_TARGET : SND_EXECUTOR_AUTO);
	OK(snd_listener_create(b.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	connect_members(NULL);
	allocate(&a, setup == 2, &mine, &here);
	allocate(&b, setup == 2, &theirs, &there);
}
enum { SETUPS = 3 };

static inline void close_pair(int setup)
{
	disconnect_members();
	OK(snd_mr_close(mine, 10 * SECOND));
	OK(snd_mr_close(theirs, 10 * SECOND));
	if (setup == 2) {
		free(here);
		free(there);
	}
	close_members();
	OK(snd_fabric_close(base));
}

static inline snd_status request(uint32_t operation, uint64_t context, uint32_t n)
{
	snd_sge s = {here, n, snd_mr_local_token(mine)}, r = {there, n, snd_mr_local_token(theirs)};
	switch (operation) {
	case SNDL_FAULT_WRITE: return snd_endpoint_write(a.ep, context, &s, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), 0);
	case SNDL_FAULT_READ: return snd_endpoint_read(a.ep, context, &s, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), 0);
	case SNDL_FAULT_SEND:
		OK(snd_endpoint_receive(b.ep, context, &r, 1));
		return snd_endpoint_send(a.ep, context, &s, 1, 0);
	default: /* a receives */
		OK(snd_endpoint_receive(a.ep, context, &s, 1));
		return snd_endpoint_send(b.ep, context, &r, 1, 0);
	}
}

static inline uint32_t type_of(uint32_t operation)
{
	return operation == SNDL_FAULT_WRITE ? SND_REQUEST_WRITE : operation == SNDL_FAULT_READ ? SND_REQUEST_READ : operation == SNDL_FAULT_SEND ? SND_REQUEST_SEND : SND_REQUEST_RECEIVE;
}

static inline void want_counts(int i, uint64_t matched, uint64_t fired)
{
	CHECK(snd_relaxed(&records[i].counters.matched) == matched && snd_relaxed(&records[i].counters.fired) == fired);
}

/* ended waits until the connection has ended at both sides. */
static inline void ended(snd_status cause)
{
	while (snd_endpoint_error(a.ep) == SND_SUCCESS || snd_endpoint_error(b.ep) == SND_SUCCESS)
		usleep(100);
	CHECK(snd_endpoint_error(a.ep) == cause);
}

static const uint32_t transfers[] = {SNDL_FAULT_WRITE, SNDL_FAULT_READ, SNDL_FAULT_SEND};

#endif

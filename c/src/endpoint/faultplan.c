/* The fault plan of a member decides which operation meets which rule. It decides as internal/faultplan does: a plan with a seed has
 * the same effect on ranks of each language.
 *
 * Everything that a decision needs is private: a peer can falsify only the counters in the arena, which decide nothing.
 * TWIN internal/faultplan/plan.go, internal/faultplan/rule.go. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/fault.h"
#include "sha256.h"

enum { RULE_WORDS = sizeof(struct snd_fault_rule) / 8, SETS = 2, OPERATIONS = SNDL_FAULT_CREATE_ENDPOINT + 1, FIRST_CALL = SNDL_FAULT_CONNECT };

_Static_assert(sizeof(struct snd_fault_rule) % 8 == 0, "a rule is whole words");

/* seen is a set of keys, and the order in which they came. */
struct seen {
	struct {
		uint64_t key, number; /* number 0: free */
	} *slots;
	uint64_t size, count; /* size is a power of two */
};

struct snd_faults {
	struct snd_fault_rule *rules; /* of all ranks */
	struct snd_fault_record *records; /* in the arena */
	uint32_t count;
	int32_t rank;
	bool uses_windows;
	struct seen seen[SETS];
	struct {
		bool named; /* the rule is about this rank */
		uint64_t matched, fired;
	} own[SNDL_FAULT_RULES];
};

static bool contains(const uint64_t set[16], int32_t rank)
{
	bool all = true;
	for (int i = 0; i < 16; i++)
		all = all && set[i] == 0;
	return all || (rank >= 0 && rank < (int32_t)SNDL_RANKS && (set[rank / 64] >> (rank % 64) & 1) != 0);
}

/* wrong names the first word of a rule that no compiler of this version writes, NULL if there is none. */
static const char *wrong(const struct snd_fault_rule *r)
{
	const uint64_t calls = r->operations >> FIRST_CALL << FIRST_CALL;
	if (r->operations == 0 || r->operations >> OPERATIONS != 0 || (calls != 0 && calls != r->operations))
		return "operations";
	if (r->phase < SNDL_FAULT_AT_POST || r->phase > SNDL_FAULT_AT_COMPLETE || (calls != 0 && r->phase != SNDL_FAULT_AT_POST))
		return "phase";
	if (r->action < SNDL_FAULT_FAIL || r->action > SNDL_FAULT_EXHAUST)
		return "action";
	if (r->action == SNDL_FAULT_FAIL && r->status >> 31 == 0)
		return "status"; /* a success */
	if ((r->action == SNDL_FAULT_CORRUPT && r->offset >= r->min_size) || (r->after != 0 && r->after >= r->min_size))
		return "size"; /* smaller than the byte to change, or than the bytes before the action */
	if (r->flip > 255 || r->reserved[0] != 0 || r->reserved[1] != 0)
		return "reserved bits";
	return NULL;
}

static void digest_of(const struct snd_faults *p, char text[65])
{
	unsigned char sum[32];
	snd_sha256(p->rules, p->count * sizeof *p->rules, sum); /* words are little-endian on the hosts that softnd supports */
	for (size_t i = 0; i < sizeof sum; i++)
		snprintf(text + 2 * i, 3, "%02x", (unsigned)sum[i]);
}

static snd_status check_rules(const struct snd_faults *p, const char *op)
{
	const char *want = getenv("SOFTND_FAULTS");
	char have[65];
	if (want == NULL || *want == 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: the job has a fault plan, but SOFTND_FAULTS is not set: let the wrapper of the rank keep the environment", op);
	digest_of(p, have);
	if (strcmp(have, want) != 0)
		return snd_fail(SND_INVALID_DEVICE_STATE, "%s: fault plan: the %" PRIu32 " fault rules in shared memory have digest %.16s, the launcher wrote %.16s: a process has changed them",
			op, p->count, have, want);
	for (uint32_t i = 0; i < p->count; i++) {
		const char *word = wrong(&p->rules[i]);
		if (word != NULL)
			return snd_fail(SND_NOT_SUPPORTED, "%s: fault rule %" PRIu32 ": unknown %s: build ndrun and libsoftnd from one release of softnd", op, i + 1, word);
	}
	return SND_SUCCESS;
}

snd_status snd_load_faults(struct snd_fabric *f, int32_t rank, const char *op)
{
	const struct snd_arena *a = &f->arena;
	if (a->rules == 0)
		return SND_SUCCESS;
	f->faults = calloc(1, sizeof *f->faults);
	struct snd_faults *p = f->faults;
	if (p == NULL || (p->rules = calloc(a->rules, sizeof *p->rules)) == NULL) {
		snd_free_faults(f);
		return snd_fail(SND_NO_MEMORY, "%s: no private memory for the fault plan", op);
	}
	p->records = (struct snd_fault_record *)(void *)(a->base + a->fault_rules);
	p->count = a->rules;
	p->rank = rank;
	for (uint32_t i = 0; i < p->count; i++) {
		const snd_word *from = (const snd_word *)(const void *)&p->records[i].rule; /* the creator wrote them before this process was started */
		uint64_t words[RULE_WORDS];
		for (size_t w = 0; w < RULE_WORDS; w++)
			words[w] = snd_relaxed(&from[w]); /* loaded once: the copy is checked and used */
		memcpy(&p->rules[i], words, sizeof words);
	}
	snd_status s = check_rules(p, op);
	bool any = false;
	for (uint32_t i = 0; i < p->count; i++) {
		p->own[i].named = contains(p->rules[i].ranks, rank);
		any = any || p->own[i].named;
		p->uses_windows = p->uses_windows || (p->own[i].named && p->rules[i].window != 0);
	}
	if (s != SND_SUCCESS || !any)
		snd_free_faults(f); /* without them, nothing asks */
	return s;
}

void snd_free_faults(struct snd_fabric *f)
{
	struct snd_faults *p = f->faults;
	f->faults = NULL;
	if (p == NULL)
		return;
	for (int i = 0; i < SETS; i++)
		free(p->seen[i].slots);
	free(p->rules);
	free(p);
}

/* describes reports whether a rule is about an event. The end of a connection and the overrun of a queue need an endpoint. */
static bool describes(const struct snd_fault_rule *r, const struct snd_fault_event *e)
{
	if (e->endpoint == 0 && (r->action == SNDL_FAULT_DROP || r->action == SNDL_FAULT_OVERRUN))
		return false;
	return (r->operations >> e->operation & 1) != 0 && r->phase == e->phase && (r->endpoint == 0 || r->endpoint == e->endpoint) &&
		(r->window == 0 || r->window == e->window) && e->size >= r->min_size && e->size <= r->max_size && contains(r->peers, e->peer);
}

/* draw returns a random number that depends on its arguments only: the output of SplitMix64 after each was mixed in. */
static uint64_t draw(uint64_t seed, uint64_t rule, uint64_t rank, uint64_t n)
{
	const uint64_t arguments[] = {seed, rule, rank, n};
	uint64_t x = 0;
	for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++) {
		x += arguments[i] + UINT64_C(0x9e3779b97f4a7c15);
		x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
		x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
		x ^= x >> 31;
	}
	return x;
}

/* is_due reports whether a rule acts at the n-th operation of a rank, counted from 1. */
static bool is_due(const struct snd_fault_rule *r, uint64_t n, uint32_t index, int32_t rank)
{
	const uint64_t first = r->nth != 0 ? r->nth : r->every != 0 ? r->every : 1;
	if (n < first || (r->every != 0 && (n - first) % r->every != 0) || (r->every == 0 && r->nth != 0 && n != r->nth))
		return false;
	return r->threshold == 0 || draw(r->seed, index, (uint64_t)(int64_t)rank, n) < r->threshold;
}

struct snd_fired snd_next_fault(struct snd_fabric *f, const struct snd_fault_event *e)
{
	struct snd_faults *p = f->faults;
	struct snd_fired fired = {NULL, 0};
	for (uint32_t i = 0; i < p->count; i++) {
		const struct snd_fault_rule *r = &p->rules[i];
		if (!p->own[i].named || !describes(r, e))
			continue;
		p->own[i].matched++;
		atomic_fetch_add_explicit(&p->records[i].counters.matched, 1, memory_order_relaxed);
		if (fired.rule != NULL || (r->times != 0 && p->own[i].fired >= r->times) || !is_due(r, p->own[i].matched, i, p->rank))
			continue; /* if several are due, the first of the plan acts */
		p->own[i].fired++;
		atomic_fetch_add_explicit(&p->records[i].counters.fired, 1, memory_order_relaxed); /* now: the action may end the process */
		fired = (struct snd_fired){r, i + 1};
	}
	return fired;
}

static uint64_t place_of(const struct seen *s, uint64_t key)
{
	uint64_t i = key * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (s->size - 1);
	while (s->slots[i].number != 0 && s->slots[i].key != key)
		i = (i + 1) & (s->size - 1);
	return i;
}

/* grow doubles the room of a set. */
static bool grow(struct seen *s)
{
	struct seen bigger = {.size = s->size == 0 ? 64 : s->size * 2, .count = s->count};
	if ((bigger.slots = calloc((size_t)bigger.size, sizeof *bigger.slots)) == NULL)
		return false;
	for (uint64_t i = 0; i < s->size; i++)
		if (s->slots[i].number != 0)
			bigger.slots[place_of(&bigger, s->slots[i].key)] = s->slots[i];
	free(s->slots);
	*s = bigger;
	return true;
}

uint64_t snd_fault_window(struct snd_fabric *f, uint32_t token, const struct snd_invalidatable *object)
{
	struct snd_faults *p = f->faults;
	if (!p->uses_windows || (token == 0 && object == NULL))
		return 0;
	struct seen *s = &p->seen[token == 0];
	const uint64_t key = token != 0 ? token : object->number;
	if (2 * s->count >= s->size && !grow(s))
		return 0; /* no private memory: a rule about a window does not match */
	uint64_t i = place_of(s, key);
	if (s->slots[i].number == 0) {
		s->slots[i].key = key;
		s->slots[i].number = ++s->count;
	}
	return s->slots[i].number;
}

struct snd_fault_text snd_describe_fault(const struct snd_fired *fired)
{
	struct snd_fault_text t;
	char name[sizeof fired->rule->name + 1] = {0};
	memcpy(name, fired->rule->name, sizeof fired->rule->name);
	for (char *c = name; *c != 0; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	if (name[0] != 0)
		snprintf(t.text, sizeof t.text, "fault rule %" PRIu32 " (%s)", fired->number, name);
	else
		snprintf(t.text, sizeof t.text, "fault rule %" PRIu32, fired->number);
	return t;
}

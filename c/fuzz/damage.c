#include "damage.h"

#include <stdbool.h>

/* A shared word, and its next value. */
struct damage {
	void *word;
	bool half;
	uint64_t value;
};

static uint8_t armed[16]; /* bytes that choose the damage when its time has come, perhaps of an endpoint that does not exist yet */
static uint32_t loads;    /* until it is done; 0 = none is armed */

/* A word of a structure, an index of a small number of words. */
static void *word_of(void *structure, size_t bytes, uint32_t index) { return (unsigned char *)structure + index % (bytes / 8) * 8; }

/* known returns a number that means something in the arena. */
static uint64_t known(struct input *in)
{
	struct side *s = &sides[fuzz_byte(in) & 1];
	struct snd_endpoint *ep = s->endpoints[fuzz_byte(in) % ENDPOINTS];
	struct snd_window *w = s->windows[0];
	switch (fuzz_byte(in) % 16) {
	case 0: return s->f->id;
	case 1: return s->a->number;
	case 2: return s->shared->region.local_token;
	case 3: return s->shared->region.remote_token;
	case 4: return s->own->region.local_token;
	case 5: return s->own->region.remote_token;
	case 6: return w->latest.token;
	case 7: return (uint64_t)(uintptr_t)s->shared->buffer;
	case 8: return (uint64_t)(uintptr_t)s->own->buffer + fuzz_byte(in) * UINT64_C(16);
	case 9: return s->shared->region.i.remote->place.offset + (fuzz_byte(in) & 31) * UINT64_C(64);
	case 10: return ep != NULL ? ep->local_qp_offset : s->f->arena.heap;
	case 11: return ep != NULL ? ep->local_qp_offset + SNDL_SIZEOF_SHARED_QP : s->f->arena.size;
	case 12: return ep != NULL && ep->conn != NULL ? ep->conn->offset : s->f->arena.size - 8;
	case 13: return ep != NULL ? ep->number : 1;
	case 14: return s->f->slot + 1;
	default: return w->latest.address;
	}
}

static uint64_t value(struct input *in, uint64_t old)
{
	switch (fuzz_byte(in) % 10) {
	case 0: return 0;
	case 1: return UINT64_MAX;
	case 2: return fuzz_byte(in);
	case 3: return fuzz_word(in);
	case 4: return old + 1;
	case 5: return old - 1;
	case 6: return old ^ UINT64_C(1) << (fuzz_byte(in) & 63);
	case 7: return old + (UINT64_C(1) << (fuzz_byte(in) & 63));
	default: return known(in);
	}
}

static bool choose(struct input *in, struct damage *l)
{
	const uint8_t which = fuzz_byte(in), index = fuzz_byte(in);
	struct side *s = &sides[which & 1];
	struct snd_arena *a = &s->f->arena;
	struct snd_link *newest = s->f->endpoints.previous; /* it may be connecting, and not known to its program yet */
	struct snd_endpoint *ep = which & 2 ? (newest == &s->f->endpoints ? NULL : SND_OF(newest, struct snd_endpoint, link)) : s->endpoints[0];
	struct snd_connection *c = ep != NULL ? ep->conn : NULL;
	l->half = false;
	switch ((which >> 2) % 14) {
	case 0: l->word = word_of(s->f->record, 48, index); break;
	case 1: l->word = word_of(&s->f->record->inbox, 16, index); break;
	case 2: l->word = word_of(index & 1 ? &s->f->record->waiters : &s->f->record->engine, 8, 0); break;
	case 3: l->word = &snd_header(a)->deaths; break;
	case 4: l->word = word_of(snd_rank(a, which & 1), SNDL_SIZEOF_RANK_RECORD, index); break;
	case 5:
		if (ep == NULL)
			return false;
		l->word = word_of(ep->local_qp, 104, index); /* the words that the peer reads once */
		break;
	case 6: {
		static const uint16_t fields[] = {SNDL_AT_SHARED_QP_RELEASED, SNDL_AT_SHARED_QP_FAULT, SNDL_AT_SHARED_QP_FAULT_STATUS, SNDL_AT_SHARED_QP_POSTED,
			SNDL_AT_SHARED_QP_SMALL_RECEIVES_END, SNDL_AT_SHARED_QP_SMALL_RECEIVE_BYTES, SNDL_AT_SHARED_QP_HAZARD, SNDL_AT_SHARED_QP_NEED_WAKEUP,
			SNDL_AT_SHARED_QP_RECEIVE_STATUS, SNDL_AT_SHARED_QP_REASON, SNDL_AT_SHARED_QP_RESULTS};
		if (ep == NULL)
			return false;
		l->word = (unsigned char *)ep->local_qp + fields[index % (sizeof fields / sizeof fields[0])];
		break;
	}
	case 7:
		if (c == NULL || c->out.slots == NULL)
			return false;
		l->word = word_of(&c->out.slots[(c->out.next + (index >> 3)) & c->out.mask], 64, index & 7);
		break;
	case 8:
		if (c == NULL || c->released)
			return false;
		l->word = word_of(c->record, 112, index);
		break;
	case 9:
		if (ep == NULL || ep->srq != NULL)
			return false;
		l->word = word_of(ep->descriptors + (ep->rcompleted & ep->receive_mask) * ep->stride, ep->stride * 8, index);
		break;
	case 10: {
		struct snd_own_entry *e[] = {s->shared->region.i.local, s->shared->region.i.remote, s->own->region.i.local, s->own->region.i.remote, s->windows[0]->i.remote, s->windows[1]->i.remote};
		l->word = word_of(e[index % 6]->entry, SNDL_SIZEOF_ACCESS_ENTRY, index / 6);
		break;
	}
	case 11:
		l->word = (void *)&a->chunk_owners[index % 32];
		l->half = true;
		break;
	case 12:
		if (s->numbers[index & 1] != 0 && (index & 128) != 0) {
			l->word = a->base + a->number_table + (s->numbers[index & 1] & SNDL_NUMBER_INDEX_MASK) * SNDL_NUMBER_ENTRY_SIZE + (index >> 1 & 1) * 8;
			break;
		}
		l->word = index & 64 ? (void *)&a->number_owners[s->numbers[0] % SNDL_NUMBER_ENTRIES / SNDL_NUMBER_BLOCK_ENTRIES] : (void *)&a->block_owners[index % 16];
		l->half = true;
		break;
	default: l->word = word_of(s->shared->buffer, 2048, index); break; /* where known records may be said to be */
	}
	l->value = value(in, l->half ? *(uint32_t *)l->word : *(uint64_t *)l->word);
	return true;
}

static void store(const struct damage *l)
{
	if (l->half)
		*(uint32_t *)l->word = (uint32_t)l->value;
	else
		*(uint64_t *)l->word = l->value;
}

void damage(struct input *in)
{
	struct damage l;
	if (choose(in, &l))
		store(&l);
}

void snd_fuzz_loaded(const volatile void *word)
{
	bool shared = false;
	for (int i = 0; i < 2; i++)
		shared = shared || (sides[i].f != NULL && (uintptr_t)word - (uintptr_t)sides[i].f->arena.base < ARENA);
	if (loads == 0 || !shared || --loads > 0)
		return;
	struct input in = {armed, armed + sizeof armed};
	damage(&in);
}

void arm_damage(struct input *in)
{
	loads = 1 + fuzz_byte(in) + (fuzz_byte(in) & 15) * 256u;
	for (size_t i = 0; i < sizeof armed; i++)
		armed[i] = fuzz_byte(in);
}

void disarm_damage(void) { loads = 0; }

void forge(struct input *in)
{
	const uint8_t which = fuzz_byte(in), flags = fuzz_byte(in);
	struct snd_endpoint *ep = sides[which & 1].endpoints[which >> 1 & 1];
	if (ep == NULL || ep->conn == NULL || !ep->conn->attached || ep->conn->released)
		return;
	struct snd_connection *c = ep->conn;
	struct snd_slot *slot = &c->out.slots[c->out.next & c->out.mask];
	uint64_t token = (uint32_t)known(in), length = fuzz_byte(in) & 63;
	slot->words[0] = (which >> 2 & 7) | (which >> 4 & 8) | (uint64_t)(flags & 127) << SNDL_ENTRY_FLAGS_SHIFT | length << SNDL_ENTRY_LENGTH_SHIFT | token << SNDL_ENTRY_TOKEN_SHIFT;
	for (int i = 1; i < 7; i++)
		slot->words[i] = which & 0x20 ? known(in) : value(in, slot->words[i]);
	if (which & 0x40)
		slot->words[2] = (uint64_t)fuzz_byte(in) * 64 | (uint64_t)known(in) << 32;
	slot->seq = ++c->out.next; /* the sender's own count is changed, so that it stays in step */
	c->credit.entries_without_receive += flags >> 7;
}

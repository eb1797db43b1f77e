/* A ring of 64-byte entries from one producer to one consumer. Each side uses its ring under its fabric's lock.
 * TWIN endpoint/internal/ring/producer.go, endpoint/internal/ring/consumer.go. */
#ifndef SND_RING_H
#define SND_RING_H

#include <stddef.h>

#include "shm/structs.h"

struct snd_producer {
	struct snd_slot *slots;
	uint64_t mask;
	snd_word *head;    /* the consumer's word */
	uint64_t next;     /* number of the next entry */
	uint64_t released; /* private copy of head */
	bool relaxed;      /* the consumer's process issues the barrier, see snd_publish */
};

struct snd_consumer {
	struct snd_slot *slots;
	uint64_t mask;
	snd_word *head; /* own word */
	uint64_t next;
	uint64_t released; /* private copy of head, which a peer can overwrite */
};

enum { SND_MAX_SLOTS = 1 << 20 };

extern unsigned snd_prefetch_batch; /* 0: no prefetch; see ring.c */
void snd_prefetch_slots(struct snd_producer *p);

/* snd_load_released loads how many entries the consumer has released. It ignores a number that no correct
 * consumer stores. */
static inline uint64_t snd_load_released(struct snd_producer *p)
{
	uint64_t head = snd_load(p->head); /* ORDER slot-free: pairs with the stores in snd_release_slots */
	if (head - p->released <= p->next - p->released)
		p->released = head;
	return p->released;
}

static inline uint64_t snd_free_slots(struct snd_producer *p)
{
	uint64_t room = p->mask + 1 - (p->next - p->released);
	if (room != 0)
		return room;
	snd_load_released(p);
	return p->mask + 1 - (p->next - p->released);
}

static inline struct snd_slot *snd_next_slot(struct snd_producer *p) { return &p->slots[p->next & p->mask]; }

/* snd_publish publishes the entry that the caller has put into snd_next_slot. A later load of the producer may
 * overtake a relaxed store: then the consumer's process runs snd_heavy_global before its last check. */
static inline void snd_publish(struct snd_producer *p)
{
	struct snd_slot *s = snd_next_slot(p);
	p->next++;
	if (snd_likely(p->relaxed)) {
		snd_release(&s->seq, p->next); /* ORDER slot-full: pairs with the load in snd_front */
		atomic_signal_fence(memory_order_seq_cst);
	} else {
		snd_store_full(&s->seq, p->next); /* ORDER slot-full: pairs with the load in snd_front */
	}
	if (snd_prefetch_batch != 0 && p->next % snd_prefetch_batch == 0)
		snd_prefetch_slots(p);
}

/* snd_front returns the oldest entry, NULL if there is none. The peer can overwrite it at any time. */
static inline struct snd_slot *snd_front(const struct snd_consumer *c)
{
	struct snd_slot *s = &c->slots[c->next & c->mask];
	return snd_load(&s->seq) == c->next + 1 ? s : NULL; /* ORDER slot-full: pairs with the stores in snd_publish */
}

/* snd_release_slots tells the producer that all entries so far have been consumed. */
static inline void snd_release_slots(struct snd_consumer *c)
{
	c->released = c->next;
	snd_release(c->head, c->released); /* ORDER slot-free: pairs with the load in snd_load_released */
	atomic_signal_fence(memory_order_seq_cst);
}

/* snd_release_slots_fenced is that with a full barrier, before a load of the producer's words. */
static inline void snd_release_slots_fenced(struct snd_consumer *c)
{
	c->released = c->next;
	snd_store_full(c->head, c->released); /* ORDER slot-free: pairs with the load in snd_load_released */
}

static inline uint64_t snd_unreleased(const struct snd_consumer *c) { return c->next - c->released; }

#endif

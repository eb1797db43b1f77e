/* Numbers of endpoints, by which other processes find them. See docs/shared-memory.md, "Number entry". */
#ifndef SND_SHM_NUMBER_H
#define SND_SHM_NUMBER_H

#include "shm/member.h"

struct snd_endpoint;

/* snd_own_number is a number of this member. */
struct snd_own_number {
	struct snd_endpoint *endpoint; /* that has it; NULL = none */
	struct snd_number_entry *entry;
	uint64_t use;   /* how often it was ready */
	uint32_t value;
	uint32_t state; /* of its entry */
	uint32_t next;  /* index of the next free number; 0 = none */
};

/* snd_seen_number is a checked copy of a number's entry. */
struct snd_seen_number {
	struct snd_peer peer; /* the member that has it */
	uint32_t state;
	uint32_t dest; /* the number that its endpoint names */
	uint64_t use;
};

/* snd_take_number takes the number that has been free for longest. */
snd_status snd_take_number(struct snd_fabric *f, uint32_t *number, const char *op);
void snd_give_number(struct snd_fabric *f, struct snd_own_number *n);
/* snd_find_own_number returns a number of this member, NULL unless it is taken. */
struct snd_own_number *snd_find_own_number(const struct snd_fabric *f, uint32_t number);
/* snd_show_number stores the state of the entry. */
void snd_show_number(struct snd_fabric *f, struct snd_own_number *n, uint32_t state);
/* snd_show_ready is snd_show_number for a number whose endpoint waits for that of dest. */
void snd_show_ready(struct snd_fabric *f, struct snd_own_number *n, uint32_t dest);
/* snd_find_number reads the entry of a number. It returns false if no live member has the number. */
bool snd_find_number(const struct snd_fabric *f, uint32_t number, struct snd_seen_number *seen);
void snd_numbers_free(struct snd_fabric *f);

#endif

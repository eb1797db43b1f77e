/* Doubly linked lists. A link that is in no list points to itself. */
#ifndef SND_LIST_H
#define SND_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct snd_link {
	struct snd_link *next, *previous;
};

static inline void snd_list_init(struct snd_link *l) { l->next = l->previous = l; }
static inline bool snd_list_is_empty(const struct snd_link *l) { return l->next == l; }
static inline void snd_list_append(struct snd_link *list, struct snd_link *l)
{
	l->previous = list->previous;
	l->next = list;
	list->previous->next = l;
	list->previous = l;
}
static inline void snd_list_remove(struct snd_link *l)
{
	l->previous->next = l->next;
	l->next->previous = l->previous;
	snd_list_init(l);
}

#define SND_OF(link, type, field) ((type *)(void *)((char *)(link) - offsetof(type, field)))

#endif

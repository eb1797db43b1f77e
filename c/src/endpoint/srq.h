/* The private part of a shared receive queue. */
#ifndef SND_SRQ_H
#define SND_SRQ_H

#include "endpoint/endpoint.h"

struct snd_srq {
	struct snd_object object;
	struct snd_link link;
	struct snd_adapter *adapter;
	struct snd_receive *receives; /* a ring */
	struct snd_entry *entries;
	uint64_t mask, head, tail;
	struct snd_link waiting; /* endpoints with a message that found no receive, oldest first */
	uint64_t events;         /* how often the number of receives fell below the threshold */
	uint32_t cancels; /* how often its waits were cancelled */
	uint32_t depth, threshold, max_sge;
	uint32_t references; /* of endpoints that are not freed */
	bool closed;
	void (*hook)(void *arg); /* see snd_srq_arm */
	void *hook_arg;
};

/* snd_srq_arm sets the threshold, 0 for none. When fewer receives are outstanding, perhaps at once, it becomes 0, and hook is called with the
 * fabric's lock held. */
snd_status snd_srq_arm(snd_srq *srq, uint32_t threshold, void (*hook)(void *arg), void *arg);
uint32_t snd_srq_threshold(snd_srq *srq);

/* snd_srq_release frees a closed queue that nothing refers to. */
void snd_srq_release(struct snd_srq *q);

/* snd_assign_receive gives the oldest receive of the shared queue to an endpoint at which a message has begun. It returns
 * false if the endpoint has to wait. */
bool snd_assign_receive(struct snd_endpoint *ep);
/* snd_remove_waiter is called when the endpoint's connection ends. */
void snd_remove_waiter(struct snd_endpoint *ep);

#endif

/* Members of an arena. */
#ifndef SND_SHM_MEMBER_H
#define SND_SHM_MEMBER_H

#include "shm/fabric.h"

/* snd_join makes f a member. prepare is called when f has its record and status page, before other members see it. */
snd_status snd_join(struct snd_fabric *f, int32_t rank, void (*prepare)(struct snd_fabric *), const char *op);
void snd_leave(struct snd_fabric *f);
/* snd_use_slot makes snd_used_slots cover a slot, here and in processes that see the header before a peer lowers the number. */
void snd_use_slot(struct snd_arena *a, uint32_t slot);
/* snd_used_slots returns how many member records have been in use: the walks over the records end there, because each page of them costs a
 * process a page fault. Slots of ranks count in any case. If a peer has lowered the number, snd_used_slots raises it again. */
uint32_t snd_used_slots(struct snd_arena *a);
/* snd_mark_rank sets a bit in the word of the fabric's rank, unless another member has taken the rank. */
void snd_mark_rank(struct snd_fabric *f, uint64_t bit);
/* snd_pid_namespace returns the inode of this process's PID namespace, 0 if /proc does not show it. */
uint64_t snd_pid_namespace(void);
/* snd_is_own_pid_namespace reports whether a namespace is known, and this process's. */
bool snd_is_own_pid_namespace(uint64_t ns);
/* snd_peer_of returns the peer of an identity that a peer may have written; false if no member can have it. */
bool snd_peer_of(const struct snd_fabric *f, uint64_t id, struct snd_peer *p);
/* snd_rank_of returns the rank of a member; -1 = it is no rank, or not known. */
int32_t snd_rank_of(const struct snd_fabric *f, uint64_t member);
bool snd_peer_in_slot(const struct snd_fabric *f, uint32_t slot, struct snd_peer *p);
bool snd_peer_owns(const struct snd_fabric *f, const struct snd_peer *p, uint64_t offset, uint64_t length);
void snd_peer_name(const struct snd_peer *p, char *text, size_t size);
static inline bool snd_peer_gone(const struct snd_peer *p)
{
	uint64_t s = snd_load(&p->record->state); /* ORDER member-live, member-dead: pairs with the stores in take, snd_mark_dead and repair */
	return snd_unlikely(snd_state_status(s) != SNDL_STATUS_LIVE ||
		snd_member_id(snd_member_slot(p->id), snd_state_incarnation(s)) != p->id);
}

#endif

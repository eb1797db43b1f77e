/* The inbox of a member: records that other members send. */
#ifndef SND_SHM_INBOX_H
#define SND_SHM_INBOX_H

#include "shm/fabric.h"

void snd_send_mail(struct snd_fabric *f, const struct snd_peer *p, uint64_t offset, snd_word *link);
/* snd_read_inbox has take handle the records at the offsets of the inbox, which are not checked. It reports whether there were any. */
bool snd_read_inbox(struct snd_fabric *f, void (*take)(struct snd_fabric *, uint64_t offset));

#endif

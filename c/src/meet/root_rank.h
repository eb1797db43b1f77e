/* A rank's side of a meeting at SOFTND_ROOT, where ranks meet without a launcher. See internal/meet/rendezvous. */
#ifndef SND_ROOT_RANK_H
#define SND_ROOT_RANK_H

#include "meet/pmi.h"
#include "meet/tcp.h"
#include "sha256.h"

struct snd_root;

struct snd_root_config {
	struct snd_tcp_address at; /* at which rank 0 listens */
	struct snd_bytes secret;
	uint32_t rank, size;
	int64_t silence; /* of snd_tcp_tune */
};

/* snd_root_join meets rank 0, which it starts if this is rank 0. It tries again until a deadline if nothing listens. A thread of the
 * library takes the messages of rank 0 from then on. */
snd_status snd_root_join(struct snd_root **root, const struct snd_root_config *config, int64_t deadline, const char *op);
/* snd_root_name returns a name that no other job has. snd_root_local writes the address of this host by which it reaches rank 0. */
const char *snd_root_name(const struct snd_root *r);
void snd_root_local(const struct snd_root *r, char text[SND_TCP_TEXT]);

/* As the calls of pmi.h. After a barrier that has timed out, no other request may follow. */
snd_status snd_root_put(struct snd_root *r, const char *key, const char *value, int64_t deadline, const char *op);
snd_status snd_root_get(struct snd_root *r, const char *key, char value[SND_PMI_VALUE + 1], int64_t deadline, const char *op);
snd_status snd_root_barrier(struct snd_root *r, int64_t deadline, const char *op);

/* snd_root_watch has the thread call a function if another rank has ended the job, and at once if that has happened already. */
void snd_root_watch(struct snd_root *r, void (*ended)(void *arg, int code, const char *why), void *arg);
/* snd_root_has_ended fails if another rank has ended the job. */
snd_status snd_root_has_ended(struct snd_root *r, const char *op);

/* snd_root_leave tells rank 0 that this rank ends well. In rank 0 it blocks until the others have left, and fails if one of them has
 * ended the job. In other ranks it fails if the connection ends before rank 0 has answered. It also fails if rank 0 does not answer in two
 * seconds. snd_root_close frees r then. snd_root_hang_up only frees r: rank 0 takes this rank for dead. */
snd_status snd_root_leave(struct snd_root *r, const char *op);
void snd_root_close(struct snd_root *r);
void snd_root_hang_up(struct snd_root *r);
/* snd_root_abort has rank 0 end the job. It returns false if rank 0 was not told. Any thread may call it at any time. */
bool snd_root_abort(struct snd_root *r, int code, const char *reason);

#endif

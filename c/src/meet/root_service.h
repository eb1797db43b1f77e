/* Rank 0's side of a meeting at SOFTND_ROOT: the key-value space, the barrier, and the news of deaths. A thread serves all ranks,
 * also rank 0, which connects as the others do. See internal/meet/rendezvous. */
#ifndef SND_ROOT_SERVICE_H
#define SND_ROOT_SERVICE_H

#include "meet/tcp.h"
#include "sha256.h"

struct snd_root_service;

/* snd_root_serve starts the service. The secret is copied. silence is that of snd_tcp_tune. */
snd_status snd_root_serve(struct snd_root_service **service, const struct snd_tcp_address *at, const struct snd_bytes *secret, uint32_t size, int64_t silence, const char *op);
/* snd_root_await_end blocks until all ranks have left. It fails if one of them has ended the job. */
snd_status snd_root_await_end(struct snd_root_service *s, const char *op);
/* snd_root_stop ends the service, and frees it. If died is not NULL, it tells the ranks before that rank 0 ends the job. */
void snd_root_stop(struct snd_root_service *s, const char *died);

#endif

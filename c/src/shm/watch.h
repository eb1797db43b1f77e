/* A thread that sleeps until a process has ended or asks to join, so that no other thread must look for that. */
#ifndef SND_WATCH_H
#define SND_WATCH_H

#include "shm/fabric.h"

snd_status snd_watch_start(struct snd_fabric *f, const char *op);
void snd_watch_stop(struct snd_fabric *f);
/* snd_watch_only makes the thread watch exactly these members, snd_watch_also one more. The caller holds the lock. Without
 * the thread they do nothing. */
void snd_watch_only(struct snd_fabric *f, const uint64_t *members, uint32_t count);
void snd_watch_also(struct snd_fabric *f, uint64_t member);

#endif

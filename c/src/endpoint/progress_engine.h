/* The engine: a thread that makes progress when the program does not. */
#ifndef SND_ENDPOINT_PROGRESS_ENGINE_H
#define SND_ENDPOINT_PROGRESS_ENGINE_H

#include "shm/fabric.h"

snd_status snd_engine_start(struct snd_fabric *f, const char *op);
void snd_engine_stop(struct snd_fabric *f);

#endif

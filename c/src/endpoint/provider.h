/* Opening and closing a fabric. */
#ifndef SND_ENDPOINT_PROVIDER_H
#define SND_ENDPOINT_PROVIDER_H

#include "window/window.h"

/* snd_fabric_begin makes a fabric that has no arena, and stores NULL into the program's handle. */
snd_status snd_fabric_begin(const snd_fabric_options *options, snd_fabric **handle, struct snd_fabric **fabric, const char *op);
void snd_close_fabric(struct snd_fabric *f);
snd_status snd_fabric_finish(struct snd_fabric *f, snd_status s, int32_t rank, snd_fabric **fabric, const char *op);
/* snd_fabric_join is snd_fabric_open with the number of the host, and with a deadline; a negative one is none. */
snd_status snd_fabric_join(const char *name, uint32_t ranks, uint32_t host, uint64_t size, int32_t rank, const snd_fabric_options *options, int64_t deadline,
	snd_fabric **fabric, const char *op);

/* snd_large_limits are those of softnd, snd_small_limits those with a weak order: little hardware has less. */
extern const struct snd_limits snd_large_limits, snd_small_limits;

#endif

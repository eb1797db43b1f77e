/* The end of a fast registration. */
#ifndef SND_WINDOW_FASTREG_H
#define SND_WINDOW_FASTREG_H

#include "window/window.h"

/* snd_end_registration ends a fast registration whose tokens are drained, if no window uses the region. */
void snd_end_registration(struct snd_region *r);
void snd_free_registration(struct snd_registration *g);

#endif

/* The control channel between a rank and ndrun, see internal/meet/controlchannel. */
#ifndef SND_CONTROL_CHANNEL_H
#define SND_CONTROL_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

/* snd_control_is_address reports whether text has the form of an address: name:secret:identity. */
bool snd_control_is_address(const char *text);
/* snd_control_dial connects to the launcher as a rank. It returns a socket, or -1 with the reason in the text. If
 * file is not NULL, the launcher sends the job's file. */
int snd_control_dial(const char *address, uint32_t rank, int *file, const char *op);
/* snd_control_leave tells the launcher that the rank ends in good order, and closes the channel. */
void snd_control_leave(int channel);
/* snd_control_abort asks the launcher to end the job with an exit code and a reason of at most SND_MAX_REASON bytes. */
enum { SND_MAX_REASON = 512 };
bool snd_control_abort(int channel, int code, const char *reason);
/* snd_control_names reports whether the address names the file with this identity. */
bool snd_control_names(const char *address, const uint64_t id[2]);

#endif

/* The control channel between a rank and ndrun, see internal/meet/controlchannel. */
#ifndef SND_LAUNCHER_H
#define SND_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

/* snd_launcher_is_address reports whether text has the form of an address: name:secret:identity. */
bool snd_launcher_is_address(const char *text);
/* snd_launcher_dial connects to the launcher as a rank. It returns a socket, or -1 with the reason in the text. If
 * file is not NULL, the launcher sends the job's file. */
int snd_launcher_dial(const char *address, uint32_t rank, int *file, const char *op);
/* snd_launcher_leave tells the launcher that the rank ends in good order, and closes the channel. */
void snd_launcher_leave(int channel);
/* snd_launcher_abort asks the launcher to end the job with an exit code and a reason of at most SND_MAX_REASON bytes. */
enum { SND_MAX_REASON = 512 };
bool snd_launcher_abort(int channel, int code, const char *reason);
/* snd_launcher_names reports whether the address names the file with this identity. */
bool snd_launcher_names(const char *address, const uint64_t id[2]);

#endif

/* The program's handlers of signals. */
#ifndef SND_HANDLERS_H
#define SND_HANDLERS_H

#include <stdbool.h>

/* snd_handlers_restart reports whether calls go on after each handler that the program has (SA_RESTART), but for those of faults. The read
 * of a card's descriptor does; poll never. */
bool snd_handlers_restart(void);

#endif

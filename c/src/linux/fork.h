/* A forked child must keep neither the lock of a member that is just joining, nor the name of a fabric, nor the connection
 * to the launcher. Otherwise other processes would not detect the end of the parent before that of the child. It may use the library as if it
 * had not been used before: each part drops what it has inherited. */
#ifndef SND_FORK_H
#define SND_FORK_H

#include <stdbool.h>

/* snd_fork_prepare installs the handlers of fork; it returns false if there is no memory. */
bool snd_fork_prepare(void);
/* Between snd_fork_hold and snd_fork_release no child is made. The section must not block for long: fork waits for it. It
 * blocks signals, whose handlers might call fork. */
void snd_fork_hold(void);
void snd_fork_release(void);
/* snd_fork_closes makes forked children close a descriptor, and returns it; without memory it closes it, and returns -1 with
 * errno. For -1 it returns -1. The caller has called snd_fork_hold before it made the descriptor. snd_fork_close closes it in
 * this process. */
int snd_fork_closes(int fd);
void snd_fork_close(int fd);

/* snd_fork_reset is a function that runs in each forked child, before fork returns there. The child has one thread, and mutexes may be locked
 * by threads of the parent. */
struct snd_fork_reset {
	void (*run)(void);
	struct snd_fork_reset *next;
};
/* snd_fork_resets adds a function, once. The program has no other thread yet, or the caller has called snd_fork_hold. */
void snd_fork_resets(struct snd_fork_reset *r);
/* snd_fork_awaits_child makes fork return in the parent only when the functions have run in the child. The caller has called snd_fork_hold, or is one of
 * them. For that time the process keeps two spare descriptors, in whose place fork makes two others. It returns false if the process has no two free descriptors. */
bool snd_fork_awaits_child(bool awaits);
/* snd_fork_lend_spares frees the spare descriptors until snd_fork_release, and reports whether there are any. If other threads use them up, fork does not wait. */
bool snd_fork_lend_spares(void);
/* SND_RESET_IN_CHILD adds a function when the library is loaded. */
#define SND_RESET_IN_CHILD(function) \
	__attribute__((constructor)) static void add_##function(void) \
	{ \
		static struct snd_fork_reset r = {.run = function}; \
		snd_fork_resets(&r); \
	}

#endif

/* A listener of a test that plays a member of a fabric, or ndrun. */
#ifndef SND_ANSWERS_H
#define SND_ANSWERS_H

#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

/* answer_one answers the first packet whose sender still waits: a process that joins gives up an attempt after half a second, and connects again. It
 * returns the length of the packet. */
static inline size_t answer_one(int listener, void *packet, size_t size, const void *answer, size_t length)
{
	for (;;) {
		const int s = accept(listener, NULL, NULL);
		CHECK(s >= 0);
		const ssize_t n = recv(s, packet, size, 0);
		const int is_sent = n > 0 && send(s, answer, length, MSG_NOSIGNAL) == (ssize_t)length;
		CHECK(close(s) == 0);
		if (is_sent)
			return (size_t)n;
	}
}

#endif

/* Two processes of a test, which tell each other numbers. */
#ifndef SOFTND_VERBS_PROCESSES_H
#define SOFTND_VERBS_PROCESSES_H

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "sides.h"

static int other; /* a socket to the other process */
static pid_t child;

/* split makes a child, which ends with its parent. No device is open yet. It returns whether this is the child. */
static inline int split(void)
{
	int ends[2];
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 && (child = fork()) >= 0);
	other = ends[child == 0];
	CHECK(close(ends[child != 0]) == 0 && (child != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) == 0));
	return child == 0;
}

static inline void tell(const void *what, size_t size) { CHECK(send(other, what, size, MSG_NOSIGNAL) == (ssize_t)size); }
static inline void hear(void *what, size_t size) { CHECK(recv(other, what, size, 0) == (ssize_t)size); }

/* exchange is a barrier at which each process tells a number. */
static inline uint32_t exchange(uint32_t own)
{
	uint32_t theirs;
	tell(&own, sizeof own);
	hear(&theirs, sizeof theirs);
	return theirs;
}

static inline void join_child(void)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* connect_to connects a queue pair in RESET with one of the other process. Requests wait for it without end: the machine may be loaded. */
static inline void connect_to(struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_qp_attr attr = attributes(IBV_QPS_RTS, dest);
	attr.timeout = 0;
	CHECK(move(qp, IBV_QPS_INIT, 0) == 0 && move(qp, IBV_QPS_RTR, dest) == 0 && ibv_modify_qp(qp, &attr, RTS_MASK) == 0);
}

/* rounds is the number of rounds of a test, and with SOFTND_STRESS=1 another one. */
static inline unsigned rounds(unsigned plain, unsigned stress)
{
	const char *text = getenv("SOFTND_STRESS");
	return text != NULL && strcmp(text, "1") == 0 ? stress : plain;
}

#endif

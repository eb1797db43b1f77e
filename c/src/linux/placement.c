/* TWIN internal/linux/placement_unsafe.go. */
#include "linux/placement.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The numbers of newer kernels. */
enum { POPULATE_READ = 22, POPULATE_WRITE = 23, COLLAPSE = 25 };

int snd_collapse(void *at, size_t length)
{
	int e = EAGAIN;
	for (int tries = 0; tries < 3 && (e == EAGAIN || e == EINTR); tries++)
		e = madvise(at, length, COLLAPSE) == 0 ? 0 : errno;
	return e;
}

int snd_prefault(void *at, size_t length, bool write)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)at % page;
	int e;
	do
		e = madvise((unsigned char *)at - before, before + length, write ? POPULATE_WRITE : POPULATE_READ) == 0 ? 0 : errno; /* it rounds the length up */
	while (e == EINTR);
	return e;
}

int snd_set_policy(const struct snd_policy *p)
{
	return syscall(SYS_set_mempolicy, p->mode, p->nodes, (unsigned long)SND_NODES) == 0 ? 0 : errno;
}

int snd_prefer_node(uint32_t node, struct snd_policy *before)
{
	struct snd_policy p = {.mode = MPOL_PREFERRED};
	const size_t bits = 8 * sizeof p.nodes[0];
	memset(before, 0, sizeof *before);
	if (syscall(SYS_get_mempolicy, &before->mode, before->nodes, (unsigned long)SND_NODES, NULL, 0UL) != 0)
		return errno;
	p.nodes[node / bits] = 1UL << node % bits;
	return snd_set_policy(&p);
}

int snd_find_node(void *at, int *node)
{
	return syscall(SYS_get_mempolicy, node, NULL, 0UL, at, (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)) == 0 ? 0 : errno;
}

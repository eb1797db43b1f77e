/* Memory regions. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "endpoint/mr.h"
#include "objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* Requests with a list of no bytes may name a region of length 0: it has keys, and this byte, which no peer reaches. */
static const unsigned char no_bytes;

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB)

static uint32_t core_flags(unsigned access)
{
	return (access & IBV_ACCESS_LOCAL_WRITE ? SND_ALLOW_LOCAL_WRITE : 0) | (access & IBV_ACCESS_REMOTE_READ ? SND_ALLOW_REMOTE_READ : 0) |
		(access & IBV_ACCESS_REMOTE_WRITE ? SND_ALLOW_REMOTE_WRITE : 0) | (access & IBV_ACCESS_REMOTE_ATOMIC ? SND_ALLOW_REMOTE_ATOMIC : 0);
}

/* check returns an errno, as the kernel does. It knows no access that is optional. */
static int check(uintptr_t address, uint64_t length, uint64_t iova, unsigned access)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)
		return refuse(EINVAL, "register memory region: access %#x: remote writes and atomics need IBV_ACCESS_LOCAL_WRITE", access);
	if ((access & ~(unsigned)ACCESS) != 0)
		return refuse(EOPNOTSUPP, "register memory region: access %#x: %#x is not supported", access, access & ~(unsigned)ACCESS);
	if (length > UINTPTR_MAX - address || length > UINT64_MAX - iova)
		return refuse(EINVAL, "register memory region: %" PRIu64 " bytes reach beyond the end of the address space", length);
	if (iova % page != address % page)
		return refuse(EINVAL, "register memory region: iova %#" PRIx64 " and address %#" PRIxPTR " have different offsets in their pages", iova, address);
	return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *public, void *address, size_t length, uint64_t iova, unsigned access)
{
	static atomic_uint registered;
	struct pd *pd = (struct pd *)public;
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	if (check((uintptr_t)address, length, iova, access) != 0)
		return NULL;
	snd_adapter *adapter = adapter_of(pd);
	struct mr *mr = adapter == NULL ? NULL : calloc(1, sizeof *mr);
	if (mr == NULL)
		return NULL;
	const snd_status s = length > 0 ? snd_mr_register_at(adapter, address, length, iova, core_flags(access), &mr->core)
		: snd_mr_register(adapter, (void *)(uintptr_t)&no_bytes, 1, 0, &mr->core);
	if (s != SND_SUCCESS) {
		free(mr);
		(void)refuse_status(s);
		return NULL;
	}
	const char *why = snd_mr_private_because(mr->core);
	if (why != NULL)
		(void)refuse(errno, "register memory region: the %zu bytes at %p stay private: %s", length, address, why);
	mr->iova = iova;
	mr->access = access;
	mr->public = (struct ibv_mr){.context = public->context, .pd = public, .addr = address, .length = length, .handle = atomic_fetch_add(&registered, 1),
		.lkey = snd_mr_local_token(mr->core), .rkey = rkey_of(snd_mr_remote_token(mr->core))};
	atomic_fetch_add(&pd->users, 1);
	return &mr->public;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access) { return reg_mr(pd, address, length, (uintptr_t)address, (unsigned)access); }

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, int access) { return reg_mr(pd, address, length, iova, (unsigned)access); }

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned access) { return reg_mr(pd, address, length, iova, access); }

int ibv_dereg_mr(struct ibv_mr *public)
{
	struct mr *mr = (struct mr *)public;
	const int error = refuse_end(snd_mr_close(mr->core, SND_FOREVER));
	if (error != 0)
		return error;
	atomic_fetch_sub(&((struct pd *)public->pd)->users, 1);
	free(mr);
	return 0;
}

int ibv_rereg_mr(struct ibv_mr *public, int flags, struct ibv_pd *pd, void *address, size_t length, int access)
{
	struct mr *mr = (struct mr *)public;
	const int known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
	if (flags == 0 || (flags & ~known) != 0 || ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && pd == NULL)) {
		(void)refuse(EINVAL, "register memory region again: flags %#x", (unsigned)flags);
		return IBV_REREG_MR_ERR_INPUT;
	}
	const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
	struct mr *next = (struct mr *)reg_mr(flags & IBV_REREG_MR_CHANGE_PD ? pd : public->pd, moves ? address : public->addr, moves ? length : public->length,
		moves ? (uintptr_t)address : mr->iova, flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned)access : mr->access);
	if (next == NULL)
		return IBV_REREG_MR_ERR_INPUT;
	struct mr before = *mr;
	if (refuse_end(snd_mr_replace(mr->core, next->core)) != 0) { /* a window is bound to it */
		(void)ibv_dereg_mr(&next->public);
		return IBV_REREG_MR_ERR_INPUT;
	}
	/* The keys stay as they are: programs need not tell them to their peers again. */
	next->public.lkey = before.public.lkey;
	next->public.rkey = before.public.rkey;
	atomic_fetch_sub(&((struct pd *)before.public.pd)->users, 1);
	*mr = *next;
	free(next);
	return 0;
}

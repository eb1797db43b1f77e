/* TWIN endpoint/mr.go. */
#include "endpoint/mr.h"

#include <inttypes.h>
#include <stdio.h>

#include "endpoint/hook.h"
#include "endpoint/mr_adopt.h"
#include "endpoint/mr_allocation.h"
#include "endpoint/progress.h"
#include "endpoint/progress_wait.h"
#include "linux/memory_limit.h"
#include "linux/placement.h"
#include "linux/procmaps.h"
#include "shm/work.h"
#include "window/invalidatable.h"
#include "window/region.h"

static snd_status new_mr(struct snd_adapter *a, struct snd_mr **mr, const char *op)
{
	struct snd_mr *m = snd_new(a->object.fabric, SND_TYPE_MR, sizeof *m);
	if (m == NULL)
		return snd_no_memory(sizeof *m, "private memory", op);
	snd_status s = snd_region_init(&m->region, a, op);
	if (s != SND_SUCCESS) {
		snd_object_free(&m->object);
		return s;
	}
	*mr = m;
	return SND_SUCCESS;
}

static void add_mr(struct snd_mr *m)
{
	snd_list_append(&m->object.fabric->regions, &m->link);
	m->region.i.adapter->objects++;
}

static snd_status begin_mr(struct snd_adapter *a, uint64_t length, uint32_t flags, uint32_t known, struct snd_mr **mr, const char *op)
{
	if (length == 0)
		return snd_fail(SND_INVALID_BUFFER_SIZE, "%s: 0 bytes: register at least 1 byte", op);
	if (length > SND_MAX_REGISTRATION)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu64 " bytes, at most %" PRIu64 ": use several regions", op, length, SND_MAX_REGISTRATION);
	if ((flags & ~known) != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: unknown flags %#" PRIx32 ": pass SND_ALLOW_LOCAL_WRITE and the other flags of regions", op, flags & ~known);
	snd_status s = snd_before_call(&a->object, op, length, 0, NULL);
	snd_free_released(a->object.fabric);
	if (s == SND_SUCCESS && (s = new_mr(a, mr, op)) == SND_SUCCESS)
		(*mr)->length = length;
	return s;
}

static void abandon_mr(struct snd_mr *m)
{
	snd_region_end(&m->region);
	snd_object_free(&m->object);
}

/* The flags of snd_mr_register and snd_mr_allocate. */
#define REGISTER_FLAGS (SND_REGION_FLAGS | SND_PREFAULT | SND_REQUIRE_PLACEMENT)
#define ALLOCATE_FLAGS (REGISTER_FLAGS | SND_HUGE_PAGES | SND_NODE_FLAGS)

static bool allows_writes(uint32_t flags)
{
	return (flags & (SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC)) != 0; /* each bit of them alone, too */
}

/* prefault fills the page tables, if flags ask for that. */
static snd_status prefault(struct snd_mr *m, void *buffer, uint32_t flags, const char *op)
{
	char lacks[120];
	const bool write = m->allocation != NULL || m->hold != NULL || allows_writes(flags); /* allocated memory can always be written */
	const int e = (flags & SND_PREFAULT) != 0 ? snd_prefault(buffer, m->length, write) : 0;
	if (e == 0)
		m->placement |= flags & SND_PREFAULT;
	if (e == 0 || (flags & SND_REQUIRE_PLACEMENT) == 0)
		return SND_SUCCESS;
	snprintf(lacks, sizeof lacks, "prefault: madvise(%s): %s", write ? "MADV_POPULATE_WRITE" : "MADV_POPULATE_READ", snd_errno_text(e));
	return snd_refuse_placement(lacks, op);
}

static void complete_mr(struct snd_mr *m, void *buffer, uint64_t base, uint32_t flags)
{
	struct snd_fabric *f = m->object.fabric;
	struct snd_location place = {.offset = snd_locate(&f->arena, buffer, m->length)};
	m->buffer = buffer;
	m->address = base;
	if (m->allocation == NULL && m->hold == NULL && (allows_writes(flags) || (flags & SND_ALLOW_REMOTE_READ) != 0))
		m->adopted = snd_adopt(f, buffer, m->length, &place, &m->private_because);
	snd_region_register_at(&m->region, buffer, m->length, place, base, flags);
	add_mr(m);
}

snd_status snd_mr_allocate(snd_adapter *adapter, uint64_t length, uint32_t flags, snd_mr **mr)
{
	SND_KEEP_ERRNO;
	const char *op = "allocate memory region";
	SND_ENTER_TO(adapter, SND_TYPE_ADAPTER, mr, op);
	*mr = NULL;
	struct snd_fabric *f = adapter->object.fabric;
	struct snd_mr *m = NULL;
	snd_status s = begin_mr(adapter, length, flags, ALLOCATE_FLAGS, &m, op);
	if (s == SND_SUCCESS && (s = snd_allocate(f, length, flags, &m->allocation, &m->placement, op)) != SND_SUCCESS)
		abandon_mr(m);
	if (s == SND_SUCCESS && (s = prefault(m, snd_allocated(m->allocation), flags, op)) != SND_SUCCESS) {
		snd_end_allocation(f, m->allocation);
		abandon_mr(m);
	}
	if (s == SND_SUCCESS) {
		complete_mr(m, snd_allocated(m->allocation), (uint64_t)(uintptr_t)snd_allocated(m->allocation), flags & SND_REGION_FLAGS);
		*mr = m;
	}
	return snd_leave_with(f, s);
}

/* hold checks that the process may access the memory as flags say. It keeps allocated memory in place. */
static snd_status hold(struct snd_mr *m, unsigned char *buffer, uint64_t length, uint32_t flags, const char *op)
{
	snd_status s = snd_hold_memory(buffer, length, &m->hold, op);
	if (s != SND_SUCCESS || m->hold != NULL)
		return s;
	struct snd_inaccessible bad;
	s = snd_check_access((uint64_t)(uintptr_t)buffer, length, allows_writes(flags), &bad, op);
	if (s != SND_SUCCESS && snd_prefault(buffer, length, allows_writes(flags)) == 0)
		return SND_SUCCESS; /* the kernel has accessed it all */
	if (s != SND_SUCCESS || bad.reason == NULL)
		return s;
	const uint64_t at = bad.start - (uint64_t)(uintptr_t)buffer;
	return snd_fail(SND_ACCESS_VIOLATION, "%s: bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64 " (%#" PRIx64 "-%#" PRIx64
		") are %s: register memory that the process itself can access in this way, or ask for fewer rights", op,
		at, at + bad.end - bad.start - 1, length, bad.start, bad.end, bad.reason);
}

snd_status snd_mr_register(snd_adapter *adapter, void *buffer, uint64_t length, uint32_t flags, snd_mr **mr)
{
	return snd_mr_register_at(adapter, buffer, length, (uint64_t)(uintptr_t)buffer, flags, mr);
}

snd_status snd_mr_register_at(snd_adapter *adapter, void *buffer, uint64_t length, uint64_t base, uint32_t flags, snd_mr **mr)
{
	SND_KEEP_ERRNO;
	const char *op = "register";
	SND_CHECK(adapter, SND_TYPE_ADAPTER, op);
	if (mr == NULL || buffer == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s is NULL", op, mr == NULL ? "mr" : "buffer");
	*mr = NULL;
	if (length > UINTPTR_MAX - (uintptr_t)buffer || length > UINT64_MAX - base)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu64 " bytes reach beyond the end of the address space", op, length);
	SND_ENTER(adapter, SND_TYPE_ADAPTER, op);
	struct snd_fabric *f = adapter->object.fabric;
	struct snd_mr *m = NULL;
	snd_status s = begin_mr(adapter, length, flags, REGISTER_FLAGS, &m, op);
	if (s == SND_SUCCESS && (s = hold(m, buffer, length, flags, op)) != SND_SUCCESS)
		abandon_mr(m);
	if (s == SND_SUCCESS && (s = prefault(m, buffer, flags, op)) != SND_SUCCESS) {
		snd_release_hold(f, m->hold);
		abandon_mr(m);
	}
	if (s == SND_SUCCESS) {
		complete_mr(m, buffer, base, flags & SND_REGION_FLAGS);
		*mr = m;
	}
	return snd_leave_with(f, s);
}

snd_status snd_mr_create_fast(snd_adapter *adapter, uint32_t pages, int remote, snd_mr **mr)
{
	SND_KEEP_ERRNO;
	const char *op = "create memory region";
	SND_CHECK(adapter, SND_TYPE_ADAPTER, op);
	SND_CHECK_POINTER(mr, op);
	*mr = NULL;
	if (pages < 1 || pages > SND_MAX_FAST_PAGES)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu32 " pages, allowed 1 to %d: use several regions, or snd_mr_register", op, pages, SND_MAX_FAST_PAGES);
	SND_ENTER(adapter, SND_TYPE_ADAPTER, op);
	struct snd_mr *m = NULL;
	snd_status s = new_mr(adapter, &m, op);
	if (s == SND_SUCCESS) {
		m->fast_pages = pages;
		m->fast_remote = remote != 0;
		add_mr(m);
		*mr = m;
	}
	return snd_leave_with(adapter->object.fabric, s);
}

void *snd_mr_buffer(snd_mr *mr) { SND_GET(mr, SND_TYPE_MR, "buffer of memory region", void *, mr->buffer, NULL); }
uint64_t snd_mr_length(snd_mr *mr) { SND_GET(mr, SND_TYPE_MR, "length of memory region", uint64_t, mr->length, 0); }
uint64_t snd_mr_address(snd_mr *mr) { SND_GET(mr, SND_TYPE_MR, "address of memory region", uint64_t, mr->address, 0); }
uint32_t snd_mr_placement(snd_mr *mr) { SND_GET(mr, SND_TYPE_MR, "placement of memory region", uint32_t, mr->placement, 0); }
uint32_t snd_mr_local_token(snd_mr *mr) { SND_GET(mr, SND_TYPE_MR, "local token", uint32_t, mr->region.local_token, 0); }
uint32_t snd_mr_remote_token(snd_mr *mr) { SND_GET(mr, SND_TYPE_MR, "remote token", uint32_t, mr->region.remote_token, 0); }

const char *snd_mr_private_because(snd_mr *mr) { SND_GET(mr, SND_TYPE_MR, "region", const char *, mr->private_because, NULL); }

snd_sge snd_mr_sge(snd_mr *mr, uint64_t offset, size_t length)
{
	const char *op = "entry of memory region";
	snd_sge sge = {NULL, UINT32_MAX, 0};
	if (!snd_enter(SND_OBJECT(mr), SND_TYPE_MR)) {
		(void)snd_bad_handle(op, "mr");
		return sge;
	}
	if (mr->buffer == NULL)
		snd_record_failure("%s: the region is for fast registration: pass the region that has the memory", op);
	else if (offset > mr->length || length > mr->length - offset)
		snd_record_failure("%s: %zu bytes at %" PRIu64 " are not in the %" PRIu64 " of the region", op, length, offset, mr->length);
	else if (length > UINT32_MAX)
		snd_record_failure("%s: %zu bytes, at most %" PRIu32 ": use several entries", op, length, UINT32_MAX);
	else
		sge = (snd_sge){(unsigned char *)mr->buffer + offset, (uint32_t)length, mr->region.local_token};
	snd_unlock(mr->object.fabric);
	return sge;
}

snd_status snd_mr_query(snd_mr *mr, snd_window_descriptor *descriptor)
{
	const char *op = "query memory region";
	SND_ENTER_TO(mr, SND_TYPE_MR, descriptor, op);
	*descriptor = (snd_window_descriptor){mr->address, mr->length, mr->region.remote_token, 0};
	return snd_leave_with(mr->object.fabric, SND_SUCCESS);
}

/* close_mr ends a region. Its tokens go to next; NULL: no region has them afterwards. */
static snd_status close_mr(snd_mr *mr, snd_mr *next, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "close memory region";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(mr, SND_TYPE_MR, op);
	struct snd_fabric *f = mr->object.fabric;
	snd_settle_deliveries(f, mr->region.i.adapter);
	snd_run_deferred(f);
	snd_free_released(f);
	if (mr->region.i.windows > 0 || mr->mappings > 0)
		return snd_leave_with(f, snd_fail(SND_DEVICE_BUSY, "%s: %s", op, mr->mappings > 0 ? "a logical mapping lists its pages: close the mapping first"
			: "a window is bound to the region: invalidate it first"));
	mr->region.i.retired = true;
	snd_revoke_all(&mr->region.i);
	snd_hold(&mr->object);
	snd_status s = snd_wait_drained(f, timeout, snd_end_invalidation_of, &mr->region.i, &(struct snd_call){.op = op, .object = "memory region"});
	if (snd_is_closed(&mr->object)) {
		s = snd_closed_meanwhile(op);
	} else if (s == SND_SUCCESS) {
		if (next != NULL)
			snd_region_inherit(&next->region, &mr->region);
		else
			snd_region_end(&mr->region);
		if (mr->allocation != NULL)
			snd_end_allocation(f, mr->allocation);
		snd_return(f, mr->adopted);
		snd_release_hold(f, mr->hold);
		snd_object_hide(&mr->object);
		snd_free_closed(&mr->region.i);
	} else {
		s = snd_not_drained(s, timeout, op);
	}
	snd_let_go(&mr->object);
	return snd_leave_with(f, s);
}

snd_status snd_mr_close(snd_mr *mr, int64_t timeout) { return close_mr(mr, NULL, timeout); }
snd_status snd_mr_replace(snd_mr *mr, snd_mr *next) { return close_mr(mr, next, SND_FOREVER); }

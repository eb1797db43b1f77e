/* Logical mappings: lists of pages of allocated memory, for fast registrations. The address of a page is its offset in the
 * arena. The privileged token is a local token for the memory of all mappings of an adapter. TWIN endpoint/mr_mapping.go. */
#include "endpoint/mr_mapping.h"

#include <inttypes.h>

#include "endpoint/progress.h"
#include "endpoint/progress_wait.h"
#include "linux/memory_limit.h"
#include "shm/work.h"
#include "window/invalidatable.h"
#include "window/region.h"

struct snd_mapping *snd_find_mapping(struct snd_adapter *a, uint64_t page, uint64_t lo, uint64_t hi)
{
	if (page % SND_PAGE_SIZE != 0 || page > a->object.fabric->arena.size)
		return NULL;
	for (struct snd_link *l = a->mappings.next; l != &a->mappings; l = l->next) {
		struct snd_mapping *m = SND_OF(l, struct snd_mapping, link);
		if (!m->closing && page < m->end && page + SND_PAGE_SIZE > m->start && (lo == hi || (page + lo >= m->start && page + hi <= m->end)))
			return m;
	}
	return NULL;
}

bool snd_resolve(const struct snd_adapter *a, uint64_t address, uint32_t length, uint32_t *token)
{
	if (a->privileged == 0 || *token != a->privileged)
		return false;
	for (struct snd_link *l = a->mappings.next; l != &a->mappings; l = l->next) {
		struct snd_mapping *m = SND_OF(l, struct snd_mapping, link);
		if (!m->closing && snd_within(address, length, m->region.address, m->region.length)) {
			*token = m->region.local_token;
			return true;
		}
	}
	return false;
}

snd_status snd_adapter_privileged_token(snd_adapter *adapter, uint32_t *token)
{
	SND_KEEP_ERRNO;
	const char *op = "privileged token";
	SND_ENTER_TO(adapter, SND_TYPE_ADAPTER, token, op);
	*token = 0;
	struct snd_fabric *f = adapter->object.fabric;
	snd_status s = SND_SUCCESS;
	if (adapter->privileged == 0) {
		uint32_t bind;
		if ((s = snd_take_entry(f->table, &adapter->privileged_entry, op)) == SND_SUCCESS) /* never valid, and not used for anything else */
			adapter->privileged = snd_next_token(adapter->privileged_entry, &bind);
	}
	*token = adapter->privileged;
	return snd_leave_with(f, s);
}

/* new_mapping makes a mapping of a part of mr. */
static snd_status new_mapping(struct snd_mr *mr, unsigned char *buffer, uint64_t length, struct snd_mapping **mapping, const char *op)
{
	struct snd_fabric *f = mr->object.fabric;
	struct snd_adapter *a = mr->region.i.adapter;
	if (mr->allocation == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: the region is not in the arena: use one of snd_mr_allocate", op);
	if (length == 0 || !snd_within((uint64_t)(uintptr_t)buffer, length, (uint64_t)(uintptr_t)mr->buffer, mr->length))
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu64 " bytes at %p are not a part of the region", op, length, (void *)buffer);
	if (mr->region.i.retired)
		return snd_fail(SND_INVALID_HANDLE, "%s: the region is being closed", op);
	struct snd_mapping *m = snd_new(f, SND_TYPE_MAPPING, sizeof *m);
	if (m == NULL)
		return snd_no_memory(sizeof *m, "private memory", op);
	snd_status s = snd_region_init(&m->region, a, op);
	if (s != SND_SUCCESS) {
		snd_object_free(&m->object);
		return s;
	}
	m->mr = mr;
	m->start = snd_locate(&f->arena, buffer, length);
	m->end = m->start + length;
	snd_region_register(&m->region, buffer, length, SND_ALLOW_LOCAL_WRITE);
	snd_list_append(&a->mappings, &m->link);
	a->objects++;
	mr->mappings++;
	*mapping = m;
	return SND_SUCCESS;
}

snd_status snd_mapping_create(snd_mr *mr, void *buffer, uint64_t length, snd_mapping **mapping)
{
	SND_KEEP_ERRNO;
	const char *op = "create logical mapping";
	SND_ENTER_TO(mr, SND_TYPE_MR, mapping, op);
	*mapping = NULL;
	return snd_leave_with(mr->object.fabric, new_mapping(mr, buffer, length, mapping, op));
}

static uint32_t list_pages(const struct snd_mapping *m, uint64_t *pages, uint32_t capacity)
{
	uint64_t first = m->start / SND_PAGE_SIZE, count = (m->end + SND_PAGE_SIZE - 1) / SND_PAGE_SIZE - first;
	for (uint64_t i = 0; pages != NULL && i < count && i < capacity; i++)
		pages[i] = (first + i) * SND_PAGE_SIZE;
	return (uint32_t)count; /* a region has at most 64 GiB */
}

uint32_t snd_mapping_pages(snd_mapping *mapping, uint64_t *pages, uint32_t capacity)
{
	SND_GET(mapping, SND_TYPE_MAPPING, "pages of logical mapping", uint32_t, list_pages(mapping, pages, capacity), 0);
}

uint32_t snd_mapping_offset(snd_mapping *mapping)
{
	SND_GET(mapping, SND_TYPE_MAPPING, "offset of logical mapping", uint32_t, (uint32_t)(mapping->start % SND_PAGE_SIZE), 0);
}

static void free_mapping(struct snd_mapping *m)
{
	m->region.i.adapter->objects--;
	snd_list_remove(&m->link);
	snd_object_free(&m->object);
}

void snd_forget_mappings(struct snd_adapter *a)
{
	while (!snd_list_is_empty(&a->mappings))
		free_mapping(SND_OF(a->mappings.next, struct snd_mapping, link));
}

snd_status snd_mapping_close(snd_mapping *mapping, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "close logical mapping";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(mapping, SND_TYPE_MAPPING, op);
	struct snd_fabric *f = mapping->object.fabric;
	snd_settle_deliveries(f, mapping->region.i.adapter);
	snd_run_deferred(f);
	if (mapping->registrations > 0)
		return snd_leave_with(f, snd_fail(SND_DEVICE_BUSY, "%s: %" PRIu32 " fast registrations use its pages: end them with snd_endpoint_invalidate_mr", op, mapping->registrations));
	mapping->closing = true;
	snd_revoke_all(&mapping->region.i);
	snd_hold(&mapping->object);
	snd_status s = snd_wait_drained(f, timeout, snd_end_invalidation_of, &mapping->region.i, &(struct snd_call){.op = op, .object = "logical mapping"});
	if (snd_is_closed(&mapping->object)) {
		s = snd_closed_meanwhile(op);
	} else if (s == SND_SUCCESS) {
		snd_region_end(&mapping->region);
		mapping->mr->mappings--;
		free_mapping(mapping);
	} else {
		s = snd_not_drained(s, timeout, op);
	}
	snd_let_go(&mapping->object);
	return snd_leave_with(f, s);
}

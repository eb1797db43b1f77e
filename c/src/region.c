#include <inttypes.h>

#include "endpoint.h"
#include "error.h"
#include "window.h"

bool snd_drained(const struct snd_adapter *a, uint32_t token)
{
	if (token == 0)
		return true;
	/* HAZARD-DRAIN. This process's own executors hold the lock while they copy, so only peers count. */
	for (struct snd_link *l = a->connections.next; l != &a->connections; l = l->next) {
		struct snd_connection *c = SND_OF(l, struct snd_connection, adapter_link);
		uint64_t h = snd_load(&c->peer_qp->hazard); /* ORDER hazard, hazard-clear: pairs with snd_publish_hazard and snd_clear_hazard */
		if (((uint32_t)h == token || (uint32_t)(h >> 32) == token) && !c->peer_dead && !snd_peer_gone(&c->peer))
			return false;
	}
	return true;
}

snd_status snd_region_init(struct snd_region *r, struct snd_adapter *a, const char *op)
{
	*r = (struct snd_region){.adapter = a};
	struct snd_table *t = &a->object.fabric->table;
	snd_status s = snd_take_entry(t, &r->local, op);
	if (s == SND_SUCCESS && (s = snd_take_entry(t, &r->remote, op)) != SND_SUCCESS)
		snd_give_back(t, r->local);
	return s;
}

static void bind_region(struct snd_region *r, struct snd_own_entry *e, uint64_t offset, uint32_t rights, uint32_t *token)
{
	uint32_t bind;
	e->memory = r->memory;
	e->base = (uint64_t)(uintptr_t)r->memory;
	e->length = r->length;
	e->offset = offset;
	e->adapter = r->adapter->number;
	e->scope = e->bound_on = 0;
	e->window = NULL;
	*token = snd_next_token(e, &bind);
	snd_bind_entry(e, *token, bind, rights);
}

void snd_region_register(struct snd_region *r, void *memory, uint64_t length, uint32_t flags)
{
	r->memory = memory;
	r->length = length;
	r->flags = flags;
	uint64_t offset = snd_locate(&r->adapter->object.fabric->arena, memory, length);
	uint32_t local = SNDL_RIGHT_LOCAL | SNDL_RIGHT_READ, remote = SNDL_RIGHT_REMOTE;
	if (flags & SND_ALLOW_LOCAL_WRITE)
		local |= SNDL_RIGHT_WRITE;
	if (flags & SND_ALLOW_REMOTE_READ)
		remote |= SNDL_RIGHT_READ;
	if (flags & (SND_ALLOW_REMOTE_WRITE & ~SND_ALLOW_LOCAL_WRITE))
		remote |= SNDL_RIGHT_WRITE;
	bind_region(r, r->local, offset, local, &r->local_token);
	bind_region(r, r->remote, offset, remote, &r->remote_token);
}

void snd_region_revoke(struct snd_region *r)
{
	if (r->memory == NULL)
		return;
	snd_revoke(r->local);
	snd_revoke(r->remote);
	r->memory = NULL;
	r->draining = true;
}

bool snd_region_drained(const struct snd_region *r)
{
	return !r->draining || (snd_drained(r->adapter, r->local_token) && snd_drained(r->adapter, r->remote_token));
}

void snd_region_end(struct snd_region *r)
{
	struct snd_table *t = &r->adapter->object.fabric->table;
	r->draining = false;
	snd_give_back(t, r->local);
	snd_give_back(t, r->remote);
}

static snd_status begin_mr(struct snd_adapter *a, uint64_t length, uint32_t flags, struct snd_mr **mr, const char *op)
{
	if (length == 0)
		return snd_fail(SND_INVALID_BUFFER_SIZE, "%s: 0 bytes: register at least 1 byte", op);
	if (length > SND_MAX_REGISTRATION)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu64 " bytes, at most %" PRIu64 ": use several regions", op, length, SND_MAX_REGISTRATION);
	if ((flags & ~(SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE)) != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: unknown flags %#" PRIx32, op, flags);
	struct snd_mr *m = snd_object_new(SND_TYPE_MR, sizeof *m, a->object.fabric);
	if (m == NULL)
		return snd_fail(SND_NO_MEMORY, "%s: no private memory", op);
	snd_status s = snd_region_init(&m->region, a, op);
	if (s != SND_SUCCESS) {
		snd_object_free(&m->object);
		return s;
	}
	m->length = length;
	*mr = m;
	return SND_SUCCESS;
}

static void complete_mr(struct snd_mr *m, void *buffer, uint32_t flags)
{
	m->buffer = buffer;
	snd_region_register(&m->region, buffer, m->length, flags);
	snd_list_append(&m->object.fabric->regions, &m->link);
	m->region.adapter->objects++;
}

snd_status snd_mr_allocate(snd_adapter *adapter, uint64_t length, uint32_t flags, snd_mr **mr)
{
	const char *op = "allocate memory region";
	SND_CHECK(adapter, SND_TYPE_ADAPTER, op);
	if (mr == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: mr is NULL", op);
	*mr = NULL;
	struct snd_fabric *f = adapter->object.fabric;
	snd_lock(f);
	struct snd_mr *m = NULL;
	snd_status s = begin_mr(adapter, length, flags, &m, op);
	if (s == SND_SUCCESS && (s = snd_alloc(&f->heap, length, false, &m->offset, op)) != SND_SUCCESS) {
		snd_region_end(&m->region);
		snd_object_free(&m->object);
	}
	if (s == SND_SUCCESS) {
		complete_mr(m, f->arena.base + m->offset, flags);
		*mr = m;
	}
	snd_unlock(f);
	return s;
}

snd_status snd_mr_register(snd_adapter *adapter, void *buffer, uint64_t length, uint32_t flags, snd_mr **mr)
{
	const char *op = "register";
	SND_CHECK(adapter, SND_TYPE_ADAPTER, op);
	if (mr == NULL || buffer == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %s is NULL", op, mr == NULL ? "mr" : "buffer");
	*mr = NULL;
	if (length > UINTPTR_MAX - (uintptr_t)buffer)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu64 " bytes reach beyond the end of the address space", op, length);
	struct snd_fabric *f = adapter->object.fabric;
	snd_lock(f);
	struct snd_mr *m = NULL;
	snd_status s = begin_mr(adapter, length, flags, &m, op);
	if (s == SND_SUCCESS) {
		complete_mr(m, buffer, flags);
		*mr = m;
	}
	snd_unlock(f);
	return s;
}

void *snd_mr_buffer(snd_mr *mr)
{
	if (SND_VALID(mr, SND_TYPE_MR))
		return mr->buffer;
	snd_bad_handle("buffer of memory region", "mr");
	return NULL;
}

uint64_t snd_mr_length(snd_mr *mr)
{
	if (SND_VALID(mr, SND_TYPE_MR))
		return mr->length;
	snd_bad_handle("length of memory region", "mr");
	return 0;
}

uint64_t snd_mr_address(snd_mr *mr)
{
	if (SND_VALID(mr, SND_TYPE_MR))
		return (uint64_t)(uintptr_t)mr->buffer;
	snd_bad_handle("address of memory region", "mr");
	return 0;
}

uint32_t snd_mr_local_token(snd_mr *mr)
{
	if (SND_VALID(mr, SND_TYPE_MR))
		return mr->region.local_token;
	snd_bad_handle("local token", "mr");
	return 0;
}

uint32_t snd_mr_remote_token(snd_mr *mr)
{
	if (SND_VALID(mr, SND_TYPE_MR))
		return mr->region.remote_token;
	snd_bad_handle("remote token", "mr");
	return 0;
}

snd_status snd_mr_query(snd_mr *mr, snd_window_descriptor *descriptor)
{
	SND_CHECK(mr, SND_TYPE_MR, "query memory region");
	if (descriptor == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "query memory region: descriptor is NULL");
	*descriptor = (snd_window_descriptor){(uint64_t)(uintptr_t)mr->buffer, mr->length, mr->region.remote_token, 0};
	return SND_SUCCESS;
}

static bool mr_drained(void *arg) { return snd_region_drained(&((struct snd_mr *)arg)->region); }

snd_status snd_mr_close(snd_mr *mr, int64_t timeout)
{
	const char *op = "close memory region";
	SND_CHECK(mr, SND_TYPE_MR, op);
	struct snd_fabric *f = mr->object.fabric;
	struct snd_adapter *a = mr->region.adapter;
	snd_lock(f);
	snd_settle_deliveries(f, a);
	snd_run_deferred(f);
	if (mr->region.windows > 0) {
		snd_unlock(f);
		return snd_fail(SND_DEVICE_BUSY, "%s: a window is bound to the region: invalidate it first", op);
	}
	snd_region_revoke(&mr->region);
	snd_status s = snd_wait(f, timeout, mr_drained, NULL, mr);
	if (s == SND_SUCCESS) {
		snd_region_end(&mr->region);
		if (mr->offset != 0)
			snd_free(&f->heap, mr->offset);
		snd_list_remove(&mr->link);
		a->objects--;
		snd_object_free(&mr->object);
	} else {
		s = snd_fail(s, "%s: a peer is still copying", op);
	}
	snd_unlock(f);
	return s;
}

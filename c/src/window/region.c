/* Regions: their two tokens. TWIN window/region.go. */
#include "window/region.h"

#include "window/fastreg.h"

snd_status snd_region_init(struct snd_region *r, struct snd_adapter *a, const char *op)
{
	*r = (struct snd_region){.i.adapter = a, .i.number = ++a->object.fabric->invalidatables_created};
	snd_list_init(&r->i.bound_link);
	struct snd_table *t = a->object.fabric->table;
	snd_status s = snd_take_entry(t, &r->i.local, op);
	if (s == SND_SUCCESS && (s = snd_take_entry(t, &r->i.remote, op)) != SND_SUCCESS)
		snd_give_back(t, r->i.local);
	return s;
}

static void bind_entry(struct snd_region *r, struct snd_own_entry *e, uint64_t base, uint32_t rights, uint32_t token, uint32_t bind)
{
	e->memory = r->memory;
	e->base = base;
	const bool checked = r->i.adapter->object.fabric->table->checks_pages; /* the fast paths do not check */
	const bool is_mapped = (rights & SNDL_RIGHT_LOCAL) != 0 && (checked || base != (uint64_t)(uintptr_t)r->memory);
	e->length = is_mapped ? 0 : r->length;
	e->mapped = is_mapped ? r->length : 0;
	e->place = r->place;
	e->adapter = r->i.adapter->number;
	e->scope = 0;
	e->invalidates = r->registration != NULL ? &r->i : NULL;
	snd_bind_entry(e, token, bind, rights);
}

/* bind makes both tokens valid. base is the address of memory[0] in own requests, and address in those of peers. */
static void bind(struct snd_region *r, uint64_t base, uint64_t address, uint32_t flags, uint32_t local_bind, uint32_t remote_bind, uint32_t local_token, uint32_t remote_token)
{
	uint32_t local = SNDL_RIGHT_LOCAL | SNDL_RIGHT_READ, remote = SNDL_RIGHT_REMOTE;
	if (flags & SND_ALLOW_LOCAL_WRITE)
		local |= SNDL_RIGHT_WRITE;
	if (flags & SND_ALLOW_REMOTE_READ)
		remote |= SNDL_RIGHT_READ;
	if (flags & (SND_ALLOW_REMOTE_WRITE & ~SND_ALLOW_LOCAL_WRITE))
		remote |= SNDL_RIGHT_WRITE;
	if (flags & (SND_ALLOW_REMOTE_ATOMIC & ~SND_ALLOW_LOCAL_WRITE))
		remote |= SNDL_RIGHT_ATOMIC;
	r->address = address;
	r->flags = flags;
	r->i.state = SND_BOUND;
	bind_entry(r, r->i.local, base, local, local_token, local_bind);
	bind_entry(r, r->i.remote, address, remote, remote_token, remote_bind);
}

static struct snd_location locate(const struct snd_region *r, const void *memory, uint64_t length)
{
	return (struct snd_location){.offset = snd_locate(&r->i.adapter->object.fabric->arena, memory, length)};
}

struct snd_location snd_location_of_part(const struct snd_region *r, uint64_t at, uint64_t length)
{
	const uint64_t first = r->place.head, last = r->length - r->place.tail, end = at + length;
	const uint64_t from = at > first ? at : first, to = end < last ? end : last;
	if (r->place.offset == 0 || from >= to)
		return (struct snd_location){0};
	return (struct snd_location){r->place.offset + (from - first), (uint32_t)(from - at), (uint32_t)(end - to)};
}

void snd_region_register(struct snd_region *r, void *memory, uint64_t length, uint32_t flags)
{
	snd_region_register_at(r, memory, length, locate(r, memory, length), (uint64_t)(uintptr_t)memory, flags);
}

void snd_region_register_at(struct snd_region *r, void *memory, uint64_t length, struct snd_location place, uint64_t base, uint32_t flags)
{
	uint32_t local, remote;
	r->memory = memory;
	r->length = length;
	r->place = place;
	r->local_token = snd_next_token(r->i.local, &local);
	r->remote_token = snd_next_token(r->i.remote, &remote);
	bind(r, base, base, flags, local, remote, r->local_token, r->remote_token);
}

void snd_region_inherit(struct snd_region *r, struct snd_region *from)
{
	struct snd_table *t = r->i.adapter->object.fabric->table;
	uint32_t local, remote;
	snd_revoke(r->i.local);
	snd_revoke(r->i.remote);
	snd_give_back(t, r->i.local);
	snd_give_back(t, r->i.remote);
	r->i.local = from->i.local;
	r->i.remote = from->i.remote;
	r->local_token = snd_tagged_token(r->i.local, from->local_token, &local);
	r->remote_token = snd_tagged_token(r->i.remote, from->remote_token, &remote);
	bind(r, r->address, r->address, r->flags, local, remote, r->local_token, r->remote_token);
}

bool snd_region_apply(struct snd_region *r, struct snd_registration *g)
{
	if (r->i.state != SND_UNBOUND || r->i.windows > 0 || r->i.retired) {
		snd_free_registration(g);
		return false;
	}
	r->memory = g->memory;
	r->length = g->length;
	r->place = locate(r, r->memory, r->length);
	r->registration = g;
	r->i.bound_on = g->bound_on;
	bind(r, (uint64_t)(uintptr_t)r->memory, g->address, g->rights, g->local_bind, g->remote_bind, g->local_token, g->remote_token);
	return true;
}

void snd_detach_window(struct snd_region *r)
{
	r->i.windows--;
	snd_end_registration(r);
}

void snd_region_end(struct snd_region *r)
{
	struct snd_table *t = r->i.adapter->object.fabric->table;
	snd_give_back(t, r->i.local);
	snd_give_back(t, r->i.remote);
}

/* Fast registration: a request registers pages of mappings as the memory of a region. Peers see them as one range of
 * addresses. TWIN endpoint/mr_fastreg.go. */
#include "endpoint/mr_fastreg.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "endpoint/mr_mapping.h"
#include "linux/memory_limit.h"
#include "window/fastreg.h"

/* hold_mappings finds the mapping of each page and keeps it open. */
static snd_status hold_mappings(struct snd_registration *g, struct snd_adapter *a, const snd_fast_registration *p, const char *op)
{
	for (uint64_t i = 0; i < p->page_count; i++) {
		/* The registered part of the page; empty if the range has not begun or has ended. */
		const uint64_t at = i * SND_PAGE_SIZE, end = p->offset + p->length;
		uint64_t lo = p->offset <= at ? 0 : p->offset - at < SND_PAGE_SIZE ? p->offset - at : SND_PAGE_SIZE;
		uint64_t hi = end <= at ? 0 : end - at < SND_PAGE_SIZE ? end - at : SND_PAGE_SIZE;
		struct snd_mapping *m = snd_find_mapping(a, p->pages[i], lo, hi < lo ? lo : hi);
		if (m == NULL)
			return snd_fail(SND_INVALID_PARAMETER, "%s: bytes %" PRIu64 " to %" PRIu64 " of page %" PRIu64 " are in no open mapping of the adapter: pass pages of snd_mapping_pages",
				op, lo, hi, i);
		m->registrations++;
		g->mappings[g->count++] = m;
	}
	return SND_SUCCESS;
}

/* map_alias maps pages at consecutive addresses, in any order. */
static bool map_alias(struct snd_registration *g, const struct snd_arena *a, const uint64_t *pages, uint64_t count)
{
	g->alias_length = count * SND_PAGE_SIZE;
	void *at = mmap(NULL, g->alias_length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return false;
	g->alias = at; /* removed with the registration */
	for (uint64_t i = 0, n; i < count; i += n) {
		for (n = 1; i + n < count && pages[i + n] == pages[i] + n * SND_PAGE_SIZE; n++) { /* one call maps a run of adjacent pages */
		}
		if (mmap((unsigned char *)at + i * SND_PAGE_SIZE, n * SND_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, a->fd, (off_t)pages[i]) == MAP_FAILED)
			return false;
	}
	if (!snd_arena_is_ours(a)) { /* after the calls: they may have mapped a file of the program */
		errno = EBADF;
		return false;
	}
	return snd_own_process_only(at, g->alias_length) && (!a->dumped || madvise(at, g->alias_length, MADV_DODUMP) == 0);
}

static snd_status find_memory(struct snd_registration *g, const struct snd_arena *a, const snd_fast_registration *p, const char *op)
{
	const uint64_t first = p->offset / SND_PAGE_SIZE, last = (p->offset + p->length - 1) / SND_PAGE_SIZE, *pages = p->pages + first;
	for (uint64_t i = 0; i <= last - first; i++) {
		if (pages[i] != pages[0] + i * SND_PAGE_SIZE) {
			if (!map_alias(g, a, pages, last - first + 1))
				return errno == EBADF ? snd_arena_lost(a, op)
					: (snd_record_no_memory(g->alias_length, "mmap of scattered pages", op), SND_INSUFFICIENT_RESOURCES);
			g->memory = (unsigned char *)g->alias + p->offset % SND_PAGE_SIZE;
			return SND_SUCCESS;
		}
	}
	g->memory = a->base + pages[0] + p->offset % SND_PAGE_SIZE;
	return SND_SUCCESS;
}

static snd_status check(const struct snd_mr *mr, const snd_fast_registration *p, const char *op)
{
	const uint64_t total = (uint64_t)p->page_count * SND_PAGE_SIZE;
	if (mr->fast_pages == 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: the region is not for fast registration: make one with snd_mr_create_fast", op);
	if (p->pages == NULL || p->page_count < 1 || p->page_count > mr->fast_pages)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu32 " pages, allowed 1 to %" PRIu32 ": create the region for more pages", op, p->page_count, mr->fast_pages);
	if (p->length < 1 || p->offset >= total || p->length > total - p->offset)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRIu64 " bytes at offset %" PRIu32 " of %" PRIu64 ": pass all pages of the range", op, p->length, p->offset, total);
	if (p->address == 0 || p->address > UINT64_MAX - p->length)
		return snd_fail(SND_INVALID_PARAMETER, "%s: address %#" PRIx64 " for %" PRIu64 " bytes: choose one above 0 that leaves room for the length", op, p->address, p->length);
	if ((p->rights & ~SND_REGION_FLAGS) != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: unknown rights %#" PRIx32, op, p->rights);
	if ((p->rights & SND_REGION_RIGHTS & ~SND_ALLOW_LOCAL_WRITE) != 0 && !mr->fast_remote)
		return snd_fail(SND_ACCESS_VIOLATION, "%s: rights %#" PRIx32 " for a region without remote access: create it with remote", op, p->rights);
	return snd_check_reserved(p, op);
}

snd_status snd_prepare_registration(struct snd_endpoint *ep, struct snd_mr *mr, const snd_fast_registration *p, struct snd_registration **registration, const char *op)
{
	struct snd_region *r = &mr->region;
	snd_status s = check(mr, p, op);
	if (s != SND_SUCCESS)
		return s;
	struct snd_registration *g = calloc(1, sizeof *g + p->page_count * sizeof(struct snd_mapping *));
	if (g == NULL)
		return snd_no_memory(sizeof *g + p->page_count * sizeof(struct snd_mapping *), "private memory", op);
	if ((s = hold_mappings(g, ep->adapter, p, op)) != SND_SUCCESS || (s = find_memory(g, &ep->object.fabric->arena, p, op)) != SND_SUCCESS) {
		snd_free_registration(g);
		return s;
	}
	mr->address = g->address = p->address;
	mr->length = g->length = p->length;
	g->rights = p->rights;
	g->bound_on = ep->number;
	r->local_token = g->local_token = snd_next_token(r->i.local, &g->local_bind);
	r->remote_token = g->remote_token = snd_next_token(r->i.remote, &g->remote_bind);
	*registration = g;
	return SND_SUCCESS;
}

/* link.c: the connection of ranks 0 and 1. */
#include <stdlib.h>
#include <string.h>

#include "perf.h"

enum { FLAG_ROOM = 128, MARKS = 16, PAGE = 4096, MAX_QUEUE = 64 << 10 };

static uint64_t stride(const struct link *l) { return ((l->size + 63) & ~UINT64_C(63)) + 128; }

/* place returns the offset of a place in the memory. The landing places come first. */
static uint64_t place(const struct link *l, uint32_t half) { return FLAG_ROOM + half * stride(l); }

static struct mark mark_of(unsigned char *buffer, uint64_t size)
{
	uintptr_t last = (uintptr_t)(buffer + size - 1), in = last % 8;
	struct mark m = {(word *)(last - in), UINT64_MAX, 0};
	if (in != 7 || size < 8) {
		m.shift = (unsigned)(8 * in);
		m.mask = UINT64_C(0xff) << m.shift;
	}
	return m;
}

/* mark_put makes the mark show n. No other thread may use the memory during the call. */
void mark_put(const struct mark *m, uint64_t n)
{
	uint64_t old = atomic_load_explicit(m->at, memory_order_relaxed);
	atomic_store_explicit(m->at, (old & ~m->mask) | (n << m->shift & m->mask), memory_order_relaxed);
}

/* mark_shows reports whether n has arrived. */
int mark_shows(const struct mark *m, uint64_t n)
{
	return (atomic_load_explicit(m->at, memory_order_acquire) & m->mask) == (n << m->shift & m->mask);
}

static void add_pair(struct link *l, uint32_t i, unsigned char *memory)
{
	struct pair *p = &l->pairs[i];
	snd_endpoint_config config = {.receive_cq = l->cq, .initiator_cq = l->cq, .context = i,
		.receive_depth = l->receives + l->spare > 0 ? l->receives + l->spare : 1, .initiator_depth = l->depth + 1};
	if (l->flags & SND_INLINE)
		config.inline_size = (uint32_t)l->size;
	must(snd_job_connect(job, 1 - rank, &config, SND_FOREVER, &p->ep));
	uint32_t token = snd_mr_local_token(l->mr);
	uint64_t land = place(l, i), out = place(l, i + l->count);
	p->land = (snd_sge){memory + land, (uint32_t)l->size, token};
	p->out = (snd_sge){memory + out, (uint32_t)l->size, token};
	p->to = l->far.address + land; /* both ranks have the same layout */
	p->landed = mark_of(p->land.buffer, l->size);
	p->stamp = mark_of(p->out.buffer, l->size);
	for (uint32_t k = 0; k < l->receives; k++)
		must(snd_endpoint_receive(p->ep, 0, &p->land, 1));
}

/* link_open connects ranks 0 and 1. Both call it with the same values. */
void link_open(struct link *l)
{
	snd_adapter *adapter = snd_job_adapter(job);
	uint64_t size = FLAG_ROOM + 2 * l->count * stride(l);
	uint32_t access = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_ATOMIC;
	if (l->private) {
		if ((l->own = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE)) == NULL)
			fail("aligned_alloc");
		must(snd_mr_register(adapter, l->own, size, access, &l->mr));
	} else {
		must(snd_mr_allocate(adapter, size, access, &l->mr));
	}
	unsigned char *memory = snd_mr_buffer(l->mr);
	memset(memory, 0, size);
	/* Processors may copy zeros faster, so places contain other data. Their ends, the marks, begin at 0. */
	for (uint32_t half = 0; half < 2 * l->count; half++)
		for (uint64_t i = 0; i + MARKS < l->size; i++)
			memory[place(l, half) + i] = (unsigned char)(i | 1);
	const uint32_t results = l->count * (l->depth + 1 + l->receives + l->spare);
	must(snd_cq_create(adapter, results < MAX_QUEUE ? results : MAX_QUEUE, &l->cq)); /* together the queue pairs have at most depth requests outstanding */
	must(snd_window_create(adapter, &l->window));

	snd_window_descriptor mine;
	uint8_t bytes[SND_WINDOW_DESCRIPTOR_SIZE], all[2 * SND_WINDOW_DESCRIPTOR_SIZE];
	must(snd_mr_query(l->mr, &mine));
	snd_window_descriptor_encode(&mine, bytes);
	must(snd_job_exchange(job, bytes, sizeof bytes, all, SND_FOREVER));
	snd_window_descriptor_decode(all + (1 - rank) * sizeof bytes, &l->far);

	l->flag = mark_of(memory, 8);
	l->flag_out = (snd_sge){memory + FLAG_ROOM / 2, 8, snd_mr_local_token(l->mr)};
	l->flag_mark = mark_of(l->flag_out.buffer, 8);
	if ((l->pairs = calloc(l->count, sizeof *l->pairs)) == NULL)
		fail("calloc");
	for (uint32_t i = 0; i < l->count; i++)
		add_pair(l, i, memory);
	must(snd_job_barrier(job, SND_FOREVER));
}

/* link_close closes the connections after both ranks have called it. */
void link_close(struct link *l)
{
	must(snd_job_barrier(job, SND_FOREVER));
	for (uint32_t i = 0; i < l->count; i++)
		must(snd_endpoint_close(l->pairs[i].ep));
	must(snd_cq_close(l->cq));
	must(snd_window_close(l->window, SND_FOREVER));
	must(snd_mr_close(l->mr, SND_FOREVER));
	free(l->pairs);
	free(l->own);
}

/* Memory windows. TWIN endpoint/mr.go. */
#include "endpoint/hook.h"
#include "endpoint/progress_wait.h"
#include "linux/memory_limit.h"
#include "window/invalidatable.h"

snd_status snd_window_create(snd_adapter *adapter, snd_window **window)
{
	SND_KEEP_ERRNO;
	const char *op = "create window";
	SND_ENTER_TO(adapter, SND_TYPE_ADAPTER, window, op);
	*window = NULL;
	struct snd_fabric *f = adapter->object.fabric;
	snd_status s = snd_before_call(&adapter->object, op, 0, 0, NULL);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	struct snd_window *w = snd_new(f, SND_TYPE_WINDOW, sizeof *w);
	s = w == NULL ? snd_no_memory(sizeof *w, "private memory", op) : snd_take_entry(f->table, &w->i.remote, op);
	if (s == SND_SUCCESS) {
		w->i.remote->window = &w->i;
		w->i.adapter = adapter;
		w->i.number = ++f->invalidatables_created;
		adapter->objects++;
		snd_list_append(&f->windows, &w->link);
		snd_list_init(&w->i.bound_link);
		*window = w;
	} else if (w != NULL) {
		snd_object_free(&w->object);
	}
	return snd_leave_with(f, s);
}

snd_status snd_window_query(snd_window *window, snd_window_descriptor *descriptor)
{
	const char *op = "query window";
	SND_ENTER_TO(window, SND_TYPE_WINDOW, descriptor, op);
	*descriptor = window->latest;
	return snd_leave_with(window->object.fabric, SND_SUCCESS);
}

snd_status snd_window_close(snd_window *window, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "close window";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(window, SND_TYPE_WINDOW, op);
	struct snd_fabric *f = window->object.fabric;
	window->i.retired = true;
	snd_revoke_all(&window->i);
	snd_hold(&window->object);
	snd_status s = snd_wait_drained(f, timeout, snd_end_invalidation_of, &window->i, &(struct snd_call){.op = op, .object = "window"});
	if (snd_is_closed(&window->object)) {
		s = snd_closed_meanwhile(op);
	} else if (s == SND_SUCCESS) {
		snd_give_back(f->table, window->i.remote);
		snd_object_hide(&window->object);
		snd_free_closed(&window->i);
	} else {
		s = snd_not_drained(s, timeout, op);
	}
	snd_let_go(&window->object);
	return snd_leave_with(f, s);
}

static void put_big(uint8_t *to, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		to[i] = (uint8_t)(v >> (8 * (bytes - 1 - i)));
}

static uint64_t get_big(const uint8_t *from, int bytes)
{
	uint64_t v = 0;
	for (int i = 0; i < bytes; i++)
		v = v << 8 | from[i];
	return v;
}

void snd_window_descriptor_encode(const snd_window_descriptor *descriptor, uint8_t bytes[SND_WINDOW_DESCRIPTOR_SIZE])
{
	if (descriptor == NULL || bytes == NULL)
		return;
	put_big(bytes, descriptor->address, 8);
	put_big(bytes + 8, descriptor->length, 8);
	put_big(bytes + 16, descriptor->token, 4);
}

void snd_window_descriptor_decode(const uint8_t bytes[SND_WINDOW_DESCRIPTOR_SIZE], snd_window_descriptor *descriptor)
{
	if (descriptor == NULL || bytes == NULL)
		return;
	*descriptor = (snd_window_descriptor){get_big(bytes, 8), get_big(bytes + 8, 8), (uint32_t)get_big(bytes + 16, 4), 0};
}

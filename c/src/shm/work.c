/* Deferred work. */
#include "shm/work.h"

#include "shm/doorbell.h"

void snd_wake_progress(struct snd_fabric *f)
{
	snd_wake(f);
	if (f->engine_armed)
		snd_ring(f, &f->record->engine);
}

void snd_defer(struct snd_fabric *f, struct snd_work *w)
{
	snd_list_append(&f->work, &w->link);
	snd_wake_progress(f);
}

void snd_run_or_defer(struct snd_fabric *f, struct snd_work *w)
{
	SND_KEEP_ERRNO;
	if (!w->run(w))
		snd_defer(f, w);
}

void snd_run_deferred(struct snd_fabric *f)
{
	/* Each work item that is in the list now runs once. Work that it defers runs later. */
	size_t n = 0;
	for (struct snd_link *l = f->work.next; l != &f->work; l = l->next)
		n++;
	for (; n > 0 && !snd_list_is_empty(&f->work); n--) {
		struct snd_work *w = SND_OF(f->work.next, struct snd_work, link);
		snd_list_remove(&w->link); /* before it runs: afterwards its memory may be free */
		if (!w->run(w))
			snd_list_append(&f->work, &w->link);
	}
}

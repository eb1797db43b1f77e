/* The engine makes progress when the program does not. While the program polls or waits, the engine sleeps on a timer,
 * with its doorbell disarmed, so that requests of peers make no system call. When the program does neither, the engine
 * arms its doorbell and sleeps until a peer rings. TWIN endpoint/progress_engine.go, endpoint/progress_run.go. */
#include "endpoint/progress_engine.h"

#include <time.h>

#include "endpoint/progress.h"
#include "endpoint/progress_housekeeper.h"
#include "linux/clock.h"
#include "linux/thread.h"
#include "shm/work.h"

#define MIN_GAP INT64_C(200000)
#define MAX_GAP INT64_C(2000000)
static const char name_of_thread[] = "softnd";

enum { MAX_BURST = 16 };

static bool drive(struct snd_fabric *f)
{
	bool progressed = snd_progress_by_engine(f);
	if (!snd_list_is_empty(&f->work))
		snd_run_deferred(f);
	snd_housekeep(f, snd_clock());
	return progressed;
}

static void pause_for(int64_t ns) { nanosleep(&(struct timespec){0, (long)ns}, NULL); }

/* rest sleeps until a peer rings the engine's doorbell. */
static void rest(struct snd_fabric *f)
{
	struct snd_doorbell *d = &f->record->engine;
	snd_lock_aside(f);
	uint32_t ticket = snd_arm(d);
	f->engine_armed = true;
	bool progressed = drive(f);
	/* A wait of the program polls by itself, and wakes the engine if it ends before that work does. */
	int64_t sleep = f->calls == 0 && snd_needs_polling(f) ? snd_poll_interval(f) : snd_idle_time(f);
	snd_unlock_aside(f);
	if (!progressed && snd_load32(&f->quit) == 0)
		snd_sleep(d, ticket, sleep);
	snd_lock_aside(f);
	f->engine_armed = false;
	snd_disarm(d);
	snd_unlock_aside(f);
}

static void *run(void *arg)
{
	struct snd_fabric *f = arg;
	snd_thread_name(name_of_thread);
	uint64_t seen = snd_relaxed(&f->activity);
	int64_t gap = MIN_GAP;
	int burst = 0;
	while (snd_load32(&f->quit) == 0) {
		if (f->stepwise) { /* steps are counted, so something always remains to do */
			snd_lock_aside(f);
			if (f->calls == 0)
				drive(f);
			snd_unlock_aside(f);
			pause_for(snd_poll_interval(f));
			continue;
		}
		uint64_t now = snd_relaxed(&f->activity);
		if (now != seen && snd_relaxed32(&f->event_fds) == 0) { /* the program drives its endpoints */
			seen = now;
			pause_for(gap);
			gap = gap * 2 < MAX_GAP ? gap * 2 : MAX_GAP;
			continue;
		}
		snd_lock_aside(f);
		bool progressed = f->calls == 0 && drive(f); /* a wait drives everything */
		snd_unlock_aside(f);
		if (progressed && ++burst < MAX_BURST)
			continue;
		burst = 0;
		gap = MIN_GAP;
		rest(f);
	}
	return NULL;
}

snd_status snd_engine_start(struct snd_fabric *f, const char *op)
{
	snd_status s = snd_thread_start(&f->engine, run, f, name_of_thread, op);
	f->engine_runs = s == SND_SUCCESS;
	return s;
}

void snd_engine_stop(struct snd_fabric *f)
{
	if (!f->engine_runs)
		return;
	atomic_store(&f->quit, 1);
	snd_wake_doorbell(&f->record->engine);
	pthread_join(f->engine, NULL);
	f->engine_runs = false;
}

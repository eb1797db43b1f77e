/* The lock of a fabric: its slow path, and threads that use a fabric at the same time without SND_THREAD_SAFE, for which
 * SOFTND_CHECK=1 looks. */
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/fabric.h"

/* snd_lock_contended is the program's snd_lock when the engine wants the lock: it waits for the engine, and holds the
 * mutex itself. */
void snd_lock_contended(struct snd_fabric *f)
{
	snd_release32(&f->inside, 0);
	pthread_mutex_lock(&f->mutex);
	f->slow = true;
}

static uint32_t this_thread(void)
{
	static _Thread_local uint32_t id;
	if (id == 0)
		id = (uint32_t)syscall(SYS_gettid);
	return id;
}

static void name_of(uint32_t thread, char *name, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%u/comm", thread);
	FILE *f = snd_open_text(path);
	if (f == NULL || fgets(name, (int)size, f) == NULL)
		snprintf(name, size, "ended");
	name[strcspn(name, "\n")] = 0;
	if (f != NULL)
		fclose(f);
}

static void report(struct snd_fabric *f, uint32_t other)
{
	char mine[32], theirs[32], rank[32] = "";
	name_of(this_thread(), mine, sizeof mine);
	name_of(other, theirs, sizeof theirs);
	if (f->rank >= 0)
		snprintf(rank, sizeof rank, "rank %d: ", f->rank);
	fprintf(stderr, "softnd: check: %sthread %u (%s) is in a call on a fabric, and thread %u (%s) makes another call on it: let one thread at a time use "
		"the objects of a fabric, or set threading of its options to SND_THREAD_SAFE\n", rank, other, theirs, this_thread(), mine);
}

void snd_lock_watched(struct snd_fabric *f)
{
	/* A thread in a wait has given the mutex back, but not its place as the user. */
	const uint32_t user = snd_load32(&f->user);
	pthread_mutex_lock(&f->mutex);
	if (user != 0 && user != this_thread() && !f->crossed) {
		f->crossed = true;
		report(f, user);
	}
	if (f->calls == 0)
		snd_set32(&f->user, this_thread());
}

void snd_unlock_watched(struct snd_fabric *f)
{
	if (f->calls == 0)
		snd_set32(&f->user, 0);
}

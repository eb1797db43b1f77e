/* The clock of the fuzz targets, and the turns of two threads: one runs at a time, until it would sleep. */
#include <pthread.h>
#include <stdbool.h>

#include "fuzz.h"
#include "shm/fabric.h"

static int64_t now = INT64_C(1000000000000);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static bool has_partner, partners_turn;
static _Thread_local bool is_partner;

void fuzz_pass(int64_t ns) { now += ns; }

static void turn(bool partner)
{
	pthread_mutex_lock(&mutex);
	partners_turn = partner;
	pthread_cond_broadcast(&turned);
	while (has_partner && partners_turn != is_partner)
		pthread_cond_wait(&turned, &mutex);
	pthread_mutex_unlock(&mutex);
}

int snd_fuzz_yield(void)
{
	now += 1000;
	if (has_partner)
		turn(!is_partner);
	return 0;
}

int snd_fuzz_clock_gettime(clockid_t clock, struct timespec *t)
{
	(void)clock;
	now += 1000;
	*t = (struct timespec){(time_t)(now / 1000000000), (long)(now % 1000000000)};
	return 0;
}

int snd_fuzz_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	(void)left;
	now += (int64_t)wanted->tv_sec * 1000000000 + wanted->tv_nsec;
	return snd_fuzz_yield();
}

/* In place of snd_sleep. */
void __wrap_snd_sleep(struct snd_doorbell *d, uint32_t ticket, int64_t timeout);
void __wrap_snd_sleep(struct snd_doorbell *d, uint32_t ticket, int64_t timeout)
{
	if (snd_load32(&d->seq) == ticket)
		now += timeout;
	snd_fuzz_yield();
}

static void (*partners_work)(void);

static void *run(void *unused)
{
	(void)unused;
	is_partner = true;
	pthread_mutex_lock(&mutex);
	while (!partners_turn)
		pthread_cond_wait(&turned, &mutex);
	pthread_mutex_unlock(&mutex);
	partners_work();
	pthread_mutex_lock(&mutex);
	has_partner = partners_turn = false;
	pthread_cond_broadcast(&turned);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

void fuzz_together(void (*mine)(void), void (*theirs)(void))
{
	pthread_t thread;
	partners_work = theirs;
	has_partner = true;
	partners_turn = false;
	if (pthread_create(&thread, NULL, run, NULL) != 0)
		abort();
	mine();
	pthread_mutex_lock(&mutex);
	partners_turn = true;
	pthread_cond_broadcast(&turned);
	while (has_partner) {
		partners_turn = true;
		pthread_cond_broadcast(&turned);
		pthread_cond_wait(&turned, &mutex);
	}
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
}

/* The lock of a fabric: which thread has it by its bias, and that it excludes all others. With membarrier refused, no thread has a bias. */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "shm/fabric.h"

enum { ENOUGH = 100 /* locks, to get the bias */, MILLISECOND = 1000000 };

static struct snd_fabric f; /* only its lock is used */
static bool can_bias;
static uint64_t counter; /* plain: the lock guards it */

static void pass(long ns) { nanosleep(&(struct timespec){0, ns}, NULL); }

/* lock_once reports whether the lock was held by the bias. */
static bool lock_once(void)
{
	snd_lock(&f);
	const bool by_bias = !f.slow;
	counter++;
	snd_unlock(&f);
	return by_bias;
}

static void lock_enough(void)
{
	for (int i = 0; i < ENOUGH; i++)
		lock_once();
}

static void *run_enough(void *place)
{
	lock_enough();
	*(uintptr_t *)place = snd_thread();
	return NULL;
}

static void in_thread(void *(*body)(void *), void *arg)
{
	pthread_t t;
	CHECK(pthread_create(&t, NULL, body, arg) == 0 && pthread_join(t, NULL) == 0);
}

/* A thread gets the bias after 65 consecutive locks, and keeps it until another one locks. */
static void test_bias(void)
{
	uintptr_t place;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 65; i++)
			CHECK(!lock_once());
		for (int i = 0; i < 10; i++)
			CHECK(lock_once() == can_bias);
		snd_lock_aside(&f); /* not by this thread in the library; here it shows that the bias comes back */
		snd_unlock_aside(&f);
		CHECK(lock_once() == can_bias);
		in_thread(run_enough, &place);
	}
}

/* A thread that ends with the bias leaves it to a new thread at its place, and no call of others waits for it. */
static void *run_once(void *by_bias)
{
	*(bool *)by_bias = lock_once();
	return (void *)snd_thread();
}

static void test_owner_ends(void)
{
	uintptr_t first;
	bool by_bias;
	void *second;
	pthread_t t;
	in_thread(run_enough, &first);
	CHECK(pthread_create(&t, NULL, run_once, &by_bias) == 0 && pthread_join(t, &second) == 0);
	CHECK(by_bias == (can_bias && (uintptr_t)second == first));
	in_thread(run_enough, &first);
	CHECK(!lock_once());
}

static _Atomic int got_in;

static void *run_late(void *aside)
{
	if (aside != NULL)
		snd_lock_aside(&f);
	else
		snd_lock(&f);
	counter++;
	atomic_fetch_add(&got_in, 1);
	if (aside != NULL)
		snd_unlock_aside(&f);
	else
		snd_unlock(&f);
	return NULL;
}

/* While the biased thread is stopped in a call, others wait. */
static void test_owner_stops(void)
{
	pthread_t t[2];
	lock_enough();
	got_in = 0;
	snd_lock(&f);
	CHECK(f.slow == !can_bias);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, run_late, i == 0 ? &f : NULL) == 0);
	for (int i = 0; i < 30; i++) {
		pass(MILLISECOND);
		CHECK(got_in == 0);
	}
	snd_unlock(&f);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(got_in == 2);
}

struct user {
	pthread_t id;
	uint32_t locks, pause; /* it locks so many times, and pauses after each number of locks; 0: never */
	bool aside;
};
static _Atomic int others; /* that have not ended */

/* use_often locks until all others have ended. */
static void *use_often(void *by_bias)
{
	uint64_t locks = 0;
	for (; others > 0; locks++)
		*(uint64_t *)by_bias += lock_once();
	return (void *)(uintptr_t)locks;
}

static void *use(void *arg)
{
	struct user *u = arg;
	for (uint32_t i = 1; i <= u->locks; i++) {
		if (u->aside) {
			snd_lock_aside(&f);
			counter++;
			snd_unlock_aside(&f);
		} else {
			lock_once();
		}
		if (u->pause > 0 && i % u->pause == 0)
			pass(1000);
	}
	others--;
	return NULL;
}

/* A thread that often has the bias never shares the lock with others, nor with the engine. */
static void test_excludes(void)
{
	struct user users[] = {{.locks = 3000, .pause = 1}, {.locks = 300000, .pause = 100}, {.locks = 3000, .pause = 1, .aside = true}};
	enum { USERS = sizeof users / sizeof users[0] };
	uint64_t by_bias = 0, all = 0;
	pthread_t often;
	void *locks;
	counter = 0;
	others = USERS;
	CHECK(pthread_create(&often, NULL, use_often, &by_bias) == 0);
	for (int i = 0; i < USERS; i++)
		CHECK(pthread_create(&users[i].id, NULL, use, &users[i]) == 0);
	for (int i = 0; i < USERS; i++) {
		CHECK(pthread_join(users[i].id, NULL) == 0);
		all += users[i].locks;
	}
	CHECK(pthread_join(often, &locks) == 0);
	fprintf(stderr, "%lu of %lu locks by the bias\n", (unsigned long)by_bias, (unsigned long)(uintptr_t)locks);
	CHECK(counter == all + (uintptr_t)locks);
	CHECK((by_bias > 0) == can_bias);
}

/* To threads beyond SND_BIASES the lock is a mutex. */
static pthread_barrier_t barrier;
static _Atomic int arrived;

static void *use_in_turn(void *by_bias)
{
	struct user u = {.locks = 2000};
	lock_enough();
	*(bool *)by_bias = lock_once();
	atomic_fetch_add(&arrived, 1);
	pthread_barrier_wait(&barrier); /* all threads live at the same time */
	return use(&u);
}

static void test_many_threads(void)
{
	enum { THREADS = SND_BIASES + 4 };
	pthread_t threads[THREADS];
	bool by_bias[THREADS];
	int biased = 0;
	memset(f.biases, 0, sizeof f.biases);
	f.bias = f.latest = NULL;
	counter = 0;
	CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
	for (int i = 0; i < THREADS; i++) {
		CHECK(pthread_create(&threads[i], NULL, use_in_turn, &by_bias[i]) == 0);
		while (arrived <= i)
			pass(10000);
	}
	for (int i = 0; i < THREADS; i++) {
		CHECK(pthread_join(threads[i], NULL) == 0);
		biased += by_bias[i];
	}
	CHECK(counter == THREADS * (ENOUGH + 1 + 2000));
	CHECK(biased == (can_bias ? SND_BIASES : 0));
}

static snd_fabric *fabric;
static snd_cq *cq;

static void *resize(void *status)
{
	*(snd_status *)status = snd_cq_resize(cq, 8);
	return NULL;
}

/* A call that waits for the biased thread finds that its handle was closed meanwhile. A forked child of that thread enters nowhere. */
static void test_closed_meanwhile(void)
{
	snd_adapter *adapter;
	snd_result r;
	snd_status s = SND_SUCCESS;
	pthread_t t;
	int status;
	OK(snd_fabric_create(0, UINT64_C(1) << 28, &(snd_fabric_options){.progress = SND_PROGRESS_MANUAL}, &fabric));
	OK(snd_adapter_open(fabric, &adapter));
	OK(snd_cq_create(adapter, 8, &cq));
	for (int i = 0; i < ENOUGH; i++)
		CHECK(snd_cq_poll(cq, &r, 1) == 0);
	struct snd_object *o = (struct snd_object *)(void *)cq;
	struct snd_fabric *locked = o->fabric;
	snd_lock(locked);
	CHECK(locked->slow == !can_bias);
	const pid_t child = fork();
	if (child == 0)
		_exit(snd_cq_resize(cq, 8) == SND_DEVICE_REMOVED && snd_cq_poll(cq, &r, 1) == (int32_t)SND_DEVICE_REMOVED ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(pthread_create(&t, NULL, resize, &s) == 0);
	pass(20 * MILLISECOND);
	snd_object_hide(o); /* as a close */
	snd_unlock(locked);
	CHECK(pthread_join(t, NULL) == 0 && s == SND_INVALID_HANDLE);
	snd_object_show(o, locked);
	OK(snd_fabric_close(fabric));
}

/* Options of zeros, and none, are the safe ones. */
static void test_defaults(void)
{
	snd_adapter *adapter;
	int fd;
	for (int i = 0; i < 2; i++) {
		OK(snd_fabric_create(0, UINT64_C(1) << 28, i == 0 ? NULL : &(snd_fabric_options){0}, &fabric));
		CHECK(fabric->lock == SND_LOCK_BIASED);
		OK(snd_adapter_open(fabric, &adapter));
		OK(snd_cq_create(adapter, 8, &cq));
		OK(snd_cq_event_fd(cq, &fd)); /* with a thread that makes progress */
		OK(snd_fabric_close(fabric));
	}
}

int main(void)
{
	alarm(100); /* a hang ends the test */
	snd_membarrier_register();
	can_bias = snd_has_membarrier;
#if defined(__SANITIZE_THREAD__)
	can_bias = true;
#endif
	f.lock = SND_LOCK_BIASED;
	pthread_mutex_init(&f.mutex, NULL);
	test_bias();
	test_owner_ends();
	test_owner_stops();
	test_excludes();
	test_many_threads();
	test_closed_meanwhile();
	test_defaults();
	return 0;
}

/* The fabric of the process: all contexts share it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/cq.h"
#include "endpoint/mr_adopt.h"
#include "endpoint/progress_engine.h"
#include "endpoint/provider.h"
#include "linux/clock.h"
#include "linux/fork.h"
#include "meet/bootstrap.h"
#include "objects.h"
#include "settings.h"
#include "shm/fabric_name.h"

#define JOIN_TIMEOUT INT64_C(10000000000)
#define OBSERVE_TIMEOUT INT64_C(1000000000)
#define MAX_SPIN INT64_C(1000000000)

/* spare is the adapter of a domain that the program has freed. A fabric gives no process more than 65,535 adapters. */
struct spare {
	struct spare *next;
	snd_adapter *adapter;
};

static struct {
	pthread_mutex_t lock;
	snd_fabric *fabric; /* NULL = not joined */
	struct snd_limits limits; /* of the fabric */
	unsigned contexts;  /* that have joined */
	struct spare *spares;
	unsigned forks; /* that led to this process, which is no member of the fabric of its parent */
} here = {.lock = PTHREAD_MUTEX_INITIALIZER, .forks = 1};

static void reset(void)
{
	(void)pthread_mutex_init(&here.lock, NULL);
	here.fabric = NULL;
	here.contexts = 0;
	here.spares = NULL;
	here.forks++;
}
SND_RESET_IN_CHILD(reset)

static bool is_in_job(void) { return getenv("SOFTND_ARENA_FD") != NULL || getenv("SOFTND_CONTROL") != NULL; }

/* own_fabric returns the name of the fabric of processes that are in no job. */
static const char *own_fabric(void)
{
	const char *name = getenv("SOFTND_VERBS_FABRIC");
	return name != NULL && *name != '\0' ? name : "verbs";
}

/* read_adopting reads SOFTND_VERBS_ADOPT. TWIN cmd/internal/verbs/settings.go. */
static snd_status read_adopting(enum snd_adopting *how, const char *op)
{
	static const char *const names[] = {"off", "auto", "always"};
	const char *value = snd_value_of("SOFTND_VERBS_ADOPT");
	*how = SND_ADOPT_AUTO;
	for (unsigned i = 0; *value != '\0' && strcmp(value, names[*how = (enum snd_adopting)i]) != 0;)
		if (++i == sizeof names / sizeof names[0])
			return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_VERBS_ADOPT: \"%s\": want off, auto or always", op, value);
	return SND_SUCCESS;
}

static snd_status join(void)
{
	enum snd_adopting adopting = SND_ADOPT_OFF;
	bool checks_pages = false;
	const char *op = "join fabric";
	snd_fabric_options o = {.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO};
	const char *spin = snd_value_of("SOFTND_VERBS_SPIN");
	int64_t duration;
	snd_status s = snd_apply_environment(&o, op);
	if (s == SND_SUCCESS && *spin != '\0' && (!snd_parse_duration(spin, &duration) || duration < 0 || duration > MAX_SPIN))
		s = snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_VERBS_SPIN: \"%s\": want a duration from 0 to 1s, such as 50us", op, spin);
	if (s == SND_SUCCESS)
		s = read_adopting(&adopting, op);
	if (s == SND_SUCCESS)
		s = snd_read_flag("SOFTND_VERBS_CHECK_PAGES", &checks_pages, op);
	if (s != SND_SUCCESS)
		return s;
	if (is_in_job())
		s = snd_place_visit(&o, &here.fabric, op);
	else
		s = snd_fabric_join(own_fabric(), 0, 0, 0, -1, &o, snd_deadline(JOIN_TIMEOUT), &here.fabric, op);
	if (s != SND_SUCCESS)
		return s;
	snd_adopts(here.fabric, adopting);
	if (checks_pages)
		snd_check_pages(here.fabric);
	if (*spin != '\0')
		snd_engine_polls_on(here.fabric, duration);
	snd_lock(here.fabric);
	here.limits = snd_large_limits; /* also with a weak order: ibv_query_device names them before there is a fabric */
	here.limits.cq_depth = MAX_CQE;
	here.fabric->limits = &here.limits;
	snd_unlock(here.fabric);
	return s;
}

/* join_with joins the fabric, or counts one more context in it. The lock is held. */
static bool join_with(struct context *c)
{
	if (here.fabric == NULL) {
		const snd_status s = join();
		if (s != SND_SUCCESS) {
			(void)report_status(s); /* the program itself can say only that it has no memory region, or no queue */
			return false;
		}
	}
	here.contexts += c->joined != here.forks;
	c->joined = here.forks;
	return true;
}

static bool is_idle(snd_adapter *a)
{
	snd_lock(here.fabric);
	const bool idle = a->objects == 0; /* also of those that have ended, and are not freed */
	snd_unlock(here.fabric);
	return idle;
}

/* take_spare returns an adapter that nothing uses, or NULL. The lock is held. */
static snd_adapter *take_spare(void)
{
	struct spare **at = &here.spares;
	while (*at != NULL && !is_idle((*at)->adapter))
		at = &(*at)->next;
	if (*at == NULL)
		return NULL;
	struct spare *s = *at;
	snd_adapter *a = s->adapter;
	*at = s->next;
	free(s);
	return a;
}

/* make_adapter stores an adapter for a context into *adapter, unless there is one. */
static snd_adapter *make_adapter(struct context *c, snd_adapter **adapter)
{
	SND_UNCANCELED;
	(void)pthread_mutex_lock(&here.lock);
	if (*adapter == NULL && join_with(c) && (*adapter = take_spare()) == NULL) {
		const snd_status s = snd_adapter_open(here.fabric, adapter);
		if (s != SND_SUCCESS)
			(void)refuse_status(s);
	}
	snd_adapter *a = *adapter;
	(void)pthread_mutex_unlock(&here.lock);
	return a;
}

snd_adapter *adapter_of(struct pd *pd) { return make_adapter(context_of(pd->public.context), &pd->adapter); }
snd_adapter *queues_of(struct context *c) { return make_adapter(c, &c->queues); }

void give_back(snd_adapter *adapter)
{
	(void)pthread_mutex_lock(&here.lock);
	struct spare *s = adapter != NULL && here.fabric != NULL && snd_belongs(here.fabric, adapter, SND_TYPE_ADAPTER) ? malloc(sizeof *s) : NULL;
	if (s != NULL) {
		*s = (struct spare){here.spares, adapter};
		here.spares = s;
	}
	(void)pthread_mutex_unlock(&here.lock);
}

static void close_adapter(snd_adapter *adapter)
{
	if (adapter != NULL)
		(void)snd_adapter_close(adapter, SND_FOREVER);
}

static struct traffic traffic_in(struct snd_arena *a)
{
	struct traffic t = {0};
	const uint32_t slots = snd_used_slots(a);
	for (uint32_t slot = 0; slot < slots; slot++) {
		const struct snd_member_record *r = snd_member(a, slot);
		t.bytes += snd_relaxed(&r->bytes);
		t.requests += snd_relaxed(&r->requests);
	}
	return t;
}

/* observe counts the traffic of a fabric that this process has not joined. */
static struct traffic observe(void)
{
	const char *op = "read counters";
	struct traffic t = {0};
	struct snd_arena a;
	if ((is_in_job() ? snd_arena_attach(&a, (int)snd_number_in("SOFTND_ARENA_FD"), snd_clock() + OBSERVE_TIMEOUT, op) : snd_find_arena(&a, own_fabric(), op)) == SND_SUCCESS) {
		t = traffic_in(&a);
		snd_arena_close(&a);
	}
	return t;
}

struct traffic count_traffic(void)
{
	SND_UNCANCELED;
	struct traffic t;
	(void)pthread_mutex_lock(&here.lock);
	if (here.fabric != NULL) {
		snd_lock(here.fabric);
		snd_show_traffic(here.fabric);
		t = traffic_in(&here.fabric->arena);
		snd_unlock(here.fabric);
	} else {
		t = observe();
	}
	(void)pthread_mutex_unlock(&here.lock);
	return t;
}

void leave_fabric(struct context *c)
{
	SND_UNCANCELED;
	(void)pthread_mutex_lock(&here.lock);
	const bool joined = c->joined == here.forks, last = joined && --here.contexts == 0;
	if (joined && (!last || snd_has_adopted(here.fabric))) {
		for (struct pd *pd = c->domains; pd != NULL; pd = pd->next)
			close_adapter(pd->adapter);
		close_adapter(c->queues);
	}
	if (last && !snd_has_adopted(here.fabric)) { /* else the process leaves the fabric when it ends, or closes another context */
		(void)snd_fabric_close(here.fabric);
		here.fabric = NULL;
		for (struct spare *s; (s = here.spares) != NULL; free(s))
			here.spares = s->next;
	}
	(void)pthread_mutex_unlock(&here.lock);
}

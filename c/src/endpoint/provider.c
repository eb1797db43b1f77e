/* Opening and closing a fabric and its adapters. TWIN endpoint/provider.go, endpoint/provider_open.go. */
#include "endpoint/provider.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cm_connector.h"
#include "endpoint/cm_listener.h"
#include "endpoint/cm_ports.h"
#include "endpoint/event.h"
#include "endpoint/hook.h"
#include "endpoint/mr_allocation.h"
#include "endpoint/mr_mapping.h"
#include "endpoint/progress.h"
#include "endpoint/progress_engine.h"
#include "endpoint/progress_housekeeper.h"
#include "endpoint/progress_statuspage.h"
#include "endpoint/progress_wait.h"
#include "endpoint/qp.h"
#include "endpoint/srq.h"
#include "linux/clock.h"
#include "linux/memory_limit.h"
#include "settings.h"
#include "shm/fabric_name.h"
#include "shm/inbox.h"
#include "shm/watch.h"
#include "shm/number.h"
#include "shm/work.h"
#include "structure.h"
#include "window/fastreg.h"

#define SECOND INT64_C(1000000000)
#define ENGINE_SPIN INT64_C(50000)
#define DISCONNECT_TIMEOUT (10 * SECOND) /* processes that share busy cores may need seconds for the answer */

const struct snd_limits snd_large_limits = {.sge = SNDL_MAX_SGE, .least_sge = 4, .inline_size = 1024, .queue_depth = SND_MAX_QUEUE_DEPTH, .cq_depth = 65536,
	.reads = SND_MAX_READS, .private_data = SND_MAX_PRIVATE_DATA};
const struct snd_limits snd_small_limits = {.sge = 4, .least_sge = 1, .inline_size = 96, .queue_depth = 256, .cq_depth = 4096, .reads = 16, .private_data = 56};

static snd_status check_options(const snd_fabric_options *o, const char *op)
{
	if (o->threading != SND_THREAD_DOMAIN && o->threading != SND_THREAD_SAFE)
		return snd_fail(SND_INVALID_PARAMETER, "%s: threading %d of the options: pass SND_THREAD_SAFE or SND_THREAD_DOMAIN", op, (int)o->threading);
	if (o->progress != SND_PROGRESS_MANUAL && o->progress != SND_PROGRESS_AUTO)
		return snd_fail(SND_INVALID_PARAMETER, "%s: progress %d of the options: pass SND_PROGRESS_AUTO or SND_PROGRESS_MANUAL", op, (int)o->progress);
	if (o->executor != SND_EXECUTOR_AUTO && o->executor != SND_EXECUTOR_TARGET)
		return snd_fail(SND_INVALID_PARAMETER, "%s: executor %d of the options: pass SND_EXECUTOR_AUTO or SND_EXECUTOR_TARGET", op, (int)o->executor);
	snd_status s = snd_check_switch(o->check_payloads, "check_payloads", op);
	if (s == SND_SUCCESS)
		s = snd_check_switch(o->weak_order, "weak_order", op);
	if (s == SND_SUCCESS)
		s = snd_check_switch(o->count_operations, "count_operations", op);
	if (s == SND_SUCCESS)
		s = snd_check_switch(o->exit_with_job, "exit_with_job", op);
	return s;
}

snd_status snd_fabric_begin(const snd_fabric_options *options, snd_fabric **handle, struct snd_fabric **fabric, const char *op)
{
	*handle = NULL;
	static const snd_fabric_options defaults;
	if (options == NULL)
		options = &defaults;
	snd_status s = snd_start(op);
	bool watched = false;
	if (s == SND_SUCCESS)
		s = snd_read_flag("SOFTND_CHECK", &watched, op);
	if (s == SND_SUCCESS)
		s = check_options(options, op);
	if (s != SND_SUCCESS)
		return s;
	const bool safe = options->threading == SND_THREAD_SAFE;
	struct snd_fabric *f = snd_object_new(SND_TYPE_FABRIC, sizeof *f, offsetof(struct snd_fabric, closed), NULL, safe);
	if (f == NULL || (f->ports = calloc(1, 65536 / 8)) == NULL) {
		if (f != NULL)
			snd_object_free(&f->object);
		return snd_no_memory(sizeof *f, "private memory", op);
	}
	f->arena.fd = f->socket = f->event_fd = -1;
	f->clock_ahead = snd_clock_ahead();
	for (int i = 0; i < SND_JOINERS; i++)
		f->joiners[i].socket = -1;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	f->cores = cores > 0 ? (uint32_t)cores : 1;
	f->receive_timeout = f->default_receive_timeout = 2 * SECOND;
	f->disconnect_timeout = DISCONNECT_TIMEOUT;
	f->engine_spin = ENGINE_SPIN;
	f->has_engine = options->progress == SND_PROGRESS_AUTO;
	f->target = options->executor == SND_EXECUTOR_TARGET;
	f->check_payloads = options->check_payloads != 0;
	f->counts_operations = options->count_operations != 0;
	f->stepwise = options->weak_order != 0;
	f->weak_seed = options->weak_order_seed;
	f->spin_budget = options->spin_budget;
	f->limits = f->stepwise ? &snd_small_limits : &snd_large_limits;
	if (!f->has_mutex)
		pthread_mutex_init(&f->mutex, NULL);
	f->has_mutex = true;
	const enum snd_locking lock = safe || (f->has_engine && !watched) ? SND_LOCK_BIASED : watched ? SND_LOCK_WATCHED : SND_LOCK_NONE;
	if (f->lock != lock) { /* not with SND_THREAD_SAFE if an earlier fabric was here: threads that use that too late read it */
		f->bias = NULL;
		f->lock = lock;
	}
	struct snd_link *lists[] = {&f->adapters, &f->endpoints, &f->closing, &f->connections, &f->listeners, &f->connectors, &f->queues, &f->closing_queues, &f->shared_queues,
		&f->regions, &f->windows, &f->work, &f->waiting, &f->matching};
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
		snd_list_init(lists[i]);
	for (size_t i = 0; i < SND_REQUEST_LISTS; i++)
		snd_list_init(&f->requests[i]);
	snd_in_use(1);
	*fabric = f;
	return SND_SUCCESS;
}

/* free_fabric frees a fabric that is not a member. */
static void free_fabric(struct snd_fabric *f)
{
	snd_stop_serving(f);
	snd_end_modes(f);
	if (f->event_fd >= 0)
		close(f->event_fd);
	snd_leave_allocations(f); /* of a fabric that has never been open */
	snd_arena_close(&f->arena);
	snd_table_free(f->table);
	snd_numbers_free(f);
	free(f->ports);
	snd_object_free(&f->object);
	snd_in_use(-1);
}

/* snd_fabric_finish joins the arena that f has attached, or frees f if s or the join has failed. */
snd_status snd_fabric_finish(struct snd_fabric *f, snd_status s, int32_t rank, snd_fabric **fabric, const char *op)
{
	if (s == SND_SUCCESS)
		s = snd_add_mapping(f, op);
	if (s == SND_SUCCESS)
		s = snd_load_modes(f, rank, op);
	if (s == SND_SUCCESS)
		s = snd_join(f, rank, snd_reset_status_page, op);
	if (s == SND_SUCCESS && (f->table = snd_table_new(&f->arena, f->slot)) == NULL) {
		snd_leave(f);
		s = snd_no_memory(sizeof *f->table, "private memory", op);
	}
	if (s != SND_SUCCESS) {
		free_fabric(f);
		return s;
	}
	snd_begin_modes(f);
	if (f->has_engine)
		s = snd_watch_start(f, op);
	snd_check_liveness(f);
	if (s == SND_SUCCESS && f->has_engine)
		s = snd_engine_start(f, op);
	if (s != SND_SUCCESS) {
		snd_watch_stop(f);
		snd_leave(f);
		free_fabric(f);
		return s;
	}
	snd_object_show(&f->object, f);
	*fabric = f;
	return SND_SUCCESS;
}

snd_status snd_fabric_create(size_t options_size, uint32_t ranks, uint64_t size, const snd_fabric_options *options, snd_fabric **fabric)
{
	SND_KEEP_ERRNO;
	const char *op = "create fabric";
	SND_CHECK_POINTER(fabric, op);
	*fabric = NULL;
	SND_KNOWN(snd_fabric_options, options, options_size, op);
	struct snd_fabric *f;
	snd_status s = snd_fabric_begin(options, fabric, &f, op);
	return s != SND_SUCCESS ? s : snd_fabric_finish(f, snd_arena_create(&f->arena, ranks, 0, size, op), -1, fabric, op);
}

snd_status snd_fabric_attach(size_t options_size, int descriptor, int32_t rank, const snd_fabric_options *options, snd_fabric **fabric)
{
	SND_KEEP_ERRNO;
	const char *op = "attach fabric";
	SND_CHECK_POINTER(fabric, op);
	*fabric = NULL;
	SND_KNOWN(snd_fabric_options, options, options_size, op);
	struct snd_fabric *f;
	snd_status s = snd_fabric_begin(options, fabric, &f, op);
	return s != SND_SUCCESS ? s : snd_fabric_finish(f, snd_arena_attach(&f->arena, descriptor, snd_clock() + 10 * SECOND, op), rank, fabric, op);
}

snd_status snd_fabric_join(const char *name, uint32_t ranks, uint32_t host, uint64_t size, int32_t rank, const snd_fabric_options *options, int64_t deadline,
	snd_fabric **fabric, const char *op)
{
	struct snd_fabric *f;
	snd_status s = snd_check_name(name, op);
	if (s == SND_SUCCESS)
		s = snd_fabric_begin(options, fabric, &f, op);
	if (s != SND_SUCCESS)
		return s;
	return snd_fabric_finish(f, snd_find_fabric(f, name, ranks, host, size, deadline, op), rank, fabric, op);
}

snd_status snd_fabric_open(size_t options_size, const char *name, uint32_t ranks, uint64_t size, int32_t rank, const snd_fabric_options *options,
	snd_fabric **fabric)
{
	SND_KEEP_ERRNO;
	const char *op = "open fabric";
	SND_CHECK_POINTER(fabric, op);
	*fabric = NULL;
	SND_KNOWN(snd_fabric_options, options, options_size, op);
	return snd_fabric_join(name, ranks, 0, size, rank, options, snd_deadline(10 * SECOND), fabric, op);
}

int snd_fabric_descriptor(snd_fabric *fabric) { SND_GET(fabric, SND_TYPE_FABRIC, "descriptor of fabric", int, fabric->arena.fd, -1); }

snd_address snd_fabric_address(snd_fabric *fabric)
{
	SND_GET(fabric, SND_TYPE_FABRIC, "address of fabric", snd_address, ((snd_address){snd_host_of(fabric, fabric->slot), 0, 0}), ((snd_address){0, 0, 0}));
}

snd_status snd_fabric_set_timeouts(snd_fabric *fabric, int64_t receive, int64_t disconnect)
{
	SND_KEEP_ERRNO;
	const char *op = "set time-outs";
	const int64_t least = receive < disconnect ? receive : disconnect;
	if (least < SND_DEFAULT_TIMEOUT)
		return snd_fail(SND_INVALID_PARAMETER, "%s: %" PRId64 ": pass nanoseconds, 0, SND_FOREVER or SND_DEFAULT_TIMEOUT", op, least);
	SND_ENTER(fabric, SND_TYPE_FABRIC, op);
	fabric->receive_timeout = receive == SND_DEFAULT_TIMEOUT ? fabric->default_receive_timeout : receive;
	fabric->disconnect_timeout = disconnect == SND_DEFAULT_TIMEOUT ? DISCONNECT_TIMEOUT : disconnect;
	snd_wake_progress(fabric); /* the limit of a Send that waits has changed */
	return snd_leave_with(fabric, SND_SUCCESS);
}

snd_status snd_fabric_progress(snd_fabric *fabric)
{
	SND_KEEP_ERRNO;
	SND_ENTER(fabric, SND_TYPE_FABRIC, "progress");
	snd_progress_all(fabric);
	snd_housekeep(fabric, snd_clock());
	if (!snd_list_is_empty(&fabric->work))
		snd_run_deferred(fabric);
	return snd_leave_with(fabric, SND_SUCCESS);
}

/* free_objects frees what is private to the process. Peers keep their references to this process's memory until
 * they have acknowledged that the member left. */
static void free_objects(struct snd_fabric *f)
{
	snd_read_inbox(f, snd_handle_request); /* listeners refuse the requests in it */
	while (!snd_list_is_empty(&f->listeners))
		snd_forget_listener(SND_OF(f->listeners.next, struct snd_listener, link));
	while (!snd_list_is_empty(&f->connectors))
		snd_forget_connector(SND_OF(f->connectors.next, struct snd_connector, link));
	while (!snd_list_is_empty(&f->closing))
		snd_forget_endpoint(SND_OF(f->closing.next, struct snd_endpoint, link));
	while (!snd_list_is_empty(&f->connections))
		snd_forget_connection(SND_OF(f->connections.next, struct snd_connection, link));
	while (!snd_list_is_empty(&f->work)) /* each item is part of an object */
		snd_list_remove(f->work.next);
	while (!snd_list_is_empty(&f->windows)) {
		struct snd_window *w = SND_OF(f->windows.next, struct snd_window, link);
		snd_list_remove(&w->link);
		snd_object_free(&w->object);
	}
	while (!snd_list_is_empty(&f->regions)) {
		struct snd_mr *m = SND_OF(f->regions.next, struct snd_mr, link);
		snd_free_registration(m->region.registration);
		snd_release_hold(f, m->hold);
		snd_list_remove(&m->link);
		snd_object_free(&m->object);
	}
	while (!snd_list_is_empty(&f->queues)) {
		struct snd_cq *q = SND_OF(f->queues.next, struct snd_cq, link);
		q->closed = true;
		q->slow |= SND_CQ_ENDED;
		if (q->fd >= 0)
			close(q->fd);
		snd_cq_release(q); /* no object refers to it */
	}
	while (!snd_list_is_empty(&f->shared_queues)) {
		struct snd_srq *q = SND_OF(f->shared_queues.next, struct snd_srq, link);
		q->closed = true;
		snd_srq_release(q);
	}
	while (!snd_list_is_empty(&f->adapters)) {
		struct snd_adapter *a = SND_OF(f->adapters.next, struct snd_adapter, link);
		snd_forget_mappings(a);
		snd_list_remove(&a->link);
		snd_object_free(&a->object);
	}
	snd_leave_allocations(f);
}

/* snd_close_fabric is the rest of a call that has entered, and hidden the handle by which it did. */
void snd_close_fabric(struct snd_fabric *f)
{
	snd_object_hide(&f->object);
	for (struct snd_link *l = f->connectors.next; l != &f->connectors; l = l->next)
		snd_give_up(SND_OF(l, struct snd_connector, link));
	while (!snd_list_is_empty(&f->endpoints))
		snd_close_endpoint(SND_OF(f->endpoints.next, struct snd_endpoint, link));
	f->closed = true;
	snd_unlock(f);
	snd_engine_stop(f);
	snd_lock(f);
	while (f->calls > 0) { /* calls of other threads */
		snd_wake_doorbell(&f->record->waiters);
		snd_unlock(f);
		nanosleep(&(struct timespec){0, 1000000}, NULL);
		snd_lock(f);
	}
	snd_watch_stop(f);
	free_objects(f);
	snd_show_traffic(f);
	snd_leave(f);
	snd_unlock(f);
	snd_end_events(f->events);
	free_fabric(f);
}

snd_status snd_fabric_close(snd_fabric *fabric)
{
	SND_KEEP_ERRNO;
	const char *op = "close fabric";
	SND_ENTER(fabric, SND_TYPE_FABRIC, op);
	if (fabric->of_job)
		return snd_leave_with(fabric, snd_fail(SND_DEVICE_BUSY, "%s: it belongs to a job: call snd_job_close", op));
	snd_close_fabric(fabric);
	return SND_SUCCESS;
}

snd_status snd_adapter_open(snd_fabric *fabric, snd_adapter **adapter)
{
	SND_KEEP_ERRNO;
	const char *op = "open adapter";
	SND_ENTER_TO(fabric, SND_TYPE_FABRIC, adapter, op);
	*adapter = NULL;
	snd_status s = SND_SUCCESS;
	struct snd_adapter *a = NULL;
	if (fabric->adapters_opened >= SNDL_ADAPTER_NUMBER_MASK)
		s = snd_fail(SND_INSUFFICIENT_RESOURCES, "%s: this member has opened 65,535 adapters: keep them open and reuse them", op);
	else if ((a = snd_new(fabric, SND_TYPE_ADAPTER, sizeof *a)) == NULL)
		s = snd_no_memory(sizeof *a, "private memory", op);
	if (s == SND_SUCCESS) {
		a->number = fabric->id << SNDL_ADAPTER_MEMBER_SHIFT | ++fabric->adapters_opened;
		snd_list_init(&a->hazards);
		snd_list_init(&a->mappings);
		snd_list_append(&fabric->adapters, &a->link);
		*adapter = a;
	}
	return snd_leave_with(fabric, s);
}

enum { MAX_INTER_HOST = 2048 }; /* connections that the relay of a host carries */

#define ADAPTER_FLAGS (SND_ADAPTER_IN_ORDER_DMA | SND_ADAPTER_READ_SINK_NOT_REQUIRED | SND_ADAPTER_INTERRUPT_MODERATION | SND_ADAPTER_MULTI_ENGINE | \
	SND_ADAPTER_READ_LOCAL_INVALIDATE | SND_ADAPTER_CQ_RESIZE | SND_ADAPTER_LOOPBACK | SND_ADAPTER_ATOMICS | SND_ADAPTER_IMMEDIATE | SND_ADAPTER_PLACEMENT)

/* adapter_id is adapterID of endpoint/address.go. */
static uint64_t adapter_id(const struct snd_fabric *f)
{
	const uint64_t words[] = {htole64(f->arena.id[0]), htole64(f->arena.id[1]), htole64(f->id)};
	return snd_xxh64(words, sizeof words);
}

snd_status snd_adapter_query(size_t info_size, snd_adapter *adapter, snd_adapter_info *info)
{
	const char *op = "query adapter";
	SND_CHECK(adapter, SND_TYPE_ADAPTER, op);
	SND_CHECK_STORED(snd_adapter_info, info, info_size, op);
	SND_ENTER(adapter, SND_TYPE_ADAPTER, op);
	struct snd_fabric *f = adapter->object.fabric;
	const struct snd_limits *l = f->limits;
	struct snd_peer relay;
	const snd_adapter_info known = {.adapter_id = adapter_id(f), .max_registration = SND_MAX_REGISTRATION, .max_window = SND_MAX_REGISTRATION, .max_transfer = SND_MAX_TRANSFER,
		.max_initiator_sge = l->sge, .max_receive_sge = l->sge, .max_read_sge = l->sge, .max_inline = l->inline_size, .max_inbound_reads = l->reads, .max_outbound_reads = l->reads,
		.max_receive_depth = l->queue_depth, .max_initiator_depth = l->queue_depth, .max_srq_depth = l->queue_depth, .max_cq_depth = l->cq_depth,
		.inline_threshold = l->inline_size < SND_INLINE_THRESHOLD ? l->inline_size : SND_INLINE_THRESHOLD, .large_threshold = SNDL_MAX_SEND_IN_ENTRY,
		.max_caller_data = l->private_data, .max_callee_data = l->private_data, .max_inter_host_connections = snd_find_relay(f, &relay) ? MAX_INTER_HOST : 0,
		.flags = f->stepwise ? ADAPTER_FLAGS & ~SND_ADAPTER_IN_ORDER_DMA : ADAPTER_FLAGS};
	snd_store_known(info, info_size, &known, sizeof known);
	return snd_leave_with(f, SND_SUCCESS);
}

/* OPEN_IN returns the first open object of the adapter in a list. */
#define OPEN_IN(list, kind, of_adapter, type_of, condition) \
	for (struct snd_link *l = (list)->next; l != (list); l = l->next) { \
		struct kind *o = SND_OF(l, struct kind, link); \
		if (o->of_adapter == a && !snd_is_closed(&o->object) && (condition)) { \
			*type = type_of; \
			return o; \
		} \
	}

/* open_object returns an object of the adapter that no other open one uses, and NULL if there is none. */
static void *open_object(const struct snd_adapter *a, enum snd_type *type)
{
	struct snd_fabric *f = a->object.fabric;
	OPEN_IN(&f->listeners, snd_listener, adapter, SND_TYPE_LISTENER, true)
	OPEN_IN(&f->connectors, snd_connector, adapter, SND_TYPE_CONNECTOR, true)
	OPEN_IN(&f->endpoints, snd_endpoint, adapter, SND_TYPE_ENDPOINT, true)
	OPEN_IN(&f->windows, snd_window, i.adapter, SND_TYPE_WINDOW, true)
	OPEN_IN(&f->regions, snd_mr, region.i.adapter, SND_TYPE_MR, o->fast_pages > 0)
	OPEN_IN(&a->mappings, snd_mapping, region.i.adapter, SND_TYPE_MAPPING, true)
	OPEN_IN(&f->regions, snd_mr, region.i.adapter, SND_TYPE_MR, true)
	OPEN_IN(&f->shared_queues, snd_srq, adapter, SND_TYPE_SRQ, true)
	OPEN_IN(&f->queues, snd_cq, adapter, SND_TYPE_CQ, true)
	return NULL;
}

static snd_status close_object(void *o, enum snd_type type, int64_t timeout)
{
	switch (type) {
	case SND_TYPE_LISTENER: return snd_listener_close(o);
	case SND_TYPE_CONNECTOR: return snd_connector_close(o);
	case SND_TYPE_ENDPOINT: return snd_endpoint_close(o);
	case SND_TYPE_WINDOW: return snd_window_close(o, timeout);
	case SND_TYPE_MAPPING: return snd_mapping_close(o, timeout);
	case SND_TYPE_MR: return snd_mr_close(o, timeout);
	case SND_TYPE_SRQ: return snd_srq_close(o);
	default: return snd_cq_close(o);
	}
}

/* free_adapter frees a closed adapter, unless endpoints or queues that are closed still refer to it. */
static bool free_adapter(struct snd_work *work)
{
	struct snd_adapter *a = SND_OF(work, struct snd_adapter, free_work);
	if (a->objects > 0)
		return false;
	snd_list_remove(&a->link);
	snd_object_free(&a->object);
	return true;
}

/* are_flushed reports whether the closed endpoints of an adapter have completed their requests, which use its other objects. */
static bool are_flushed(void *arg)
{
	struct snd_adapter *a = arg;
	struct snd_fabric *f = a->object.fabric;
	for (struct snd_link *l = f->closing.next; l != &f->closing; l = l->next) {
		const struct snd_endpoint *ep = SND_OF(l, struct snd_endpoint, link);
		if (ep->adapter == a && ep->completed != ep->posted)
			return false;
	}
	return true;
}

snd_status snd_adapter_close(snd_adapter *adapter, int64_t timeout)
{
	SND_KEEP_ERRNO;
	const char *op = "close adapter";
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(adapter, SND_TYPE_ADAPTER, op);
	struct snd_fabric *f = adapter->object.fabric;
	const int64_t deadline = timeout < 0 ? -1 : snd_deadline(timeout);
	enum snd_type type;
	if (adapter->of_job)
		return snd_leave_with(f, snd_fail(SND_DEVICE_BUSY, "%s: it belongs to a job: call snd_job_close", op));
	snd_object_hide(&adapter->object); /* no other thread makes an object now */
	f->calls++;                        /* the fabric stays */
	snd_status s = SND_SUCCESS;
	for (void *o; s == SND_SUCCESS && !f->closed && (o = open_object(adapter, &type)) != NULL;) {
		snd_unlock(f);
		s = close_object(o, type, snd_time_left(deadline));
		if (s == SND_INVALID_HANDLE) /* another thread has closed it */
			s = SND_SUCCESS;
		snd_lock(f);
		if (s == SND_DEVICE_BUSY && !are_flushed(adapter)) {
			s = snd_wait_drained(f, snd_time_left(deadline), are_flushed, adapter, &(struct snd_call){.op = op, .object = "adapter"});
			if (s != SND_SUCCESS)
				s = snd_not_drained(s, timeout, op);
		}
	}
	f->calls--;
	if (f->closed) {
		s = snd_fail(SND_CANCELED, "%s: the fabric was closed", op);
	} else if (s != SND_SUCCESS) {
		snd_object_show(&adapter->object, f);
	} else {
		if (adapter->privileged != 0)
			snd_give_back(f->table, adapter->privileged_entry);
		adapter->free_work.run = free_adapter;
		snd_run_or_defer(f, &adapter->free_work);
	}
	return snd_leave_with(f, s);
}

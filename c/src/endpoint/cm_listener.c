/* Listeners: they take the connection requests for one port. TWIN endpoint/cm_listener.go, endpoint/cm_inbox.go. */
#include "endpoint/cm_listener.h"

#include <inttypes.h>

#include "endpoint/cm_connection.h"
#include "endpoint/cm_connector.h"
#include "endpoint/cm_event.h"
#include "endpoint/cm_ports.h"
#include "endpoint/hook.h"
#include "endpoint/progress_wait.h"
#include "linux/memory_limit.h"
#include "shm/doorbell.h"
#include "shm/inbox.h"

enum { MAX_BACKLOG = 4096 }; /* each request that waits takes private memory, so peers must not make them without a limit */

snd_status snd_listener_create(snd_adapter *adapter, snd_listener **listener)
{
	SND_KEEP_ERRNO;
	const char *op = "create listener";
	SND_ENTER_TO(adapter, SND_TYPE_ADAPTER, listener, op);
	*listener = NULL;
	struct snd_fabric *f = adapter->object.fabric;
	struct snd_listener *l = snd_new(f, SND_TYPE_LISTENER, sizeof *l);
	if (l == NULL)
		return snd_leave_with(f, snd_no_memory(sizeof *l, "private memory", op));
	l->adapter = adapter;
	snd_list_init(&l->queue);
	adapter->objects++;
	snd_list_append(&f->listeners, &l->link);
	*listener = l;
	return snd_leave_with(f, SND_SUCCESS);
}

snd_status snd_listener_bind(snd_listener *listener, snd_address address)
{
	const char *op = "bind";
	SND_KEEP_ERRNO;
	SND_ENTER(listener, SND_TYPE_LISTENER, op);
	struct snd_fabric *f = listener->object.fabric;
	snd_status s = listener->bound ? snd_fail(SND_ADDRESS_ALREADY_ASSOCIATED, "%s: the listener is already bound to port %u", op, (unsigned)listener->address.port)
		: snd_bind_port(f, address, &listener->address, op);
	if (s == SND_SUCCESS)
		listener->bound = true;
	return snd_leave_with(f, s);
}

snd_status snd_listener_listen(snd_listener *listener, uint32_t backlog)
{
	SND_KEEP_ERRNO;
	SND_ENTER(listener, SND_TYPE_LISTENER, "listen");
	struct snd_fabric *f = listener->object.fabric;
	snd_status s = snd_before_call(&listener->object, "listen", 0, 0, NULL);
	if (s != SND_SUCCESS)
		return snd_leave_with(f, s);
	if (!listener->bound || listener->listening) {
		s = snd_fail(SND_INVALID_DEVICE_STATE, "listen: the listener is not bound, or is listening already: call snd_listener_bind, then snd_listener_listen, once");
	} else {
		listener->backlog = backlog == 0 || backlog > MAX_BACKLOG ? MAX_BACKLOG : backlog;
		listener->listening = true;
	}
	return snd_leave_with(f, s);
}

snd_status snd_listener_address(snd_listener *listener, snd_address *address)
{
	const char *op = "get local address";
	SND_ENTER_TO(listener, SND_TYPE_LISTENER, address, op);
	snd_status s = SND_SUCCESS;
	if (listener->listening)
		*address = listener->address;
	else
		s = snd_fail(SND_INVALID_DEVICE_STATE, "%s: the listener is not listening: call snd_listener_listen first", op);
	return snd_leave_with(listener->object.fabric, s);
}

static bool is_abandoned(const struct snd_connection *c)
{
	return snd_is_peer_gone(c) || snd_connection_state(c) != SNDL_CONN_REQUESTED;
}

static void dequeue(struct snd_listener *l, struct snd_connection *c)
{
	snd_list_remove(&c->queue_link);
	l->queued--;
}

/* drop_abandoned removes requests whose other side has withdrawn them or is gone. */
static void drop_abandoned(struct snd_listener *l)
{
	for (struct snd_link *i = l->queue.next, *next; i != &l->queue; i = next) {
		struct snd_connection *c = SND_OF(i, struct snd_connection, queue_link);
		next = i->next;
		if (is_abandoned(c)) {
			dequeue(l, c);
			snd_detach(c);
			snd_unuse(c);
		}
	}
}

bool snd_listener_enqueue(struct snd_fabric *f, struct snd_connection *c, uint16_t port)
{
	for (struct snd_link *i = f->listeners.next; i != &f->listeners; i = i->next) {
		struct snd_listener *l = SND_OF(i, struct snd_listener, link);
		if (!l->listening || l->address.port != port)
			continue;
		if (f->call_hook != NULL && f->call_hook->refuses(c))
			return false;
		if (l->queued >= l->backlog && l->refused++ % l->backlog == 0) /* not for each of a flood of requests */
			drop_abandoned(l);
		if (l->queued >= l->backlog)
			return false;
		l->refused = 0; /* the next request that finds the queue full looks for abandoned ones */
		c->users++;
		snd_list_append(&l->queue, &c->queue_link);
		l->queued++;
		if (f->event_fd >= 0)
			snd_raise_event(f);
		return true;
	}
	return false;
}

struct request_wait {
	struct snd_listener *l;
	struct snd_connection *conn;
	snd_address at; /* where the request has come in */
	uint32_t cancels; /* when it began */
};

static bool has_request(void *arg)
{
	struct request_wait *w = arg;
	struct snd_listener *l = w->l;
	if (snd_is_closed(&l->object) || l->cancels != w->cancels)
		return true;
	drop_abandoned(l);
	if (snd_list_is_empty(&l->queue) || l->paused)
		return false;
	w->conn = SND_OF(l->queue.next, struct snd_connection, queue_link);
	w->at = l->address;
	dequeue(l, w->conn);
	return true;
}

snd_status snd_listener_request(snd_listener *listener, int64_t timeout, snd_connector **connector)
{
	SND_KEEP_ERRNO;
	const char *op = "get connection request";
	SND_CHECK(listener, SND_TYPE_LISTENER, op);
	SND_CHECK_POINTER(connector, op);
	*connector = NULL;
	SND_CHECK_TIMEOUT(timeout, op);
	SND_ENTER(listener, SND_TYPE_LISTENER, op);
	struct snd_listener *l = listener;
	struct snd_fabric *f = l->object.fabric;
	struct snd_connector *c;
	if (!l->listening)
		return snd_leave_with(f, snd_fail(SND_INVALID_DEVICE_STATE, "%s: the listener is not listening: call snd_listener_listen first", op));
	if ((c = snd_connector_new(l->adapter)) == NULL)
		return snd_leave_with(f, snd_no_memory(sizeof *c, "private memory", op));
	snd_object_hide(&c->object); /* until it has a request: no other call closes it during the wait */
	struct request_wait w = {.l = l, .cancels = l->cancels};
	snd_read_inbox(f, snd_handle_request);
	snd_hold(&l->object);
	snd_status s = snd_wait(f, timeout, has_request, NULL, &w, &(struct snd_call){.op = op, .object = "listener"});
	if (w.conn != NULL) {
		snd_take_request(c, w.conn, w.at);
		snd_object_show(&c->object, f);
		*connector = c;
		s = SND_SUCCESS;
	} else {
		s = snd_is_closed(&l->object) ? snd_fail(SND_CANCELED, "%s: the listener was closed", op)
			: s == SND_CANCELED ? snd_fail(s, "%s: the fabric was closed", op)
			: s == SND_SUCCESS ? snd_fail(SND_CANCELED, "%s: the call was cancelled", op)
			: snd_fail(s, "%s: no request within %s", op, snd_duration(timeout).text);
		snd_forget_connector(c);
	}
	snd_let_go(&l->object);
	return snd_leave_with(f, s);
}

snd_status snd_listener_cancel(snd_listener *listener)
{
	SND_KEEP_ERRNO;
	SND_ENTER(listener, SND_TYPE_LISTENER, "cancel");
	listener->cancels++;
	snd_wake(listener->object.fabric);
	return snd_leave_with(listener->object.fabric, SND_SUCCESS);
}

snd_status snd_listener_pause(snd_listener *listener, int pause)
{
	SND_KEEP_ERRNO;
	SND_ENTER(listener, SND_TYPE_LISTENER, "pause listener");
	struct snd_fabric *f = listener->object.fabric;
	snd_status s = SND_SUCCESS;
	if (!listener->listening)
		s = snd_fail(SND_INVALID_DEVICE_STATE, "pause listener: the listener is not listening: call snd_listener_listen first");
	else
		listener->paused = pause != 0;
	snd_wake(f);
	return snd_leave_with(f, s);
}

void snd_forget_listener(struct snd_listener *l)
{
	snd_list_remove(&l->link);
	while (!snd_list_is_empty(&l->queue)) {
		struct snd_connection *c = SND_OF(l->queue.next, struct snd_connection, queue_link);
		snd_refuse(c);
		dequeue(l, c);
		snd_unuse(c);
	}
	l->adapter->objects--;
	snd_object_free(&l->object);
}

snd_status snd_listener_close(snd_listener *listener)
{
	SND_KEEP_ERRNO;
	SND_ENTER(listener, SND_TYPE_LISTENER, "close listener");
	struct snd_listener *l = listener;
	struct snd_fabric *f = l->object.fabric;
	snd_read_inbox(f, snd_handle_request); /* its requests would wait until the program makes progress */
	snd_object_hide(&l->object);
	if (l->bound)
		snd_release_port(f, l->address.port);
	snd_wake(f);
	snd_forget_listener(l);
	return snd_leave_with(f, SND_SUCCESS);
}

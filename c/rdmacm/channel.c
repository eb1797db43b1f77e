/* Event channels. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cm.h"
#include "linux/descriptor.h"
#include "linux/handlers.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;

static int cancel_state; /* of the thread that has the lock */

/* A thread that the program cancels keeps no lock: the system calls under it are cancellation points. */
void lock(void)
{
	int state;
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	(void)pthread_mutex_lock(&mutex);
	cancel_state = state;
}

void unlock(void)
{
	const int state = cancel_state;
	(void)pthread_mutex_unlock(&mutex);
	(void)pthread_setcancelstate(state, NULL);
}

int fail(int error)
{
	errno = error;
	return -1;
}

/* A child of a process that held the lock would wait for ever. */
__attribute__((constructor)) static void prepare_forks(void) { (void)pthread_atfork(lock, unlock, unlock); }

struct channel *new_channel(void)
{
	struct channel *c = calloc(1, sizeof *c);
	if (c == NULL)
		return NULL;
	c->last = &c->first;
	c->users = 1;
	c->public.fd = snd_above_standard(epoll_create1(EPOLL_CLOEXEC));
	c->wake = snd_above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
	if (c->public.fd < 0 || c->wake < 0 || epoll_ctl(c->public.fd, EPOLL_CTL_ADD, c->wake, &e) != 0) {
		free_channel(c);
		return NULL;
	}
	return c;
}

void free_channel(struct channel *c)
{
	const int error = errno;
	if (c->wake >= 0)
		(void)close(c->wake);
	if (c->public.fd >= 0)
		(void)close(c->public.fd);
	for (struct event *e = c->first, *next; e != NULL; e = next) {
		next = e->next;
		free(e);
	}
	free(c);
	errno = error;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct channel *c = new_channel();
	return c == NULL ? NULL : &c->public;
}

static void leave(void *channel)
{
	struct channel *c = channel;
	lock();
	const bool last = --c->users == 0;
	unlock();
	if (last)
		free_channel(c);
}

/* Threads of programs such as rping still wait for events of a channel that is destroyed, or are about to. An error would end the program, so they
 * sleep, and the latest channels are kept for them. */
void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	static struct channel *destroyed[16];
	static unsigned next;
	struct channel *c = (struct channel *)(void *)channel;
	lock();
	(void)epoll_ctl(c->public.fd, EPOLL_CTL_DEL, c->wake, NULL); /* or the end of wake would end their wait */
	(void)close(c->wake);
	(void)close(c->public.fd);
	c->wake = c->public.fd = -1;
	struct channel *oldest = destroyed[next];
	destroyed[next] = c;
	next = (next + 1) % (sizeof destroyed / sizeof destroyed[0]);
	unlock();
	if (oldest != NULL)
		leave(oldest);
}

bool watch(struct id *id, int socket)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = id};
	return epoll_ctl(id->channel->public.fd, EPOLL_CTL_ADD, socket, &e) == 0;
}

void unwatch(struct id *id, int socket) { (void)epoll_ctl(id->channel->public.fd, EPOLL_CTL_DEL, socket, NULL); }

static void append(struct channel *c, struct event *e)
{
	e->next = NULL;
	*c->last = e;
	c->last = &e->next;
	(void)eventfd_write(c->wake, 1);
}

/* settle makes wake unreadable if the queue is empty. */
static void settle(struct channel *c)
{
	eventfd_t count;
	if (c->first == NULL)
		(void)eventfd_read(c->wake, &count);
}

static void unlink_event(struct channel *c, struct event **at)
{
	struct event *e = *at;
	*at = e->next;
	if (c->last == &e->next)
		c->last = at;
}

bool queue_event(struct id *id, enum rdma_cm_event_type type, int status, const struct message *m)
{
	struct event *e = calloc(1, sizeof *e);
	if (e == NULL)
		return false;
	e->of = id->listener != NULL ? id->listener : id;
	e->public.id = &id->public;
	e->public.listen_id = id->listener != NULL ? &id->listener->public : NULL;
	e->public.event = type;
	e->public.status = status;
	if (m != NULL) {
		struct rdma_conn_param *p = &e->public.param.conn;
		memcpy(e->private_data, m->private_data, m->private_length);
		p->private_data = e->private_data; /* with zeros behind it, also if there is none: some programs do not check the length */
		p->private_data_len = m->private_length;
		p->responder_resources = m->responder_resources;
		p->initiator_depth = m->initiator_depth;
		p->flow_control = m->flow_control;
		p->retry_count = m->retry_count;
		p->rnr_retry_count = m->rnr_retry_count;
		p->srq = m->srq;
		p->qp_num = m->qp_num;
	}
	append(id->channel, e);
	return true;
}

void drop_events(struct id *id)
{
	struct channel *c = id->channel;
	for (struct event **at = &c->first; *at != NULL;) {
		struct event *e = *at;
		if (e->of != id && e->public.id != &id->public) {
			at = &e->next;
			continue;
		}
		unlink_event(c, at);
		if (e->public.event == RDMA_CM_EVENT_CONNECT_REQUEST && e->of == id)
			free_id(id_of(e->public.id)); /* the program has not seen it */
		free(e);
	}
	settle(c);
}

static bool move_sockets(struct id *id, struct channel *to)
{
	const int sockets[] = {id->connection, id->timer, id->state == LISTENING ? id->port : -1};
	bool moved = true;
	for (int i = 0; i < 3; i++)
		if (sockets[i] >= 0)
			unwatch(id, sockets[i]);
	id->channel = to;
	id->public.channel = &to->public;
	for (int i = 0; i < 3; i++)
		moved = (sockets[i] < 0 || watch(id, sockets[i])) && moved;
	return moved;
}

bool move(struct id *id, struct channel *to)
{
	struct channel *c = id->channel;
	bool moved = move_sockets(id, to);
	for (struct id *i = next_incoming(NULL, id); i != NULL; i = next_incoming(i, id))
		moved = move_sockets(i, to) && moved;
	for (struct event **at = &c->first; *at != NULL;) {
		struct event *e = *at;
		if (e->of != id) {
			at = &e->next;
			continue;
		}
		if (e->public.id != &id->public) /* of a request */
			moved = move_sockets(id_of(e->public.id), to) && moved;
		unlink_event(c, at);
		append(to, e);
	}
	settle(c);
	return moved;
}

/* take returns the next event of a channel, NULL if there is none. */
static struct event *take(struct channel *c)
{
	while (c->first == NULL) {
		struct epoll_event ready;
		if (epoll_wait(c->public.fd, &ready, 1, 0) <= 0)
			return NULL;
		if (ready.data.ptr != NULL)
			on_socket(ready.data.ptr);
		else
			settle(c);
	}
	struct event *e = c->first;
	unlink_event(c, &c->first);
	settle(c);
	e->of->taken++;
	return e;
}

/* is_open reports whether the program has not destroyed the channel. It keeps errno. */
static bool is_open(const struct channel *c)
{
	const int error = errno;
	lock();
	const bool open = c->public.fd >= 0;
	unlock();
	errno = error;
	return open;
}

/* next_event waits for the next event of a channel, unless the channel does not block. A handler without SA_RESTART ends the wait, unless it is
 * that of a fault. */
static int next_event(struct channel *c, struct rdma_cm_event **event)
{
	for (;;) {
		lock();
		struct event *e = take(c);
		const int fd = c->public.fd, flags = fd < 0 ? 0 : fcntl(fd, F_GETFL); /* the program may destroy the channel after this */
		unlock();
		if (e != NULL) {
			*event = &e->public;
			return 0;
		}
		if (flags < 0)
			return -1;
		if ((flags & O_NONBLOCK) != 0)
			return fail(EAGAIN);
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (poll(&p, 1, -1) < 0 && (errno != EINTR || (!snd_handlers_restart() && is_open(c))))
			return -1;
	}
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	if (channel == NULL || event == NULL)
		return fail(EINVAL);
	struct channel *c = (struct channel *)(void *)channel;
	int r;
	lock();
	c->users++;
	unlock();
	pthread_cleanup_push(leave, c);
	r = next_event(c, event);
	pthread_cleanup_pop(1);
	return r;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (event == NULL)
		return fail(EINVAL);
	struct event *e = (struct event *)(void *)event;
	lock();
	e->of->acknowledged++;
	(void)pthread_cond_broadcast(&acknowledged);
	unlock();
	free(e);
	return 0;
}

void await_acknowledged(struct id *id)
{
	const int state = cancel_state;
	while (id->acknowledged != id->taken)
		(void)pthread_cond_wait(&acknowledged, &mutex);
	cancel_state = state;
}

int complete(struct id *id, int begun)
{
	if (begun != 0 || !id->synchronous)
		return begun;
	if (id->public.event != NULL) {
		(void)rdma_ack_cm_event(id->public.event);
		id->public.event = NULL;
	}
	if (rdma_get_cm_event(id->public.channel, &id->public.event) != 0)
		return -1;
	const struct rdma_cm_event *e = id->public.event;
	if (e->event == RDMA_CM_EVENT_REJECTED)
		return fail(ECONNREFUSED);
	return e->status == 0 ? 0 : fail(e->status < 0 ? -e->status : EIO);
}

/* Identifiers, and their addresses. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cm.h"

/* All identifiers, of whatever channel. */
static struct id *ids;

struct id *new_id(enum rdma_port_space ps, enum ibv_qp_type type, void *context)
{
	struct id *id = calloc(1, sizeof *id);
	if (id == NULL)
		return NULL;
	id->public.ps = ps;
	id->public.qp_type = type;
	id->public.context = context;
	id->port = id->connection = id->timer = -1;
	id->ack_timeout = ACK_TIMEOUT;
	id->next = ids;
	ids = id;
	return id;
}

void free_id(struct id *id)
{
	for (struct id **at = &ids; *at != NULL; at = &(*at)->next)
		if (*at == id) {
			*at = id->next;
			break;
		}
	close_connection(id);
	if (id->port >= 0) {
		if (id->state == LISTENING)
			unwatch(id, id->port);
		(void)close(id->port);
	}
	if (id->synchronous)
		free_channel(id->channel);
	leave_default_pd(id);
	free(id->public.route.path_rec);
	free(id->request);
	free(id->attr);
	free(id);
}

static void forget(struct ibv_qp *qp)
{
	lock();
	for (struct id *id = ids; id != NULL; id = id->next)
		if (id->public.qp == qp)
			id->has_no_qp = true;
	unlock();
}

__attribute__((constructor)) static void watch_queue_pairs(void) { softnd_watch_destroyed(forget); }

struct id *next_incoming(struct id *after, const struct id *listener)
{
	struct id *id = after == NULL ? ids : after->next;
	while (id != NULL && id->listener != listener)
		id = id->next;
	return id;
}

/* create makes an identifier. Without a channel, it gets one of its own, and its calls wait. */
static int create(struct rdma_event_channel *channel, struct rdma_cm_id **public, void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	if (public == NULL)
		return fail(EINVAL);
	if (type != IBV_QPT_RC || (ps != RDMA_PS_TCP && ps != RDMA_PS_IB))
		return fail(EOPNOTSUPP); /* datagrams are not built */
	struct channel *own = channel != NULL ? NULL : new_channel();
	if (channel == NULL && own == NULL)
		return -1;
	lock();
	struct id *id = new_id(ps, type, context);
	if (id != NULL) {
		id->synchronous = own != NULL;
		id->channel = own != NULL ? own : (struct channel *)(void *)channel;
		id->public.channel = &id->channel->public;
		*public = &id->public;
	}
	unlock();
	if (id == NULL && own != NULL)
		free_channel(own);
	return id == NULL ? -1 : 0;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	return create(channel, id, context, ps, ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC);
}

int rdma_destroy_id(struct rdma_cm_id *public)
{
	if (public == NULL)
		return fail(EINVAL);
	struct id *id = id_of(public);
	if (public->event != NULL)
		(void)rdma_ack_cm_event(public->event);
	lock();
	await_acknowledged(id); /* first: without the lock, others take events and peers of its channel */
	drop_events(id);
	for (struct id *i; (i = next_incoming(NULL, id)) != NULL;)
		free_id(i);
	free_id(id);
	unlock();
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *public, struct rdma_event_channel *channel)
{
	if (public == NULL)
		return fail(EINVAL);
	struct id *id = id_of(public);
	struct channel *to = channel != NULL ? (struct channel *)(void *)channel : new_channel(), *own = id->synchronous ? id->channel : NULL;
	if (to == NULL)
		return -1;
	if (id->synchronous && public->event != NULL) {
		(void)rdma_ack_cm_event(public->event);
		public->event = NULL;
	}
	lock();
	const bool moved = move(id, to);
	id->synchronous = channel == NULL;
	await_acknowledged(id);
	unlock();
	if (own != NULL)
		free_channel(own);
	return moved ? 0 : -1;
}

static bool is_known(const struct sockaddr *address) { return address != NULL && address_size(address) != 0; }

static bool is_wildcard(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* bind_to gives the identifier a source address. It returns an errno. */
static int bind_to(struct id *id, const struct sockaddr *address)
{
	if (id->state != IDLE)
		return EINVAL;
	if (!is_known(address))
		return EAFNOSUPPORT;
	if (!is_wildcard(address) && !is_local(address))
		return EADDRNOTAVAIL;
	memcpy(&id->public.route.addr.src_storage, address, address_size(address));
	const int error = reserve_port(id);
	if (error != 0)
		return error;
	if (!is_wildcard(address) && !use_device(id))
		return errno;
	id->state = BOUND;
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *public, struct sockaddr *address)
{
	if (public == NULL)
		return fail(EINVAL);
	lock();
	const int error = bind_to(id_of(public), address);
	unlock();
	return result(error);
}

int rdma_listen(struct rdma_cm_id *public, int backlog)
{
	if (public == NULL)
		return fail(EINVAL);
	(void)backlog; /* the kernel's limit is small enough: a card does not refuse, but loses requests, which come again */
	struct id *id = id_of(public);
	const struct sockaddr_in any = {.sin_family = AF_INET};
	lock();
	int error = id->state == IDLE ? bind_to(id, (const struct sockaddr *)&any) : id->state == BOUND ? 0 : EINVAL;
	if (error == 0 && (listen(id->port, SOMAXCONN) != 0 || !watch(id, id->port)))
		error = errno;
	if (error == 0)
		id->state = LISTENING;
	unlock();
	return result(error);
}

/* resolve finds the peer's address. It returns an errno; the event says whether it is one of this host. */
static int resolve(struct id *id, const struct sockaddr *source, const struct sockaddr *destination)
{
	if (id->state != IDLE && id->state != BOUND)
		return EINVAL;
	if (!is_known(destination) || (source != NULL && source->sa_family != AF_UNSPEC && !is_known(source)))
		return EAFNOSUPPORT;
	struct rdma_addr *a = &id->public.route.addr;
	struct sockaddr_storage to = {0};
	memcpy(&to, destination, address_size(destination));
	if (is_wildcard((struct sockaddr *)&to)) { /* this host, as for sockets */
		if (to.ss_family == AF_INET)
			((struct sockaddr_in *)&to)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		else
			((struct sockaddr_in6 *)&to)->sin6_addr = in6addr_loopback;
	}
	if (!is_local((struct sockaddr *)&to))
		return queue_event(id, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, NULL) ? 0 : ENOMEM;
	if (id->state == IDLE) {
		struct sockaddr_storage from = to; /* a packet to an address of this host has it as its source, too */
		((struct sockaddr_in *)&from)->sin_port = 0; /* at the same place in sockaddr_in6 */
		const int error = bind_to(id, source != NULL && source->sa_family != AF_UNSPEC ? source : (const struct sockaddr *)&from);
		if (error != 0)
			return error;
	}
	if (is_wildcard(&a->src_addr)) {
		const in_port_t port = a->src_sin.sin_port;
		a->src_storage = to;
		a->src_sin.sin_port = port;
	}
	a->dst_storage = to;
	if (!use_device(id))
		return errno;
	if (!queue_event(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL))
		return ENOMEM;
	id->state = ADDRESSED;
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *public, struct sockaddr *source, struct sockaddr *destination, int timeout_ms)
{
	(void)timeout_ms; /* the answer is there at once */
	if (public == NULL)
		return fail(EINVAL);
	lock();
	const int error = resolve(id_of(public), source, destination);
	unlock();
	return complete(id_of(public), result(error));
}

/* find_route stores the only path that there is. It returns an errno. */
static int find_route(struct id *id)
{
	if (id->state != ADDRESSED)
		return EINVAL;
	struct rdma_route *r = &id->public.route;
	struct ibv_port_attr port;
	struct ibv_sa_path_rec *path = calloc(1, sizeof *path);
	if (path == NULL || ibv_query_port(id->public.verbs, id->public.port_num, &port) != 0) {
		free(path);
		return ENOMEM;
	}
	path->dgid = path->sgid = r->addr.addr.ibaddr.sgid;
	path->dlid = path->slid = htons(port.lid);
	path->reversible = 1;
	path->pkey = r->addr.addr.ibaddr.pkey;
	path->mtu = (uint8_t)port.active_mtu;
	path->rate = IBV_RATE_200_GBPS;
	if (!queue_event(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL)) {
		free(path);
		return ENOMEM;
	}
	r->path_rec = path;
	r->num_paths = 1;
	id->state = ROUTED;
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *public, int timeout_ms)
{
	(void)timeout_ms;
	if (public == NULL)
		return fail(EINVAL);
	lock();
	const int error = find_route(id_of(public));
	unlock();
	return complete(id_of(public), result(error));
}

bool take_request(struct id *id, const struct message *m)
{
	struct rdma_addr *a = &id->public.route.addr;
	a->src_storage = m->destination;
	a->dst_storage = m->source;
	return use_device(id);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id) { return id->route.addr.src_sin.sin_port; }
__be16 rdma_get_dst_port(struct rdma_cm_id *id) { return id->route.addr.dst_sin.sin_port; }

/* rdma_set_option accepts the options that change nothing between processes of one host, too. */
int rdma_set_option(struct rdma_cm_id *id, int level, int option, void *value, size_t size)
{
	if (id == NULL)
		return fail(EINVAL);
	if (level == RDMA_OPTION_ID && option == RDMA_OPTION_ID_ACK_TIMEOUT) {
		if (value == NULL || size != sizeof(uint8_t) || *(uint8_t *)value > 31)
			return fail(EINVAL);
		id_of(id)->ack_timeout = *(uint8_t *)value;
		return 0;
	}
	if (level == RDMA_OPTION_ID && option >= RDMA_OPTION_ID_TOS && option < RDMA_OPTION_ID_ACK_TIMEOUT)
		return 0;
	return fail(level == RDMA_OPTION_IB ? EOPNOTSUPP : ENOSYS);
}

/* rdma_create_ep and rdma_destroy_ep are here for what they share with the calls above. */
int rdma_create_ep(struct rdma_cm_id **public, struct rdma_addrinfo *info, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (public == NULL || info == NULL)
		return fail(EINVAL);
	struct rdma_cm_id *id = NULL;
	if (create(NULL, &id, NULL, (enum rdma_port_space)info->ai_port_space, (enum ibv_qp_type)info->ai_qp_type) != 0 || id == NULL)
		return -1;
	int failed;
	if ((info->ai_flags & RAI_PASSIVE) != 0) {
		failed = rdma_bind_addr(id, info->ai_src_addr);
		if (failed == 0 && attr != NULL) { /* of the queue pair of each request */
			struct ibv_qp_init_attr *copy = id_of(id)->attr = malloc(sizeof *copy);
			failed = copy == NULL ? -1 : 0;
			if (copy != NULL) {
				*copy = *attr;
				copy->qp_type = id->qp_type;
			}
		}
		if (failed == 0 && pd != NULL) {
			lock();
			leave_default_pd(id_of(id));
			id->pd = pd;
			unlock();
		}
	} else {
		failed = rdma_resolve_addr(id, info->ai_src_addr, info->ai_dst_addr, 2000);
		if (failed == 0)
			failed = rdma_resolve_route(id, 2000);
		if (failed == 0 && attr != NULL) {
			attr->qp_type = id->qp_type;
			failed = rdma_create_qp(id, pd, attr);
		}
	}
	if (failed != 0) {
		const int error = errno;
		rdma_destroy_ep(id);
		return fail(error);
	}
	*public = id;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id == NULL)
		return;
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	if (id->srq != NULL)
		rdma_destroy_srq(id);
	(void)rdma_destroy_id(id);
}

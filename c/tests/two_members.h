/* Two members in one process, each with an engine, and connections between them. */
#ifndef SND_TWO_MEMBERS_H
#define SND_TWO_MEMBERS_H

#include <pthread.h>
#include <string.h>

#include "check.h"

#define SECOND INT64_C(1000000000)

/* A side of the connections. a is the active one. */
struct side {
	snd_fabric *fabric;
	snd_adapter *adapter;
	snd_cq *cq;
	snd_endpoint *ep;
	snd_connector *connector;
};
static struct side a, b;
static snd_listener *listener;
static uint32_t check_payloads; /* of the endpoints that connect_members makes */
static uint32_t receive_sge;    /* of b's endpoint */

static inline void open_first_with(const snd_fabric_options *o) { OK(snd_fabric_create(0, UINT64_C(1) << 30, o, &a.fabric)); }

static inline void open_second_with(const snd_fabric_options *o)
{
	OK(snd_fabric_attach(snd_fabric_descriptor(a.fabric), -1, o, &b.fabric));
	OK(snd_adapter_open(a.fabric, &a.adapter));
	OK(snd_adapter_open(b.fabric, &b.adapter));
	OK(snd_listener_create(b.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
}

static inline void open_members_with(snd_fabric_options options)
{
	open_first_with(&options);
	open_second_with(&options);
}

static inline void open_members(snd_executor executor)
{
	open_members_with((snd_fabric_options){.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO, .executor = executor});
}

static inline void set_timeouts(int64_t receive, int64_t disconnect)
{
	OK(snd_fabric_set_timeouts(a.fabric, receive, disconnect));
	OK(snd_fabric_set_timeouts(b.fabric, receive, disconnect));
}

static inline void close_members(void)
{
	OK(snd_fabric_close(a.fabric));
	OK(snd_fabric_close(b.fabric));
}

static inline void *accept_one(void *unused)
{
	(void)unused;
	const snd_connect_params p = {.inbound_reads = 4, .outbound_reads = 4};
	OK(snd_listener_request(listener, 60 * SECOND, &b.connector));
	OK(snd_connector_accept(b.connector, b.ep, &p, 60 * SECOND));
	return NULL;
}

/* connect_members makes new endpoints and queues, and connects them. b takes its receives from srq, if there is one. */
static inline void connect_members(snd_srq *srq)
{
	const snd_connect_params p = {.inbound_reads = 4, .outbound_reads = 4};
	snd_address to;
	pthread_t thread;
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_cq_create(b.adapter, 64, &b.cq));
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq, .check_payloads = check_payloads}, &a.ep));
	OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq, .srq = srq, .max_receive_sge = receive_sge, .check_payloads = check_payloads}, &b.ep));
	OK(snd_listener_address(listener, &to));
	OK(snd_connector_create(a.adapter, &a.connector));
	CHECK(pthread_create(&thread, NULL, accept_one, NULL) == 0);
	OK(snd_connector_connect(a.connector, a.ep, to, &p, 60 * SECOND));
	OK(snd_connector_complete(a.connector));
	CHECK(pthread_join(thread, NULL) == 0);
}

static inline void disconnect_members(void)
{
	OK(snd_endpoint_close(a.ep));
	OK(snd_endpoint_close(b.ep));
	OK(snd_connector_close(a.connector));
	OK(snd_connector_close(b.connector));
	OK(snd_cq_close(a.cq));
	OK(snd_cq_close(b.cq));
}

static inline snd_result next_result(snd_cq *cq)
{
	snd_result r;
	uint32_t n;
	OK(snd_cq_wait(cq, &r, 1, 60 * SECOND, &n));
	CHECK(n == 1);
	return r;
}

/* WANT takes the next result and checks its type, context and status. */
#define WANT(queue, kind, number, state) \
	do { \
		snd_result r_ = next_result(queue); \
		if (r_.type != (kind) || r_.request_context != (number) || r_.status != (state)) { \
			fprintf(stderr, "%s:%d: type %u, context %lu, %s\n", __FILE__, __LINE__, r_.type, (unsigned long)r_.request_context, snd_status_name(r_.status)); \
			exit(1); \
		} \
	} while (0)

static inline void fill(unsigned char *to, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

#endif

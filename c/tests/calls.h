/* Every call of the header, with one bad or good handle. A test that includes this fails if a call of the header is missing. */
#ifndef SND_CALLS_H
#define SND_CALLS_H

#include <ctype.h>
#include <string.h>

#include "check.h"

#define SECOND INT64_C(1000000000)

static snd_fabric *fabric;
static snd_adapter *adapter;
static snd_mr *mr;
static snd_window *window;
static snd_mapping *mapping;
static snd_cq *cq;
static snd_srq *srq;
static snd_endpoint *endpoint;
static snd_connector *connector;
static snd_listener *listener;
static snd_job *job;

/* A row calls a function with a bad handle. Calls that return no status return what they return for a bad handle as
 * SND_INVALID_HANDLE. */
#define ROW(name, call) \
	static snd_status try_##name(void *h) { return (call); }
#define VALUE(bad) ((bad) ? SND_INVALID_HANDLE : SND_SUCCESS)

static snd_result results[2];
static snd_sge sge;
static uint32_t n, m;
static uint64_t all[4];
static uint16_t group;
static snd_address address;
static snd_adapter_info info;
static snd_endpoint_stats endpoint_stats;
static snd_cq_stats cq_stats;
static snd_window_descriptor descriptor, windows[2];
static snd_request request;
static int fd;
static void *out;
static int64_t limit; /* of the calls that have one */

static void ignore_event(void *arg, const snd_event *event)
{
	(void)arg;
	(void)event;
}

ROW(snd_fabric_descriptor, VALUE(snd_fabric_descriptor(h) == -1))
ROW(snd_fabric_address, VALUE(snd_fabric_address(h).host == 0))
ROW(snd_fabric_set_timeouts, snd_fabric_set_timeouts(h, SND_DEFAULT_TIMEOUT, SND_DEFAULT_TIMEOUT))
ROW(snd_fabric_set_event_handler, snd_fabric_set_event_handler(h, ignore_event, NULL))
ROW(snd_fabric_publish, snd_fabric_publish(h, "name", (snd_address){1, 1, 0}))
ROW(snd_fabric_withdraw, snd_fabric_withdraw(h, "name"))
ROW(snd_fabric_lookup, snd_fabric_lookup(h, "name", limit, &address))
ROW(snd_fabric_progress, snd_fabric_progress(h))
ROW(snd_fabric_event_fd, snd_fabric_event_fd(h, &fd))
ROW(snd_fabric_close, snd_fabric_close(h))
ROW(snd_adapter_open, snd_adapter_open(h, (snd_adapter **)&out))
ROW(snd_adapter_query, snd_adapter_query(h, &info))
ROW(snd_adapter_close, snd_adapter_close(h, limit))
ROW(snd_mr_allocate, snd_mr_allocate(h, 10, 0, (snd_mr **)&out))
ROW(snd_mr_register, snd_mr_register(h, &n, sizeof n, 0, (snd_mr **)&out))
ROW(snd_mr_buffer, VALUE(snd_mr_buffer(h) == NULL))
ROW(snd_mr_length, VALUE(snd_mr_length(h) == 0))
ROW(snd_mr_placement, VALUE(snd_mr_placement(h) == 0))
ROW(snd_mr_address, VALUE(snd_mr_address(h) == 0))
ROW(snd_mr_local_token, VALUE(snd_mr_local_token(h) == 0))
ROW(snd_mr_remote_token, VALUE(snd_mr_remote_token(h) == 0))
ROW(snd_mr_sge, VALUE(snd_mr_sge(h, 0, 1).buffer == NULL))
ROW(snd_mr_query, snd_mr_query(h, &descriptor))
ROW(snd_mr_close, snd_mr_close(h, limit))
ROW(snd_mr_create_fast, snd_mr_create_fast(h, 1, 1, (snd_mr **)&out))
ROW(snd_adapter_privileged_token, snd_adapter_privileged_token(h, &n))
ROW(snd_mapping_create, snd_mapping_create(h, snd_mr_buffer(mr), 10, (snd_mapping **)&out))
ROW(snd_mapping_pages, VALUE(snd_mapping_pages(h, NULL, 0) == 0))
ROW(snd_mapping_offset, VALUE(snd_mapping_offset(h) == 0))
ROW(snd_mapping_close, snd_mapping_close(h, limit))
ROW(snd_window_create, snd_window_create(h, (snd_window **)&out))
ROW(snd_window_query, snd_window_query(h, &descriptor))
ROW(snd_window_close, snd_window_close(h, limit))
ROW(snd_cq_create, snd_cq_create(h, 10, (snd_cq **)&out))
ROW(snd_cq_poll, (snd_status)snd_cq_poll(h, NULL, 0))
ROW(snd_cq_wait, snd_cq_wait(h, results, 2, limit, &n))
ROW(snd_cq_wait_one, snd_cq_wait_one(h, endpoint, limit, results))
ROW(snd_cq_event_fd, snd_cq_event_fd(h, &fd))
ROW(snd_cq_notify, snd_cq_notify(h, SND_NOTIFY_ANY, limit))
ROW(snd_cq_moderate, snd_cq_moderate(h, 0, 0))
ROW(snd_cq_notify_affinity, snd_cq_notify_affinity(h, &group, all))
ROW(snd_cq_get_stats, snd_cq_get_stats(h, &cq_stats))
ROW(snd_cq_resize, snd_cq_resize(h, 20))
ROW(snd_cq_cancel, snd_cq_cancel(h))
ROW(snd_cq_close, snd_cq_close(h))
ROW(snd_srq_create, snd_srq_create(h, &(snd_srq_config){0}, (snd_srq **)&out))
ROW(snd_srq_receive, snd_srq_receive(h, 1, &sge, 1))
ROW(snd_srq_post, snd_srq_post(h, &request, 1, &n))
ROW(snd_srq_notify_affinity, snd_srq_notify_affinity(h, &group, all))
ROW(snd_srq_notify, snd_srq_notify(h, limit))
ROW(snd_srq_modify, snd_srq_modify(h, 0, 0))
ROW(snd_srq_cancel, snd_srq_cancel(h))
ROW(snd_srq_close, snd_srq_close(h))
ROW(snd_endpoint_create, snd_endpoint_create(h, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, (snd_endpoint **)&out))
ROW(snd_endpoint_receive, snd_endpoint_receive(h, 1, &sge, 1))
ROW(snd_endpoint_send, snd_endpoint_send(h, 1, &sge, 1, 0))
ROW(snd_endpoint_send_and_invalidate, snd_endpoint_send_and_invalidate(h, 1, &sge, 1, 5, 0))
ROW(snd_endpoint_write, snd_endpoint_write(h, 1, &sge, 1, 0, 5, 0))
ROW(snd_endpoint_read, snd_endpoint_read(h, 1, &sge, 1, 0, 5, 0))
ROW(snd_endpoint_send_immediate, snd_endpoint_send_immediate(h, 1, &sge, 1, 6, 0))
ROW(snd_endpoint_write_immediate, snd_endpoint_write_immediate(h, 1, &sge, 1, 0, 5, 6, 0))
ROW(snd_endpoint_fetch_and_add, snd_endpoint_fetch_and_add(h, 1, &sge, 1, 0, 5, 6, 0))
ROW(snd_endpoint_compare_and_swap, snd_endpoint_compare_and_swap(h, 1, &sge, 1, 0, 5, 6, 7, 0))
ROW(snd_endpoint_swap, snd_endpoint_swap(h, 1, &sge, 1, 0, 5, 6, 0))
ROW(snd_endpoint_bind, snd_endpoint_bind(h, 1, mr, window, NULL, 0, 0))
ROW(snd_endpoint_invalidate, snd_endpoint_invalidate(h, 1, window, 0))
ROW(snd_endpoint_fast_register, snd_endpoint_fast_register(h, 1, mr, &(snd_fast_registration){0}, 0))
ROW(snd_endpoint_invalidate_mr, snd_endpoint_invalidate_mr(h, 1, mr, 0))
ROW(snd_endpoint_post, snd_endpoint_post(h, &request, 1, &n))
ROW(snd_endpoint_wait_slot, snd_endpoint_wait_slot(h, limit))
ROW(snd_endpoint_flush, snd_endpoint_flush(h, limit))
ROW(snd_endpoint_get_stats, snd_endpoint_get_stats(h, &endpoint_stats))
ROW(snd_endpoint_error, snd_endpoint_error(h))
ROW(snd_endpoint_close, snd_endpoint_close(h))
ROW(snd_listener_create, snd_listener_create(h, (snd_listener **)&out))
ROW(snd_listener_bind, snd_listener_bind(h, address))
ROW(snd_listener_listen, snd_listener_listen(h, 0))
ROW(snd_listener_address, snd_listener_address(h, &address))
ROW(snd_listener_request, snd_listener_request(h, limit, (snd_connector **)&out))
ROW(snd_listener_pause, snd_listener_pause(h, 1))
ROW(snd_listener_cancel, snd_listener_cancel(h))
ROW(snd_listener_close, snd_listener_close(h))
ROW(snd_connector_create, snd_connector_create(h, (snd_connector **)&out))
ROW(snd_connector_bind, snd_connector_bind(h, address))
ROW(snd_connector_connect, snd_connector_connect(h, endpoint, address, NULL, limit))
ROW(snd_connector_complete, snd_connector_complete(h))
ROW(snd_connector_accept, snd_connector_accept(h, endpoint, NULL, limit))
ROW(snd_connector_reject, snd_connector_reject(h, NULL, 0))
ROW(snd_connector_private_data, snd_connector_private_data(h, &all, sizeof all, &n))
ROW(snd_connector_read_limits, snd_connector_read_limits(h, &n, &m))
ROW(snd_connector_local_address, snd_connector_local_address(h, &address))
ROW(snd_connector_peer_address, snd_connector_peer_address(h, &address))
ROW(snd_connector_disconnect, snd_connector_disconnect(h, limit))
ROW(snd_connector_wait_disconnect, snd_connector_wait_disconnect(h, limit))
ROW(snd_connector_cancel, snd_connector_cancel(h))
ROW(snd_connector_start_connect, snd_connector_start_connect(h, endpoint, address, NULL))
ROW(snd_connector_start_accept, snd_connector_start_accept(h, endpoint, NULL))
ROW(snd_connector_start_disconnect, snd_connector_start_disconnect(h))
ROW(snd_connector_finish, snd_connector_finish(h))
ROW(snd_connector_close, snd_connector_close(h))
ROW(snd_job_rank, (snd_job_rank(h), SND_INVALID_HANDLE))
ROW(snd_job_size, VALUE(snd_job_size(h) == 0))
ROW(snd_job_fabric, VALUE(snd_job_fabric(h) == NULL))
ROW(snd_job_adapter, VALUE(snd_job_adapter(h) == NULL))
ROW(snd_job_barrier, snd_job_barrier(h, limit))
ROW(snd_job_wait_end, snd_job_wait_end(h, limit))
ROW(snd_job_next_death, snd_job_next_death(h, limit, &n))
ROW(snd_job_exchange, snd_job_exchange(h, &n, sizeof n, all, limit))
ROW(snd_job_exchange_windows, snd_job_exchange_windows(h, &descriptor, windows, limit))
ROW(snd_job_connect, snd_job_connect(h, 0, &(snd_endpoint_config){0}, limit, (snd_endpoint **)&out))
ROW(snd_job_connect_all, snd_job_connect_all(h, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, limit, (snd_endpoint **)&out))
ROW(snd_job_connect_ranks, snd_job_connect_ranks(h, &n, 1, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, limit, (snd_endpoint **)&out))
ROW(snd_job_listen, snd_job_listen(h, (snd_listener **)&out))
ROW(snd_job_accept, snd_job_accept(h, listener, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, limit, (snd_endpoint **)&out, &n))
ROW(snd_job_dial, snd_job_dial(h, 0, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, limit, (snd_endpoint **)&out))
ROW(snd_job_close, snd_job_close(h))

/* The handle that the call takes; other is a valid handle of another type. */
struct row {
	const char *name;
	snd_status (*try)(void *);
	void **handle, **other;
};
#define FABRIC(name) {#name, try_##name, (void **)&fabric, (void **)&adapter}
#define ADAPTER(name) {#name, try_##name, (void **)&adapter, (void **)&fabric}
#define MR(name) {#name, try_##name, (void **)&mr, (void **)&window}
#define WINDOW(name) {#name, try_##name, (void **)&window, (void **)&mr}
#define MAPPING(name) {#name, try_##name, (void **)&mapping, (void **)&mr}
#define CQ(name) {#name, try_##name, (void **)&cq, (void **)&endpoint}
#define SRQ(name) {#name, try_##name, (void **)&srq, (void **)&cq}
#define ENDPOINT(name) {#name, try_##name, (void **)&endpoint, (void **)&cq}
#define CONNECTOR(name) {#name, try_##name, (void **)&connector, (void **)&listener}
#define LISTENER(name) {#name, try_##name, (void **)&listener, (void **)&connector}
#define JOB(name) {#name, try_##name, (void **)&job, (void **)&fabric}

static const struct row rows[] = {
	FABRIC(snd_fabric_descriptor), FABRIC(snd_fabric_address), FABRIC(snd_fabric_set_timeouts), FABRIC(snd_fabric_publish), FABRIC(snd_fabric_withdraw), FABRIC(snd_fabric_lookup), FABRIC(snd_fabric_progress), FABRIC(snd_fabric_set_event_handler), FABRIC(snd_fabric_event_fd), FABRIC(snd_fabric_close), FABRIC(snd_adapter_open),
	ADAPTER(snd_adapter_query), ADAPTER(snd_adapter_close), ADAPTER(snd_mr_allocate), ADAPTER(snd_mr_register), ADAPTER(snd_window_create),
	ADAPTER(snd_mr_create_fast), ADAPTER(snd_adapter_privileged_token), MR(snd_mapping_create),
	MAPPING(snd_mapping_pages), MAPPING(snd_mapping_offset), MAPPING(snd_mapping_close),
	ADAPTER(snd_cq_create), ADAPTER(snd_endpoint_create), ADAPTER(snd_listener_create), ADAPTER(snd_connector_create), ADAPTER(snd_srq_create),
	SRQ(snd_srq_receive), SRQ(snd_srq_post), SRQ(snd_srq_notify), SRQ(snd_srq_notify_affinity), SRQ(snd_srq_modify), SRQ(snd_srq_cancel), SRQ(snd_srq_close),
	MR(snd_mr_buffer), MR(snd_mr_length), MR(snd_mr_placement), MR(snd_mr_address), MR(snd_mr_local_token), MR(snd_mr_remote_token), MR(snd_mr_sge), MR(snd_mr_query), MR(snd_mr_close),
	WINDOW(snd_window_query), WINDOW(snd_window_close),
	CQ(snd_cq_poll), CQ(snd_cq_wait), CQ(snd_cq_wait_one), CQ(snd_cq_event_fd), CQ(snd_cq_notify), CQ(snd_cq_moderate), CQ(snd_cq_notify_affinity), CQ(snd_cq_resize), CQ(snd_cq_get_stats), CQ(snd_cq_cancel), CQ(snd_cq_close),
	ENDPOINT(snd_endpoint_receive), ENDPOINT(snd_endpoint_send), ENDPOINT(snd_endpoint_send_and_invalidate), ENDPOINT(snd_endpoint_write),
	ENDPOINT(snd_endpoint_read), ENDPOINT(snd_endpoint_bind), ENDPOINT(snd_endpoint_invalidate), ENDPOINT(snd_endpoint_post),
	ENDPOINT(snd_endpoint_fast_register), ENDPOINT(snd_endpoint_invalidate_mr), ENDPOINT(snd_endpoint_send_immediate), ENDPOINT(snd_endpoint_write_immediate),
	ENDPOINT(snd_endpoint_fetch_and_add), ENDPOINT(snd_endpoint_compare_and_swap), ENDPOINT(snd_endpoint_swap),
	ENDPOINT(snd_endpoint_flush), ENDPOINT(snd_endpoint_wait_slot), ENDPOINT(snd_endpoint_error), ENDPOINT(snd_endpoint_get_stats), ENDPOINT(snd_endpoint_close),
	LISTENER(snd_listener_bind), LISTENER(snd_listener_listen), LISTENER(snd_listener_address), LISTENER(snd_listener_request), LISTENER(snd_listener_pause), LISTENER(snd_listener_cancel), LISTENER(snd_listener_close),
	CONNECTOR(snd_connector_bind), CONNECTOR(snd_connector_connect), CONNECTOR(snd_connector_complete), CONNECTOR(snd_connector_accept),
	CONNECTOR(snd_connector_reject), CONNECTOR(snd_connector_private_data), CONNECTOR(snd_connector_read_limits), CONNECTOR(snd_connector_local_address),
	CONNECTOR(snd_connector_peer_address), CONNECTOR(snd_connector_disconnect), CONNECTOR(snd_connector_wait_disconnect), CONNECTOR(snd_connector_cancel), CONNECTOR(snd_connector_start_connect), CONNECTOR(snd_connector_start_accept),
	CONNECTOR(snd_connector_start_disconnect), CONNECTOR(snd_connector_finish), CONNECTOR(snd_connector_close),
	JOB(snd_job_rank), JOB(snd_job_size), JOB(snd_job_fabric), JOB(snd_job_adapter), JOB(snd_job_barrier), JOB(snd_job_next_death), JOB(snd_job_wait_end), JOB(snd_job_exchange), JOB(snd_job_exchange_windows), JOB(snd_job_connect),
	JOB(snd_job_connect_all), JOB(snd_job_connect_ranks), JOB(snd_job_listen), JOB(snd_job_accept), JOB(snd_job_dial), JOB(snd_job_close),
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* Calls without a handle to check, which a test calls by name. */
static const char *const others[] = {"snd_status_name", "snd_last_error", "snd_version", "snd_fabric_create", "snd_fabric_attach", "snd_fabric_open",
	"snd_window_descriptor_encode", "snd_window_descriptor_decode", "snd_job_init", "snd_job_join", "snd_job_abort", "snd_check"};

static int has_limit[ROWS]; /* the declaration has a time limit */

/* Every function of the header is in one of the lists. */
static inline void test_is_complete(void)
{
	static char text[1 << 16];
	FILE *f = fopen(SOFTND_HEADER, "rb");
	CHECK(f != NULL);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	fclose(f);
	int found = 0;
	for (char *at = text; (at = strstr(at, "SND_API ")) != NULL;) {
		char *name = strstr(at, "snd_"), *end = strchr(at, '(');
		at += 8;
		if (end == NULL || end[-1] == '_')
			continue;
		for (name = end; isalnum((unsigned char)name[-1]) || name[-1] == '_'; name--) {
		}
		int known = 0;
		const char *timeout = strstr(end, "int64_t timeout"), *after = strchr(end, ';');
		for (int i = 0; i < ROWS; i++)
			if (strlen(rows[i].name) == (size_t)(end - name) && strncmp(rows[i].name, name, (size_t)(end - name)) == 0) {
				known = 1;
				has_limit[i] = timeout != NULL && timeout < after;
			}
		for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
			known |= strlen(others[i]) == (size_t)(end - name) && strncmp(others[i], name, (size_t)(end - name)) == 0;
		if (!known) {
			fprintf(stderr, "%.*s is not in the table\n", (int)(end - name), name);
			exit(1);
		}
		found++;
	}
	CHECK(found >= ROWS + (int)(sizeof others / sizeof others[0]));
}

#endif

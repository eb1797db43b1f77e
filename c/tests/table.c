/* Every call of the header with NULL, a closed handle, a handle of another type, and in a forked child: a status and a
 * message, never a crash. */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"

static void is_refused(const struct row *r, void *h, snd_status want, const char *what)
{
	errno = 4711;
	snd_status s = r->try(h);
	CHECK(errno == 4711);
	if (s == SND_INVALID_HANDLE && want == SND_DEVICE_REMOVED && strstr(snd_last_error(), "forked") != NULL)
		s = want; /* a call that returns no status */
	if (s != want || snd_last_error()[0] == 0) {
		fprintf(stderr, "%s with %s: %s (%s)\n", r->name, what, snd_status_name(s), snd_last_error());
		exit(1);
	}
}

static void open_all(void)
{
	OK(snd_job_init(MANUAL, SECOND, &job));
	fabric = snd_job_fabric(job);
	OK(snd_adapter_open(fabric, &adapter));
	OK(snd_mr_allocate(adapter, 4096, SND_ALLOW_LOCAL_WRITE, &mr));
	OK(snd_mapping_create(mr, snd_mr_buffer(mr), 4096, &mapping));
	OK(snd_window_create(adapter, &window));
	OK(snd_cq_create(adapter, 8, &cq));
	OK(snd_srq_create(adapter, &(snd_srq_config){.depth = 4}, &srq));
	OK(snd_endpoint_create(adapter, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, &endpoint));
	OK(snd_connector_create(adapter, &connector));
	OK(snd_listener_create(adapter, &listener));
}

static void test_query(void)
{
	OK(snd_adapter_query(adapter, &info));
	CHECK(info.inline_threshold > 0 && info.inline_threshold < UINT32_MAX);
	CHECK(info.max_inter_host_connections == 0); /* there is one host */
}

static void test_handles(void)
{
	char garbage[256] = {0};
	for (int i = 0; i < ROWS; i++) {
		is_refused(&rows[i], NULL, SND_INVALID_HANDLE, "NULL");
		is_refused(&rows[i], *rows[i].other, SND_INVALID_HANDLE, "another type");
		is_refused(&rows[i], garbage, SND_INVALID_HANDLE, "zeros");
	}
}

/* abort_in_child calls snd_job_abort in a forked child, which first joins a job of its own if joins is set. The child has to
 * exit with code want, and to print said. */
static void abort_in_child(void *h, int code, const char *reason, int joins, int want, const char *said)
{
	int ends[2], status;
	char text[1200];
	size_t length = 0;
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		if (dup2(ends[1], 2) != 2 || close(ends[1]) != 0)
			_exit(99);
		if (joins)
			OK(snd_job_init(MANUAL, SECOND, &job));
		snd_job_abort(h == &job ? job : h, code, reason);
	}
	close(ends[1]);
	for (ssize_t k; (k = read(ends[0], text + length, sizeof text - 1 - length)) > 0;)
		length += (size_t)k;
	text[length] = 0;
	close(ends[0]);
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != want || strcmp(text, said) != 0) {
		fprintf(stderr, "snd_job_abort(%d, %s): status %#x, printed %s", code, reason, status, text);
		exit(1);
	}
}

/* The library must not be in use yet: its forked children may not join. */
static void test_abort(void)
{
	static char garbage[256];
	abort_in_child(NULL, 7, "out of memory", 0, 7, "softnd: this process aborts the job with code 7: out of memory\n");
	abort_in_child(garbage, 7, "", 0, 7, "softnd: this process aborts the job with code 7: \n");
	abort_in_child(NULL, 255, NULL, 1, 255, "softnd: rank 0 of 1 aborts the job with code 255: no reason given\n");
	abort_in_child(&job, 0, "two\nlines", 1, 1, "softnd: rank 0 of 1 aborts the job with code 1: two\nlines\n");
	abort_in_child(garbage, 256, "x", 1, 1, "softnd: rank 0 of 1 aborts the job with code 1: x\n");
}

static void test_forked(void)
{
	abort_in_child(job, 3, "x", 0, 3, "softnd: a forked child aborts the job with code 3: x\n");
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < ROWS; i++)
			is_refused(&rows[i], *rows[i].handle, SND_DEVICE_REMOVED, "a handle of the parent");
		snd_fabric *own;
		OK(snd_fabric_create(0, 0, NULL, &own)); /* from here on they are as any other memory */
		for (int i = 0; i < ROWS; i++)
			is_refused(&rows[i], *rows[i].handle, SND_INVALID_HANDLE, "a handle of the parent");
		OK(snd_fabric_close(own));
		fflush(NULL);
		_exit(0); /* memory of the handles would be reported as lost here */
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Every call with a time limit refuses negative ones that have no name. */
static void test_limits(void)
{
	static const int64_t limits[] = {SND_DEFAULT_TIMEOUT, -3, -5 * SECOND, INT64_MIN};
	int found = 0;
	for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
		limit = limits[k];
		for (int i = 0; i < ROWS; i++)
			if (has_limit[i]) {
				is_refused(&rows[i], *rows[i].handle, SND_INVALID_PARAMETER, "a negative limit");
				CHECK(strstr(snd_last_error(), "timeout") != NULL);
				found++;
			}
		CHECK(snd_job_init(NULL, limit, (snd_job **)&out) == SND_INVALID_PARAMETER && out == NULL);
		CHECK(snd_job_join("x", 0, 1, NULL, limit, (snd_job **)&out) == SND_INVALID_PARAMETER && out == NULL);
		CHECK(snd_fabric_set_timeouts(fabric, limit, 0) == (limit == SND_DEFAULT_TIMEOUT ? SND_SUCCESS : SND_INVALID_PARAMETER));
		CHECK(snd_fabric_set_timeouts(fabric, 0, limit) == (limit == SND_DEFAULT_TIMEOUT ? SND_SUCCESS : SND_INVALID_PARAMETER));
	}
	CHECK(found > 0);
	limit = 0;
	OK(snd_fabric_set_timeouts(fabric, SND_FOREVER, SND_FOREVER));
}

/* A closed handle does not become valid again with the next objects. */
#define STAYS_CLOSED(type, make, close) \
	do { \
		type *stale, *next; \
		OK(make(&stale)); \
		OK(close(stale)); \
		for (int i = 0; i < 1000; i++) { \
			OK(make(&next)); \
			CHECK(next != stale); \
			OK(close(next)); \
		} \
	} while (0)
#define NEW_FABRIC(h) snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, h)
#define NEW_ADAPTER(h) snd_adapter_open(fabric, h)
#define NEW_MR(h) snd_mr_allocate(adapter, 4096, 0, h)
#define NEW_WINDOW(h) snd_window_create(adapter, h)
#define NEW_MAPPING(h) snd_mapping_create(mr, snd_mr_buffer(mr), 4096, h)
#define NEW_CQ(h) snd_cq_create(adapter, 8, h)
#define NEW_SRQ(h) snd_srq_create(adapter, &(snd_srq_config){.depth = 4}, h)
#define NEW_ENDPOINT(h) snd_endpoint_create(adapter, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, h)
#define NEW_CONNECTOR(h) snd_connector_create(adapter, h)
#define NEW_LISTENER(h) snd_listener_create(adapter, h)
#define NEW_JOB(h) snd_job_init(MANUAL, SECOND, h)

static snd_status close_adapter(snd_adapter *h) { return snd_adapter_close(h, SECOND); }
static snd_status close_mr(snd_mr *h) { return snd_mr_close(h, SECOND); }
static snd_status close_window(snd_window *h) { return snd_window_close(h, SECOND); }
static snd_status close_mapping(snd_mapping *h) { return snd_mapping_close(h, SECOND); }

static void test_stale(void)
{
	STAYS_CLOSED(snd_fabric, NEW_FABRIC, snd_fabric_close);
	STAYS_CLOSED(snd_adapter, NEW_ADAPTER, close_adapter);
	STAYS_CLOSED(snd_mr, NEW_MR, close_mr);
	STAYS_CLOSED(snd_window, NEW_WINDOW, close_window);
	STAYS_CLOSED(snd_mapping, NEW_MAPPING, close_mapping);
	STAYS_CLOSED(snd_cq, NEW_CQ, snd_cq_close);
	STAYS_CLOSED(snd_srq, NEW_SRQ, snd_srq_close);
	STAYS_CLOSED(snd_endpoint, NEW_ENDPOINT, snd_endpoint_close);
	STAYS_CLOSED(snd_connector, NEW_CONNECTOR, snd_connector_close);
	STAYS_CLOSED(snd_listener, NEW_LISTENER, snd_listener_close);
	STAYS_CLOSED(snd_job, NEW_JOB, snd_job_close);
}

/* Flags that have an effect on other adapters and systems only are accepted, and others refused. */
static void test_region_flags(void)
{
	static unsigned char memory[4096];
	const uint32_t flags = SND_ALLOW_REMOTE_WRITE | SND_RDMA_READ_SINK | SND_DO_NOT_SECURE_VM;
	snd_mr *region;
	OK(snd_mr_allocate(adapter, 4096, flags, &region));
	OK(snd_mr_close(region, SECOND));
	OK(snd_mr_register(adapter, memory, sizeof memory, flags, &region));
	OK(snd_mr_close(region, SECOND));
	CHECK(snd_mr_register(adapter, memory, sizeof memory, flags | 0x10, &region) == SND_INVALID_PARAMETER);
}

static void test_others(void)
{
	snd_fabric *f;
	CHECK(snd_fabric_create(0, 0, NULL, NULL) == SND_INVALID_PARAMETER && snd_fabric_create(5000, 0, NULL, &f) == SND_INVALID_PARAMETER);
	CHECK(snd_fabric_create(0, 1000, NULL, &f) == SND_INVALID_PARAMETER && snd_fabric_create(0, UINT64_MAX, NULL, &f) == SND_INVALID_PARAMETER);
	CHECK(snd_fabric_create(0, 0, &(snd_fabric_options){.progress = (snd_progress_model)7}, &f) == SND_INVALID_PARAMETER);
	CHECK(snd_fabric_create(0, 0, &(snd_fabric_options){.check_payloads = 2}, &f) == SND_INVALID_PARAMETER);
	CHECK(snd_fabric_create(0, 0, &(snd_fabric_options){.weak_order = 2}, &f) == SND_INVALID_PARAMETER);
	CHECK(snd_fabric_attach(-1, 0, MANUAL, &f) != SND_SUCCESS && snd_fabric_attach(0, 0, MANUAL, &f) != SND_SUCCESS && f == NULL);
	CHECK(snd_fabric_attach(snd_fabric_descriptor(fabric), 7, NULL, &f) == SND_INVALID_PARAMETER);
	CHECK(snd_fabric_open(NULL, 0, 0, -1, NULL, &f) == SND_INVALID_PARAMETER && snd_fabric_open("a b", 0, 0, -1, NULL, &f) == SND_INVALID_PARAMETER);
	CHECK(snd_job_join("x", 3, 2, NULL, 0, (snd_job **)&out) == SND_INVALID_PARAMETER && snd_job_join(NULL, 0, 1, NULL, 0, (snd_job **)&out) == SND_INVALID_PARAMETER);
	/* A named fabric of this process alone. */
	char name[40];
	snprintf(name, sizeof name, "softnd-table-test-%d", (int)getpid());
	char before[512];
	snprintf(before, sizeof before, "%s", snd_last_error());
	OK(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, MANUAL, &f));
	CHECK(strcmp(snd_last_error(), before) == 0); /* a call that succeeds leaves the text */
	OK(snd_fabric_progress(f));
	OK(snd_fabric_close(f));
	CHECK(snd_job_init(NULL, 0, NULL) == SND_INVALID_PARAMETER);
	snd_window_descriptor_encode(NULL, NULL);
	snd_window_descriptor_decode(NULL, NULL);
	CHECK(snd_srq_create(adapter, &(snd_srq_config){.threshold = 100}, (snd_srq **)&out) == SND_INVALID_PARAMETER && out == NULL);
	CHECK(snd_endpoint_create(adapter, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq, .check_payloads = 2}, (snd_endpoint **)&out) == SND_INVALID_PARAMETER && out == NULL);
	CHECK(snd_srq_modify(srq, 1 << 20, 0) == SND_INVALID_PARAMETER && snd_srq_notify(srq, 0) == SND_IO_TIMEOUT);
	CHECK(strcmp(snd_status_name(12345), "unknown status") == 0 && snd_version()[0] != 0);
}

/* advises expects a failure whose text says what to do. */
static void advises(snd_status s, snd_status want, const char *advice)
{
	const char *end = strstr(snd_last_error(), advice);
	if (s != want || end == NULL || end[strlen(advice)] != 0) {
		fprintf(stderr, "wanted %s and \"%s\": %s: %s\n", snd_status_name(want), advice, snd_status_name(s), snd_last_error());
		exit(1);
	}
}

/* The calls refuse each structure of the header whose reserved member is not 0. */
static void test_reserved(void)
{
	static const char *const passed[] = {"snd_address", "snd_window_descriptor", "snd_srq_config", "snd_connect_params"};
	static const char stored[] = "snd_adapter_info";            /* by the library alone */
	static const char connected[] = "snd_fast_registration"; /* tests/fastreg.c passes it */
	const char *refusal = ": reserved is not 0: set all members that the program does not use to 0";
	const snd_connect_params params = {.reserved = 1};
	const snd_window_descriptor d = {.reserved = 1};
	const snd_address own = snd_fabric_address(fabric), marked = {own.host, 0, 1};
	snd_window_descriptor copy;
	snd_srq *q;
	advises(snd_listener_bind(listener, marked), SND_INVALID_PARAMETER, refusal);
	advises(snd_connector_bind(connector, marked), SND_INVALID_PARAMETER, refusal);
	advises(snd_connector_connect(connector, endpoint, marked, NULL, 0), SND_INVALID_PARAMETER, refusal);
	advises(snd_connector_connect(connector, endpoint, own, &params, 0), SND_INVALID_PARAMETER, refusal);
	advises(snd_job_exchange_windows(job, &d, &copy, 0), SND_INVALID_PARAMETER, refusal);
	advises(snd_srq_create(adapter, &(snd_srq_config){.reserved = 1}, &q), SND_INVALID_PARAMETER, refusal);
	char line[512], name[sizeof line] = "";
	FILE *f = fopen(SOFTND_HEADER, "r");
	size_t found = 0;
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL) {
		sscanf(line, "typedef struct %511[a-z_]", name);
		if (strstr(line, " reserved;") == NULL || strcmp(name, stored) == 0 || strcmp(name, connected) == 0)
			continue;
		found++;
		size_t i = 0;
		while (i < sizeof passed / sizeof passed[0] && strcmp(name, passed[i]) != 0)
			i++;
		if (i == sizeof passed / sizeof passed[0]) {
			fprintf(stderr, "no call of this test passes a %s whose reserved member is set\n", name);
			exit(1);
		}
	}
	fclose(f);
	CHECK(found == sizeof passed / sizeof passed[0]);
}

/* Arguments beyond limits, and states that do not allow a call. */
static void test_arguments(void)
{
	const snd_endpoint_config good = {.receive_cq = cq, .initiator_cq = cq};
	snd_endpoint *ep;
	snd_mr *r;
	snd_cq *q;
	CHECK(snd_mr_allocate(adapter, 0, 0, &r) == SND_INVALID_BUFFER_SIZE && snd_mr_allocate(adapter, 10, 0, NULL) == SND_INVALID_PARAMETER);
	CHECK(snd_mr_allocate(adapter, UINT64_MAX, 0, &r) == SND_INVALID_PARAMETER);
	advises(snd_mr_allocate(adapter, 10, 0x41, &r), SND_INVALID_PARAMETER, "unknown flags 0x40: pass SND_ALLOW_LOCAL_WRITE and the other flags of regions");
	CHECK(snd_mr_register(adapter, NULL, 10, 0, &r) == SND_INVALID_PARAMETER && snd_mr_register(adapter, (void *)(UINTPTR_MAX - 5), 10, 0, &r) == SND_INVALID_PARAMETER);
	/* The last page of three is not mapped. */
	unsigned char *pages = mmap(NULL, 3 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED && munmap(pages + (2 << 16), 1 << 16) == 0);
	OK(snd_mr_register(adapter, pages + 1, (2 << 16) - 1, 0, &r));
	OK(snd_mr_close(r, SECOND));
	errno = 4711;
	CHECK(snd_mr_register(adapter, pages + 1, 2 << 16, 0, &r) == SND_ACCESS_VIOLATION && r == NULL && errno == 4711);
	CHECK(munmap(pages, 2 << 16) == 0);
	CHECK(snd_cq_create(adapter, 0, &q) == SND_INVALID_PARAMETER && snd_cq_create(adapter, 1 << 30, &q) == SND_INVALID_PARAMETER);
	CHECK((snd_status)snd_cq_poll(cq, NULL, 1) == SND_INVALID_PARAMETER && snd_cq_wait(cq, results, 0, 0, &n) == SND_INVALID_PARAMETER);
	CHECK(snd_cq_wait(cq, results, 1, 0, &n) == SND_IO_TIMEOUT && n == 0);
	snd_endpoint_config bad = good;
	bad.receive_depth = 1 << 20;
	CHECK(snd_endpoint_create(adapter, &bad, &ep) == SND_INVALID_PARAMETER && ep == NULL);
	bad = good;
	bad.max_initiator_sge = 17;
	CHECK(snd_endpoint_create(adapter, &bad, &ep) == SND_INVALID_PARAMETER);
	bad = good;
	bad.receive_cq = (snd_cq *)(void *)mr;
	CHECK(snd_endpoint_create(adapter, &bad, &ep) == SND_INVALID_PARAMETER && strstr(snd_last_error(), "receive_cq") != NULL);
	bad = good;
	bad.initiator_cq = NULL;
	CHECK(snd_endpoint_create(adapter, &bad, &ep) == SND_INVALID_PARAMETER && strstr(snd_last_error(), "initiator_cq") != NULL);
	CHECK(snd_endpoint_create(adapter, NULL, &ep) == SND_INVALID_PARAMETER);
	advises(snd_adapter_close(snd_job_adapter(job), SECOND), SND_DEVICE_BUSY, ": it belongs to a job: call snd_job_close");
	CHECK(snd_cq_resize(cq, 0) == SND_INVALID_PARAMETER && snd_cq_notify(cq, SND_NOTIFY_ANY, 0) == SND_IO_TIMEOUT);
	advises(snd_cq_notify(cq, 9, 0), SND_INVALID_PARAMETER, ": pass SND_NOTIFY_ERRORS, SND_NOTIFY_ANY or SND_NOTIFY_SOLICITED");
	OK(snd_cq_resize(cq, 200));
	CHECK(snd_cq_event_fd(cq, NULL) == SND_INVALID_PARAMETER);

	sge = snd_mr_sge(mr, 0, 8);
	CHECK(sge.buffer == snd_mr_buffer(mr) && sge.length == 8 && sge.token == snd_mr_local_token(mr));
	CHECK(snd_mr_sge(mr, 4000, 96).buffer == (char *)snd_mr_buffer(mr) + 4000 && snd_mr_sge(mr, 4096, 0).buffer != NULL);
	const uint64_t beyond[][2] = {{4096, 1}, {4001, 96}, {UINT64_MAX, 2}, {0, SIZE_MAX}, {0, (size_t)1 << 32}};
	for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
		snd_sge none = snd_mr_sge(mr, beyond[i][0], beyond[i][1]);
		CHECK(none.buffer == NULL && strstr(snd_last_error(), "entry of memory region: ") != NULL && strstr(snd_last_error(), "are not in the 4096 of the region") != NULL);
		advises(snd_endpoint_receive(endpoint, 1, &none, 1), SND_INVALID_PARAMETER, "is NULL");
		advises(snd_endpoint_write(endpoint, 1, &none, 1, 0, 0, 0), SND_INVALID_PARAMETER, "is NULL");
		advises(snd_endpoint_fetch_and_add(endpoint, 1, &none, 1, 0, 0, 0, 0), SND_INVALID_PARAMETER, "is NULL");
	}
	advises(snd_endpoint_send(endpoint, 1, &sge, 1, 0), SND_CONNECTION_INVALID, "yet: post when snd_connector_complete or snd_connector_accept has returned");
	CHECK(snd_endpoint_write(endpoint, 1, NULL, 1, 0, 0, 0) == SND_INVALID_PARAMETER);
	CHECK(snd_endpoint_send(endpoint, 1, &sge, 1, 0x80000000) == SND_INVALID_PARAMETER && snd_endpoint_bind(endpoint, 1, mr, window, NULL, 1, 0) == SND_CONNECTION_INVALID);
	snd_sge many[20];
	for (int i = 0; i < 20; i++)
		many[i] = sge;
	CHECK(snd_endpoint_receive(endpoint, 1, many, 20) == SND_DATA_OVERRUN && snd_endpoint_receive(endpoint, 1, NULL, 1) == SND_INVALID_PARAMETER);
	for (int i = 0; i < 4; i++)
		many[i].length = UINT32_MAX;
	CHECK(snd_endpoint_receive(endpoint, 1, many, 4) == SND_BUFFER_OVERFLOW);
	for (int i = 0; i < 64; i++)
		OK(snd_endpoint_receive(endpoint, 1, &sge, 1));
	CHECK(snd_endpoint_receive(endpoint, 1, &sge, 1) == SND_NO_MORE_ENTRIES);
	CHECK(snd_endpoint_error(endpoint) == SND_SUCCESS);
	request = (snd_request){.type = 99};
	CHECK(snd_endpoint_post(endpoint, &request, 1, &n) == SND_INVALID_PARAMETER && n == 0 && snd_endpoint_post(endpoint, NULL, 1, &n) == SND_INVALID_PARAMETER);

	advises(snd_listener_listen(listener, 0), SND_INVALID_DEVICE_STATE, ": call snd_listener_bind, then snd_listener_listen, once");
	CHECK(snd_listener_request(listener, 0, (snd_connector **)&out) == SND_INVALID_DEVICE_STATE);
	CHECK(snd_listener_bind(listener, (snd_address){1, 1, 0}) == SND_INVALID_ADDRESS);
	CHECK(snd_listener_bind(listener, (snd_address){0, 1, 0}) == SND_SHARING_VIOLATION); /* the job's */
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 1));
	CHECK(snd_listener_bind(listener, (snd_address){0, 0, 0}) == SND_ADDRESS_ALREADY_ASSOCIATED);
	OK(snd_listener_address(listener, &address));
	snd_connector *c;
	CHECK(snd_listener_request(listener, 1000000, &c) == SND_IO_TIMEOUT && c == NULL);
	CHECK(snd_connector_connect(connector, endpoint, (snd_address){0, 0, 0}, NULL, 0) == SND_BAD_NETWORK_NAME);
	advises(snd_connector_connect(connector, endpoint, (snd_address){77, 1, 0}, NULL, 0), SND_NETWORK_UNREACHABLE, ": pass what snd_listener_address has stored");
	CHECK(snd_connector_connect(connector, endpoint, (snd_address){address.host + 0x10000, 1, 0}, NULL, 0) == SND_HOST_UNREACHABLE); /* of another host */
	CHECK(snd_connector_connect(connector, endpoint, (snd_address){address.host + 9, 1, 0}, NULL, 0) == SND_HOST_UNREACHABLE);
	CHECK(snd_connector_connect(connector, endpoint, address, &(snd_connect_params){.private_data_length = 600}, 0) == SND_INVALID_BUFFER_SIZE);
	CHECK(snd_connector_connect(connector, endpoint, address, &(snd_connect_params){.private_data_length = 6}, 0) == SND_INVALID_PARAMETER);
	CHECK(snd_connector_connect(connector, endpoint, (snd_address){address.host, 77, 0}, NULL, SECOND) == SND_CONNECTION_REFUSED);
	CHECK(snd_connector_connect(connector, endpoint, address, NULL, 1000000) == SND_IO_TIMEOUT); /* no call takes the request */
	CHECK(snd_connector_complete(connector) == SND_CONNECTION_INVALID && snd_connector_accept(connector, endpoint, NULL, 0) == SND_CONNECTION_INVALID);
	CHECK(snd_connector_reject(connector, NULL, 0) == SND_CONNECTION_INVALID && snd_connector_reject(connector, NULL, 5000) == SND_INVALID_BUFFER_SIZE);
	CHECK(snd_connector_disconnect(connector, 0) == SND_CONNECTION_INVALID && snd_connector_wait_disconnect(connector, 0) == SND_CONNECTION_INVALID);
	CHECK(snd_connector_read_limits(connector, &n, &m) == SND_CONNECTION_INVALID && snd_connector_peer_address(connector, &address) == SND_CONNECTION_INVALID);
	CHECK(snd_job_connect(job, 0, &good, 0, &ep) == SND_INVALID_PARAMETER && snd_job_exchange(job, NULL, 1, all, 0) == SND_INVALID_PARAMETER);
	CHECK(snd_job_next_death(job, 0, NULL) == SND_INVALID_PARAMETER && snd_job_next_death(job, 0, &n) == SND_IO_TIMEOUT && snd_job_wait_end(job, 0) == SND_IO_TIMEOUT);
	OK(snd_job_exchange(job, "abc", 3, all, SECOND));
	CHECK(memcmp(all, "abc", 3) == 0);
	snd_window_descriptor d = {0x123456789a, 77, 5, 0}, copy = {0};
	OK(snd_job_exchange_windows(job, &d, &copy, SECOND));
	CHECK(copy.address == d.address && copy.length == 77 && copy.token == 5);
	CHECK(snd_job_exchange_windows(job, NULL, &copy, 0) == SND_INVALID_PARAMETER && snd_job_exchange_windows(job, &d, NULL, 0) == SND_INVALID_PARAMETER);
	OK(snd_job_barrier(job, SECOND));
}

/* A connection of a process with itself: the same calls, and closing in every order. */
static void test_loopback(void)
{
	snd_connector *active, *passive = NULL;
	snd_endpoint *other;
	OK(snd_endpoint_create(adapter, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq, .context = 2}, &other));
	OK(snd_connector_create(adapter, &active));
	/* A connect blocks until the answer, so a request that no listener takes in time is withdrawn. */
	OK(snd_listener_address(listener, &address));
	CHECK(snd_connector_connect(active, other, address, NULL, 1000000) == SND_IO_TIMEOUT);
	CHECK(snd_listener_request(listener, 0, &passive) == SND_IO_TIMEOUT); /* it was withdrawn */
	OK(snd_connector_close(active));
	OK(snd_endpoint_flush(other, SECOND));
	CHECK(snd_endpoint_error(other) == SND_CANCELED);
	OK(snd_endpoint_close(other));
}

static void test_closed(void)
{
	void *stale[ROWS];
	for (int i = 0; i < ROWS; i++)
		stale[i] = *rows[i].handle;
	OK(snd_listener_close(listener));
	OK(snd_connector_close(connector));
	OK(snd_endpoint_close(endpoint));
	OK(snd_cq_close(cq));
	OK(snd_srq_close(srq));
	OK(snd_window_close(window, SECOND));
	CHECK(snd_mr_close(mr, SECOND) == SND_DEVICE_BUSY);
	OK(snd_mapping_close(mapping, SECOND));
	OK(snd_mr_close(mr, SECOND));
	OK(snd_adapter_close(adapter, SECOND));
	OK(snd_job_close(job));
	for (int i = 0; i < ROWS; i++)
		is_refused(&rows[i], stale[i], SND_INVALID_HANDLE, "a closed handle");
}

int main(void)
{
	test_is_complete();
	test_abort();
	for (int round = 0; round < 3; round++) {
		open_all();
		test_handles();
		test_query();
		test_forked();
		test_limits();
		test_region_flags();
		test_others();
		test_reserved();
		test_arguments();
		test_loopback();
		test_closed();
	}
	open_all();
	test_stale();
	OK(snd_job_close(job));
	/* Objects that are still open when the fabric is closed. */
	open_all();
	OK(snd_job_close(job));
	return 0;
}

/* Two processes over UCX, each of which checks the data of the other: ucx_perftest checks none. Prints which transports UCX has chosen. */
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "../check.h"

enum { MOST = 3 << 19 /* more than SND_QUANTUM */, MESSAGE = 7, ADDITIONS = 100, SECONDS = 100 };

static const ucp_request_param_t plain;
static ucp_worker_h worker;
static ucp_ep_h ep;
static int channel; /* to the other process */
static uint64_t remote;
static ucp_rkey_h rkey;
static struct {
	unsigned char bytes[MOST];
	uint64_t number;
} shared;
static unsigned char scratch[MOST], message[MOST];
static size_t arrived; /* of the active message; SIZE_MAX = none */

static void must(ucs_status_t s)
{
	if (s != UCS_OK)
		fprintf(stderr, "%s\n", ucs_status_string(s));
	CHECK(s == UCS_OK);
}

/* finish waits for a request. */
static void finish(ucs_status_ptr_t r)
{
	if (!UCS_PTR_IS_PTR(r)) {
		must(UCS_PTR_STATUS(r));
		return;
	}
	while (ucp_request_check_status(r) == UCS_INPROGRESS)
		(void)ucp_worker_progress(worker);
	must(ucp_request_check_status(r));
	ucp_request_free(r);
}

/* meet waits for the other process, and serves it in the meantime. */
static void meet(void)
{
	char byte = 0;
	finish(ucp_worker_flush_nbx(worker, &plain));
	CHECK(send(channel, &byte, 1, MSG_NOSIGNAL) == 1);
	while (recv(channel, &byte, 1, MSG_DONTWAIT) != 1)
		(void)ucp_worker_progress(worker);
}

/* exchange sends bytes of any length, and returns those of the other process. */
static void *exchange(const void *bytes, size_t length)
{
	size_t theirs;
	CHECK(send(channel, &length, sizeof length, 0) == sizeof length && send(channel, bytes, length, 0) == (ssize_t)length);
	CHECK(recv(channel, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs);
	void *to = malloc(theirs);
	CHECK(to != NULL && recv(channel, to, theirs, MSG_WAITALL) == (ssize_t)theirs);
	return to;
}

static void fill(unsigned char *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)(i * 31 + (i >> 8) + seed);
}

static void verify(const unsigned char *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		CHECK(bytes[i] == (unsigned char)(i * 31 + (i >> 8) + seed));
}

static void received(void *request, ucs_status_t s, size_t n, void *arg)
{
	(void)arg;
	must(s);
	arrived = n;
	ucp_request_free(request);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t n, const ucp_am_recv_param_t *p)
{
	(void)arg, (void)header, (void)header_length;
	CHECK(n <= MOST);
	if ((p->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
		memcpy(message, data, n);
		arrived = n;
		return UCS_OK;
	}
	const ucp_request_param_t with_callback = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv_am = received};
	if (ucp_am_recv_data_nbx(worker, data, message, n, &with_callback) == NULL)
		arrived = n;
	return UCS_INPROGRESS;
}

static void open_worker(void)
{
	ucp_config_t *config;
	ucp_context_h context;
	ucp_mem_h memory;
	void *packed, *theirs;
	ucp_address_t *address;
	size_t length;
	must(ucp_config_read(NULL, NULL, &config));
	must(ucp_init(&(ucp_params_t){.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_TAG | UCP_FEATURE_AM}, config, &context));
	ucp_config_release(config);
	must(ucp_worker_create(context, &(ucp_worker_params_t){0}, &worker));
	must(ucp_worker_set_am_recv_handler(worker,
		&(ucp_am_handler_param_t){.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB, .id = MESSAGE, .cb = on_message}));
	must(ucp_worker_get_address(worker, &address, &length));
	theirs = exchange(address, length);
	must(ucp_ep_create(worker, &(ucp_ep_params_t){.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = theirs}, &ep));
	free(theirs);
	must(ucp_mem_map(context, &(ucp_mem_map_params_t){.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH, .address = &shared, .length = sizeof shared}, &memory));
	must(ucp_rkey_pack(context, memory, &packed, &length));
	theirs = exchange(packed, length);
	must(ucp_ep_rkey_unpack(ep, theirs, &rkey));
	free(theirs);
	const void *base = &shared;
	theirs = exchange(&base, sizeof base);
	memcpy(&remote, theirs, sizeof remote);
	free(theirs);
}

/* transfers moves n bytes in each way, from the one process to the other. */
static void transfers(int active, size_t n)
{
	const unsigned seed = (unsigned)n;
	if (active) {
		fill(scratch, n, seed);
		finish(ucp_put_nbx(ep, scratch, n, remote, rkey, &plain));
	}
	meet();
	if (!active) {
		verify(shared.bytes, n, seed);
		fill(shared.bytes, n, seed + 1);
	}
	meet();
	if (active) {
		finish(ucp_get_nbx(ep, scratch, n, remote, rkey, &plain));
		verify(scratch, n, seed + 1);
		finish(ucp_tag_send_nbx(ep, scratch, n, n, &plain));
		finish(ucp_am_send_nbx(ep, MESSAGE, NULL, 0, scratch, n, &plain));
	} else {
		memset(scratch, 0, n);
		finish(ucp_tag_recv_nbx(worker, scratch, n, n, UINT64_MAX, &plain));
		verify(scratch, n, seed + 1);
		while (arrived == SIZE_MAX)
			(void)ucp_worker_progress(worker);
		CHECK(arrived == n);
		verify(message, n, seed + 1);
	}
	arrived = SIZE_MAX;
	meet();
}

/* atomics: one process adds to a number of the other one, and replaces it. */
static void atomics(int active)
{
	uint64_t old, add = 3;
	const uint64_t at = remote + offsetof(__typeof__(shared), number);
	const ucp_request_param_t fetching = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER, .datatype = ucp_dt_make_contig(8), .reply_buffer = &old};
	for (int i = 0; active && i < ADDITIONS; i++) {
		finish(ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &add, 1, at, rkey, &fetching));
		CHECK(old == 3 * (uint64_t)i);
	}
	meet();
	CHECK(active || shared.number == 3 * ADDITIONS);
	meet();
	if (active) {
		uint64_t expected = 3 * ADDITIONS;
		old = 77; /* the new value, which the old one replaces */
		finish(ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_CSWAP, &expected, 1, at, rkey, &fetching));
		CHECK(old == 3 * ADDITIONS);
	}
	meet();
	CHECK(active || shared.number == 77);
}

int main(void)
{
	static const size_t sizes[] = {1, 8, 1000, 8192, 100000, MOST};
	int ends[2], status;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	const pid_t child = fork();
	CHECK(child >= 0);
	const int active = child == 0;
	channel = ends[active];
	close(ends[!active]);
	alarm(SECONDS);
	arrived = SIZE_MAX;
	open_worker();
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		transfers(active, sizes[i]);
	atomics(active);
	if (active) {
		ucp_ep_print_info(ep, stdout);
		fflush(stdout);
	}
	meet();
	_exit(active ? 0 : waitpid(child, &status, 0) != child || status != 0);
}

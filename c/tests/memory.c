/* The n-th allocation of private memory fails, for each n. Every call works, or fails with a status that says so. Nothing is
 * lost: the address sanitizer reports leaks, and the test counts descriptors. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "shm/layout.h"
#include "window/guard.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)
enum { MOST = 400, REGIONS = 400, SIZE = SND_CHUNK_BYTES + 100000 };

/* The linker sends the library's calls of malloc, calloc, realloc and aligned_alloc here. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static _Atomic long allocations;
static long failing; /* number of the allocation that fails; 0 = none */

static int fails(void) { return atomic_fetch_add(&allocations, 1) + 1 == failing; }

static void *refused(void)
{
	errno = ENOMEM;
	return NULL;
}

void *__wrap_malloc(size_t size) { return fails() ? refused() : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? refused() : __real_calloc(n, size); }
void *__wrap_realloc(void *old, size_t size) { return fails() ? refused() : __real_realloc(old, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) { return fails() ? refused() : __real_aligned_alloc(alignment, size); }

/* works reports whether a call has succeeded. A failure must be one of memory, and must not change errno. */
static uint32_t checked(snd_status s, const char *call, int line)
{
	if (errno != 4711 || (s != SND_SUCCESS && s != SND_NO_MEMORY && s != SND_INSUFFICIENT_RESOURCES)) {
		fprintf(stderr, "allocation %ld fails: line %d: %s: %s: %s (errno %d)\n", failing, line, call, snd_status_name(s), snd_last_error(), errno);
		exit(1);
	}
	return s == SND_SUCCESS;
}
#define WORKS(call) (errno = 4711, checked((call), #call, __LINE__))

/* side is one end of a connection. */
struct side {
	snd_fabric *fabric;
	snd_adapter *adapter;
	snd_cq *cq;
	snd_srq *srq;
	snd_mr *mr, *private_mr;
	snd_endpoint *endpoint;
	snd_connector *connector;
	snd_listener *listener;
	unsigned char memory[SIZE];
};

static uint32_t open_side(struct side *s, snd_adapter *adapter)
{
	const uint32_t flags = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE;
	s->adapter = adapter;
	return WORKS(snd_cq_create(adapter, 64, &s->cq)) && WORKS(snd_cq_resize(s->cq, 128)) && WORKS(snd_srq_create(adapter, &(snd_srq_config){.depth = 4}, &s->srq)) &&
		WORKS(snd_srq_modify(s->srq, 64, 0)) && WORKS(snd_mr_allocate(adapter, SIZE, flags, &s->mr)) &&
		WORKS(snd_mr_register(adapter, s->memory, SIZE, flags, &s->private_mr)) &&
		WORKS(snd_endpoint_create(adapter, &(snd_endpoint_config){.receive_cq = s->cq, .initiator_cq = s->cq, .inline_size = 64}, &s->endpoint)) &&
		WORKS(snd_connector_create(adapter, &s->connector)) && WORKS(snd_listener_create(adapter, &s->listener)) &&
		WORKS(snd_listener_bind(s->listener, (snd_address){0, 0, 0})) && WORKS(snd_listener_listen(s->listener, 0));
}

/* limit_of returns the limit of a call that a failed allocation of the other side keeps from its end. */
static int64_t limit_of(int64_t short_limit) { return failing == 0 ? SECONDS(60) : short_limit; }

static const snd_connect_params params = {.inbound_reads = 4, .outbound_reads = 4};

static void *accept_one(void *arg)
{
	struct side *s = arg;
	snd_connector *c;
	if (snd_listener_request(s->listener, limit_of(SECONDS(1) / 5), &c) == SND_SUCCESS) /* the connect may have failed */
		(void)snd_connector_accept(c, s->endpoint, &params, SECONDS(5));
	return NULL;
}

/* transfer moves data in every way, both ends in turn. */
static void transfer(struct side *a, struct side *b)
{
	snd_sge in = {snd_mr_buffer(b->mr), SIZE, snd_mr_local_token(b->mr)}, out = {a->memory, SIZE, snd_mr_local_token(a->private_mr)};
	uint32_t posted = 0, done = 0;
	snd_result r[8];
	if (WORKS(snd_endpoint_receive(b->endpoint, 1, &in, 1)) && WORKS(snd_endpoint_send(a->endpoint, 2, &out, 1, 0)))
		posted++;
	posted += WORKS(snd_endpoint_write(a->endpoint, 3, &out, 1, snd_mr_address(b->private_mr), snd_mr_remote_token(b->private_mr), 0));
	posted += WORKS(snd_endpoint_read(a->endpoint, 4, &out, 1, snd_mr_address(b->private_mr), snd_mr_remote_token(b->private_mr), 0));
	for (int i = 0; i < 100000 && done < posted; i++) {
		(void)snd_cq_poll(b->cq, r, 8);
		int32_t n = snd_cq_poll(a->cq, r, 8);
		for (int32_t k = 0; k < n; k++, done++)
			if (r[k].status != SND_SUCCESS && (failing == 0 || (r[k].status != SND_INTERNAL_ERROR && r[k].status != SND_CANCELED))) { /* no bounce buffer */
				fprintf(stderr, "allocation %ld fails: request %u: %s\n", failing, (unsigned)r[k].request_context, snd_status_name(r[k].status));
				CHECK(snd_endpoint_error(a->endpoint) == SND_SUCCESS);
			}
	}
	CHECK(done == posted);
}

static void connect_sides(struct side *a, struct side *b)
{
	pthread_t t;
	snd_address at;
	OK(snd_listener_address(b->listener, &at));
	CHECK(pthread_create(&t, NULL, accept_one, b) == 0);
	errno = 4711;
	snd_status s = snd_connector_connect(a->connector, a->endpoint, at, &params, limit_of(SECONDS(1) / 4));
	uint32_t connected = s != SND_CONNECTION_REFUSED && s != SND_IO_TIMEOUT && s != SND_CONNECTION_ABORTED && checked(s, "connect", __LINE__);
	if (connected)
		connected = snd_connector_complete(a->connector) == SND_SUCCESS;
	pthread_join(t, NULL);
	CHECK(connected || failing > 0);
	if (connected)
		transfer(a, b);
}

/* many_regions uses several blocks of tokens. No two open regions have the same entry. */
static void many_regions(snd_adapter *adapter)
{
	static snd_mr *regions[REGIONS];
	static uint32_t tokens[2 * REGIONS];
	static unsigned char memory[8];
	for (int round = 0; round < 2; round++) {
		uint32_t n = 0;
		for (int i = 0; i < REGIONS; i++)
			n += WORKS(snd_mr_register(adapter, memory, sizeof memory, 0, &regions[n]));
		CHECK(n >= REGIONS - 1); /* one allocation fails */
		for (uint32_t i = 0; i < n; i++) {
			tokens[2 * i] = snd_mr_local_token(regions[i]) & SNDL_TOKEN_INDEX_MASK;
			tokens[2 * i + 1] = snd_mr_remote_token(regions[i]) & SNDL_TOKEN_INDEX_MASK;
		}
		for (uint32_t i = 0; i < 2 * n; i++)
			for (uint32_t k = 0; k < i; k++)
				CHECK(tokens[i] != tokens[k]);
		for (uint32_t i = 0; i < n; i++)
			OK(snd_mr_close(regions[i], SECONDS(1)));
	}
}

static void use_all(const snd_fabric_options *options)
{
	static struct side a, b;
	snd_adapter *adapters[2];
	snd_job *job;
	char name[40];
	memset(&a, 0, sizeof a);
	memset(&b, 0, sizeof b);
	snprintf(name, sizeof name, "memory-%d", (int)getpid());
	if (WORKS(snd_fabric_open(name, 0, UINT64_C(1) << 28, -1, options, &a.fabric)) && WORKS(snd_fabric_attach(snd_fabric_descriptor(a.fabric), -1, options, &b.fabric)) &&
		WORKS(snd_adapter_open(a.fabric, &adapters[0])) && WORKS(snd_adapter_open(b.fabric, &adapters[1]))) {
		if (open_side(&a, adapters[0]) && open_side(&b, adapters[1]))
			connect_sides(&a, &b);
		many_regions(adapters[0]);
	}
	if (b.fabric != NULL)
		OK(snd_fabric_close(b.fabric));
	if (a.fabric != NULL)
		OK(snd_fabric_close(a.fabric));
	if (WORKS(snd_job_init(options, SECONDS(1), &job)))
		OK(snd_job_close(job));
}

int main(void)
{
	const snd_fabric_options *options = test_options();
	use_all(options);
	const int before = descriptors();
	const long all = atomic_load(&allocations);
	for (failing = 1;; failing++) {
		atomic_store(&allocations, 0);
		use_all(options);
		CHECK(descriptors() == before);
		if (failing > all && atomic_load(&allocations) < failing)
			break;
		CHECK(failing < MOST);
	}
	fprintf(stderr, "%ld allocations\n", failing - 1);
	CHECK(failing > 20);
	return 0;
}

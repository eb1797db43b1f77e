/* The structures of softnd.h that can grow. Programs may have been compiled with an older or newer version of them. A structure
 * or call of the header that this file does not know fails the test. */
#define SND_EXPLICIT_SIZES
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { ROOM = 64, SECOND = 1000000000 };

static snd_job *job;
static snd_adapter *adapter;
static snd_cq *cq;
static snd_endpoint *endpoint;
static snd_connector *connector;
static snd_listener *listener;

static snd_status fabric_made(snd_status s, snd_fabric **f)
{
	if (s == SND_SUCCESS)
		OK(snd_fabric_close(*f));
	else
		CHECK(*f == NULL);
	return s;
}
static snd_status create(size_t size, void *p)
{
	snd_fabric *f = snd_job_fabric(job); /* any but NULL */
	return fabric_made(snd_fabric_create(size, 0, 1 << 28, p, &f), &f);
}
static snd_status attach(size_t size, void *p)
{
	snd_fabric *f = snd_job_fabric(job); /* any but NULL */
	return fabric_made(snd_fabric_attach(size, snd_fabric_descriptor(snd_job_fabric(job)), -1, p, &f), &f);
}
static snd_status open_named(size_t size, void *p)
{
	snd_fabric *f = snd_job_fabric(job); /* any but NULL */
	char name[40];
	snprintf(name, sizeof name, "structures-%d", (int)getpid());
	return fabric_made(snd_fabric_open(size, name, 0, 1 << 28, -1, p, &f), &f);
}
static snd_status job_made(snd_status s, snd_job **j)
{
	if (s == SND_SUCCESS)
		OK(snd_job_close(*j));
	else
		CHECK(*j == NULL);
	return s;
}
static snd_status init(size_t size, void *p)
{
	snd_job *j = job;
	return job_made(snd_job_init(size, p, SECOND, &j), &j);
}
static snd_status join(size_t size, void *p)
{
	snd_job *j = job;
	char name[40];
	snprintf(name, sizeof name, "structures-job-%d", (int)getpid());
	return job_made(snd_job_join(size, name, 0, 1, p, SECOND, &j), &j);
}
static snd_status query(size_t size, void *p) { return snd_adapter_query(size, adapter, p); }
static snd_status create_srq(size_t size, void *p)
{
	snd_srq *q = (snd_srq *)adapter;
	snd_status s = snd_srq_create(size, adapter, p, &q);
	if (s == SND_SUCCESS)
		OK(snd_srq_close(q));
	else
		CHECK(q == NULL);
	return s;
}
static snd_status create_endpoint(size_t size, void *p)
{
	snd_endpoint *ep = endpoint;
	snd_status s = snd_endpoint_create(size, adapter, p, &ep);
	if (s == SND_SUCCESS)
		OK(snd_endpoint_close(ep));
	else
		CHECK(ep == NULL);
	return s;
}
static snd_status cq_stats(size_t size, void *p) { return snd_cq_get_stats(size, cq, p); }
static snd_status endpoint_stats(size_t size, void *p) { return snd_endpoint_get_stats(size, endpoint, p); }
static snd_status connect_to(size_t size, void *p) { return snd_connector_connect(size, connector, endpoint, (snd_address){0, 0, 0}, p, 0); }
static snd_status accept_one(size_t size, void *p) { return snd_connector_accept(size, connector, endpoint, p, 0); }
static snd_status start_connect(size_t size, void *p) { return snd_connector_start_connect(size, connector, endpoint, (snd_address){0, 0, 0}, p); }
static snd_status start_accept(size_t size, void *p) { return snd_connector_start_accept(size, connector, endpoint, p); }
static snd_status connect_rank(size_t size, void *p)
{
	snd_endpoint *ep;
	return snd_job_connect(size, job, 0, p, 0, &ep);
}

static snd_status connect_all(size_t size, void *p)
{
	snd_endpoint *ep;
	return snd_job_connect_all(size, job, p, 0, &ep);
}
static snd_status connect_ranks(size_t size, void *p)
{
	snd_endpoint *ep;
	return snd_job_connect_ranks(size, job, &(uint32_t){0}, 1, p, 0, &ep);
}
static snd_status dial(size_t size, void *p)
{
	snd_endpoint *ep;
	return snd_job_dial(size, job, 0, p, 0, &ep);
}
static snd_status accept_dial(size_t size, void *p)
{
	snd_endpoint *ep;
	uint32_t peer;
	return snd_job_accept(size, job, listener, p, 0, &ep, &peer);
}

static struct row {
	const char *call, *type;
	size_t size;
	snd_status (*try)(size_t, void *);
	int stores, found; /* the call stores the structure; the header has the row */
} rows[] = {
	{"snd_fabric_create", "snd_fabric_options", sizeof(snd_fabric_options), create, 0, 0},
	{"snd_fabric_attach", "snd_fabric_options", sizeof(snd_fabric_options), attach, 0, 0},
	{"snd_fabric_open", "snd_fabric_options", sizeof(snd_fabric_options), open_named, 0, 0},
	{"snd_job_init", "snd_fabric_options", sizeof(snd_fabric_options), init, 0, 0},
	{"snd_job_join", "snd_fabric_options", sizeof(snd_fabric_options), join, 0, 0},
	{"snd_adapter_query", "snd_adapter_info", sizeof(snd_adapter_info), query, 1, 0},
	{"snd_cq_get_stats", "snd_cq_stats", sizeof(snd_cq_stats), cq_stats, 1, 0},
	{"snd_endpoint_get_stats", "snd_endpoint_stats", sizeof(snd_endpoint_stats), endpoint_stats, 1, 0},
	{"snd_srq_create", "snd_srq_config", sizeof(snd_srq_config), create_srq, 0, 0},
	{"snd_endpoint_create", "snd_endpoint_config", sizeof(snd_endpoint_config), create_endpoint, 0, 0},
	{"snd_job_connect", "snd_endpoint_config", sizeof(snd_endpoint_config), connect_rank, 0, 0},
	{"snd_connector_connect", "snd_connect_params", sizeof(snd_connect_params), connect_to, 0, 0},
	{"snd_job_connect_all", "snd_endpoint_config", sizeof(snd_endpoint_config), connect_all, 0, 0},
	{"snd_job_connect_ranks", "snd_endpoint_config", sizeof(snd_endpoint_config), connect_ranks, 0, 0},
	{"snd_job_dial", "snd_endpoint_config", sizeof(snd_endpoint_config), dial, 0, 0},
	{"snd_job_accept", "snd_endpoint_config", sizeof(snd_endpoint_config), accept_dial, 0, 0},
	{"snd_connector_start_connect", "snd_connect_params", sizeof(snd_connect_params), start_connect, 0, 0},
	{"snd_connector_start_accept", "snd_connect_params", sizeof(snd_connect_params), start_accept, 0, 0},
	{"snd_connector_accept", "snd_connect_params", sizeof(snd_connect_params), accept_one, 0, 0},
};
enum { ROWS = sizeof rows / sizeof rows[0] };
static const char *const fixed[] = {"snd_address", "snd_window_descriptor", "snd_result", "snd_sge", "snd_request", "snd_fast_registration", "snd_operation_count", "snd_operation_stats", "snd_event"};

/* Bytes after the last member would be one of the next version, and may be anything in programs of this one. */
#define ENDS_WITH(type, member) _Static_assert(offsetof(type, member) + sizeof(((type *)0)->member) == sizeof(type), "padding at the end")
ENDS_WITH(snd_fabric_options, exit_with_job);
ENDS_WITH(snd_adapter_info, reserved);
ENDS_WITH(snd_cq_stats, operations);
ENDS_WITH(snd_endpoint_stats, operations);
ENDS_WITH(snd_srq_config, reserved);
ENDS_WITH(snd_endpoint_config, check_payloads);
ENDS_WITH(snd_connect_params, reserved);

/* fill sets the members without which a call would fail. */
static void fill(const struct row *r, void *p)
{
	memset(p, 0, r->size + ROOM);
	if (strcmp(r->type, "snd_endpoint_config") == 0)
		((snd_endpoint_config *)p)->receive_cq = ((snd_endpoint_config *)p)->initiator_cq = cq;
}

static void refuses(const struct row *r, size_t size, void *p, const char *text)
{
	if (r->try(size, p) == SND_INVALID_PARAMETER && strstr(snd_last_error(), text) != NULL && strstr(snd_last_error(), r->type) != NULL)
		return;
	fprintf(stderr, "%s with %zu bytes: %s, want %s\n", r->call, size, snd_last_error(), text);
	exit(1);
}

/* guarded returns the place of size bytes that no access may leave at the end. */
static unsigned char *guarded(size_t size)
{
	static unsigned char *pages;
	const size_t page = 1 << 16;
	if (pages == NULL)
		CHECK((pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
	return pages + page - size;
}

static void test_sizes(const struct row *r)
{
	_Alignas(16) unsigned char p[SND_PAGE_SIZE + 1 + ROOM];
	fill(r, p);
	const snd_status plain = r->try(r->size, p);
	refuses(r, 0, p, "is 0, allowed 1 to 4096: pass sizeof(");
	refuses(r, SND_PAGE_SIZE + 1, p, "is 4097, allowed 1 to 4096: pass sizeof(");
	refuses(r, SIZE_MAX, p, "allowed 1 to 4096: pass sizeof(");
	/* A newer program. */
	fill(r, p);
	if (r->stores)
		memset(p, 0xff, r->size + ROOM);
	CHECK(r->try(r->size + ROOM / 2, p) == plain);
	for (size_t i = r->size; r->stores && i < r->size + ROOM; i++)
		CHECK(p[i] == (i < r->size + ROOM / 2 ? 0 : 0xff));
	fill(r, p);
	p[r->size + 7] = 1;
	if (!r->stores)
		refuses(r, r->size + 8, p, "is set, but libsoftnd ");
	CHECK(r->try(r->size + 7, p) == plain);
	/* An older program. */
	for (size_t size = 8; size <= r->size; size += 8) {
		fill(r, p);
		memcpy(guarded(size), p, size);
		const snd_status s = r->try(size, guarded(size));
		CHECK(r->try == create_endpoint ? size > 8 ? s == plain : s != SND_SUCCESS : s == plain);
	}
}

static int is_fixed(const char *type)
{
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		if (strcmp(type, fixed[i]) == 0)
			return 1;
	return 0;
}

/* read_header finds each structure in one of the lists, and each call that has a size in its macro and in the table. */
static void read_header(void)
{
	char line[512], call[64], again[64], type[64];
	int sized = 0, macros = 0;
	FILE *f = fopen(SOFTND_HEADER, "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL) {
		sized += strncmp(line, "SND_API", 7) == 0 && strstr(line, "(size_t ") != NULL && strstr(line, "_size, ") != NULL;
		if (sscanf(line, "#define %63[a-z_](...) %63[a-z_](sizeof(%63[a-z_]), __VA_ARGS__)", call, again, type) == 3) {
			macros++;
			CHECK(strcmp(call, again) == 0 && !is_fixed(type));
			for (int i = 0; i < ROWS; i++)
				rows[i].found |= strcmp(rows[i].call, call) == 0 && strcmp(rows[i].type, type) == 0;
		}
		int known = sscanf(line, "typedef struct %63[a-z_] {", type) != 1 || strchr(line, '{') == NULL || is_fixed(type);
		for (int i = 0; i < ROWS; i++)
			known |= strcmp(rows[i].type, type) == 0;
		if (!known) {
			fprintf(stderr, "no call of this test takes a %s, and it is not fixed\n", type);
			exit(1);
		}
	}
	fclose(f);
	for (int i = 0; i < ROWS; i++)
		CHECK(rows[i].found);
	CHECK(sized == ROWS && macros == ROWS);
}

int main(void)
{
	snd_endpoint_config config = {0};
	read_header();
	OK(snd_job_init(sizeof(snd_fabric_options), NULL, SECOND, &job));
	adapter = snd_job_adapter(job);
	OK(snd_cq_create(adapter, 8, &cq));
	config.receive_cq = config.initiator_cq = cq;
	OK(snd_endpoint_create(sizeof config, adapter, &config, &endpoint));
	OK(snd_connector_create(adapter, &connector));
	OK(snd_job_listen(job, &listener));
	for (int i = 0; i < ROWS; i++)
		test_sizes(&rows[i]);
	OK(snd_job_close(job));
	return 0;
}

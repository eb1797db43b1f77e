/* Closing an adapter closes what it owns. */
#include "two_members.h"

#define ALL (SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE)

static void test_adapter(void)
{
	snd_mr *mr, *fast, *theirs;
	snd_mapping *mapping;
	snd_window *window;
	snd_srq *srq;
	snd_listener *l;
	snd_connector *unused;
	uint64_t page;
	connect_members(NULL);
	OK(snd_mr_allocate(a.adapter, 4096, ALL, &mr));
	OK(snd_mr_allocate(b.adapter, 4096, ALL, &theirs));
	OK(snd_mapping_create(mr, snd_mr_buffer(mr), 64, &mapping));
	CHECK(snd_mapping_pages(mapping, &page, 1) == 1);
	OK(snd_mr_create_fast(a.adapter, 1, 1, &fast));
	OK(snd_window_create(a.adapter, &window));
	OK(snd_srq_create(a.adapter, &(snd_srq_config){.depth = 4}, &srq));
	OK(snd_listener_create(a.adapter, &l));
	OK(snd_listener_bind(l, (snd_address){0, 77, 0}));
	OK(snd_listener_listen(l, 0));
	OK(snd_connector_create(a.adapter, &unused));
	const snd_fast_registration g = {.pages = &page, .page_count = 1, .offset = snd_mapping_offset(mapping), .length = 64, .address = 4096, .rights = SND_ALLOW_REMOTE_READ};
	OK(snd_endpoint_fast_register(a.ep, 1, fast, &g, 0));
	OK(snd_endpoint_bind(a.ep, 2, mr, window, snd_mr_buffer(mr), 64, SND_ALLOW_READ));
	OK(snd_endpoint_receive(a.ep, 3, NULL, 0));
	WANT(a.cq, SND_REQUEST_FAST_REGISTER, 1, SND_SUCCESS);
	WANT(a.cq, SND_REQUEST_BIND, 2, SND_SUCCESS);
	const uint64_t address = snd_mr_address(mr);
	const uint32_t token = snd_mr_remote_token(mr);

	OK(snd_adapter_close(a.adapter, 10 * SECOND));
	CHECK(snd_adapter_close(a.adapter, 0) == SND_INVALID_HANDLE && snd_endpoint_error(a.ep) == SND_INVALID_HANDLE && snd_mr_buffer(mr) == NULL && snd_mr_length(fast) == 0 &&
		snd_mapping_offset(mapping) == 0 && snd_window_query(window, &(snd_window_descriptor){0}) == SND_INVALID_HANDLE && snd_srq_close(srq) == SND_INVALID_HANDLE &&
		snd_listener_close(l) == SND_INVALID_HANDLE && snd_connector_close(unused) == SND_INVALID_HANDLE && snd_connector_close(a.connector) == SND_INVALID_HANDLE && snd_cq_close(a.cq) == SND_INVALID_HANDLE);
	OK(snd_connector_wait_disconnect(b.connector, 10 * SECOND));
	CHECK(snd_endpoint_error(b.ep) == SND_CONNECTION_ABORTED);
	OK(snd_endpoint_close(b.ep));
	OK(snd_connector_close(b.connector));
	OK(snd_cq_close(b.cq));

	/* The memory is free, its token invalid, and the port can be bound again. */
	OK(snd_adapter_open(a.fabric, &a.adapter));
	connect_members(NULL);
	const snd_sge sge = snd_mr_sge(theirs, 0, 8);
	OK(snd_endpoint_write(b.ep, 4, &sge, 1, address, token, 0));
	WANT(b.cq, SND_REQUEST_WRITE, 4, SND_ACCESS_VIOLATION);
	OK(snd_listener_create(a.adapter, &l));
	OK(snd_listener_bind(l, (snd_address){0, 77, 0}));
	OK(snd_adapter_close(a.adapter, 10 * SECOND));
	OK(snd_endpoint_close(b.ep));
	OK(snd_connector_close(b.connector));
	OK(snd_cq_close(b.cq));
	OK(snd_mr_close(theirs, SECOND));
	OK(snd_adapter_open(a.fabric, &a.adapter));
}

int main(void)
{
	for (int executor = SND_EXECUTOR_AUTO; executor <= SND_EXECUTOR_TARGET; executor++) {
		open_members((snd_executor)executor);
		for (int i = 0; i < 10; i++)
			test_adapter();
		close_members();
	}
	open_members_with((snd_fabric_options){.progress = SND_PROGRESS_MANUAL});
	test_adapter();
	close_members();
	return 0;
}

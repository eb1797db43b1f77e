/* The texts of refused requests name the operation, the range, what the token allows and why, at both sides. */
#include <inttypes.h>

#include "two_members.h"

enum { SIZE = 8192 };
static snd_mr *memory, *mine; /* b's and a's */
static snd_window *window;
static snd_window_descriptor far;

static void begin(uint32_t rights)
{
	connect_members(NULL);
	OK(snd_mr_allocate(b.adapter, SIZE, rights, &memory));
	OK(snd_mr_allocate(a.adapter, SIZE, SND_ALLOW_REMOTE_WRITE, &mine));
	OK(snd_window_create(b.adapter, &window));
	OK(snd_mr_query(memory, &far));
}

static void end(void)
{
	disconnect_members();
	OK(snd_window_close(window, 10 * SECOND));
	OK(snd_mr_close(memory, 10 * SECOND));
	OK(snd_mr_close(mine, 10 * SECOND));
}

static snd_sge part_of(snd_mr *mr, uint32_t n) { return (snd_sge){snd_mr_buffer(mr), n, snd_mr_local_token(mr)}; }

static void says(snd_endpoint *ep, const char *operation, const char *part)
{
	CHECK(snd_endpoint_error(ep) != SND_SUCCESS);
	const char *text = snd_last_error();
	if (strstr(text, operation) == NULL || strstr(text, part) == NULL) {
		fprintf(stderr, "wanted \"%s\" and \"%s\": %s\n", operation, part, text);
		exit(1);
	}
}

/* refused has a write 100 bytes with a token, and both sides say why that fails. */
static void refused(uint32_t token, const char *grants)
{
	snd_sge s = part_of(mine, 100);
	char range[80];
	snprintf(range, sizeof range, "100 bytes at %#" PRIx64 " with token(...%02x), which grants ", far.address, token & 0xff);
	OK(snd_endpoint_write(a.ep, 1, &s, 1, far.address, token, 0));
	WANT(a.cq, SND_REQUEST_WRITE, 1, SND_ACCESS_VIOLATION);
	says(a.ep, "write: ", range);
	says(a.ep, grants, "");
	snd_result r;
	uint32_t taken;
	OK(snd_endpoint_receive(b.ep, 2, NULL, 0));
	OK(snd_cq_wait(b.cq, &r, 1, 10 * SECOND, &taken));
	CHECK(r.status == SND_CANCELED);
	says(b.ep, "write", range);
	says(b.ep, grants, "");
	end();
}

static void bind_window(snd_status want)
{
	OK(snd_endpoint_bind(b.ep, 3, memory, window, snd_mr_buffer(memory), 100, SND_ALLOW_WRITE));
	WANT(b.cq, SND_REQUEST_BIND, 3, want);
	OK(snd_window_query(window, &far));
}

static void invalidate_window(void)
{
	OK(snd_endpoint_invalidate(b.ep, 4, window, 0));
	WANT(b.cq, SND_REQUEST_INVALIDATE, 4, SND_SUCCESS);
}

static void test_remote_tokens(void)
{
	char covered[80];
	begin(0);
	refused(0, "nothing (0 is no token");
	begin(SND_ALLOW_REMOTE_READ);
	refused(far.token ^ UINT32_C(1) << 25, "nothing (no region or window has had this token");
	begin(SND_ALLOW_REMOTE_READ);
	refused(snd_mr_local_token(memory), "nothing to a peer, since it is the local token of a region");
	begin(SND_ALLOW_REMOTE_READ);
	snprintf(covered, sizeof covered, "%d bytes at %#" PRIx64 " to read: the token does not grant this right", SIZE, far.address);
	refused(far.token, covered);
	begin(SND_ALLOW_LOCAL_WRITE);
	bind_window(SND_SUCCESS);
	invalidate_window();
	snprintf(covered, sizeof covered, "nothing (invalidated; it covered 100 bytes at %#" PRIx64 "): the token is not valid", far.address);
	refused(far.token, covered);
	begin(SND_ALLOW_LOCAL_WRITE);
	bind_window(SND_SUCCESS);
	const uint32_t first = far.token;
	invalidate_window();
	bind_window(SND_SUCCESS);
	refused(first, "nothing (out of date: its window was bound, or its region registered, again since");
}

/* A token of this side's own memory. With SND_EXECUTOR_TARGET the peer checks it, and names another adapter. */
static void test_own_token(void)
{
	begin(SND_ALLOW_REMOTE_WRITE);
	snd_sge s = part_of(mine, 8);
	OK(snd_endpoint_write(a.ep, 1, &s, 1, snd_mr_address(mine), snd_mr_remote_token(mine), 0));
	WANT(a.cq, SND_REQUEST_WRITE, 1, SND_ACCESS_VIOLATION);
	says(a.ep, "write: 8 bytes at ", "nothing (it is a token of this side's own memory");
	end();
}

static void test_local_entries(void)
{
	begin(SND_ALLOW_REMOTE_WRITE);
	snd_sge s = part_of(mine, 8);
	s.token = snd_mr_local_token(memory);
	OK(snd_endpoint_write(a.ep, 1, &s, 1, far.address, far.token, 0));
	WANT(a.cq, SND_REQUEST_WRITE, 1, SND_ACCESS_VIOLATION);
	says(a.ep, "write: scatter/gather entry of 8 bytes at ", "nothing (it is a token of another adapter's memory");
	end();

	begin(SND_ALLOW_REMOTE_WRITE);
	s = part_of(memory, 8);
	s.token ^= UINT32_C(1) << 25;
	OK(snd_endpoint_receive(b.ep, 2, &s, 1));
	s = part_of(mine, 8);
	OK(snd_endpoint_send(a.ep, 1, &s, 1, 0));
	WANT(b.cq, SND_REQUEST_RECEIVE, 2, SND_ACCESS_VIOLATION);
	WANT(a.cq, SND_REQUEST_SEND, 1, SND_REMOTE_ERROR);
	says(b.ep, "receive: an entry of 8 bytes at ", "no region or window has had this token");
	says(a.ep, "send: a message of 8 bytes", "no region or window has had this token");
	end();

	begin(SND_ALLOW_REMOTE_WRITE);
	s = part_of(memory, SIZE);
	s.token ^= UINT32_C(1) << 25;
	OK(snd_endpoint_receive(b.ep, 2, &s, 1));
	s = part_of(mine, SIZE);
	OK(snd_endpoint_send(a.ep, 1, &s, 1, 0));
	WANT(b.cq, SND_REQUEST_RECEIVE, 2, SND_ACCESS_VIOLATION);
	WANT(a.cq, SND_REQUEST_SEND, 1, SND_REMOTE_ERROR);
	says(a.ep, "send: a message of 8192 bytes", "entry of 8192 bytes at ");
	says(a.ep, "no region or window has had this token", "");
	end();

	begin(SND_ALLOW_REMOTE_WRITE);
	s = part_of(memory, 7);
	OK(snd_endpoint_receive(b.ep, 2, &s, 1));
	s = part_of(mine, 8);
	OK(snd_endpoint_send(a.ep, 1, &s, 1, 0));
	WANT(b.cq, SND_REQUEST_RECEIVE, 2, SND_BUFFER_OVERFLOW);
	WANT(a.cq, SND_REQUEST_SEND, 1, SND_REMOTE_ERROR);
	says(b.ep, "receive: ", "a message of 8 bytes for a receive of 7");
	says(a.ep, "send: ", "a message of 8 bytes");
	end();
}

int main(void)
{
	for (snd_executor e = SND_EXECUTOR_AUTO; e <= SND_EXECUTOR_TARGET; e++) {
		open_members(e);
		test_remote_tokens();
		if (e == SND_EXECUTOR_AUTO)
			test_own_token();
		test_local_entries();
		close_members();
	}
	return 0;
}

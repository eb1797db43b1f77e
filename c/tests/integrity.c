/* Payload checks: bytes that change in flight fail the request with a status of its own, in each executor. */
#include <unistd.h>

#include "endpoint/integrity.h"
#include "endpoint/req_execute.h"
#include "two_members.h"

enum { SIZE = SND_QUANTUM + 1 };

static snd_mr *mine, *theirs;

static snd_sge part(snd_mr *mr, size_t n) { return (snd_sge){snd_mr_buffer(mr), (uint32_t)n, snd_mr_local_token(mr)}; }

static const size_t sizes[] = {1, 32, 33, 40, 41, 48, 49, 5000, SND_STAGING + 1, SIZE};

/* unchanged makes a transfer of each kind, and checks the bytes. */
static void unchanged(size_t n)
{
	const snd_sge here = part(mine, n), there = part(theirs, n);
	snd_window_descriptor d;
	OK(snd_mr_query(theirs, &d));
	for (int twice = 0; twice < 2; twice++) {
		fill(snd_mr_buffer(mine), n, 1);
		OK(snd_endpoint_receive(b.ep, 1, &there, 1));
		OK(snd_endpoint_send(a.ep, 2, &here, 1, 0));
		WANT(b.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
		WANT(a.cq, SND_REQUEST_SEND, 2, SND_SUCCESS);
		CHECK(memcmp(snd_mr_buffer(mine), snd_mr_buffer(theirs), n) == 0);
		fill(snd_mr_buffer(mine), n, 2);
		OK(snd_endpoint_write(a.ep, 3, &here, 1, d.address, d.token, 0));
		WANT(a.cq, SND_REQUEST_WRITE, 3, SND_SUCCESS);
		CHECK(memcmp(snd_mr_buffer(mine), snd_mr_buffer(theirs), n) == 0);
		fill(snd_mr_buffer(theirs), n, 3);
		OK(snd_endpoint_read(a.ep, 4, &here, 1, d.address, d.token, 0));
		WANT(a.cq, SND_REQUEST_READ, 4, SND_SUCCESS);
		CHECK(memcmp(snd_mr_buffer(mine), snd_mr_buffer(theirs), n) == 0);
	}
}

/* changed_send changes the buffer of a Send that waits for a receive. want is the status at both sides. */
static void changed_send(size_t n, snd_status want)
{
	const snd_sge here = part(mine, n), there = part(theirs, n);
	connect_members(NULL);
	OK(snd_endpoint_send(a.ep, 1, &here, 1, 0));
	((unsigned char *)snd_mr_buffer(mine))[n / 2] ^= 1;
	OK(snd_endpoint_receive(b.ep, 2, &there, 1));
	WANT(a.cq, SND_REQUEST_SEND, 1, want);
	WANT(b.cq, SND_REQUEST_RECEIVE, 2, want);
	if (want != SND_SUCCESS)
		CHECK(snd_endpoint_error(a.ep) == want && snd_endpoint_error(b.ep) == want);
	disconnect_members();
}

/* changed_write changes the buffer of a Write that is deferred. The last part of wrong data is not stored. */
static void changed_write(size_t n, snd_status want)
{
	const snd_sge here = part(mine, n);
	connect_members(NULL);
	snd_window_descriptor d;
	OK(snd_mr_query(theirs, &d));
	unsigned char *last = (unsigned char *)snd_mr_buffer(theirs) + n - 1, *source = snd_mr_buffer(mine);
	source[n - 1] = 1;
	*last = 9;
	OK(snd_endpoint_write(a.ep, 1, &here, 1, d.address, d.token, SND_DEFER));
	source[n - 1] = 2;
	OK(snd_endpoint_write(a.ep, 2, &here, 1, d.address, d.token, 0));
	WANT(a.cq, SND_REQUEST_WRITE, 1, want);
	WANT(a.cq, SND_REQUEST_WRITE, 2, want == SND_SUCCESS ? SND_SUCCESS : SND_CANCELED);
	CHECK(*last == (want == SND_SUCCESS ? 2 : 9));
	disconnect_members();
}

/* changed_read puts a wrong hash in place of b's answer to a Read, as if the bytes had changed on their way. The locks keep
 * a's engine, and the call that runs the Read, from taking the hash before. */
static void changed_read(void)
{
	const snd_sge here = part(mine, 8);
	uint64_t budget = SND_QUANTUM;
	connect_members(NULL);
	snd_window_descriptor d;
	OK(snd_mr_query(theirs, &d));
	OK(snd_endpoint_read(a.ep, 1, &here, 1, d.address, d.token, SND_DEFER));
	snd_lock(a.fabric);
	snd_lock(b.fabric);
	a.ep->submitted = a.ep->posted;
	(void)snd_run_requests(a.ep, &budget);
	snd_unlock(b.fabric);
	while (snd_load_released(&a.ep->conn->out) != a.ep->conn->out.next)
		usleep(100); /* until b's engine has served the Read */
	snd_set(&b.ep->local_qp->read_hashes[0], snd_relaxed(&b.ep->local_qp->read_hashes[0]) + 1);
	snd_unlock(a.fabric);
	WANT(a.cq, SND_REQUEST_READ, 1, SND_DATA_CHECKSUM_ERROR);
	disconnect_members();
}

int main(void)
{
	for (int executor = SND_EXECUTOR_AUTO; executor <= SND_EXECUTOR_TARGET; executor++) {
		open_members((snd_executor)executor);
		OK(snd_mr_allocate(a.adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &mine));
		OK(snd_mr_allocate(b.adapter, SIZE, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_WRITE | SND_ALLOW_REMOTE_READ, &theirs));
		for (check_payloads = 0; check_payloads < 2; check_payloads++) {
			const snd_status want = check_payloads ? SND_DATA_CHECKSUM_ERROR : SND_SUCCESS;
			connect_members(NULL);
			for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
				unchanged(sizes[i]);
			disconnect_members();
			for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
				changed_send(sizes[i], want);
				changed_write(sizes[i], want);
			}
		}
		check_payloads = 1;
		if (executor == SND_EXECUTOR_TARGET)
			changed_read();
		close_members();
	}
	return 0;
}

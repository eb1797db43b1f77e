/* What fault rules do to requests and messages. faults.sh compares more plans with ranks in Go. */
#include "linux/clock.h"
#include "planted.h"

/* After K bytes, in the second chunk, a transfer fails, or the connection ends. The other bytes are as they were. */
static void test_mid_transfer(void)
{
	enum { N = 3 * SND_CHUNK_BYTES, K = SND_CHUNK_BYTES + 34467 };
	static const struct {
		uint32_t action;
		snd_status result, cause;
	} actions[] = {{SNDL_FAULT_FAIL, SND_IO_TIMEOUT, SND_IO_TIMEOUT}, {SNDL_FAULT_INVALIDATE_NOW, SND_ACCESS_VIOLATION, SND_ACCESS_VIOLATION},
		{SNDL_FAULT_DROP, SND_CANCELED, SND_CONNECTION_ABORTED}};
	for (int setup = 0; setup < SETUPS; setup++)
		for (size_t t = 0; t < 3; t++)
			for (size_t i = 0; i < 3; i++) {
				if (transfers[t] == SNDL_FAULT_SEND && actions[i].action == SNDL_FAULT_INVALIDATE_NOW)
					continue;
				struct snd_fault_rule r = rule(transfers[t], SNDL_FAULT_AT_EXECUTE, actions[i].action);
				r.status = SND_IO_TIMEOUT;
				r.after = K;
				r.min_size = K + 1;
				open_pair(&r, 1, setup);
				unsigned char *from = transfers[t] == SNDL_FAULT_READ ? there : here, *to = transfers[t] == SNDL_FAULT_READ ? here : there, *old = malloc(N);
				CHECK(old != NULL);
				fill(from, N, 1);
				fill(to, N, 2);
				memcpy(old, to, N);
				OK(request(transfers[t], 7, N));
				WANT(a.cq, type_of(transfers[t]), 7, actions[i].result);
				if (transfers[t] == SNDL_FAULT_SEND)
					WANT(b.cq, SND_REQUEST_RECEIVE, 7, SND_CANCELED);
				ended(actions[i].cause);
				CHECK(memcmp(to, from, K) == 0 && memcmp(to + K, old + K, N - K) == 0);
				want_counts(0, 1, 1);
				free(old);
				close_pair(setup);
			}
}

/* One byte of the second of three transfers is wrong at the receiver; in the longest, one of the second chunk. The data of the sender does not change. */
static void test_corrupt(void)
{
	static const uint32_t sizes[] = {1, 40, 48, 1000, 5 * SND_CHUNK_BYTES / 2};
	for (int setup = 0; setup < SETUPS; setup++)
		for (size_t t = 0; t < 4; t++)
			for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
				const uint32_t n = sizes[i], operation = t < 3 ? transfers[t] : SNDL_FAULT_RECEIVE;
				const bool inward = operation == SNDL_FAULT_READ || operation == SNDL_FAULT_RECEIVE;
				struct snd_fault_rule r = rule(operation, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_CORRUPT);
				r.nth = 2;
				r.offset = n / 2;
				r.min_size = n / 2 + 1;
				r.flip = 0x10;
				open_pair(&r, 1, setup);
				unsigned char *from = inward ? there : here, *to = inward ? here : there, *original = malloc(n);
				CHECK(original != NULL);
				for (unsigned k = 1; k <= 3; k++) {
					fill(from, n, k);
					memcpy(original, from, n);
					OK(request(operation, k, n));
					if (operation != SNDL_FAULT_RECEIVE)
						WANT(a.cq, type_of(operation), k, SND_SUCCESS);
					else
						WANT(b.cq, SND_REQUEST_SEND, k, SND_SUCCESS);
					if (operation == SNDL_FAULT_SEND || operation == SNDL_FAULT_RECEIVE)
						WANT(inward ? a.cq : b.cq, SND_REQUEST_RECEIVE, k, SND_SUCCESS);
					CHECK(memcmp(from, original, n) == 0);
					if (k == 2)
						to[n / 2] ^= 0x10;
					CHECK(memcmp(to, original, n) == 0);
				}
				want_counts(0, 3, 1);
				free(original);
				close_pair(setup);
			}
}

/* The queue of the request overruns in each phase, and the endpoint fails. */
static void test_overrun(void)
{
	for (uint32_t phase = SNDL_FAULT_AT_POST; phase <= SNDL_FAULT_AT_COMPLETE; phase++)
		for (size_t t = 0; t < 4; t++) {
			const uint32_t operation = t < 3 ? transfers[t] : SNDL_FAULT_RECEIVE;
			if (operation == SNDL_FAULT_RECEIVE && phase == SNDL_FAULT_AT_COMPLETE)
				continue; /* a receive has no such phase */
			struct snd_fault_rule r = rule(operation, phase, SNDL_FAULT_OVERRUN);
			open_pair(&r, 1, 0);
			(void)request(operation, 1, 8); /* a receive may end b's connection already */
			snd_result result;
			uint32_t n;
			CHECK(snd_cq_wait(a.cq, &result, 1, 10 * SECOND, &n) == SND_BUFFER_OVERFLOW);
			ended(SND_INTERNAL_ERROR);
			want_counts(0, 1, 1);
			close_pair(0);
		}
}

/* A delay ends without a poll of the program, and with one in a process without a thread. */
static void test_delay(void)
{
	for (uint32_t phase = SNDL_FAULT_AT_EXECUTE; phase <= SNDL_FAULT_AT_COMPLETE; phase++)
		for (size_t t = 0; t < 4; t++) {
			const uint32_t operation = t < 3 ? transfers[t] : SNDL_FAULT_RECEIVE;
			if (operation == SNDL_FAULT_RECEIVE && phase == SNDL_FAULT_AT_COMPLETE)
				continue;
			struct snd_fault_rule r = rule(operation, phase, SNDL_FAULT_DELAY);
			r.delay = 3000000;
			r.times = 1;
			open_pair(&r, 1, 0);
			const int64_t began = snd_clock();
			OK(request(operation, 1, 100));
			for (uint64_t tail = 0; tail == 0; usleep(100)) {
				snd_lock(a.fabric);
				tail = a.cq->tail;
				snd_unlock(a.fabric);
			}
			CHECK(snd_clock() - began >= 3000000);
			WANT(a.cq, type_of(operation), 1, SND_SUCCESS);
			want_counts(0, 1, 1);
			close_pair(0);
		}
}

/* A receive that fails because the message is too long has received none, so no rule applies. */
static void test_too_long(void)
{
	for (int setup = 0; setup < SETUPS; setup++)
		for (uint32_t n = 40; n <= 1000; n += 960) { /* in a ring entry, and not */
			struct snd_fault_rule r = rule(SNDL_FAULT_RECEIVE, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_FAIL);
			r.status = SND_IO_TIMEOUT;
			open_pair(&r, 1, setup);
			snd_sge to = {here, 8, snd_mr_local_token(mine)}, from = {there, n, snd_mr_local_token(theirs)};
			OK(snd_endpoint_receive(a.ep, 1, &to, 1));
			OK(snd_endpoint_send(b.ep, 1, &from, 1, 0));
			WANT(a.cq, SND_REQUEST_RECEIVE, 1, SND_BUFFER_OVERFLOW);
			want_counts(0, 0, 0);
			close_pair(setup);
		}
}

/* Messages for a shared receive queue match rules about receives, too. */
static void test_shared_queue(void)
{
	struct snd_fault_rule rules[] = {rule(SNDL_FAULT_RECEIVE, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_FAIL), rule(SNDL_FAULT_RECEIVE, SNDL_FAULT_AT_POST, SNDL_FAULT_FAIL),
		rule(SNDL_FAULT_RECEIVE, SNDL_FAULT_AT_POST, SNDL_FAULT_DROP)};
	snd_srq *srq;
	for (int i = 0; i < 3; i++) {
		rules[i].nth = 2;
		rules[i].status = SND_BUFFER_OVERFLOW;
		rules[i].ranks[0] = 2; /* b */
	}
	plant(rules, 3);
	open_side(&a, 0, SND_EXECUTOR_AUTO);
	open_side(&b, 1, SND_EXECUTOR_AUTO);
	OK(snd_listener_create(b.adapter, &listener));
	OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
	OK(snd_listener_listen(listener, 0));
	OK(snd_srq_create(b.adapter, &(snd_srq_config){.depth = 4}, &srq));
	connect_members(srq);
	OK(snd_srq_receive(srq, 1, NULL, 0));
	CHECK(snd_srq_receive(srq, 2, NULL, 0) == SND_BUFFER_OVERFLOW); /* by the post */
	OK(snd_srq_receive(srq, 2, NULL, 0));
	want_counts(1, 3, 1);
	want_counts(2, 0, 0); /* a post to a shared queue has no connection */
	for (uint64_t i = 1; i <= 2; i++) {
		OK(snd_endpoint_send(a.ep, i, NULL, 0, 0));
		WANT(b.cq, SND_REQUEST_RECEIVE, i, i == 1 ? SND_SUCCESS : SND_BUFFER_OVERFLOW);
		WANT(a.cq, SND_REQUEST_SEND, i, i == 1 ? SND_SUCCESS : SND_REMOTE_ERROR);
	}
	want_counts(0, 2, 1);
	disconnect_members();
	OK(snd_srq_close(srq));
	close_members();
	OK(snd_fabric_close(base));
}

int main(void)
{
	test_mid_transfer();
	test_corrupt();
	test_overrun();
	test_delay();
	test_too_long();
	test_shared_queue();
	return 0;
}

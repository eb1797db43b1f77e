/* Fault rules and the payload checks of Reads, and fault rules of atomics. */
#include "planted.h"
#include "window/invalidatable.h"

/* A Read that ends the registration of its sink corrupts a byte before that, and before a payload check, which finds the byte. */
static void test_corrupt_sink(void)
{
	enum { N = 1000, AT = 500 };
	for (check_payloads = 0; check_payloads < 2; check_payloads++)
		for (int setup = 0; setup < 2; setup++) {
			struct snd_fault_rule r = rule(SNDL_FAULT_READ, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_CORRUPT);
			uint64_t pages[2];
			snd_mapping *mapping;
			snd_mr *fast;
			r.offset = AT;
			r.min_size = AT + 1;
			r.flip = 0x10;
			open_pair(&r, 1, setup);
			OK(snd_mapping_create(mine, here, N, &mapping));
			OK(snd_mr_create_fast(a.adapter, 2, 0, &fast));
			const snd_fast_registration g = {.pages = pages, .page_count = snd_mapping_pages(mapping, pages, 2), .offset = snd_mapping_offset(mapping),
				.length = N, .address = 4096, .rights = SND_ALLOW_LOCAL_WRITE};
			OK(snd_endpoint_fast_register(a.ep, 1, fast, &g, 0));
			WANT(a.cq, SND_REQUEST_FAST_REGISTER, 1, SND_SUCCESS);
			fill(there, N, 1);
			const snd_sge s = {here, N, snd_mr_local_token(fast)};
			OK(snd_endpoint_read(a.ep, 2, &s, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), SND_READ_LOCAL_INVALIDATE));
			WANT(a.cq, SND_REQUEST_READ, 2, check_payloads ? SND_DATA_CHECKSUM_ERROR : SND_SUCCESS);
			here[AT] ^= 0x10;
			CHECK(memcmp(here, there, N) == 0);
			want_counts(0, 1, 1);
			OK(snd_mr_close(fast, 10 * SECOND));
			OK(snd_mapping_close(mapping, 10 * SECOND));
			close_pair(setup);
		}
	check_payloads = 0;
}

/* A Read with wrong data has not succeeded, so no rule about its completion applies. */
static void test_failed_check(void)
{
	const uint32_t actions[] = {SNDL_FAULT_DELAY, SNDL_FAULT_FAIL, SNDL_FAULT_DROP};
	check_payloads = 1;
	for (int setup = 0; setup < SETUPS; setup++)
		for (size_t i = 0; i < 3; i++) {
			struct snd_fault_rule rules[] = {rule(SNDL_FAULT_READ, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_CORRUPT), rule(SNDL_FAULT_READ, SNDL_FAULT_AT_COMPLETE, actions[i])};
			rules[0].nth = rules[1].nth = 2;
			rules[0].flip = 1;
			rules[0].min_size = 1;
			rules[1].status = actions[i] == SNDL_FAULT_FAIL ? SND_IO_TIMEOUT : 0;
			rules[1].delay = actions[i] == SNDL_FAULT_DELAY ? 1000 : 0;
			open_pair(rules, 2, setup);
			for (uint64_t k = 1; k <= 2; k++) {
				OK(request(SNDL_FAULT_READ, k, 1000));
				WANT(a.cq, SND_REQUEST_READ, k, k == 1 ? SND_SUCCESS : SND_DATA_CHECKSUM_ERROR);
			}
			ended(SND_DATA_CHECKSUM_ERROR);
			want_counts(0, 2, 1);
			want_counts(1, 1, 0);
			close_pair(setup);
		}
	check_payloads = 0;
}

/* The data of a checked Read has arrived, and waits for the late result of an earlier Write. Meanwhile a request, a message of the
 * peer, or the end of the connection revokes the Read's token. The Read succeeds all the same. */
static void test_late_reads(void)
{
	enum { N = 4000, BY_REQUEST, BY_SINK, BY_MESSAGE, BY_END, AFTER_ARRIVAL };
	for (int setup = 0; setup < 2; setup++)
		for (int by = BY_REQUEST; by <= AFTER_ARRIVAL; by++) {
			struct snd_fault_rule r = rule(SNDL_FAULT_WRITE, SNDL_FAULT_AT_COMPLETE, SNDL_FAULT_DELAY);
			snd_mapping *mapping;
			snd_mr *fast;
			uint64_t pages[2];
			r.nth = 1;
			r.delay = by < BY_MESSAGE ? 3000000 : UINT64_MAX;
			if (by == BY_END && setup == 0)
				continue; /* this process refuses the Write, after the Read */
			check_payloads = 1;
			open_pair(&r, 1, setup);
			fill(there, N, 1);
			OK(snd_mapping_create(mine, here, N + 8, &mapping));
			OK(snd_mr_create_fast(a.adapter, 2, 1, &fast));
			const snd_fast_registration g = {.pages = pages, .page_count = snd_mapping_pages(mapping, pages, 2), .offset = snd_mapping_offset(mapping),
				.length = N + 8, .address = UINT64_C(1) << 40, .rights = ALL};
			OK(snd_endpoint_fast_register(a.ep, 0, fast, &g, 0));
			WANT(a.cq, SND_REQUEST_FAST_REGISTER, 0, SND_SUCCESS);
			const snd_sge sink = {here, N, snd_mr_local_token(fast)}, other = {here + N, 8, sink.token}, plain = {here + 2 * N, 8, snd_mr_local_token(mine)},
				far = {there + N, 8, snd_mr_local_token(theirs)};
			OK(snd_endpoint_write(a.ep, 9, &plain, 1, snd_mr_address(theirs) + 2 * N, snd_mr_remote_token(theirs), 0));
			OK(snd_endpoint_read(a.ep, 1, &sink, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), 0));
			if (by == BY_REQUEST) {
				OK(snd_endpoint_invalidate_mr(a.ep, 2, fast, 0));
			} else if (by == BY_SINK) {
				OK(snd_endpoint_read(a.ep, 2, &other, 1, snd_mr_address(theirs), snd_mr_remote_token(theirs), SND_READ_LOCAL_INVALIDATE));
			} else if (by == BY_END) {
				OK(snd_endpoint_write(a.ep, 2, &plain, 1, snd_mr_address(theirs), snd_mr_remote_token(fast), 0)); /* of another adapter */
			} else {
				OK(snd_endpoint_receive(b.ep, 3, &far, 1));
				OK(snd_endpoint_receive(a.ep, 4, &plain, 1));
				OK(snd_endpoint_send(a.ep, 2, &plain, 1, 0));
				WANT(b.cq, SND_REQUEST_RECEIVE, 3, SND_SUCCESS); /* after the Read */
				if (by == BY_MESSAGE) {
					OK(snd_endpoint_send_and_invalidate(b.ep, 5, &far, 1, snd_mr_remote_token(fast), 0));
					WANT(a.cq, SND_REQUEST_RECEIVE_AND_INVALIDATE, 4, SND_SUCCESS);
				} else { /* as if the data had arrived when the token was revoked */
					snd_lock(a.fabric);
					snd_revoke_all(&fast->region.i);
					snd_unlock(a.fabric);
				}
				OK(snd_endpoint_flush(a.ep, 10 * SECOND)); /* ends the delay */
			}
			WANT(a.cq, SND_REQUEST_WRITE, 9, SND_SUCCESS);
			WANT(a.cq, SND_REQUEST_READ, 1, by == AFTER_ARRIVAL ? SND_CANCELED : SND_SUCCESS);
			CHECK(memcmp(here, there, N) == 0);
			if (by == AFTER_ARRIVAL)
				WANT(a.cq, SND_REQUEST_RECEIVE, 4, SND_CANCELED);
			const uint32_t next[] = {[BY_REQUEST] = SND_REQUEST_INVALIDATE, [BY_SINK] = SND_REQUEST_READ, [BY_MESSAGE] = SND_REQUEST_SEND,
				[BY_END] = SND_REQUEST_WRITE, [AFTER_ARRIVAL] = SND_REQUEST_SEND};
			WANT(a.cq, next[by], 2, by == BY_END ? SND_ACCESS_VIOLATION : by == AFTER_ARRIVAL ? SND_CANCELED : SND_SUCCESS);
			OK(snd_mr_close(fast, 10 * SECOND));
			OK(snd_mapping_close(mapping, 10 * SECOND));
			close_pair(setup);
			check_payloads = 0;
		}
}

/* A rule for atomics acts before the peer's memory changes, or on the old value. A rule for Reads is not about them. */
static void test_atomics(void)
{
	const struct {
		uint32_t phase, action;
		snd_status status;
		uint64_t after, want, before; /* bytes; the word of the peer, and its old value here */
	} cases[] = {{SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_FAIL, SND_IO_TIMEOUT, 0, 7, 0}, {SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_FAIL, SND_IO_TIMEOUT, 4, 7, 0},
		{SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_DELAY, SND_SUCCESS, 0, 8, 7}, {SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_CORRUPT, SND_SUCCESS, 0, 8, 7 ^ 0x1000},
		{SNDL_FAULT_AT_COMPLETE, SNDL_FAULT_FAIL, SND_IO_TIMEOUT, 0, 8, 7}};
	for (int setup = 0; setup < SETUPS; setup++)
		for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
			struct snd_fault_rule r = rule(SNDL_FAULT_ATOMIC, cases[i].phase, cases[i].action);
			r.status = cases[i].action == SNDL_FAULT_FAIL ? cases[i].status : 0;
			r.delay = cases[i].action == SNDL_FAULT_DELAY ? 1000 : 0;
			r.after = cases[i].after;
			r.min_size = 8;
			r.offset = cases[i].action == SNDL_FAULT_CORRUPT ? 1 : 0;
			r.flip = cases[i].action == SNDL_FAULT_CORRUPT ? 0x10 : 0;
			const struct snd_fault_rule rules[] = {rule(SNDL_FAULT_READ, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_DROP), r};
			open_pair(rules, 2, setup);
			uint64_t *old = (uint64_t *)(void *)here, *word = (uint64_t *)(void *)there;
			snd_mr *grants;
			OK(snd_mr_register(b.adapter, there, 8, SND_ALLOW_REMOTE_ATOMIC, &grants));
			*old = 0;
			__atomic_store_n(word, 7, __ATOMIC_SEQ_CST);
			const snd_sge s = {here, 8, snd_mr_local_token(mine)};
			OK(snd_endpoint_fetch_and_add(a.ep, 1, &s, 1, snd_mr_address(grants), snd_mr_remote_token(grants), 1, 0));
			WANT(a.cq, SND_REQUEST_FETCH_AND_ADD, 1, cases[i].status);
			CHECK(__atomic_load_n(word, __ATOMIC_SEQ_CST) == cases[i].want && *old == cases[i].before);
			want_counts(0, 0, 0);
			want_counts(1, 1, 1);
			OK(snd_mr_close(grants, 10 * SECOND));
			close_pair(setup);
		}
}

int main(void)
{
	test_atomics();
	test_corrupt_sink();
	test_failed_check();
	test_late_reads();
	return 0;
}

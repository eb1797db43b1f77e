/* Fault plans that a member accepts or refuses, and the endpoints that follow them. */
#include "planted.h"

/* Only the endpoints of a member that a rule names leave the fast path. */
static void test_fast_path(void)
{
	struct snd_fault_rule r = rule(SNDL_FAULT_READ, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_DROP);
	r.nth = UINT64_C(1) << 40;
	open_pair(&r, 1, 0);
	CHECK(a.ep->slow != 0 && a.ep->faults != NULL && b.ep->slow == 0 && b.ep->faults == NULL && b.fabric->faults == NULL);
	OK(request(SNDL_FAULT_WRITE, 1, 8));
	WANT(a.cq, SND_REQUEST_WRITE, 1, SND_SUCCESS);
	close_pair(0);
}

static snd_status join_with(const struct snd_fault_rule *r, const char *digest)
{
	snd_fabric *f;
	plant(r, 1);
	if (digest != NULL)
		setenv("SOFTND_FAULTS", digest, 1);
	snd_status s = snd_fabric_attach(snd_fabric_descriptor(base), 0, &automatic, &f);
	if (s == SND_SUCCESS)
		OK(snd_fabric_close(f));
	OK(snd_fabric_close(base));
	return s;
}

/* A member does not join if the rules are not those of the launcher, or if no compiler writes such rules. */
static void test_nonsense(void)
{
	const struct snd_fault_rule good = rule(SNDL_FAULT_WRITE, SNDL_FAULT_AT_EXECUTE, SNDL_FAULT_DROP);
	OK(join_with(&good, NULL));
	CHECK(join_with(&good, "") == SND_INVALID_PARAMETER && join_with(&good, "0123") == SND_INVALID_DEVICE_STATE);
	struct snd_fault_rule bad[12];
	for (size_t i = 0; i < 12; i++)
		bad[i] = good;
	bad[0].operations = 0;
	bad[1].operations = UINT64_C(1) << 21;
	bad[2].operations |= UINT64_C(1) << SNDL_FAULT_NOTIFY;
	bad[3].phase = 0;
	bad[4].phase = 4;
	bad[5].action = 0;
	bad[6].action = 11;
	bad[7].flip = 256;
	bad[8].reserved[1] = 1;
	bad[9].action = SNDL_FAULT_FAIL; /* with success */
	bad[10].action = SNDL_FAULT_CORRUPT;
	bad[10].offset = 1;
	bad[10].min_size = 1;
	bad[11].after = 1;
	for (size_t i = 0; i < 12; i++)
		CHECK(join_with(&bad[i], NULL) == SND_NOT_SUPPORTED);
}

/* A process survives each combination of an action and a phase, unless it is to stop or die. */
static void test_combinations(void)
{
	for (uint32_t action = SNDL_FAULT_FAIL; action <= SNDL_FAULT_EXHAUST; action++)
		for (uint32_t phase = SNDL_FAULT_AT_POST; phase <= SNDL_FAULT_AT_COMPLETE; phase++) {
			if (action == SNDL_FAULT_STOP || action == SNDL_FAULT_KILL)
				continue;
			struct snd_fault_rule r = rule(SNDL_FAULT_WRITE, phase, action);
			r.operations = (UINT64_C(1) << SNDL_FAULT_CONNECT) - 1;
			r.status = UINT32_MAX;
			r.delay = 1000;
			r.min_size = 1;
			memset(r.name, 0xff, sizeof r.name);
			open_pair(&r, 1, 0);
			for (size_t t = 0; t < 4; t++) {
				const uint32_t operation = t < 3 ? transfers[t] : SNDL_FAULT_RECEIVE;
				snd_sge s = {here, 100, snd_mr_local_token(mine)};
				if (operation != SNDL_FAULT_RECEIVE)
					(void)request(operation, t, 100);
				else
					(void)snd_endpoint_receive(a.ep, t, &s, 1);
			}
			OK(snd_endpoint_flush(a.ep, 10 * SECOND));
			close_pair(0);
		}
}

/* Decisions use private counters and rules. A peer that overwrites those in the arena changes the report only. */
static void test_peers_change_nothing(void)
{
	struct snd_fault_rule r = rule(SNDL_FAULT_WRITE, SNDL_FAULT_AT_COMPLETE, SNDL_FAULT_FAIL);
	r.nth = 3;
	r.times = 1;
	r.status = SND_REMOTE_ERROR;
	open_pair(&r, 1, 0);
	for (uint64_t i = 1; i <= 3; i++) {
		OK(request(SNDL_FAULT_WRITE, i, 8));
		WANT(a.cq, SND_REQUEST_WRITE, i, i < 3 ? SND_SUCCESS : SND_REMOTE_ERROR);
		snd_set(&records[0].counters.matched, 77);
		snd_set(&records[0].counters.fired, 5);
		records[0].rule.action = SNDL_FAULT_KILL;
		snd_set32(&snd_header(&base->arena)->rules, 100);
	}
	want_counts(0, 77, 5); /* written after the third */
	close_pair(0);
}

int main(void)
{
	test_nonsense();
	test_fast_path();
	test_combinations();
	test_peers_change_nothing();
	return 0;
}

/* Settings and launchers' variables in the environment: what snd_job_init refuses, and with which words. */
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"
#include "settings.h"
#include "shm/layout.h"

#define RANK_0_OF_2 {"SOFTND_RANK", "0"}, {"SOFTND_SIZE", "2"}
#define USER_SECRET {"SOFTND_SECRET", "a secret of the tests"}

/* Contradictory or incomplete environments, as in the test of softnd.Init in Go. */
static const struct {
	const char *variables[6][2];
	const char *want;
} bad[] = {
	{{{"PMI_FD", "x"}}, "PMI_FD=\"x\": not a descriptor number"},
	{{{"PMI_FD", "987654"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "descriptor 987654 (PMI_FD): not inherited"},
	{{{"PMI_FD", "0"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "descriptor 0 (PMI_FD): not a socket"},
	{{{"SOFTND_RANK", "0"}, {"SOFTND_SIZE", "1"}}, "SOFTND_RANK or SOFTND_SIZE is set, but none of SOFTND_ARENA_FD, SOFTND_CONTROL and SOFTND_ROOT"},
	{{{"PMI_FD", "0"}, {"PMI_SIZE", "1"}}, "PMI_RANK=\"\" (PMI_SIZE=\"1\"): not a valid rank"},
	{{{"PMI_FD", "0"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "1"}}, "PMI_RANK=\"1\" (PMI_SIZE=\"1\"): not a valid rank"},
	{{{"PMI_ID", "0"}, {"PMI_PORT", "host:1"}}, "over the network only (PMI_PORT)"},
	{{{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE=\"\", set by Open MPI's mpirun: want a number"},
	{{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}, "OMPI_COMM_WORLD_RANK=2 is not a rank of OMPI_COMM_WORLD_SIZE=2"},
	{{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}, "but none of PMIX_NAMESPACE"},
	{{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}, "runs the job on several hosts (OMPI_COMM_WORLD_LOCAL_SIZE is 2, not 4)"},
	{{{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}}, "runs the job on several hosts (SLURM_STEP_NUM_NODES is 2, not 1)"},
	{{{"SOFTND_ROOT", "127.0.0.1:7000"}, {"SOFTND_RANK", "2"}, {"SOFTND_SIZE", "2"}}, "SOFTND_RANK=\"2\" with SOFTND_SIZE=\"2\": want a rank from 0 to size-1; SOFTND_ROOT is set, so set both"},
	{{{"SOFTND_ROOT", "127.0.0.1:7000"}, {"SLURM_PROCID", "0"}}, "SLURM_PROCID=\"0\" with SLURM_STEP_NUM_TASKS=\"\": want a rank"},
	{{{"SOFTND_ROOT", "127.0.0.1:7000"}, RANK_0_OF_2}, "SOFTND_SECRET: the secret has 0 bytes: SOFTND_ROOT needs one of 16 or more"},
	{{{"SOFTND_ROOT", "127.0.0.1:7000"}, {"SOFTND_SECRET", "  fifteen bytes..\n"}, RANK_0_OF_2}, "SOFTND_SECRET: the secret has 15 bytes"},
	{{{"SOFTND_ROOT", "127.0.0.1:7000"}, USER_SECRET, {"SOFTND_SECRET_FILE", "x"}, RANK_0_OF_2}, "SOFTND_SECRET and SOFTND_SECRET_FILE are both set"},
	{{{"SOFTND_ROOT", "127.0.0.1:7000"}, {"SOFTND_SECRET_FILE", "/no/such/file"}, RANK_0_OF_2}, "SOFTND_SECRET_FILE: open /no/such/file: No such file"},
	{{{"SOFTND_ROOT", "127.0.0.1:7000"}, {"SOFTND_SECRET_FILE", "/proc/version"}, RANK_0_OF_2}, "/proc/version has mode 0444, so other users have access to the secret"},
	{{{"SOFTND_ROOT", "7000"}, USER_SECRET, RANK_0_OF_2}, "SOFTND_ROOT=\"7000\": want host:port"},
	{{{"SOFTND_ROOT", "127.0.0.1:0"}, USER_SECRET, RANK_0_OF_2}, "want host:port with a port from 1 to 65535"},
	{{{"SOFTND_ROOT", "127.0.0.1:65536"}, USER_SECRET, RANK_0_OF_2}, "want host:port with a port from 1 to 65535"},
	{{{"SOFTND_ROOT", "[::1:7000"}, USER_SECRET, RANK_0_OF_2}, "want [address]:port"},
	{{{"SOFTND_ROOT", "0.0.0.0:7000"}, USER_SECRET, RANK_0_OF_2}, "it is not an address to which other hosts can connect"},
	{{{"SOFTND_ROOT", "no-such-host.invalid:7000"}, USER_SECRET, RANK_0_OF_2}, "no address of \"no-such-host.invalid\" is known"},
	{{{"SOFTND_ROOT", "192.0.2.1:7000"}, USER_SECRET, RANK_0_OF_2}, "SOFTND_ROOT: listen at 192.0.2.1:7000: Cannot assign requested address: it has to be an address of the host"},
	{{{"SOFTND_ROOT", "127.0.0.1:7000"}, USER_SECRET, {"SOFTND_RELAY_KEEPALIVE", "0s"}, RANK_0_OF_2}, "SOFTND_RELAY_KEEPALIVE=\"0s\": want a duration such as 5s"},
	{{{"SOFTND_DEBUG", "yes"}}, "SOFTND_DEBUG: invalid value \"yes\": want 0 or 1"},
	{{{"SOFTND_DUMP_ARENA", "yes"}}, "SOFTND_DUMP_ARENA: invalid value \"yes\": want 0 or 1"},
	{{{"SOFTND_RANK", "0"}, {"SOFTND_CONTROL", "x"}}, "SOFTND_CONTROL=\"x\": want name:secret:identity"},
	{{{"SOFTND_RANK", ""}, {"SOFTND_ARENA_FD", "3"}}, "SOFTND_RANK=\"\" is not a rank number"},
	{{{"SOFTND_RANK", "0"}, {"SOFTND_ARENA_FD", "x"}}, "SOFTND_ARENA_FD=\"x\" is not a descriptor number"},
	{{{"SOFTND_RANK", "0"}, {"SOFTND_ARENA_FD", "0"}}, "did a wrapper close or replace it?"},
	{{{"SOFTND_EXEC", "peer"}}, "SOFTND_EXEC: unknown executor \"peer\": want auto or target"},
	{{{"SOFTND_INTEGRITY", "yes"}}, "SOFTND_INTEGRITY: invalid value \"yes\": want 0 or 1"},
	{{{"SOFTND_WEAK_ORDER", "often"}}, "SOFTND_WEAK_ORDER: seed \"often\": want a number from 0 to 2^64-1"},
	{{{"SOFTND_SPIN_BUDGET", "-1"}}, "SOFTND_SPIN_BUDGET: checks \"-1\": want a number from 0 to 2^31-1"},
	{{{"SOFTND_SPIN_BUDGET", "2147483648"}}, "SOFTND_SPIN_BUDGET: checks \"2147483648\": want a number from 0 to 2^31-1"},
	{{{"SOFTND_RECEIVE_TIMEOUT", "500"}}, "SOFTND_RECEIVE_TIMEOUT: time-out \"500\": want a duration such as 500ms or 10s, 0, or unlimited"},
	{{{"SOFTND_RECEIVE_TIMEOUT", "-1s"}}, "SOFTND_RECEIVE_TIMEOUT: receive time-out of -1s: want 0 or more"},
};

static void test_bad(void)
{
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		pid_t child = fork();
		if (child == 0) {
			snd_job *job = NULL;
			for (int k = 0; k < 6 && bad[i].variables[k][0] != NULL; k++)
				CHECK(setenv(bad[i].variables[k][0], bad[i].variables[k][1], 1) == 0);
			snd_status s = snd_job_init(MANUAL, INT64_C(60000000000), &job);
			if (s == SND_SUCCESS || job != NULL || strncmp(snd_last_error(), "init: ", 6) != 0 || strstr(snd_last_error(), bad[i].want) == NULL) {
				fprintf(stderr, "%s: want %s, got %s: %s\n", bad[i].variables[0][0], bad[i].want, snd_status_name(s), snd_last_error());
				exit(1);
			}
			exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
}

/* The answers of a launcher over PMI to rank 0 of 2, and the outcome of snd_job_init. put, if not NULL, is a part of the
 * requests of the rank. */
#define BEGINS "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=my_kvsname kvsname=job\n"
#define MEETS BEGINS "cmd=put_result rc=0\ncmd=barrier_out\n"
/* DECIDES has the answers when rank 1 runs on another host, up to the agreement. */
#define DECIDES MEETS "cmd=get_result rc=0 value=boot=x&user=7\ncmd=put_result rc=0\ncmd=put_result rc=0\ncmd=barrier_out\ncmd=get_result rc=0 value="
#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
static const struct {
	const char *answers, *want, *put;
} launchers[] = {
	{"", "pmi: init: the launcher closed the connection", "cmd=init pmi_version=1 pmi_subversion=1\n"},
	{"cmd=resp", "pmi: init: the launcher closed the connection within a line", NULL},
	{"cmd=foo\n", "pmi: init: unexpected answer \"cmd=foo\": want response_to_init", NULL},
	{"x\n", "pmi: init: malformed answer \"x\": want name=value pairs that begin with cmd=", NULL},
	{"\n", "pmi: init: malformed answer \"\": want name=value pairs", NULL},
	{"mcmd=x cmd=response_to_init\n", "pmi: init: malformed answer", NULL},
	{"cmd=response_to_init rc=0 rc=1\n", "a name is given twice", NULL},
	{"cmd=response_to_init rc=-1 msg=no_room\n", "pmi: init: refused by the launcher: rc=-1 no_room", NULL},
	{"cmd=response_to_init pmi_version=2\n", "pmi: init: unsupported version \"2\" of the launcher: want 1", NULL},
	{"cmd=response_to_init pmi_version=1\ncmd=my_kvsname\n", "pmi: get_my_kvsname: the launcher's answer has no name", NULL},
	{BEGINS "cmd=put_result rc=0\ncmd=barrier_out rc=-1 msg=rank_1_has_gone\n", "pmi: barrier_in: refused by the launcher: rc=-1 rank_1_has_gone", "cmd=put kvsname=job key=softnd-host-0 value=boot="},
	{MEETS "cmd=get_result rc=0 value=boot=%zz\n", "init: host of rank 1: malformed value \"boot=%zz\"", NULL},
	{MEETS "cmd=get_result rc=0\n", "pmi: get softnd-host-1: the launcher's answer has no value", NULL},
	{DECIDES "error:rank+1+runs+on+host+far\n", "init: rank 1 runs on host far", "key=softnd-hosts-0 value=0x1,1x1\n"},
	{DECIDES "hosts:name=x\n", "init: malformed value of softnd-fabric: \"hosts:name=x\"", "key=softnd-fabric value=hosts:name=job-"},
	{DECIDES "hosts:name=x&parts=1&secret=00\n", "init: malformed value of softnd-fabric", NULL},
	{DECIDES "hosts:name=x&parts=1&secret=" SECRET "\ncmd=get_result rc=0 value=0x1,1x2\n", "init: table of hosts: \"0x1,1x2\" is not one of 2 ranks", NULL},
	{DECIDES "hosts:name=x&parts=1&secret=" SECRET "\ncmd=get_result rc=0 value=0x1,2x1\n", "init: table of hosts: \"0x1,2x1\" is not one of 2 ranks", NULL},
	{DECIDES "hosts:name=x&parts=1&secret=" SECRET "\ncmd=get_result rc=0 value=0x2\n", "init: table of hosts: \"0x2\" is not one of 2 ranks", NULL},
	{DECIDES "hosts:name=x&parts=2&secret=" SECRET "\ncmd=get_result rc=0 value=0x1,\ncmd=get_result rc=0\n", "pmi: get softnd-hosts-1: the launcher's answer has no value", NULL},
	{DECIDES "other\n", "init: malformed value of softnd-fabric: \"other\"", NULL},
	{"-", "pmi: init: line is too long", NULL},
	{NULL, "pmi: init: the launcher has not answered in time", NULL},
};

static void test_launchers(void)
{
	static char text[1 << 16];
	for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
		const char *answers = launchers[i].answers;
		int ends[2], status;
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		memset(text, 'a', 5000);
		text[5000] = 0;
		if (answers != NULL && strcmp(answers, "-") != 0)
			snprintf(text, sizeof text, "%s", answers);
		if (answers != NULL)
			CHECK(write(ends[0], text, strlen(text)) == (ssize_t)strlen(text) && shutdown(ends[0], SHUT_WR) == 0);
		pid_t child = fork();
		if (child == 0) {
			snd_job *job = NULL;
			close(ends[0]);
			snprintf(text, sizeof text, "%d", ends[1]);
			CHECK(setenv("PMI_FD", text, 1) == 0 && setenv("PMI_RANK", "0", 1) == 0 && setenv("PMI_SIZE", "2", 1) == 0);
			snd_status s = snd_job_init(MANUAL, (answers == NULL ? 1 : 60) * INT64_C(1000000000), &job);
			if (s == SND_SUCCESS || strncmp(snd_last_error(), "init: ", 6) != 0 || strstr(snd_last_error(), launchers[i].want) == NULL) {
				fprintf(stderr, "launcher %zu: want %s, got %s: %s\n", i, launchers[i].want, snd_status_name(s), snd_last_error());
				exit(1);
			}
			exit(0);
		}
		close(ends[1]);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		ssize_t n = read(ends[0], text, sizeof text - 1);
		text[n > 0 ? n : 0] = 0;
		close(ends[0]);
		if (launchers[i].put != NULL && strstr(text, launchers[i].put) == NULL) {
			fprintf(stderr, "launcher %zu: no %s in %s\n", i, launchers[i].put, text);
			exit(1);
		}
	}
}

/* answered runs init in a child, while this process answers the first packet that arrives at an abstract name. The packet
 * has to contain asked, and the error of the child want. */
static void answered(const char *name, const char *asked, const void *reply, size_t length, void (*init)(const char *name), const char *want)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	static char packet[4096];
	int status, listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	memcpy(at.sun_path + 1, name, strlen(name));
	CHECK(bind(listener, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) == 0 && listen(listener, 1) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(listener);
		init(name);
		if (strstr(snd_last_error(), want) == NULL) {
			fprintf(stderr, "%s: want %s, got %s\n", name, want, snd_last_error());
			exit(1);
		}
		exit(0);
	}
	packet[answer_one(listener, packet, sizeof packet - 1, reply, length)] = 0;
	CHECK(strstr(packet, asked) != NULL);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	close(listener);
}

static void init_under_ndrun(const char *name)
{
	char address[200];
	snd_job *job;
	snprintf(address, sizeof address, "%s:00112233445566778899aabbccddeeff:ffeeddccbbaa99887766554433221100", name);
	CHECK(setenv("SOFTND_CONTROL", address, 1) == 0 && setenv("SOFTND_RANK", "1", 1) == 0);
	const snd_status s = snd_job_init(MANUAL, INT64_C(60000000000), &job);
	CHECK(s != SND_SUCCESS && (s == SND_NOT_SUPPORTED) == (strstr(snd_last_error(), "arena of another version") != NULL));
}

static void join_named(const char *name)
{
	snd_job *job;
	CHECK(snd_job_join(strrchr(name, '-') + 1, 0, 2, MANUAL, INT64_C(5000000000), &job) == SND_NOT_SUPPORTED);
}

/* An ndrun and a fabric of another release refuse this program. */
static void test_versions(void)
{
	char name[100];
	unsigned char record[64] = {'S', 'O', 'F', 'T', 'N', 'D', 'F', 'B', 1, 0, 0, 0, 3, 0, 0, 0, 9};
	static const char *const refusals[] = {"wrong secret: the address is that of another job", "the launcher contains softnd v9, this program contains softnd v1: arena of another version "
		"(control channel versions 9 and 1 differ): build all programs with one release of softnd"};
	for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
		char reply[400], want[400];
		snprintf(name, sizeof name, "softnd-job-test%d", (int)getpid());
		snprintf(reply, sizeof reply, "{\"kind\":\"refusal\",\"text\":\"%s\"}", refusals[i]);
		snprintf(want, sizeof want, "init: SOFTND_ARENA_FD=\"\" is not a descriptor number: start the program with ndrun, or unset it; SOFTND_CONTROL: connect to launcher: %s", refusals[i]);
		answered(name, "\"secret\":\"00112233445566778899aabbccddeeff\",\"rank\":1,\"file\":true}", reply, strlen(reply), init_under_ndrun, want);
	}
	snprintf(name, sizeof name, "softnd-fabric-%lu-test%d", (unsigned long)geteuid(), (int)getpid());
	memcpy(record + 48, "v9.1", 4);
	answered(name, "SOFTNDFB", record, sizeof record, join_named, "the members of the fabric contain softnd v9.1, this program contains softnd libsoftnd ");
	char versions[120];
	snprintf(versions, sizeof versions, ": arena of another version (their layout has version 9 and hash 0, this program's %u and 0x", SNDL_LAYOUT_VERSION);
	answered(name, "SOFTNDFB", record, sizeof record, join_named, versions);
	record[8] = 7;
	answered(name, "SOFTNDFB", record, sizeof record, join_named, "(another version of the fabric protocol: version 7, this program uses 1): build all programs with one release of softnd");
}

/* The durations that Go's time.ParseDuration accepts. */
static const struct {
	const char *text;
	int64_t want; /* SND_DEFAULT_TIMEOUT: refused */
} durations[] = {
	{"500ms", 500000000}, {"2s", 2000000000}, {"1m30s", INT64_C(90000000000)}, {"1.5h", INT64_C(5400000000000)}, {".5us", 500}, {"+3ns", 3}, {"7\xc2\xb5s", 7000},
	{"1h0.25s", INT64_C(3600250000000)}, {"0", 0}, {"0s", 0}, {"-0", 0},
	{"unlimited", SND_FOREVER}, {"9223372036854775807ns", SND_FOREVER}, {"9223372036854775808ns", SND_DEFAULT_TIMEOUT}, {"3000000h", SND_DEFAULT_TIMEOUT}, {"99999999999999999999s", SND_DEFAULT_TIMEOUT},
	{"s", SND_DEFAULT_TIMEOUT}, {".s", SND_DEFAULT_TIMEOUT}, {"1", SND_DEFAULT_TIMEOUT}, {"1d", SND_DEFAULT_TIMEOUT}, {"1 s", SND_DEFAULT_TIMEOUT}, {"1s ", SND_DEFAULT_TIMEOUT}, {"--1s", SND_DEFAULT_TIMEOUT}, {"1.2.3s", SND_DEFAULT_TIMEOUT}, {"forever", SND_DEFAULT_TIMEOUT}, {"-1ns", SND_DEFAULT_TIMEOUT},
};

static void test_durations(void)
{
	for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
		int64_t limit = SND_DEFAULT_TIMEOUT;
		CHECK(setenv("SOFTND_RECEIVE_TIMEOUT", durations[i].text, 1) == 0);
		snd_status s = snd_read_receive_timeout(&limit, "test");
		if ((s == SND_SUCCESS) != (durations[i].want != SND_DEFAULT_TIMEOUT) || limit != durations[i].want) {
			fprintf(stderr, "%s: %s, %ld\n", durations[i].text, snd_status_name(s), (long)limit);
			exit(1);
		}
	}
	/* An option takes precedence. */
	snd_fabric_options o = {.executor = SND_EXECUTOR_TARGET};
	CHECK(setenv("SOFTND_EXEC", "auto", 1) == 0);
	OK(snd_apply_environment(&o, "test"));
	CHECK(o.executor == SND_EXECUTOR_TARGET);
	int64_t limit = 7;
	CHECK(setenv("SOFTND_RECEIVE_TIMEOUT", "", 1) == 0 && setenv("SOFTND_EXEC", "", 1) == 0);
	OK(snd_read_receive_timeout(&limit, "test"));
	CHECK(limit == 7);
	o = (snd_fabric_options){0};
	OK(snd_apply_environment(&o, "test"));
	CHECK(o.executor == SND_EXECUTOR_AUTO && o.check_payloads == 0);
	CHECK(setenv("SOFTND_INTEGRITY", "1", 1) == 0);
	OK(snd_apply_environment(&o, "test"));
	CHECK(o.check_payloads == 1);
}

/* The seeds that Go's strconv.ParseUint accepts with base 0. */
static const struct {
	const char *text;
	bool good;
	uint64_t want;
} seeds[] = {
	{"0", true, 0}, {"7", true, 7}, {"0x1F", true, 31}, {"0b101", true, 5}, {"0o17", true, 15}, {"017", true, 15}, {"1_000", true, 1000}, {"0x_f", true, 15},
	{"18446744073709551615", true, UINT64_MAX}, {"18446744073709551616", false, 0}, {"-1", false, 0}, {"0x", false, 0}, {"08", false, 0}, {"1__0", false, 0},
	{"_1", false, 0}, {"1_", false, 0}, {"a", false, 0}, {" 1", false, 0}, {"1.5", false, 0},
};

static void test_seeds(void)
{
	for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
		snd_fabric_options o = {0};
		CHECK(setenv("SOFTND_WEAK_ORDER", seeds[i].text, 1) == 0);
		snd_status s = snd_apply_environment(&o, "test");
		if ((s == SND_SUCCESS) != seeds[i].good || o.weak_order != seeds[i].good || o.weak_order_seed != seeds[i].want) {
			fprintf(stderr, "%s: %s, %u, %lu\n", seeds[i].text, snd_status_name(s), o.weak_order, (unsigned long)o.weak_order_seed);
			exit(1);
		}
	}
	/* An option takes precedence. */
	snd_fabric_options o = {.weak_order = 1, .weak_order_seed = 5};
	CHECK(setenv("SOFTND_WEAK_ORDER", "7", 1) == 0);
	OK(snd_apply_environment(&o, "test"));
	CHECK(o.weak_order_seed == 5);
}

static const struct {
	const char *text;
	uint32_t want;
} spin_budgets[] = {{"", 0}, {"0", SND_NO_SPIN}, {"7", 7}, {"2147483647", INT32_MAX}};

static void test_spin_budget(void)
{
	for (size_t i = 0; i < sizeof spin_budgets / sizeof spin_budgets[0]; i++) {
		snd_fabric_options o = {0};
		CHECK(setenv("SOFTND_SPIN_BUDGET", spin_budgets[i].text, 1) == 0);
		OK(snd_apply_environment(&o, "test"));
		CHECK(o.spin_budget == spin_budgets[i].want);
	}
	/* An option takes precedence. */
	snd_fabric_options o = {.spin_budget = SND_NO_SPIN};
	OK(snd_apply_environment(&o, "test"));
	CHECK(o.spin_budget == SND_NO_SPIN);
}

int main(void)
{
	static const char *const ours[] = {"SOFTND_RANK", "SOFTND_SIZE", "SOFTND_ARENA_FD", "SOFTND_CONTROL", "SOFTND_ROOT", "SOFTND_SECRET", "SOFTND_SECRET_FILE", "SOFTND_DEBUG", "PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT"};
	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
		CHECK(unsetenv(ours[i]) == 0);
	test_bad();
	test_launchers();
	test_versions();
	test_durations();
	test_seeds();
	test_spin_budget();
	return 0;
}

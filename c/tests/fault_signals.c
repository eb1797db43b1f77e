/* Fault rules that stop or end the process. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "planted.h"

/* A process that waits with its own progress only continues a delayed request. It stops or dies at its third Write. */
static void act_as_child(void)
{
	const snd_fabric_options o = {.progress = SND_PROGRESS_MANUAL};
	snd_address to;
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	char *name = getenv("FAULTS_ARENA"), *port = getenv("FAULTS_PORT"), *host = getenv("FAULTS_HOST");
	OK(snd_fabric_attach(atoi(name), 0, &o, &a.fabric));
	to = (snd_address){(uint32_t)strtoul(host, NULL, 10), (uint16_t)atoi(port), 0};
	const snd_connect_params p = {.inbound_reads = 4, .outbound_reads = 4};
	OK(snd_adapter_open(a.fabric, &a.adapter));
	OK(snd_cq_create(a.adapter, 64, &a.cq));
	OK(snd_endpoint_create(a.adapter, &(snd_endpoint_config){.receive_cq = a.cq, .initiator_cq = a.cq}, &a.ep));
	OK(snd_connector_create(a.adapter, &a.connector));
	OK(snd_connector_connect(a.connector, a.ep, to, &p, 60 * SECOND));
	OK(snd_connector_complete(a.connector));
	allocate(&a, false, &mine, &here);
	memset(here, 7, MOST);
	snd_sge s = {here, 32, snd_mr_local_token(mine)}, w = {here, 8, s.token};
	OK(snd_endpoint_receive(a.ep, 1, &s, 1)); /* the descriptor of b's memory */
	WANT(a.cq, SND_REQUEST_RECEIVE, 1, SND_SUCCESS);
	snd_window_descriptor d;
	snd_window_descriptor_decode(here, &d);
	memset(here, 7, MOST);
	for (uint64_t i = 0; i < 4; i++) {
		OK(snd_endpoint_write(a.ep, i, &w, 1, d.address + 8 * i, d.token, 0));
		WANT(a.cq, SND_REQUEST_WRITE, i, SND_SUCCESS);
	}
	OK(snd_fabric_close(a.fabric));
	_exit(0);
}

static void test_signals(char *program)
{
	for (uint32_t action = SNDL_FAULT_STOP; action <= SNDL_FAULT_KILL; action++)
		for (uint32_t phase = SNDL_FAULT_AT_POST; phase <= SNDL_FAULT_AT_COMPLETE; phase++) {
			struct snd_fault_rule rules[] = {rule(SNDL_FAULT_WRITE, phase, action), rule(SNDL_FAULT_WRITE, SNDL_FAULT_AT_COMPLETE, SNDL_FAULT_DELAY)};
			rules[0].nth = 3;
			rules[1].nth = 2;
			rules[1].delay = 3000000;
			plant(rules, 2);
			open_side(&b, 1, SND_EXECUTOR_AUTO);
			OK(snd_listener_create(b.adapter, &listener));
			OK(snd_listener_bind(listener, (snd_address){0, 0, 0}));
			OK(snd_listener_listen(listener, 0));
			snd_address at;
			OK(snd_listener_address(listener, &at));
			OK(snd_cq_create(b.adapter, 64, &b.cq));
			OK(snd_endpoint_create(b.adapter, &(snd_endpoint_config){.receive_cq = b.cq, .initiator_cq = b.cq}, &b.ep));
			allocate(&b, false, &theirs, &there);
			char arena[20], host[20], port[20];
			snprintf(arena, sizeof arena, "%d", dup(snd_fabric_descriptor(base)));
			snprintf(host, sizeof host, "%u", at.host);
			snprintf(port, sizeof port, "%u", (unsigned)at.port);
			setenv("FAULTS_ARENA", arena, 1);
			setenv("FAULTS_HOST", host, 1);
			setenv("FAULTS_PORT", port, 1);
			pthread_t thread;
			CHECK(pthread_create(&thread, NULL, accept_one, NULL) == 0);
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0) {
				execl(program, program, "child", (char *)NULL);
				_exit(9);
			}
			CHECK(pthread_join(thread, NULL) == 0);
			snd_window_descriptor d;
			OK(snd_mr_query(theirs, &d));
			memset(there, 0, MOST);
			snd_window_descriptor_encode(&d, there + 1000);
			snd_sge s = {there + 1000, 32, snd_mr_local_token(theirs)};
			OK(snd_endpoint_send(b.ep, 1, &s, 1, 0));
			WANT(b.cq, SND_REQUEST_SEND, 1, SND_SUCCESS);
			int status;
			CHECK(waitpid(child, &status, WUNTRACED) == child);
			const size_t written = phase == SNDL_FAULT_AT_COMPLETE ? 24 : 16;
			for (size_t i = 0; i < 40; i++)
				CHECK(there[i] == (i < written ? 7 : 0));
			if (action == SNDL_FAULT_STOP) {
				CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
				CHECK(kill(child, SIGCONT) == 0 && waitpid(child, &status, 0) == child);
				CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0 && there[31] == 7);
			} else {
				CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
			}
			want_counts(0, action == SNDL_FAULT_STOP ? 4 : 3, 1);
			want_counts(1, action == SNDL_FAULT_STOP ? 4 : phase == SNDL_FAULT_AT_COMPLETE ? 3 : 2, 1);
			OK(snd_endpoint_close(b.ep));
			OK(snd_connector_close(b.connector));
			OK(snd_fabric_close(b.fabric));
			OK(snd_fabric_close(base));
			close(atoi(arena));
		}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		act_as_child();
	test_signals(argv[0]);
	return 0;
}

/* Two processes connect by number, in any order, many times. One of them is killed at a random time. NUMBERS_KILLS is the number of kills. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "endpoint/cm_number.h"
#include "linux/clock.h"
#include "shm/fabric.h"

#define SECOND INT64_C(1000000000)

enum { ROUNDS = 1000, KILLS = 60, SIZE = 4096 };

/* shared is memory of both processes. */
static struct shared {
	uint32_t numbers[2];
	uint32_t round[2]; /* that each side has finished */
	uint32_t failed;
} *shared;

static uint32_t load(const uint32_t *w) { return __atomic_load_n(w, __ATOMIC_SEQ_CST); }
static void store(uint32_t *w, uint32_t v) { __atomic_store_n(w, v, __ATOMIC_SEQ_CST); }

static const snd_fabric_options options = {.threading = SND_THREAD_SAFE, .progress = SND_PROGRESS_AUTO};
static snd_fabric *fabric;
static snd_adapter *adapter;
static snd_cq *cq;
static snd_mr *memory;
static uint32_t seed;

static uint32_t pick(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

static void pause_for(int64_t ns) { nanosleep(&(struct timespec){ns / SECOND, (long)(ns % SECOND)}, NULL); }

static volatile sig_atomic_t killed;
static pid_t victim;

static void on_alarm(int unused)
{
	(void)unused;
	kill(victim, SIGKILL);
	killed = 1;
}

/* begin opens the objects of a side, and claims its number. Side 0 waits for the number of the other one, and takes a higher or lower one. */
static void begin(int side, bool higher)
{
	const uint32_t rights = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE;
	uint32_t number;
	killed = 0;
	OK(snd_adapter_open(fabric, &adapter));
	OK(snd_cq_create(adapter, 64, &cq));
	OK(snd_mr_allocate(adapter, SIZE, rights, &memory));
	OK(snd_number_claim(adapter, &number));
	if (side == 1)
		store(&shared->numbers[1], number);
	for (const int64_t deadline = snd_clock() + 20 * SECOND; load(&shared->numbers[1 - side]) == 0;) {
		CHECK(snd_clock() < deadline);
		OK(snd_fabric_progress(fabric));
	}
	if (side == 1)
		return;
	while ((number > shared->numbers[1]) != higher) {
		OK(snd_number_free(adapter, number));
		OK(snd_number_claim(adapter, &number));
	}
	store(&shared->numbers[0], number);
}

static snd_sge part(uint32_t at, uint32_t length) { return (snd_sge){(char *)snd_mr_buffer(memory) + at, length, snd_mr_local_token(memory)}; }

static snd_endpoint *connect_side(int side, int64_t deadline)
{
	snd_endpoint *ep;
	const snd_number_params p = {.number = shared->numbers[side], .dest = shared->numbers[1 - side], .inbound_reads = 1, .outbound_reads = 1,
		.access = SNDL_RIGHT_READ | SNDL_RIGHT_WRITE, .rnr_timer = 1000000, .rnr_retry = 7, .retry_deadline = deadline};
	OK(snd_endpoint_create(adapter, &(snd_endpoint_config){.receive_cq = cq, .initiator_cq = cq}, &ep));
	const snd_sge to = part(SIZE / 2, 64);
	OK(snd_endpoint_receive(ep, 1, &to, 1));
	OK(snd_endpoint_connect_number(ep, &p));
	return ep;
}

/* take takes a result. It returns false if there is none because the peer has ended: receives stay then. */
static bool take(snd_endpoint *ep, snd_result *r)
{
	const bool polls = pick(2) == 0;
	uint32_t n;
	for (const int64_t deadline = snd_clock() + 20 * SECOND; snd_cq_poll(cq, r, 1) == 0;) {
		CHECK(snd_clock() < deadline);
		if (snd_endpoint_error(ep) != SND_SUCCESS)
			return snd_cq_poll(cq, r, 1) == 1; /* those before the end have arrived */
		if (!polls && snd_cq_wait(cq, r, 1, SECOND / 100, &n) == SND_SUCCESS)
			return true;
	}
	return true;
}

/* play is one round: each side names the other, and sends its round. It returns false if the peer has died. */
static bool play(int side, uint32_t round)
{
	if (pick(3) == 0)
		pause_for(pick(300000));
	snd_endpoint *ep = connect_side(side, 0);
	memcpy(snd_mr_buffer(memory), &round, sizeof round);
	const snd_sge from = part(0, sizeof round);
	OK(snd_endpoint_send(ep, 2, &from, 1, 0));
	bool ok = true;
	for (int left = 2; left > 0 && ok; left--) {
		snd_result r;
		uint32_t got;
		ok = take(ep, &r) && r.status == SND_SUCCESS;
		CHECK(ok || killed);
		memcpy(&got, (char *)snd_mr_buffer(memory) + SIZE / 2, sizeof got);
		CHECK(!ok || r.request_context == 2 || got == round);
	}
	store(&shared->round[side], round);
	/* A side that leaves before the other has its result would take that from it. */
	for (const int64_t deadline = snd_clock() + 20 * SECOND; ok && load(&shared->round[1 - side]) < round;) {
		CHECK(snd_clock() < deadline);
		OK(snd_fabric_progress(fabric));
		if (snd_endpoint_error(ep) != SND_SUCCESS)
			break; /* it has left */
		ok = !killed;
	}
	OK(snd_number_leave(ep));
	OK(snd_endpoint_close(ep));
	snd_result r;
	while (snd_cq_poll(cq, &r, 1) > 0) { /* of the end */
	}
	return ok;
}

/* is_alone reports whether this process owns every chunk and block that has an owner. */
static bool is_alone(void)
{
	const struct snd_arena *a = &fabric->arena;
	uint64_t others = 0;
	for (uint64_t i = 0; i < a->chunks; i++)
		others += snd_load32(&a->chunk_owners[i]) > fabric->slot + 1;
	for (uint32_t i = 0; i < SNDL_NUMBER_BLOCKS; i++)
		others += snd_load32(&a->number_owners[i]) > fabric->slot + 1;
	return others == 0;
}

/* start starts the other process, which plays a number of rounds. */
static void start(uint32_t rounds, int fd)
{
	char arguments[3][16], program[] = "/proc/self/exe";
	const int arena = snd_fabric_descriptor(fabric);
	memset(shared, 0, sizeof *shared);
	CHECK((victim = fork()) >= 0);
	if (victim > 0)
		return;
	snprintf(arguments[0], sizeof arguments[0], "%d", dup(arena));
	snprintf(arguments[1], sizeof arguments[1], "%d", fd);
	snprintf(arguments[2], sizeof arguments[2], "%u", rounds);
	execl(program, program, arguments[0], arguments[1], arguments[2], NULL);
	_exit(127);
}

static void play_other(int fd, uint32_t rounds)
{
	seed = (uint32_t)getpid();
	OK(snd_fabric_attach(fd, -1, &options, &fabric));
	begin(1, false);
	for (uint32_t i = 1; i <= rounds; i++)
		CHECK(play(1, i));
	OK(snd_fabric_close(fabric));
}

/* end checks how the other process has ended, and that nothing of it is left. */
static void end(bool by_signal)
{
	int status;
	CHECK(waitpid(victim, &status, 0) == victim);
	CHECK(by_signal ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
	OK(snd_mr_close(memory, 10 * SECOND));
	OK(snd_number_free(adapter, shared->numbers[0]));
	OK(snd_adapter_close(adapter, 10 * SECOND));
	for (const int64_t deadline = snd_clock() + 20 * SECOND; !is_alone();) {
		CHECK(snd_clock() < deadline);
		OK(snd_fabric_progress(fabric));
	}
	snd_lock(fabric);
	CHECK(snd_list_is_empty(&fabric->connections) && snd_list_is_empty(&fabric->closing));
	snd_unlock(fabric);
}

int main(int argc, char **argv)
{
	const int fd = argc == 4 ? atoi(argv[2]) : memfd_create("numbers", 0);
	CHECK(fd >= 0 && (argc == 4 || ftruncate(fd, sizeof *shared) == 0));
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
	if (argc == 4) {
		play_other(atoi(argv[1]), (uint32_t)atoi(argv[3]));
		return 0;
	}
	OK(snd_fabric_create(0, UINT64_C(1) << 28, &options, &fabric));
	for (int higher = 0; higher < 2; higher++) {
		start(ROUNDS / 2, fd);
		begin(0, higher);
		for (uint32_t i = 1; i <= ROUNDS / 2; i++)
			CHECK(play(0, i));
		end(false);
	}
	CHECK(signal(SIGALRM, on_alarm) != SIG_ERR);
	const char *kills = getenv("NUMBERS_KILLS");
	for (int i = 0; i < (kills != NULL ? atoi(kills) : KILLS); i++) {
		start(UINT32_MAX, fd);
		begin(0, i % 2);
		ualarm(100 + pick(i % 3 == 0 ? 1000 : 20000), 0);
		for (uint32_t round = 1; play(0, round); round++) {
		}
		CHECK(killed);
		end(true);
	}
	OK(snd_fabric_close(fabric));
	return 0;
}

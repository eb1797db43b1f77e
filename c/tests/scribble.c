/* A process scribbles in the arena while two ranks use it. The ranks may fail in any way, but they neither crash nor hang. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../src/fabric.h"
#include "check.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

enum { ROUNDS = 60, SIZE = 70000 };

static uint64_t seed;

static uint64_t random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint32_t pick(uint32_t n) { return (uint32_t)(random64() >> 20) % n; }

/* use makes some requests on a connection, and ignores how they end. */
static void use(snd_job *job, snd_adapter *a)
{
	snd_cq *cq;
	snd_endpoint *ep;
	snd_mr *mr, *secret;
	snd_window *w;
	static unsigned char private_memory[SIZE];
	if (snd_cq_create(a, 512, &cq) != SND_SUCCESS)
		return;
	snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq, .receive_depth = 16, .initiator_depth = 16, .inline_size = 64};
	if (snd_job_connect(job, 1 - snd_job_rank(job), &config, SECONDS(1) / 4, &ep) != SND_SUCCESS)
		return;
	const uint32_t flags = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE;
	if (snd_mr_allocate(a, SIZE, flags, &mr) != SND_SUCCESS || snd_mr_register(a, private_memory, SIZE, flags, &secret) != SND_SUCCESS ||
		snd_window_create(a, &w) != SND_SUCCESS)
		return;
	snd_window_descriptor mine[2], all[4];
	snd_mr_query(mr, &mine[0]);
	snd_mr_query(secret, &mine[1]);
	if (snd_job_exchange(job, mine, sizeof mine, all, SECONDS(1) / 4) == SND_SUCCESS) {
		for (int i = 0; i < 300; i++) {
			snd_result r[8];
			uint32_t taken, n = pick(3) == 0 ? pick(SIZE) : pick(60);
			snd_mr *m = pick(2) ? mr : secret;
			const snd_window_descriptor *d = &all[pick(4)];
			snd_sge sge = {snd_mr_buffer(m), n, snd_mr_local_token(m)}, in = {snd_mr_buffer(m), SIZE, snd_mr_local_token(m)};
			snd_endpoint_receive(ep, 1, &in, 1);
			switch (pick(6)) {
			case 0: snd_endpoint_write(ep, 2, &sge, 1, d->address, d->token, 0); break;
			case 1: snd_endpoint_read(ep, 2, &sge, 1, d->address, d->token, 0); break;
			case 2: snd_endpoint_bind(ep, 3, m, w, snd_mr_buffer(m), n, SND_ALLOW_READ); break;
			case 3: snd_endpoint_invalidate(ep, 3, w, 0); break;
			case 4: snd_endpoint_send_and_invalidate(ep, 3, &sge, 1, pick(2) ? d->token : (uint32_t)random64(), 0); break;
			default: snd_endpoint_send(ep, 2, &sge, 1, 0); break;
			}
			snd_cq_wait(cq, r, 8, 200000, &taken);
		}
	}
	snd_endpoint_close(ep);
	snd_window_close(w, SECONDS(1) / 10);
	snd_mr_close(mr, SECONDS(1) / 10);
	snd_mr_close(secret, SECONDS(1) / 10);
	snd_cq_close(cq);
}

static int play(void)
{
	snd_job *job;
	seed = (uint64_t)getpid() * 2654435761 + 1;
	if (snd_job_init(test_options(), SECONDS(1), &job) != SND_SUCCESS)
		return 0;
	int64_t end = snd_clock() + SECONDS(1) / 2;
	while (snd_clock() < end)
		use(job, snd_job_adapter(job));
	snd_job_close(job);
	return 0;
}

/* scribble stores a word somewhere. */
static void scribble(struct snd_fabric *f)
{
	struct snd_arena *a = &f->arena;
	uint64_t at, v;
	const uint32_t rank = pick(2);
	switch (pick(7)) {
	case 0: at = a->member_table + rank * SNDL_MEMBER_STRIDE + pick(64) * 8; break;
	case 1: at = a->rank_records + rank * SNDL_RANK_STRIDE + pick(8) * 8; break;
	case 2: at = (uint64_t)((unsigned char *)&a->chunk_owners[pick(40)] - a->base) & ~UINT64_C(7); break;
	case 3: at = a->window_table + (uint64_t)(pick(2) * 512 + pick(16)) * 64 + pick(8) * 8; break;
	case 4: at = 128 + pick(48) * 8; break; /* counters of the header */
	default: at = a->heap + pick(12 * 8192) * 8; break; /* queue pairs, rings, descriptors, records */
	}
	snd_word *w = (snd_word *)(void *)(a->base + at);
	uint64_t old = snd_relaxed(w);
	switch (pick(6)) {
	case 0: v = random64(); break;
	case 1: v = 0; break;
	case 2: v = UINT64_MAX; break;
	case 3: v = old + 1; break;
	case 4: v = old - 1; break;
	default: v = old ^ UINT64_C(1) << pick(64); break;
	}
	if (snd_owned(a, 0, at, 8) || snd_owned(a, 1, at, 8) || at < a->heap)
		snd_release(w, v);
}

static pid_t start(int fd, int number)
{
	pid_t pid = fork();
	if (pid == 0) {
		char text[20];
		snprintf(text, sizeof text, "%d", fd);
		setenv("SOFTND_ARENA_FD", text, 1);
		snprintf(text, sizeof text, "%d", number);
		setenv("SOFTND_RANK", text, 1);
		setenv("SOFTND_SIZE", "2", 1);
		if (pick(2))
			setenv("SOFTND_EXEC", "target", 1);
		const char *other = getenv("SCRIBBLE_OTHER");
		const char *program = number == 1 && other != NULL ? other : "/proc/self/exe";
		execl(program, program, (char *)NULL);
		_exit(127);
	}
	return pid;
}

int main(void)
{
	if (getenv("SOFTND_RANK") != NULL)
		return play();
	seed = getenv("SCRIBBLE_SEED") != NULL ? (uint64_t)atoll(getenv("SCRIBBLE_SEED")) * 977 + 1 : 77;
	int rounds = getenv("SCRIBBLE_ROUNDS") != NULL ? atoi(getenv("SCRIBBLE_ROUNDS")) : ROUNDS;
	for (int i = 0; i < rounds; i++) {
		snd_fabric *f;
		OK(snd_fabric_create(2, UINT64_C(1) << 29, NULL, &f));
		int fd = fcntl(snd_fabric_descriptor(f), F_DUPFD, 100);
		pid_t ranks[2] = {start(fd, 0), start(fd, 1)};
		close(fd);
		nanosleep(&(struct timespec){0, 40000000}, NULL);
		int64_t deadline = snd_clock() + SECONDS(20);
		int left = 2;
		uint32_t pause = pick(4) * 20000; /* from a storm to a word now and then */
		while (left > 0 && snd_clock() < deadline) {
			for (int k = 0; k < 20; k++)
				scribble(f);
			nanosleep(&(struct timespec){0, (long)pause + 1}, NULL);
			int status;
			pid_t pid = waitpid(-1, &status, WNOHANG);
			if (pid > 0) {
				left--;
				if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) {
					fprintf(stderr, "round %d: rank %d ended with status %#x\n", i, pid == ranks[1], (unsigned)status);
					return 1;
				}
			}
		}
		if (left > 0) {
			fprintf(stderr, "round %d: %d ranks hang (pids %d and %d)\n", i, left, (int)ranks[0], (int)ranks[1]);
			if (getenv("SCRIBBLE_KEEP") == NULL) {
				kill(ranks[0], SIGKILL);
				kill(ranks[1], SIGKILL);
			}
			return 1;
		}
		/* This process scribbled over its own state too: it only closes the descriptor and the mapping. */
		snd_arena_close(&f->arena);
	}
	_exit(0); /* without what a leak checker would say about the arenas */
}

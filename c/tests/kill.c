/* One of two ranks is killed at a random time. The requests of the other complete, and nothing is left in the arena. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../src/fabric.h"
#include "check.h"

#define SECONDS(n) ((int64_t)(n) * 1000000000)

enum { KILLS = 40, SIZE = 100000 };

static uint32_t seed;

static uint32_t pick(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

/* play makes requests of every kind until the connection ends. Every request must complete. */
static int play(void)
{
	snd_job *job;
	snd_status joined = snd_job_init(test_options(), SECONDS(30), &job);
	if (joined == SND_CONNECTION_ABORTED)
		return 0; /* the other was killed before this rank was ready */
	OK(joined);
	snd_adapter *a = snd_job_adapter(job);
	seed = (uint32_t)getpid();
	int died = 0;
	while (!died) {
		snd_cq *cq;
		snd_endpoint *ep;
		snd_mr *mr, *secret;
		snd_window *w;
		OK(snd_cq_create(a, 512, &cq));
		snd_endpoint_config config = {.receive_cq = cq, .initiator_cq = cq, .receive_depth = 64, .initiator_depth = 64};
		snd_status s = snd_job_connect(job, 1 - snd_job_rank(job), &config, SECONDS(20), &ep);
		if (s != SND_SUCCESS) {
			CHECK(s == SND_HOST_UNREACHABLE || s == SND_CONNECTION_ABORTED || s == SND_CONNECTION_REFUSED);
			break;
		}
		const uint32_t flags = SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE;
		static unsigned char private_memory[SIZE];
		OK(snd_mr_allocate(a, SIZE, flags, &mr));
		OK(snd_mr_register(a, private_memory, SIZE, flags, &secret));
		OK(snd_window_create(a, &w));
		snd_window_descriptor mine[2], all[4];
		OK(snd_mr_query(mr, &mine[0]));
		OK(snd_mr_query(secret, &mine[1]));
		s = snd_job_exchange(job, mine, sizeof mine, all, SECONDS(20));
		if (s != SND_SUCCESS) {
			CHECK(s == SND_CONNECTION_ABORTED);
			break;
		}
		const snd_window_descriptor *theirs = &all[2 * (1 - snd_job_rank(job))];
		uint64_t requests = 0, receives = 0;
		snd_result r[16];
		while (!died) {
			for (int i = 0; i < 8; i++) {
				uint32_t n = pick(5) == 0 ? pick(SIZE) : pick(60);
				snd_mr *m = pick(2) ? mr : secret;
				const snd_window_descriptor *d = &theirs[pick(2)];
				snd_sge sge = {snd_mr_buffer(m), n, snd_mr_local_token(m)};
				snd_sge in = {snd_mr_buffer(m), SIZE, snd_mr_local_token(m)};
				while ((s = snd_endpoint_receive(ep, 1, &in, 1)) == SND_SUCCESS)
					receives++;
				CHECK(s == SND_NO_MORE_ENTRIES);
				switch (pick(4)) {
				case 0: s = snd_endpoint_write(ep, 2, &sge, 1, d->address, d->token, 0); break;
				case 1: s = snd_endpoint_read(ep, 2, &sge, 1, d->address, d->token, 0); break;
				case 2: s = snd_endpoint_send(ep, 2, &sge, 1, 0); break;
				default: s = snd_endpoint_send(ep, 2, &sge, 1, SND_SOLICIT_EVENT); break;
				}
				requests += s == SND_SUCCESS;
				CHECK(s == SND_SUCCESS || s == SND_NO_MORE_ENTRIES || s == SND_CONNECTION_INVALID);
			}
			uint32_t n;
			s = snd_cq_wait(cq, r, 16, SECONDS(10), &n);
			CHECK(s == SND_SUCCESS);
			for (uint32_t i = 0; i < n; i++) {
				died |= r[i].status != SND_SUCCESS;
				*(r[i].type == SND_REQUEST_RECEIVE ? &receives : &requests) -= 1;
			}
		}
		while (requests + receives > 0) {
			uint32_t n;
			OK(snd_cq_wait(cq, r, 16, SECONDS(10), &n));
			for (uint32_t i = 0; i < n; i++)
				*(r[i].type == SND_REQUEST_RECEIVE ? &receives : &requests) -= 1;
		}
		CHECK(snd_endpoint_error(ep) == SND_CONNECTION_ABORTED);
		OK(snd_endpoint_close(ep));
		OK(snd_window_close(w, SECONDS(10)));
		OK(snd_mr_close(mr, SECONDS(10)));
		OK(snd_mr_close(secret, SECONDS(10)));
		OK(snd_cq_close(cq));
	}
	OK(snd_job_close(job));
	return 0;
}

static pid_t start(const char *program, int fd, int number)
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
		execl(program, program, (char *)NULL);
		_exit(127);
	}
	return pid;
}

/* A program named in the environment plays rank 1, so that ranks of other languages can take part. */
int main(void)
{
	if (getenv("SOFTND_RANK") != NULL)
		return play();
	const char *other = getenv("KILL_OTHER");
	seed = getenv("KILL_SEED") != NULL ? (uint32_t)atoi(getenv("KILL_SEED")) : 7;
	for (int i = 0; i < KILLS; i++) {
		snd_fabric *f;
		OK(snd_fabric_create(2, UINT64_C(1) << 30, NULL, &f));
		int fd = fcntl(snd_fabric_descriptor(f), F_DUPFD, 100);
		pid_t ranks[2] = {start("/proc/self/exe", fd, 0), start(other != NULL ? other : "/proc/self/exe", fd, 1)};
		close(fd);
		uint32_t victim = pick(2), delay = 5000000 + pick(10000) * 6000;
		nanosleep(&(struct timespec){0, (long)delay}, NULL);
		CHECK(kill(ranks[victim], SIGKILL) == 0);
		int status;
		CHECK(waitpid(ranks[victim], &status, 0) == ranks[victim] && WIFSIGNALED(status));
		/* A rank that waits for the other to join waits until it is told: its own time-out is longer than the test. */
		int64_t deadline = snd_clock() + SECONDS(25);
		pid_t left;
		while ((left = waitpid(ranks[1 - victim], &status, WNOHANG)) == 0 && snd_clock() < deadline) {
			if (snd_load(&snd_rank(&f->arena, victim)->member) == 0) /* it was killed before it joined: the other waits for it */
				kill(ranks[1 - victim], SIGKILL);
			OK(snd_fabric_progress(f));
			nanosleep(&(struct timespec){0, 1000000}, NULL);
		}
		if (left == 0) {
			fprintf(stderr, "kill %d: rank %u did not end after rank %u was killed\n", i, 1 - victim, victim);
			kill(ranks[1 - victim], SIGKILL);
			return 1;
		}
		struct snd_peer p;
		if (status != 0 && snd_load(&snd_rank(&f->arena, victim)->member) != 0) {
			fprintf(stderr, "kill %d: rank %u ended with %#x after rank %u was killed after %u us\n", i, 1 - victim, status, victim, delay / 1000);
			return 1;
		}
		for (int k = 0; k < 3; k++) /* mark, acknowledge, reap */
			snd_check_liveness(f);
		for (uint64_t k = 0; k < f->arena.chunks; k++)
			CHECK(snd_load32(&f->arena.chunk_owners[k]) == 0);
		for (uint32_t k = 0; k < SNDL_MEMBERS; k++)
			CHECK(!snd_peer_in_slot(f, k, &p) || p.id == f->id);
		OK(snd_fabric_close(f));
	}
	return 0;
}

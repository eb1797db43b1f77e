/* Counts the primes below a limit in a farm of ranks that survives deaths: ndrun --on-death continue -n 4 ./farm
 *
 * Rank 0 hands out tasks to the other ranks. If one of them dies, another rank gets its task. With an argument, rank 2 dies at its
 * first task. */
#include <signal.h>
#include <softnd/softnd.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND INT64_C(1000000000)
#define STOP UINT64_MAX /* in place of a task: the worker ends */

enum { TASKS = 200, PER_TASK = 1000, MOST_RANKS = 64, IDLE = TASKS };

/* link is a connection that carries numbers. */
struct link {
	snd_endpoint *ep;
	snd_sge in, out;
	uint64_t task; /* that the worker has; IDLE if none */
	int lost;
};

static void must(snd_status s)
{
	if (s != SND_SUCCESS) {
		fprintf(stderr, "farm: %s: %s\n", snd_status_name(s), snd_last_error());
		exit(1);
	}
}

/* connect_to connects with a rank, and posts the first Receive. The results have the rank as endpoint context. It fails if the rank is
 * lost, at once if that has died. */
static snd_status connect_to(snd_job *job, snd_cq *cq, uint32_t rank, struct link *l)
{
	snd_mr *mr;
	must(snd_mr_allocate(snd_job_adapter(job), 2 * sizeof(uint64_t), SND_ALLOW_LOCAL_WRITE, &mr));
	uint64_t *words = snd_mr_buffer(mr);
	l->in = (snd_sge){words, sizeof *words, snd_mr_local_token(mr)};
	l->out = (snd_sge){words + 1, sizeof *words, snd_mr_local_token(mr)};
	l->task = IDLE;
	snd_endpoint_config config = {0};
	config.receive_cq = config.initiator_cq = cq;
	config.context = rank;
	const snd_status s = snd_job_connect(job, rank, &config, 30 * SECOND, &l->ep);
	return s == SND_SUCCESS ? snd_endpoint_receive(l->ep, 0, &l->in, 1) : s;
}

static snd_status send_number(struct link *l, uint64_t n)
{
	*(uint64_t *)l->out.buffer = n;
	return snd_endpoint_send(l->ep, 0, &l->out, 1, 0);
}

/* primes returns the number of primes of a task. */
static uint64_t primes(uint64_t task)
{
	uint64_t n = 0;
	for (uint64_t x = task * PER_TASK; x < (task + 1) * PER_TASK; x++) {
		int is_prime = x > 1;
		for (uint64_t d = 2; d * d <= x && is_prime; d++)
			is_prime = x % d != 0;
		n += (uint64_t)is_prime;
	}
	return n;
}

/* lose gives the task of a worker back. The last error of the library says why the worker is lost. */
static void lose(struct link *l, uint32_t rank, uint64_t *again, uint32_t *waiting, uint32_t *alive)
{
	if (l->lost)
		return;
	printf("farm: rank %u is lost: %s\n", rank, snd_last_error());
	if (l->task != IDLE)
		again[(*waiting)++] = l->task;
	l->lost = 1;
	l->task = IDLE;
	--*alive;
}

static void master(snd_job *job, snd_cq *cq)
{
	static struct link links[MOST_RANKS];
	uint64_t again[MOST_RANKS], next = 0, sum = 0, answers = 0;
	const uint32_t size = snd_job_size(job);
	uint32_t waiting = 0, alive = size - 1, dead, n;
	for (uint32_t rank = 1; rank < size; rank++)
		if (connect_to(job, cq, rank, &links[rank]) != SND_SUCCESS)
			lose(&links[rank], rank, again, &waiting, &alive);
	while (answers < TASKS && alive > 0) {
		for (uint32_t rank = 1; rank < size; rank++) {
			struct link *l = &links[rank];
			if (l->lost || l->task != IDLE || (waiting == 0 && next == TASKS))
				continue;
			l->task = waiting > 0 ? again[--waiting] : next++;
			if (send_number(l, l->task) != SND_SUCCESS)
				lose(l, rank, again, &waiting, &alive);
		}
		snd_result r;
		must(snd_cq_wait(cq, &r, 1, 30 * SECOND, &n));
		struct link *l = &links[r.endpoint_context];
		if (r.status != SND_SUCCESS) {
			snd_endpoint_error(l->ep);
			lose(l, (uint32_t)r.endpoint_context, again, &waiting, &alive);
		} else if (r.type == SND_REQUEST_RECEIVE) {
			sum += *(uint64_t *)l->in.buffer;
			answers++;
			l->task = IDLE;
			if (snd_endpoint_receive(l->ep, 0, &l->in, 1) != SND_SUCCESS)
				lose(l, (uint32_t)r.endpoint_context, again, &waiting, &alive);
		}
	}
	for (uint32_t rank = 1; rank < size; rank++)
		if (!links[rank].lost && send_number(&links[rank], STOP) != SND_SUCCESS)
			printf("farm: rank %u is lost at its end\n", rank);
	for (uint32_t left = alive; left > 0;) { /* each worker ends its connection when it has the message */
		snd_result r;
		must(snd_cq_wait(cq, &r, 1, 30 * SECOND, &n));
		if (!links[r.endpoint_context].lost && r.type == SND_REQUEST_RECEIVE) {
			links[r.endpoint_context].lost = 1;
			left--;
		}
	}
	while (snd_job_next_death(job, 0, &dead) == SND_SUCCESS)
		printf("farm: rank %u has died\n", dead);
	if (answers < TASKS) {
		fprintf(stderr, "farm: all workers are lost\n");
		exit(1);
	}
	printf("farm: %lu primes below %d\n", (unsigned long)sum, TASKS * PER_TASK);
}

static void work(snd_job *job, snd_cq *cq, int dies)
{
	struct link l = {0};
	must(connect_to(job, cq, 0, &l));
	for (;;) {
		snd_result r;
		uint32_t n;
		must(snd_cq_wait(cq, &r, 1, SND_FOREVER, &n));
		if (r.status != SND_SUCCESS)
			must(snd_endpoint_error(l.ep));
		if (r.type != SND_REQUEST_RECEIVE)
			continue;
		const uint64_t task = *(uint64_t *)l.in.buffer;
		if (task == STOP)
			return;
		if (dies)
			raise(SIGKILL);
		must(snd_endpoint_receive(l.ep, 0, &l.in, 1));
		must(send_number(&l, primes(task)));
	}
}

int main(int argc, char **argv)
{
	(void)argv;
	snd_job *job;
	snd_cq *cq;
	must(snd_job_init(NULL, 30 * SECOND, &job));
	if (snd_job_size(job) < 2 || snd_job_size(job) > MOST_RANKS) {
		fprintf(stderr, "start 2 to %d ranks: ndrun --on-death continue -n 4 ./farm\n", MOST_RANKS);
		return 1;
	}
	must(snd_cq_create(snd_job_adapter(job), 256, &cq));
	if (snd_job_rank(job) == 0)
		master(job, cq);
	else
		work(job, cq, argc > 1 && snd_job_rank(job) == 2);
	must(snd_job_close(job));
	return 0;
}

/* Jobs: the rank group and its collective calls. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "job.h"
#include "launcher.h"

enum { SPINS = 1000 };
#define CHECK_INTERVAL INT64_C(100000000)
#define MAX_EXCHANGE (UINT64_C(256) << 20)

/* join_group takes the rank in the rank group. */
static snd_status join_group(struct snd_job *j, const char *op)
{
	struct snd_fabric *f = j->object.fabric;
	struct snd_rank_record *r = snd_rank(&f->arena, j->rank);
	for (;;) {
		uint64_t old = snd_load(&r->member);
		struct snd_peer holder;
		if (snd_peer_of(f, old, &holder) && snd_check_alive(f, &holder))
			return snd_fail(SND_SHARING_VIOLATION, "%s: rank %" PRIu32 " belongs to another process: start each rank once", op, j->rank);
		if (atomic_compare_exchange_strong(&r->member, &old, f->id)) /* ORDER rank-taken: pairs with the load in snd_member_of_rank */
			break;
	}
	snd_set(&r->length, 0);
	snd_set(&r->published_round, 0);
	snd_set(&r->lost_peer_at, 0);
	j->round = j->size == 2 ? snd_load(&r->round) : snd_load(&snd_header(&f->arena)->opened) / j->size;
	snd_release32(&r->membarrier, snd_has_heavy_global());
	return SND_SUCCESS;
}

bool snd_member_of_rank(const struct snd_job *j, uint32_t rank, struct snd_peer *p)
{
	const struct snd_fabric *f = j->object.fabric;
	uint64_t id = snd_load(&snd_rank(&f->arena, rank)->member); /* ORDER rank-taken: pairs with the swap in join_group */
	return id != 0 && snd_peer_of(f, id, p);
}

/* wake_others rings the wait doorbells of the other ranks. Their engines do not wait at a barrier. */
static void wake_others(struct snd_job *j)
{
	for (uint32_t rank = 0; rank < j->size; rank++) {
		struct snd_peer p;
		if (rank != j->rank && snd_member_of_rank(j, rank, &p))
			snd_ring(j->object.fabric, &p.record->waiters);
	}
}

static uint64_t arrive(struct snd_job *j)
{
	struct snd_arena *a = &j->object.fabric->arena;
	if (j->size == 2) {
		struct snd_rank_record *mine = snd_rank(a, j->rank), *other = snd_rank(a, 1 - j->rank);
		j->round++;
		if (snd_has_heavy_global() && snd_load32(&other->membarrier) == 1) {
			snd_release(&mine->round, j->round); /* ORDER barrier-round: pairs with the load in passed */
			atomic_signal_fence(memory_order_seq_cst);
		} else {
			snd_store_full(&mine->round, j->round); /* ORDER barrier-round: pairs with the load in passed */
		}
		/* ORDER barrier-round: after the store; pairs with the other rank's store and the barrier in snd_arm */
		if (snd_load(&other->round) >= j->round)
			wake_others(j);
		return j->round;
	}
	struct snd_header *h = snd_header(a);
	uint64_t n = atomic_fetch_add(&h->arrived, 1) + 1; /* ORDER barrier-arrived: pairs with itself in the last rank */
	uint64_t ticket = (n + j->size - 1) / j->size * j->size;
	j->round = ticket / j->size;
	if (n == ticket) {
		snd_store_full(&h->opened, ticket); /* ORDER barrier-open: pairs with the load in passed */
		wake_others(j);
	}
	return ticket;
}

static bool passed(const struct snd_job *j, uint64_t ticket)
{
	const struct snd_arena *a = &j->object.fabric->arena;
	if (j->size == 2)
		return snd_load(&snd_rank(a, 1 - j->rank)->round) >= ticket; /* ORDER barrier-round: pairs with the stores in arrive */
	return snd_load(&snd_header(a)->opened) >= ticket; /* ORDER barrier-open: pairs with the store in arrive */
}

struct barrier_wait {
	struct snd_job *j;
	uint64_t ticket;
	uint32_t missing; /* rank + 1 */
};

static bool barrier_ready(void *arg)
{
	struct barrier_wait *w = arg;
	struct snd_job *j = w->j;
	if (passed(j, w->ticket))
		return true;
	uint64_t deaths = snd_load(&snd_header(&j->object.fabric->arena)->deaths);
	if (deaths == j->deaths && snd_clock() - j->checked_at < CHECK_INTERVAL)
		return false;
	for (uint32_t rank = 0; rank < j->size; rank++) {
		struct snd_peer p;
		uint64_t id = snd_load(&snd_rank(&j->object.fabric->arena, rank)->member);
		if (id != 0 && (!snd_peer_of(j->object.fabric, id, &p) || snd_peer_gone(&p))) {
			snd_record_lost_peer(j->object.fabric, id);
			w->missing = rank + 1;
			return true;
		}
	}
	j->deaths = deaths;
	j->checked_at = snd_clock();
	return false;
}

/* barrier returns when all ranks have arrived. The caller holds the lock. */
static snd_status barrier(struct snd_job *j, int64_t timeout, const char *op)
{
	struct snd_fabric *f = j->object.fabric;
	if (j->broken)
		return snd_fail(SND_INVALID_DEVICE_STATE, "%s: an earlier barrier of this rank has failed, and the ranks are out of step: start the job again", op);
	struct barrier_wait w = {j, arrive(j), 0};
	if (f->processes <= f->cores) /* the others are often close */
		for (int i = 0; i < SPINS; i++)
			if (passed(j, w.ticket))
				return SND_SUCCESS;
	snd_status s = snd_wait(f, timeout, barrier_ready, NULL, &w);
	if (s == SND_SUCCESS && w.missing != 0 && !passed(j, w.ticket))
		s = snd_fail(SND_CONNECTION_ABORTED, "%s: rank %" PRIu32 " has died or left", op, w.missing - 1);
	else if (s != SND_SUCCESS)
		s = snd_fail(s, "%s: not all ranks have arrived", op);
	j->broken = s != SND_SUCCESS;
	return s;
}

/* number_of parses a variable of the environment; -1 if it is no number. */
static long number_of(const char *name)
{
	const char *text = getenv(name);
	char *end;
	if (text == NULL || *text < '0' || *text > '9')
		return -1;
	errno = 0;
	long n = strtol(text, &end, 10);
	return *end != 0 || errno != 0 || n > INT32_MAX ? -1 : n;
}

/* apply_environment sets what the user has set in the environment. */
static snd_status apply_environment(snd_fabric_options *o, const char *op)
{
	const char *executor = getenv("SOFTND_EXEC");
	if (executor != NULL && strcmp(executor, "target") == 0)
		o->executor = SND_EXECUTOR_TARGET;
	else if (executor != NULL && *executor != 0 && strcmp(executor, "auto") != 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_EXEC=%s: want auto or target", op, executor);
	return SND_SUCCESS;
}

/* find_arena opens the arena of the job, and the channel to the launcher. */
static snd_status find_arena(const snd_fabric_options *options, struct snd_job *j, snd_fabric **fabric, const char *op)
{
	const char *home = getenv("SOFTND_FABRIC"), *fd_text = getenv("SOFTND_ARENA_FD");
	if (home == NULL && fd_text == NULL) {
		if (getenv("PMI_FD") != NULL || getenv("OMPI_COMM_WORLD_RANK") != NULL || (getenv("SLURM_PROCID") != NULL && getenv("SLURM_JOB_ID") != NULL))
			return snd_fail(SND_NOT_SUPPORTED, "%s: of the launchers only ndrun is supported yet", op);
		j->rank = 0;
		struct snd_fabric *f;
		snd_status s = snd_fabric_begin(options, &f, op);
		if (s != SND_SUCCESS)
			return s;
		return snd_fabric_finish(f, snd_arena_create(&f->arena, 1, 0, op), 0, fabric, op);
	}
	long rank = number_of("SOFTND_RANK"), fd = number_of("SOFTND_ARENA_FD");
	if (rank < 0)
		return snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_RANK is not a rank number: start the program with ndrun", op);
	j->rank = (uint32_t)rank;
	struct snd_fabric *f;
	snd_status s = snd_fabric_begin(options, &f, op);
	if (s != SND_SUCCESS)
		return s;
	s = fd < 0 ? SND_INVALID_PARAMETER : snd_arena_attach(&f->arena, (int)fd, snd_clock() + INT64_C(10000000000), op);
	if (s == SND_SUCCESS && home != NULL && !snd_launcher_names(home, f->arena.id)) {
		snd_arena_close(&f->arena); /* a wrapper has replaced the descriptor */
		s = SND_INVALID_PARAMETER;
	}
	if (s == SND_SUCCESS)
		(void)fcntl((int)fd, F_SETFD, FD_CLOEXEC); /* programs that this process starts do not inherit it */
	if (home != NULL) {
		int file = -1;
		j->channel = snd_launcher_dial(home, j->rank, s == SND_SUCCESS ? NULL : &file, op);
		if (file >= 0) {
			s = snd_arena_attach(&f->arena, file, snd_clock() + INT64_C(10000000000), op);
			close(file);
		}
	} else if (fd < 0) {
		s = snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_ARENA_FD is not a descriptor number: start the program with ndrun, or unset it", op);
	}
	if (s == SND_SUCCESS && (number_of("SOFTND_SIZE") != (long)f->arena.ranks || j->rank >= f->arena.ranks))
		s = snd_fail(SND_INVALID_PARAMETER, "%s: SOFTND_RANK and SOFTND_SIZE do not match the arena, which has %" PRIu32 " ranks", op, f->arena.ranks);
	return snd_fabric_finish(f, s, (int32_t)rank, fabric, op);
}

/* start makes the process a rank of the fabric's group, and waits for the other ranks. s is the status of opening the
 * fabric. If it fails, it frees everything. */
static snd_status start(struct snd_job *j, snd_fabric *f, snd_status s, int64_t timeout, snd_job **job, const char *op)
{
	if (s == SND_SUCCESS) {
		j->object.fabric = f;
		j->size = f->arena.ranks;
		s = join_group(j, op);
	}
	if (s == SND_SUCCESS)
		s = snd_adapter_open(f, &j->adapter);
	if (s == SND_SUCCESS)
		s = snd_listener_create(j->adapter, &j->listener);
	if (s == SND_SUCCESS)
		s = snd_listener_bind(j->listener, (snd_address){0, SND_CONNECT_PORT, 0});
	if (s == SND_SUCCESS)
		s = snd_listener_listen(j->listener, 0);
	if (s == SND_SUCCESS) {
		snd_lock(f);
		s = barrier(j, timeout, op);
		snd_unlock(f);
	}
	if (s == SND_SUCCESS) {
		*job = j;
		return s;
	}
	if (f != NULL)
		(void)snd_fabric_close(f);
	if (j->channel >= 0)
		close(j->channel); /* without leave: the launcher takes this rank for failed */
	snd_object_free(&j->object);
	return s;
}

/* new_job checks what snd_job_init and snd_job_join have in common. */
static snd_status new_job(const snd_fabric_options *options, snd_fabric_options *o, snd_job **job, struct snd_job **j, const char *op)
{
	if (job == NULL)
		return snd_fail(SND_INVALID_PARAMETER, "%s: job is NULL", op);
	*job = NULL;
	snd_status s = snd_start(op);
	*o = options != NULL ? *options : (snd_fabric_options){0};
	if (s == SND_SUCCESS)
		s = apply_environment(o, op);
	if (s != SND_SUCCESS)
		return s;
	if ((*j = snd_object_new(SND_TYPE_JOB, sizeof **j, NULL)) == NULL)
		return snd_fail(SND_NO_MEMORY, "%s: no private memory", op);
	(*j)->channel = -1;
	return SND_SUCCESS;
}

snd_status snd_job_init(const snd_fabric_options *options, int64_t timeout, snd_job **job)
{
	const char *op = "init";
	snd_fabric_options o;
	struct snd_job *j;
	snd_status s = new_job(options, &o, job, &j, op);
	if (s != SND_SUCCESS)
		return s;
	snd_fabric *f = NULL;
	s = find_arena(&o, j, &f, op);
	return start(j, f, s, timeout, job, op);
}

snd_status snd_job_join(const char *name, uint32_t rank, uint32_t size, const snd_fabric_options *options, int64_t timeout, snd_job **job)
{
	const char *op = "join";
	snd_fabric_options o;
	struct snd_job *j;
	snd_status s = new_job(options, &o, job, &j, op);
	if (s != SND_SUCCESS)
		return s;
	snd_fabric *f = NULL;
	j->rank = rank;
	if (size < 1 || rank >= size)
		s = snd_fail(SND_INVALID_PARAMETER, "%s: rank %" PRIu32 " of %" PRIu32 ": want a rank from 0 to size-1", op, rank, size);
	else
		s = snd_fabric_open(name, size, 0, (int32_t)rank, &o, &f);
	return start(j, f, s, timeout, job, op);
}

uint32_t snd_job_rank(snd_job *job)
{
	if (SND_VALID(job, SND_TYPE_JOB))
		return job->rank;
	snd_bad_handle("rank of job", "job");
	return 0;
}

uint32_t snd_job_size(snd_job *job)
{
	if (SND_VALID(job, SND_TYPE_JOB))
		return job->size;
	snd_bad_handle("size of job", "job");
	return 0;
}

snd_fabric *snd_job_fabric(snd_job *job)
{
	if (SND_VALID(job, SND_TYPE_JOB))
		return job->object.fabric;
	snd_bad_handle("fabric of job", "job");
	return NULL;
}

snd_adapter *snd_job_adapter(snd_job *job)
{
	if (SND_VALID(job, SND_TYPE_JOB))
		return job->adapter;
	snd_bad_handle("adapter of job", "job");
	return NULL;
}

snd_status snd_job_barrier(snd_job *job, int64_t timeout)
{
	SND_CHECK(job, SND_TYPE_JOB, "barrier");
	struct snd_fabric *f = job->object.fabric;
	snd_lock(f);
	snd_status s = barrier(job, timeout, "barrier");
	snd_unlock(f);
	return s;
}

/* collect copies the bytes that a rank has published for the last barrier. */
static snd_status collect(struct snd_job *j, uint32_t rank, uint64_t length, unsigned char *to, const char *op)
{
	const struct snd_arena *a = &j->object.fabric->arena;
	const struct snd_rank_record *r = snd_rank(a, rank);
	struct snd_peer p;
	/* Ordered by the barrier: the rank stored all three before it arrived. */
	uint64_t offset = snd_relaxed(&r->blob), n = snd_relaxed(&r->length), round = snd_relaxed(&r->published_round);
	if (!snd_member_of_rank(j, rank, &p))
		return snd_fail(SND_CONNECTION_ABORTED, "%s: rank %" PRIu32 " has died or left", op, rank);
	if (round != j->round) {
		j->broken = true;
		return snd_fail(SND_INVALID_DEVICE_STATE, "%s: rank %" PRIu32 " makes another collective call", op, rank);
	}
	if (n != length)
		return snd_fail(SND_INVALID_BUFFER_SIZE, "%s: rank %" PRIu32 " passes %" PRIu64 " bytes, this rank %" PRIu64, op, rank, n, length);
	if (n == 0)
		return SND_SUCCESS;
	if (!snd_peer_owns(j->object.fabric, &p, offset, n))
		return snd_fail(SND_CONNECTION_ABORTED, "%s: the bytes of rank %" PRIu32 " are not in its memory", op, rank);
	memcpy(to, a->base + offset, n);
	return SND_SUCCESS;
}

snd_status snd_job_exchange(snd_job *job, const void *mine, uint64_t length, void *all, int64_t timeout)
{
	const char *op = "exchange";
	SND_CHECK(job, SND_TYPE_JOB, op);
	if (length > 0 && (mine == NULL || all == NULL))
		return snd_fail(SND_INVALID_PARAMETER, "%s: mine or all is NULL", op);
	if (length > MAX_EXCHANGE / job->size)
		return snd_fail(SND_INVALID_BUFFER_SIZE, "%s: %" PRIu64 " bytes of each rank, at most %" PRIu64 " of all together", op, length, MAX_EXCHANGE);
	struct snd_job *j = job;
	struct snd_fabric *f = j->object.fabric;
	uint64_t offset;
	snd_lock(f);
	snd_status s = snd_alloc(&f->heap, length > 0 ? length : 1, false, &offset, op);
	if (s == SND_SUCCESS) {
		struct snd_rank_record *r = snd_rank(&f->arena, j->rank);
		if (length > 0)
			memcpy(f->arena.base + offset, mine, length);
		snd_set(&r->blob, offset);
		snd_set(&r->length, length);
		snd_set(&r->published_round, j->round + 1);
		s = barrier(j, timeout, op);
		snd_status bad = SND_SUCCESS;
		for (uint32_t rank = 0; s == SND_SUCCESS && bad == SND_SUCCESS && rank < j->size; rank++)
			bad = collect(j, rank, length, (unsigned char *)all + rank * length, op);
		if (s == SND_SUCCESS && !j->broken)
			s = barrier(j, timeout, op); /* the ranks stay in step even if the lengths differ */
		snd_free(&f->heap, offset);
		s = s == SND_SUCCESS ? bad : s;
	}
	snd_unlock(f);
	return s;
}

snd_status snd_job_close(snd_job *job)
{
	SND_CHECK(job, SND_TYPE_JOB, "close job");
	struct snd_job *j = job;
	snd_object_hide(&j->object);
	snd_forget_kept(j);
	snd_status s = snd_fabric_close(j->object.fabric);
	if (j->channel >= 0)
		snd_launcher_leave(j->channel);
	snd_object_free(&j->object);
	return s;
}

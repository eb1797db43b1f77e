/* Adopted memory: registered pages that peers access without their owner. Each part runs in a process of its own. */
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "sides.h"

enum { PAGE = 4096, SMALL_ARENA = 176 << 20 };

static struct ibv_context *context;
static struct ibv_pd *pd;

static void begin(const char *adopt)
{
	CHECK(setenv("SOFTND_VERBS_ADOPT", adopt, 1) == 0);
	context = open_device();
	pd = ibv_alloc_pd(context);
	CHECK(pd != NULL);
}


static struct ibv_mr *registered(void *at, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, length, RIGHTS);
	CHECK(mr != NULL);
	return mr;
}

/* kind returns how memory is mapped: 's' as shared memory of the arena, 'p' as private memory of it, 0 otherwise. first, if it is not NULL, is where the
 * mapping begins. */
static char kind(const void *at, unsigned long *first)
{
	char line[512], found = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL) {
		unsigned long start, end;
		char how;
		CHECK(sscanf(line, "%lx-%lx %*c%*c%*c%c", &start, &end, &how) == 3);
		if (start > (uintptr_t)at || (uintptr_t)at >= end)
			continue;
		found = strstr(line, "softnd-arena") != NULL ? how : 0;
		if (first != NULL)
			*first = start;
	}
	fclose(f);
	return found;
}

/* finish closes the device, and checks that nothing of the arena is left in the process. */
static void finish(void)
{
	char line[512];
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL)
		CHECK(strstr(line, "softnd-arena") == NULL);
	fclose(f);
}

static void fill(unsigned char *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (unsigned char)(i * 31 + i / PAGE + seed);
}

static void expect_filled(const unsigned char *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		CHECK(at[i] == (unsigned char)(i * 31 + i / PAGE + seed));
}

static unsigned char *map_pages(size_t length)
{
	unsigned char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static int threads_now(void)
{
	int n = -2;
	DIR *d = opendir("/proc/self/task");
	CHECK(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

/* await_alone waits until threads that have been joined are gone for the kernel, too. */
static void await_alone(int threads)
{
	const time_t end = time(NULL) + 30;
	while (threads_now() != threads)
		CHECK(time(NULL) < end);
}

/* Addresses and contents stay, and the pages are like any others afterwards. */
static void moves(void)
{
	static const size_t lengths[] = {PAGE, 3 * PAGE, 16 * PAGE, 257 * PAGE};
	begin("auto");
	CHECK(ibv_dereg_mr(registered(map_pages(PAGE), 1)) == 0); /* the process joins */
	for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
		for (int of_heap = 0; of_heap < 2; of_heap++) {
			const size_t length = lengths[i];
			unsigned char *all = of_heap ? aligned_alloc(PAGE, length + 2 * PAGE) : map_pages(length + 2 * PAGE), *at = all + PAGE;
			unsigned long first, middle, last;
			fill(all, length + 2 * PAGE, i);
			struct ibv_mr *mr = registered(at, length);
			CHECK(kind(at, NULL) == 's' && kind(at + length - 1, NULL) == 's' && kind(all, NULL) == 0 && kind(at + length, NULL) == 0);
			expect_filled(all, length + 2 * PAGE, i);
			fill(all, length + 2 * PAGE, i + 1);

			/* A region in an adopted one shares its pages, and one across the border is private. */
			struct ibv_mr *part = registered(at, PAGE), *across = registered(at - PAGE, 2 * PAGE);
			CHECK(kind(all, NULL) == 0 && ibv_dereg_mr(across) == 0 && ibv_dereg_mr(mr) == 0 && kind(at, NULL) == 's');
			CHECK(ibv_dereg_mr(part) == 0 && kind(all, &first) == 0 && kind(at, &middle) == 0 && kind(at + length, &last) == 0);
			CHECK(of_heap || (first == middle && middle == last)); /* one mapping, as before */
			expect_filled(all, length + 2 * PAGE, i + 1);
			CHECK(madvise(at, length, MADV_DONTNEED) == 0);
			for (size_t j = 0; j < length; j++)
				CHECK(at[j] == 0);
			if (of_heap)
				free(all);
			else
				CHECK(munmap(all, length + 2 * PAGE) == 0);
		}

	/* These stay private: no whole pages, not the process's own memory, not writable, for no peer, the stack. */
	unsigned char *at = map_pages(2 * PAGE), stack[3 * PAGE], *aligned = stack + (PAGE - (uintptr_t)stack % PAGE);
	struct ibv_mr *mrs[5] = {registered(at + 8, 2 * PAGE - 16), registered(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), PAGE),
		ibv_reg_mr(pd, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), PAGE, IBV_ACCESS_REMOTE_READ), ibv_reg_mr(pd, at + PAGE, PAGE, 0), registered(aligned, PAGE)};
	for (int i = 0; i < 5; i++)
		CHECK(mrs[i] != NULL && kind(mrs[i]->addr, NULL) == 0 && ibv_dereg_mr(mrs[i]) == 0);
	finish();
}

static void stays_private(void)
{
	begin("off");
	struct ibv_mr *mr = registered(map_pages(PAGE), PAGE);
	CHECK(kind(mr->addr, NULL) == 0 && ibv_dereg_mr(mr) == 0);
	finish();
}

/* The kernel may write for a program that has mapped the queues of io_uring and closed their descriptor. */
static void ring(void)
{
	begin("auto");
	struct io_uring_params params = {0};
	const int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
	if (fd < 0) {
		printf("skipped: the kernel gives this user no io_uring\n");
		return;
	}
	void *queues = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	unsigned char *at = map_pages(PAGE);
	CHECK(queues != MAP_FAILED && close(fd) == 0);
	struct ibv_mr *mr = registered(at, PAGE);
	CHECK(kind(at, NULL) == 0 && ibv_dereg_mr(mr) == 0 && munmap(queues, PAGE) == 0);
	mr = registered(at, PAGE);
	CHECK(kind(at, NULL) == 's' && ibv_dereg_mr(mr) == 0);
	finish();
}

/* An io_uring that the program has made since it registered memory may write there: the region's end leaves its pages shared until the io_uring has ended. */
static void pinned(void)
{
	begin("auto");
	unsigned char *at = map_pages(2 * PAGE);
	struct io_uring_params params = {0};
	struct ibv_mr *mr = registered(at, 2 * PAGE);
	const int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
	if (fd < 0) {
		printf("skipped: the kernel gives this user no io_uring\n");
		return;
	}
	CHECK(kind(at, NULL) == 's' && ibv_dereg_mr(mr) == 0 && kind(at, NULL) == 's' && close(fd) == 0);
	at[0] = 5;
	CHECK(ibv_dereg_mr(registered(map_pages(PAGE), PAGE)) == 0 && kind(at, NULL) == 0 && at[0] == 5);
	finish();
}

/* The program registers memory twice, and cannot let it grow: the pages behind it in the arena are others'. */
static void again(void)
{
	begin("auto");
	unsigned char *at = map_pages(8 * PAGE);
	struct ibv_mr *mr = registered(at, 4 * PAGE), *same = registered(at, 4 * PAGE);
	CHECK(munmap(at + 4 * PAGE, 4 * PAGE) == 0 && mremap(at, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
	CHECK(ibv_dereg_mr(mr) == 0 && kind(at, NULL) == 's' && kind(at + 3 * PAGE, NULL) == 's');
	CHECK(ibv_dereg_mr(same) == 0 && kind(at, NULL) == 0 && mremap(at, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
	finish();
}

/* The program unmaps, moves, protects and replaces registered pages before it ends the region. */
static void changed(void)
{
	begin("auto");
	unsigned char *at = map_pages(8 * PAGE), *end = at + 4 * PAGE;
	struct ibv_mr *mr = registered(at, 4 * PAGE);
	fill(at, 4 * PAGE, 1);
	CHECK(munmap(at, PAGE) == 0 && mprotect(at + PAGE, PAGE, PROT_READ) == 0 && mprotect(at + 2 * PAGE, PAGE, PROT_NONE) == 0);
	CHECK(mremap(at + 3 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, end + 2 * PAGE) == end + 2 * PAGE);
	CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	memset(at, 7, PAGE);
	CHECK(kind(end + 2 * PAGE, NULL) == 's' && ibv_dereg_mr(mr) == 0);
	CHECK(kind(at + PAGE, NULL) == 0 && kind(at + 2 * PAGE, NULL) == 0 && kind(end + 2 * PAGE, NULL) == 0 && at[0] == 7 && at[PAGE - 1] == 7);
	CHECK(at[PAGE] == (unsigned char)2 && end[2 * PAGE] == (unsigned char)4 && end[2 * PAGE + 1] == 35);
	const pid_t child = fork(); /* the pages have the access that the program has given them */
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		at[PAGE] = 0;
		_exit(0);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	CHECK(mprotect(at + 2 * PAGE, PAGE, PROT_READ) == 0 && at[2 * PAGE] == (unsigned char)3);

	/* Other pages at the addresses of a region that the program has forgotten. */
	at = map_pages(4 * PAGE);
	struct ibv_mr *old = registered(at, 4 * PAGE);
	CHECK(munmap(at, 4 * PAGE) == 0 && mmap(at, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	fill(at, 4 * PAGE, 9);
	struct ibv_mr *new = registered(at, 4 * PAGE);
	CHECK(kind(at, NULL) == 's' && ibv_dereg_mr(old) == 0 && kind(at, NULL) == 's');
	expect_filled(at, 4 * PAGE, 9);
	CHECK(ibv_dereg_mr(new) == 0 && kind(at, NULL) == 0);
	expect_filled(at, 4 * PAGE, 9);
	finish();
}

/* A child has the bytes of the fork, and neither process sees what the other writes then. */
static void forks(void)
{
	begin("auto");
	const size_t length = 300 * PAGE;
	unsigned char *at = map_pages(length);
	struct ibv_mr *mr = registered(at, length);
	for (unsigned i = 0; i < 50; i++) {
		fill(at, length, i);
		const pid_t child = fork();
		if (child == 0) {
			CHECK(kind(at, NULL) == 0);
			expect_filled(at, length, i);
			memset(at, 0xee, length);
			_exit(0);
		}
		fill(at, length, i + 100); /* at once */
		int status;
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
		expect_filled(at, length, i + 100);
		CHECK(kind(at, NULL) == 's');
	}
	CHECK(ibv_dereg_mr(mr) == 0);
	finish();
}

/* A child that has no descriptor to read its mappings still gets its own pages, and the parent may have unmapped some. */
static void blind_child(void)
{
	begin("auto");
	unsigned char *at = map_pages(9 * PAGE);
	struct ibv_mr *mr = registered(at, 9 * PAGE);
	struct rlimit limit;
	fill(at, 9 * PAGE, 1);
	CHECK(munmap(at + 2 * PAGE, PAGE) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, limit.rlim_max}) == 0);
	const pid_t child = fork();
	CHECK(child >= 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (child == 0) {
		for (int i = 0; i < 9; i++)
			CHECK(kind(at + i * PAGE, NULL) == 0 && (i == 2 || at[i * PAGE] == (unsigned char)(i + 1)));
		memset(at, 0xee, 2 * PAGE);
		memset(at + 3 * PAGE, 0xee, 6 * PAGE);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	expect_filled(at, 2 * PAGE, 1);
	expect_filled(at + 3 * PAGE, 6 * PAGE, 4);
	CHECK(ibv_dereg_mr(mr) == 0);
	finish();
}

static void fork_once(int number)
{
	(void)number;
	const pid_t child = fork();
	if (child == 0)
		_exit(0);
	CHECK(child > 0);
}

/* A signal that comes while the parent waits for its child finds a handler that forks. */
static void signals(void)
{
	begin("auto");
	const size_t length = 600 * PAGE;
	unsigned char *at = map_pages(length);
	struct ibv_mr *mr = registered(at, length);
	fill(at, length, 1);
	CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR && signal(SIGALRM, fork_once) != SIG_ERR);
	const struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < 50; i++)
		fork_once(0);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && ibv_dereg_mr(mr) == 0);
	expect_filled(at, length, 1);
	finish();
}

static void *sleep_until(void *pipe_end)
{
	char c;
	CHECK(read(*(int *)pipe_end, &c, 1) == 0);
	return NULL;
}

/* A program that has begun threads in between still reads zeros where it drops pages, and gives the arena back when it has one thread again. */
static void parks(void)
{
	begin("auto");
	const size_t length = 20 * PAGE;
	unsigned char *at = map_pages(length), *other = map_pages(PAGE);
	struct ibv_mr *mr = registered(at, length);
	const int alone = threads_now();
	for (int i = 0; i < 3; i++) {
		int ends[2];
		pthread_t thread;
		fill(at, length, 5);
		CHECK(kind(at, NULL) == 's' && pipe(ends) == 0 && pthread_create(&thread, NULL, sleep_until, &ends[0]) == 0);
		struct ibv_mr *second = registered(other, PAGE);
		CHECK(kind(other, NULL) == 0 && ibv_dereg_mr(second) == 0);
		CHECK(ibv_dereg_mr(mr) == 0 && kind(at, NULL) == 'p');
		expect_filled(at, length, 5);
		CHECK(madvise(at + PAGE, PAGE, MADV_DONTNEED) == 0 && at[PAGE] == 0 && at[2 * PAGE - 1] == 0);
		if (i == 1) /* the process cannot leave the arena yet */
			CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0 && kind(at, NULL) == 'p' && at[0] == 5);
		close(ends[1]);
		CHECK(pthread_join(thread, NULL) == 0);
		close(ends[0]);
		await_alone(alone);
		if (i == 1)
			begin("auto");
		second = registered(other, PAGE);
		CHECK(kind(other, NULL) == 's' && kind(at, NULL) == 0 && ibv_dereg_mr(second) == 0);
		CHECK(at[0] == 5 && at[PAGE] == 0 && at[2 * PAGE] == 7);
		mr = registered(at, length);
	}

	/* Also when it registers the same pages again. */
	int ends[2];
	pthread_t thread;
	CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, sleep_until, &ends[0]) == 0 && ibv_dereg_mr(mr) == 0 && kind(at, NULL) == 'p');
	close(ends[1]);
	CHECK(pthread_join(thread, NULL) == 0);
	close(ends[0]);
	await_alone(alone);
	mr = registered(at, length);
	CHECK(kind(at, NULL) == 's');
	CHECK(ibv_close_device(context) == 0 && kind(at, NULL) == 0 && at[0] == 5 && ibv_dereg_mr(mr) == 0); /* too late */
}

struct writer {
	_Atomic uint64_t *first, *stop;
	uint64_t written[16];
};

static void *write_on(void *arg)
{
	struct writer *w = arg;
	for (uint64_t i = 0; atomic_load(w->stop) == 0; i++) {
		_Atomic uint64_t *at = w->first + i % 16 * (PAGE / 8);
		CHECK(atomic_load_explicit(at, memory_order_relaxed) == w->written[i % 16]);
		atomic_store_explicit(at, ++w->written[i % 16], memory_order_relaxed);
	}
	return NULL;
}

/* No byte that other threads write is lost while regions begin and end. */
static void threads(void)
{
	const int rounds = getenv("SOFTND_STRESS") != NULL ? 10000 : 100;
	begin("always");
	unsigned char *at = map_pages(16 * PAGE);
	_Atomic uint64_t stop = 0;
	struct writer writers[2] = {{.first = (_Atomic uint64_t *)(void *)at, .stop = &stop}, {.first = (_Atomic uint64_t *)(void *)at + 1, .stop = &stop}};
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, write_on, &writers[i]) == 0);
	int adopted = 0;
	for (int i = 0; i < rounds; i++) {
		struct ibv_mr *mr = registered(at, 16 * PAGE);
		adopted += kind(at, NULL) == 's';
		CHECK(ibv_dereg_mr(mr) == 0 && kind(at, NULL) == 0);
	}
	atomic_store(&stop, 1);
	for (int i = 0; i < 2; i++) {
		CHECK(pthread_join(threads[i], NULL) == 0);
		for (int j = 0; j < 16; j++)
			CHECK(atomic_load(writers[i].first + j * (PAGE / 8)) == writers[i].written[j]);
	}
	CHECK(adopted == rounds || (adopted == 0 && printf("skipped: userfaultfd is not permitted\n") > 0));
	finish();
}

/* Memory that does not fit into the arena stays private, and adopted memory is given back. */
static void fills(void)
{
	CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){SMALL_ARENA, SMALL_ARENA}) == 0);
	begin("auto");
	struct ibv_mr *mrs[12];
	for (int round = 0; round < 10; round++) {
		int adopted = 0;
		for (int i = 0; i < 12; i++) {
			mrs[i] = registered(map_pages(10 << 20), 10 << 20);
			adopted += kind(mrs[i]->addr, NULL) == 's';
		}
		CHECK(adopted >= 3 && adopted <= 7);
		struct ibv_cq *cq = ibv_create_cq(context, 1000, NULL, NULL, 0);
		CHECK(cq != NULL && ibv_destroy_cq(cq) == 0);
		for (int i = 0; i < 12; i++) {
			void *at = mrs[i]->addr;
			CHECK(ibv_dereg_mr(mrs[i]) == 0 && munmap(at, 10 << 20) == 0);
		}
	}
	finish();
}

/* reached is what a peer needs of a process. */
struct reached {
	uint32_t number, rkey;
	uint64_t address;
};

#define IOVA ((uint64_t)1 << 40)
/* The region of each process begins so many bytes before its whole pages, and ends as many behind them. */
static size_t head;

/* meet makes a queue pair that is connected to that of the other process, and returns what the peer has told. */
static struct reached meet(struct side *s, const struct ibv_mr *mr, int in, int out)
{
	struct reached mine = {s->qp->qp_num, mr->rkey, IOVA - head}, theirs;
	CHECK(write(out, &mine, sizeof mine) == sizeof mine && read(in, &theirs, sizeof theirs) == sizeof theirs);
	CHECK(move(s->qp, IBV_QPS_INIT, 0) == 0 && move(s->qp, IBV_QPS_RTR, theirs.number) == 0 && move(s->qp, IBV_QPS_RTS, 0) == 0);
	return theirs;
}

static void request(struct side *s, const struct ibv_mr *mr, size_t offset, uint32_t length, const struct reached *to, enum ibv_wr_opcode opcode, enum ibv_wc_status status)
{
	const uint32_t part = length / 2; /* entries are copied one after the other */
	struct ibv_sge sges[2] = {{(uintptr_t)mr->addr + offset, length, mr->lkey}, {(uintptr_t)mr->addr + offset + part, length - part, mr->lkey}};
	if (length > PAGE)
		sges[0].length = part;
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = sges, .num_sge = length > PAGE ? 2 : 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.wr.rdma.remote_addr = to->address + offset;
	wr.wr.rdma.rkey = to->rkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic = (__typeof__(wr.wr.atomic)){.remote_addr = to->address + offset, .compare_add = 5, .rkey = to->rkey};
	CHECK(ibv_post_send(s->qp, &wr, &bad) == 0);
	expect(s, 1, status);
}

static void open_end(struct side *s)
{
	begin("auto");
	CHECK(ibv_dealloc_pd(pd) == 0);
	open_side(s, context, 0);
	pd = s->pd;
	make_qp(s, 0, 0);
}

static void close_end(struct side *s)
{
	close_side(s);
	CHECK(ibv_close_device(context) == 0);
}

/* region registers memory with 4 whole pages, which requests name by its address, or by IOVA. */
static struct ibv_mr *region(int by_iova)
{
	unsigned char *at = map_pages(6 * PAGE) + PAGE - head;
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, at, 4 * PAGE + 2 * head, by_iova ? IOVA - head : (uintptr_t)at, RIGHTS);
	CHECK(mr != NULL && kind(at + head, NULL) == 's' && kind(at + 4 * PAGE + head - 1, NULL) == 's');
	CHECK(head == 0 || (kind(at, NULL) == 0 && kind(at + 4 * PAGE + head, NULL) == 0));
	return mr;
}

static void own(int in, int out)
{
	static struct side s;
	char go;
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	open_end(&s);
	struct ibv_mr *mr = region(1);
	unsigned char *at = mr->addr, *pages = at + head;
	(void)meet(&s, mr, in, out);
	struct ibv_sge sge = {IOVA, (uint32_t)(mr->length - head), mr->lkey}; /* it ends with bytes that only this process reaches */
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	CHECK(ibv_post_recv(s.qp, &wr, &bad) == 0);
	expect(&s, 0, IBV_WC_SUCCESS);
	expect_filled(pages, mr->length - head, 9);
	CHECK(write(out, "", 1) == 1 && read(in, &go, 1) == 1 && raise(SIGSTOP) == 0);
	expect_filled(pages, 3 * PAGE, 3);
	CHECK(*(uint64_t *)(void *)(pages + 3 * PAGE) == 5);
	const size_t length = mr->length;
	CHECK(ibv_dereg_mr(mr) == 0);
	fill(at, length, 4);
	CHECK(write(out, &go, 1) == 1 && read(in, &go, 1) == 1);
	expect_filled(at, length, 4);
	close_end(&s);
}

/* A peer accesses the whole pages of adopted memory while its owner is stopped, until the region ends. */
static void direct(void)
{
	static struct side s;
	int in[2], out[2], status;
	CHECK(pipe(in) == 0 && pipe(out) == 0);
	const pid_t owner = fork();
	CHECK(owner >= 0);
	if (owner == 0) {
		close(out[1]);
		own(out[0], in[1]);
		exit(0);
	}
	close(in[1]);
	open_end(&s);
	struct ibv_mr *mr = region(0);
	unsigned char *at = mr->addr;
	const uint32_t length = (uint32_t)mr->length;
	struct reached to = meet(&s, mr, in[0], out[1]);
	for (uint32_t from = 0; from < PAGE; from += 777) { /* the ends, too */
		fill(at, length, from);
		request(&s, mr, from, length - from, &to, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS);
		memset(at + from, 0, length - from);
		request(&s, mr, from, length - from, &to, IBV_WR_RDMA_READ, IBV_WC_SUCCESS);
		expect_filled(at, length, from);
	}
	fill(at, length - head, 9);
	request(&s, mr, 0, length - (uint32_t)head, &to, IBV_WR_SEND, IBV_WC_SUCCESS);
	char go;
	CHECK(read(in[0], &go, 1) == 1 && write(out[1], "", 1) == 1 && waitpid(owner, &status, WUNTRACED) == owner && WIFSTOPPED(status));
	fill(at + head, 3 * PAGE, 3);
	memset(at + head + 3 * PAGE, 0, 8);
	request(&s, mr, head, 4 * PAGE, &to, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS);
	memset(at, 0, length);
	request(&s, mr, head, 3 * PAGE, &to, IBV_WR_RDMA_READ, IBV_WC_SUCCESS);
	expect_filled(at + head, 3 * PAGE, 3);
	request(&s, mr, head + 3 * PAGE, 8, &to, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_SUCCESS);
	CHECK(kill(owner, SIGCONT) == 0 && read(in[0], &go, 1) == 1);
	request(&s, mr, 0, 3 * PAGE, &to, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
	CHECK(write(out[1], "", 1) == 1 && waitpid(owner, &status, 0) == owner && status == 0 && ibv_dereg_mr(mr) == 0);
	close_end(&s);
}

static void ends(void)
{
	head = 104;
	direct();
}

/* The extents of a killed process belong to the arena again. */
static void killed(void)
{
	CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){SMALL_ARENA, SMALL_ARENA}) == 0);
	begin("auto");
	CHECK(ibv_dereg_mr(registered(map_pages(PAGE), PAGE)) == 0); /* this process keeps the arena */
	for (int i = 0; i < 20; i++) {
		const pid_t child = fork();
		if (child == 0) {
			begin("auto");
			unsigned char *at = map_pages(24 << 20);
			(void)registered(at, 24 << 20);
			CHECK(kind(at, NULL) == 's');
			raise(SIGKILL);
		}
		int status;
		CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	finish();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {{"moves", moves}, {"stays_private", stays_private}, {"ring", ring}, {"pinned", pinned}, {"again", again}, {"changed", changed}, {"forks", forks}, {"blind_child", blind_child}, {"signals", signals}, {"parks", parks}, {"threads", threads}, {"fills", fills}, {"direct", direct}, {"ends", ends}, {"killed", killed}};
	name_fabric("memory");
	for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		if (argc > 1 && strcmp(argv[1], parts[i].name) != 0)
			continue;
		const pid_t child = fork();
		int status;
		if (child == 0) {
			parts[i].run();
			exit(0);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		if (status != 0)
			fprintf(stderr, "%s: status %#x\n", parts[i].name, (unsigned)status);
		CHECK(status == 0);
	}
	return 0;
}

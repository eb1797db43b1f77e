/* Pages become the arena's and the program's own again, in a process without peers. */
#include <fcntl.h>
#include <stdbool.h>
#include <sys/syscall.h>

#include "memory.h"

static int pairs_made;
static bool proc_has_no_status;

int socketpair(int domain, int type, int protocol, int ends[2])
{
	pairs_made++;
	return (int)syscall(SYS_socketpair, domain, type, protocol, ends);
}

/* find_descriptor returns a descriptor of the library for a file, -1 if it has none. */
static int find_descriptor(const char *file, int flags)
{
	char link[32], target[64];
	for (int fd = 3; fd < 64; fd++) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		const ssize_t n = readlink(link, target, sizeof target - 1);
		target[n > 0 ? n : 0] = 0;
		if (strcmp(target, file) == 0 && (fcntl(fd, F_GETFL) & O_PATH) == flags)
			return fd;
	}
	return -1;
}

/* kept_proc returns the descriptor by which the library finds /proc. */
static int kept_proc(void) { return find_descriptor("/proc", O_PATH); }

int fstat(int fd, struct stat *status)
{
	if (!proc_has_no_status || fd != kept_proc())
		return fstatat(fd, "", status, AT_EMPTY_PATH);
	errno = ENOMEM;
	return -1;
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
			unsigned long first = 0, middle = 0, last = 0;
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

/* A process without a free descriptor registers memory that stays private, if it can access it. */
static void poor(void)
{
	begin("auto");
	unsigned char *at = map_pages(3 * PAGE);
	CHECK(ibv_dereg_mr(registered(at, PAGE)) == 0 && mprotect(at + PAGE, PAGE, PROT_READ) == 0 && mprotect(at + 2 * PAGE, PAGE, PROT_NONE) == 0); /* the process joins */
	fill(at, PAGE, 1);
	const int first = use_up();
	struct ibv_mr *mr = registered(at, PAGE), *read_only = ibv_reg_mr(pd, at + PAGE, PAGE, IBV_ACCESS_REMOTE_READ);
	CHECK(read_only != NULL && ibv_reg_mr(pd, at + PAGE, PAGE, RIGHTS) == NULL && ibv_reg_mr(pd, at + 2 * PAGE, PAGE, IBV_ACCESS_REMOTE_READ) == NULL);
	free_up(first);
	CHECK(kind(at, NULL) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(read_only) == 0);
	expect_filled(at, PAGE, 1);
	finish();
}

/* A program that has closed the descriptors of the library, and has others of these numbers, keeps them. */
static void closed(void)
{
	begin("auto");
	unsigned char *at = map_pages(PAGE);
	for (int i = 0; i < 2; i++) {
		struct ibv_mr *mr = registered(at, PAGE);
		const int own = kept_proc(), mine = open(i == 0 ? "/proc" : "/etc", O_RDONLY | O_DIRECTORY);
		CHECK(kind(at, NULL) == 's' && own >= 0 && mine >= 0 && dup2(mine, own) == own && close(mine) == 0);
		CHECK(ibv_dereg_mr(mr) == 0 && kind(at, NULL) == 0 && fcntl(own, F_GETFD) == 0);
		mr = registered(at, PAGE);
		CHECK(kind(at, NULL) == 's' && kept_proc() != own && ibv_dereg_mr(mr) == 0 && close(own) == 0 && kept_proc() < 0);
	}
	finish();
}

/* The library takes its descriptors with the first adopted pages, and keeps them until the last. A file in /proc that it cannot identify is closed. */
static void descriptors_once(void)
{
	begin("auto");
	unsigned char *at = map_pages(PAGE), *other = map_pages(PAGE);
	CHECK(ibv_dereg_mr(registered(at, PAGE)) == 0);
	pairs_made = 0;
	struct ibv_mr *first = registered(at, PAGE);
	CHECK(pairs_made == 1);
	for (int i = 0; i < 3; i++)
		CHECK(ibv_dereg_mr(registered(other, PAGE)) == 0);
	CHECK(pairs_made == 1 && ibv_dereg_mr(first) == 0 && kept_proc() < 0);

	proc_has_no_status = true;
	struct ibv_mr *private = registered(at, PAGE);
	CHECK(kind(at, NULL) == 0 && kept_proc() < 0 && ibv_dereg_mr(private) == 0);
	proc_has_no_status = false;
	finish();
}

/* A program has a file of its own with the number of the arena's descriptor when the kernel refuses private pages: the registered ones stay those of the arena. */
static void lost_arena(void)
{
	begin("auto");
	unsigned char *at = map_pages(PAGE);
	struct ibv_mr *mr = registered(at, PAGE);
	struct rlimit limit;
	fill(at, PAGE, 1);
	const int own = find_descriptor("/memfd:softnd-arena (deleted)", 0), mine = memfd_create("mine", MFD_CLOEXEC);
	CHECK(kind(at, NULL) == 's' && own >= 0 && ftruncate(mine, 64 * INT64_C(1) << 30) == 0 && dup2(mine, own) == own && getrlimit(RLIMIT_DATA, &limit) == 0);
	void *volatile free_heap = malloc(100000); /* for the library's stream of a directory */
	free(free_heap);
	CHECK(setrlimit(RLIMIT_DATA, &(struct rlimit){PAGE, limit.rlim_max}) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && setrlimit(RLIMIT_DATA, &limit) == 0);
	CHECK(kind(at, NULL) == 's');
	expect_filled(at, PAGE, 1);
	finish();
	expect_filled(at, PAGE, 1);
	CHECK(close(own) == 0 && close(mine) == 0);
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
	park(mr, at);
	mr = registered(at, length);
	CHECK(kind(at, NULL) == 's');
	CHECK(ibv_close_device(context) == 0 && kind(at, NULL) == 0 && at[0] == 5 && ibv_dereg_mr(mr) == 0); /* too late */
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

int main(int argc, char **argv) { return RUN_PARTS(argc, argv, {"moves", moves}, {"stays_private", stays_private}, {"poor", poor}, {"closed", closed}, {"descriptors_once", descriptors_once}, {"lost_arena", lost_arena}, {"again", again}, {"changed", changed}, {"parks", parks}, {"fills", fills}); }

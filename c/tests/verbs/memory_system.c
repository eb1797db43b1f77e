/* What not every system allows: each part is a test of its own. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "memory.h"

/* This is called instead of the C library's function. Hooks as those of UCX know no address to move pages to. */
void *mremap(void *at, size_t before, size_t after, int flags, ...)
{
	CHECK((flags & MREMAP_FIXED) == 0);
	return (void *)syscall(SYS_mremap, at, before, after, flags);
}

static int open_ring(void)
{
	struct io_uring_params params = {0};
	const int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
	if (fd < 0)
		skip("the kernel gives this user no io_uring");
	return fd;
}

/* The kernel may write for a program that has mapped the queues of io_uring and closed their descriptor. */
static void ring(void)
{
	begin("auto");
	const int fd = open_ring();
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
	struct ibv_mr *mr = registered(at, 2 * PAGE);
	const int fd = open_ring();
	CHECK(kind(at, NULL) == 's' && ibv_dereg_mr(mr) == 0 && kind(at, NULL) == 's' && close(fd) == 0);
	at[0] = 5;
	CHECK(ibv_dereg_mr(registered(map_pages(PAGE), PAGE)) == 0 && kind(at, NULL) == 0 && at[0] == 5);
	finish();
}

/* The kernel writes packets to memory that the program has given to a socket of AF_XDP. */
static void packets(void)
{
	begin("auto");
	unsigned char *at = map_pages(PAGE);
	const int fd = socket(AF_XDP, SOCK_RAW, 0);
	if (fd < 0)
		skip("the kernel gives this user no sockets of AF_XDP");
	struct ibv_mr *mr = registered(at, PAGE);
	CHECK(kind(at, NULL) == 0 && ibv_dereg_mr(mr) == 0 && close(fd) == 0);
	mr = registered(at, PAGE);
	CHECK(kind(at, NULL) == 's' && ibv_dereg_mr(mr) == 0);
	finish();
}

/* A program that has changed its root directory, and sees no /proc there, still gets its pages back, and so do its children. */
static void jail(void)
{
	begin("auto");
	unsigned char *at = map_pages(4 * PAGE);
	const int root = open("/", O_PATH);
	struct ibv_mr *mr = registered(at, 2 * PAGE), *other = registered(at + 2 * PAGE, 2 * PAGE);
	fill(at, 4 * PAGE, 1);
	const int changed = chroot("/etc");
	if (changed != 0 && errno == EPERM)
		skip("only root may change the root directory, and needs CAP_SYS_CHROOT for it");
	CHECK(root >= 0 && changed == 0 && chdir("/") == 0 && access("/proc", F_OK) != 0);
	const pid_t child = fork();
	if (child == 0) {
		CHECK(fchdir(root) == 0 && chroot(".") == 0 && kind(at, NULL) == 0 && kind(at + 2 * PAGE, NULL) == 0);
		expect_filled(at, 4 * PAGE, 1);
		memset(at, 0xee, 4 * PAGE);
		_exit(0);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	expect_filled(at, 4 * PAGE, 1);
	unsigned char *hidden = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(hidden != MAP_FAILED && ibv_reg_mr(pd, hidden, PAGE, RIGHTS) == NULL && errno == EFAULT && munmap(hidden, PAGE) == 0); /* it still reads the mappings */
	CHECK(ibv_dereg_mr(mr) == 0 && fchdir(root) == 0 && chroot(".") == 0 && close(root) == 0);
	CHECK(kind(at, NULL) == 0 && kind(at + 2 * PAGE, NULL) == 's' && ibv_dereg_mr(other) == 0);
	expect_filled(at, 4 * PAGE, 1);
	finish();
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

/* need_faults skips the part if the kernel cannot make threads wait that write to memory. */
static void need_faults(void)
{
	const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
		skip("the kernel gives this user no userfaultfd with write protection of shared memory");
	close(fd);
}

/* No byte that other threads write is lost while regions begin and end. */
static void threads(void)
{
	const int rounds = getenv("SOFTND_STRESS") != NULL ? 10000 : 100;
	need_faults();
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
	CHECK(adopted == rounds);
	finish();
}

int main(int argc, char **argv) { return RUN_PARTS(argc, argv, {"ring", ring}, {"pinned", pinned}, {"packets", packets}, {"threads", threads}, {"jail", jail}); }

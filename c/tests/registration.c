/* Which memory can be registered, and how long allocated memory stays in place. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "two_members.h"

enum { SIZE = 1 << 20, OTHERS = 64, OLD = 0x11, THIRD = 0x33, WRITTEN = 0x99, ROUNDS = 1500 };
static const uint32_t all_rights = SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE;

static int pipes[2][2]; /* to the third process, and back */

static void say(int way, int n) { CHECK(write(pipes[way][1], &n, sizeof n) == sizeof n); }
static int hear(int way)
{
	int n;
	CHECK(read(pipes[way][0], &n, sizeof n) == sizeof n);
	return n;
}

/* third is a process that allocates memory of the arena, and checks that no other process writes it. */
static void third(void)
{
	char path[64];
	close(pipes[0][1]); /* so that this process ends with its parent */
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getppid(), hear(0));
	const int fd = open(path, O_RDWR | O_CLOEXEC);
	snd_fabric *f;
	snd_adapter *adapter;
	OK(snd_fabric_attach(fd, -1, MANUAL, &f));
	OK(snd_adapter_open(f, &adapter));
	for (;;) {
		snd_mr *mr[OTHERS];
		if (hear(0) == 0)
			break;
		for (int i = 0; i < OTHERS; i++) {
			OK(snd_mr_allocate(adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &mr[i]));
			memset(snd_mr_buffer(mr[i]), THIRD, SIZE);
		}
		say(1, 0);
		hear(0);
		int changed = 0;
		for (int i = 0; i < OTHERS; i++) {
			const unsigned char *at = snd_mr_buffer(mr[i]);
			for (int k = 0; k < SIZE; k++)
				changed += at[k] != THIRD;
			OK(snd_mr_close(mr[i], SECOND));
		}
		say(1, changed);
	}
	OK(snd_fabric_close(f));
	close(fd);
	exit(0);
}

/* keeps_memory closes the allocated region while another registration, or a window that is bound to one, covers its memory. */
static void keeps_memory(bool with_window)
{
	snd_mr *source, *first, *second;
	snd_window *w = NULL;
	snd_window_descriptor d;
	OK(snd_mr_allocate(a.adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &source));
	OK(snd_mr_allocate(b.adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &first));
	unsigned char *memory = snd_mr_buffer(first);
	memset(memory, OLD, SIZE);
	memset(snd_mr_buffer(source), WRITTEN, SIZE);
	OK(snd_mr_register(b.adapter, memory + 64, SIZE - 64, all_rights, &second));
	OK(snd_mr_query(second, &d));
	if (with_window) {
		OK(snd_window_create(b.adapter, &w));
		OK(snd_endpoint_bind(b.ep, 1, second, w, memory + 64, SIZE - 64, SND_ALLOW_WRITE));
		CHECK(next_result(b.cq).status == SND_SUCCESS);
		OK(snd_window_query(w, &d));
	}
	OK(snd_mr_close(first, SECOND));
	say(0, 1);
	hear(1);
	const snd_sge e = {snd_mr_buffer(source), 64, snd_mr_local_token(source)};
	OK(snd_endpoint_write(a.ep, 1, &e, 1, d.address, d.token, 0));
	CHECK(next_result(a.cq).status == SND_SUCCESS);
	say(0, 1);
	CHECK(hear(1) == 0);
	CHECK(memory[63] == OLD && memory[64] == WRITTEN && memory[127] == WRITTEN && memory[128] == OLD);
	if (with_window)
		OK(snd_window_close(w, SECOND));
	OK(snd_mr_close(second, SECOND));
	CHECK(snd_mr_register(b.adapter, memory, SIZE, SND_ALLOW_REMOTE_READ, &second) == SND_ACCESS_VIOLATION);
	OK(snd_mr_close(source, SECOND));
}

static bool is_mapped(void *at)
{
	unsigned char resident;
	return mincore((void *)((uintptr_t)at / 4096 * 4096), 4096, &resident) == 0;
}

/* write_through writes to d while b, which has no engine, makes progress. */
static void write_through(const snd_sge *from, const snd_window_descriptor *d)
{
	snd_result r;
	OK(snd_endpoint_write(a.ep, 1, from, 1, d->address, d->token, 0));
	while (snd_cq_poll(a.cq, &r, 1) == 0)
		OK(snd_fabric_progress(b.fabric));
	CHECK(r.status == SND_SUCCESS);
}

/* outlives_fabric closes the fabric that has allocated memory while b has registered it. A third process then gets the pages in
 * the arena, which a peer of b must not write. Of two registrations the last unmaps the memory. */
static void outlives_fabric(bool region_first)
{
	snd_fabric *f;
	snd_adapter *adapter;
	snd_mr *source, *other, *first, *again, *part;
	snd_window_descriptor d;
	OK(snd_mr_allocate(a.adapter, 64, SND_ALLOW_LOCAL_WRITE, &source));
	memset(snd_mr_buffer(source), WRITTEN, 64);
	OK(snd_fabric_attach(snd_fabric_descriptor(a.fabric), -1, MANUAL, &f));
	OK(snd_adapter_open(f, &adapter));
	OK(snd_mr_allocate(adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &other));
	OK(snd_mr_allocate(adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &first));
	unsigned char *memory = snd_mr_buffer(first), *unregistered = snd_mr_buffer(other);
	memset(memory, OLD, SIZE);
	OK(snd_mr_register(b.adapter, memory, SIZE, all_rights, &again));
	OK(snd_mr_query(again, &d));
	if (region_first)
		OK(snd_mr_close(first, SECOND));
	OK(snd_fabric_close(f));
	say(0, 1);
	hear(1);
	CHECK(memory[0] == OLD && memory[SIZE - 1] == OLD && !is_mapped(unregistered));
	write_through(&(snd_sge){snd_mr_buffer(source), 64, snd_mr_local_token(source)}, &d);
	CHECK(memory[0] == WRITTEN && memory[64] == OLD);
	say(0, 1);
	CHECK(hear(1) == 0);
	OK(snd_mr_register(b.adapter, memory + SIZE / 2, 64, all_rights, &part));
	OK(snd_mr_close(again, SECOND));
	memory[SIZE / 2] = WRITTEN;
	OK(snd_mr_close(part, SECOND));
	CHECK(!is_mapped(memory));
	OK(snd_mr_close(source, SECOND));
}

/* ends_with_registering_fabric closes, while memory of one fabric is registered with another, both of them. */
static void ends_with_registering_fabric(bool allocating_first)
{
	snd_fabric *f[2];
	snd_adapter *adapter[2];
	snd_mr *mr[2];
	for (int i = 0; i < 2; i++) {
		OK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, &f[i]));
		OK(snd_adapter_open(f[i], &adapter[i]));
	}
	OK(snd_mr_allocate(adapter[0], 100, SND_ALLOW_LOCAL_WRITE, &mr[0]));
	unsigned char *memory = snd_mr_buffer(mr[0]);
	OK(snd_mr_register(adapter[1], memory, 100, all_rights, &mr[1]));
	CHECK(snd_mr_register(adapter[1], memory, 1 << 16, all_rights, &mr[1]) == SND_ACCESS_VIOLATION);
	CHECK(snd_mr_register(adapter[1], memory + (1 << 20), 64, all_rights, &mr[1]) == SND_ACCESS_VIOLATION); /* of no region */
	OK(snd_fabric_close(f[!allocating_first]));
	memory[99] = 1;
	OK(snd_fabric_close(f[allocating_first]));
	CHECK(!is_mapped(memory));
}

/* frees_memory frees memory that the registration of another fabric has held last: more of it than the arena has is allocated. */
static void frees_memory(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		snd_mr *first, *second;
		OK(snd_mr_allocate(b.adapter, SIZE, SND_ALLOW_LOCAL_WRITE, &first));
		OK(snd_mr_register(a.adapter, snd_mr_buffer(first), SIZE, all_rights, &second));
		OK(snd_mr_close(first, SECOND));
		OK(snd_mr_close(second, SECOND));
	}
}

static unsigned char *map(size_t pages, int protection, int fd)
{
	void *at = mmap(NULL, pages * 4096, protection, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static void accepts(snd_adapter *adapter, void *memory, uint64_t length, uint32_t flags)
{
	snd_mr *mr;
	OK(snd_mr_register(adapter, memory, length, flags, &mr));
	OK(snd_mr_close(mr, SECOND));
}

/* refuses expects an error with a text. */
static void refuses(snd_adapter *adapter, void *memory, uint64_t length, uint32_t flags, const char *text)
{
	snd_mr *mr;
	CHECK(snd_mr_register(adapter, memory, length, flags, &mr) == SND_ACCESS_VIOLATION && mr == NULL);
	CHECK(strstr(snd_last_error(), text) != NULL);
}

static long resident(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	CHECK(f != NULL && fscanf(f, "%*d %ld", &pages) == 1);
	fclose(f);
	return pages;
}

static void rights(void)
{
	snd_fabric *f;
	snd_adapter *adapter;
	OK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, &f));
	OK(snd_adapter_open(f, &adapter));
	unsigned char *read_only = map(3, PROT_READ, -1), *none = map(3, PROT_NONE, -1), *guarded = map(3, PROT_READ | PROT_WRITE, -1);
	CHECK(mprotect(guarded + 4096, 4096, PROT_NONE) == 0);
	const int fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	unsigned char *sealed = map(1, PROT_READ, fd), on_stack[100];
	unsigned char *gap = map(3, PROT_READ | PROT_WRITE, -1); /* last: the next mapping may be put there */
	CHECK(munmap(gap + 4096, 4096) == 0);

	refuses(adapter, read_only, 3 * 4096, SND_ALLOW_REMOTE_WRITE, "bytes 0 to 12287 of 12288");
	refuses(adapter, read_only + 5, 9, SND_ALLOW_LOCAL_WRITE, "are not writable");
	refuses(adapter, read_only, 4096, SND_ALLOW_REMOTE_WRITE & ~SND_ALLOW_LOCAL_WRITE, "are not writable");
	refuses(adapter, read_only, 4096, SND_ALLOW_REMOTE_ATOMIC & ~SND_ALLOW_LOCAL_WRITE, "are not writable");
	accepts(adapter, read_only, 3 * 4096, SND_ALLOW_REMOTE_READ);
	refuses(adapter, none, 3 * 4096, SND_ALLOW_REMOTE_READ, "are not readable");
	refuses(adapter, none + 4095, 1, SND_ALLOW_REMOTE_WRITE, "are not readable");
	refuses(adapter, guarded, 3 * 4096, SND_ALLOW_REMOTE_WRITE, "bytes 4096 to 8191 of 12288");
	refuses(adapter, guarded + 2 * 4096 - 1, 2, 0, "bytes 0 to 0 of 2");
	accepts(adapter, guarded, 4096, all_rights);
	refuses(adapter, gap, 3 * 4096, SND_ALLOW_REMOTE_READ, "are not mapped");
	refuses(adapter, gap, 3 * 4096, SND_ALLOW_REMOTE_READ, "bytes 4096 to 8191 of 12288");
	refuses(adapter, (void *)(UINTPTR_MAX - 4096), 4096, 0, "are not mapped");
	refuses(adapter, sealed, 4096, SND_ALLOW_REMOTE_WRITE, "are not writable");
	accepts(adapter, sealed, 4096, SND_ALLOW_REMOTE_READ);
	accepts(adapter, on_stack, sizeof on_stack, all_rights);

	const size_t huge = UINT64_C(64) << 30;
	void *sparse = mmap(NULL, huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(sparse != MAP_FAILED);
	const long before = resident();
	accepts(adapter, sparse, huge, all_rights);
	CHECK(resident() - before < 16384);
	CHECK(munmap(sparse, huge) == 0 && munmap(sealed, 4096) == 0 && close(fd) == 0);
	OK(snd_fabric_close(f));
}

/* rights_of_old_kernel runs the same checks without PROCMAP_QUERY, the only ioctl with this number. */
static void rights_of_old_kernel(void)
{
	const uint32_t query = 0xc0686611;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, query, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof code / sizeof code[0], code};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	errno = 0;
	CHECK(ioctl(0, query, 0) != 0 && errno == ENOTTY);
	rights();
	exit(0);
}

static void finish(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Allocated memory is zero and aligned, also after another region has used it. */
static void allocated_memory(void)
{
	for (uint64_t length = 1; length < UINT64_C(1) << 20; length += length / 3 + 1)
		for (int again = 0; again < 3; again++) {
			snd_mr *mr;
			OK(snd_mr_allocate(a.adapter, length, SND_ALLOW_LOCAL_WRITE, &mr));
			unsigned char *memory = snd_mr_buffer(mr), set = 0;
			CHECK((uintptr_t)memory % 64 == 0);
			for (uint64_t i = 0; i < length; i++)
				set |= memory[i];
			CHECK(set == 0);
			memset(memory, WRITTEN, length);
			OK(snd_mr_close(mr, SECOND));
		}
}

int main(void)
{
	CHECK(pipe2(pipes[0], O_CLOEXEC) == 0 && pipe2(pipes[1], O_CLOEXEC) == 0);
	const pid_t old = fork(); /* before the first call of the library: a child must not use it otherwise */
	if (old == 0)
		rights_of_old_kernel();
	const pid_t other = fork();
	if (other == 0)
		third();
	finish(old);
	rights();
	open_members_with((snd_fabric_options){.progress = SND_PROGRESS_MANUAL}); /* b takes no part in a Write with one copy */
	connect_members(NULL);
	say(0, snd_fabric_descriptor(a.fabric));
	keeps_memory(false);
	keeps_memory(true);
	outlives_fabric(false);
	outlives_fabric(true);
	ends_with_registering_fabric(false);
	ends_with_registering_fabric(true);
	frees_memory();
	allocated_memory();
	say(0, 0);
	finish(other);
	close_members();
	return 0;
}

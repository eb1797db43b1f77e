/* The least that ib_write_lat and ib_write_bw of perftest can take, to compare with: preloaded over libibverbs.so.1, its posts store into memory that both
 * processes map, and each completion is there at the next poll. STUB_OWN and STUB_PEER name the files of that memory. */
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AREA_SIZE (UINT64_C(1) << 26)
#define HEADER 4096 /* has the address at which its owner maps the area */

static unsigned char *own, *peer;
static uint64_t used = HEADER, peer_base;

static unsigned char *map(const char *variable, int flags)
{
	const char *path = getenv(variable);
	const int fd = path == NULL ? -1 : open(path, flags, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)AREA_SIZE) != 0)
		abort();
	unsigned char *at = mmap(NULL, AREA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (at == MAP_FAILED)
		abort();
	(void)close(fd);
	return at;
}

__attribute__((constructor)) static void begin(void)
{
	own = map("STUB_OWN", O_RDWR | O_CREAT);
	*(uint64_t *)(void *)own = (uint64_t)(uintptr_t)own;
}

/* perftest takes its buffers from memalign, and frees them at its end. */
void *memalign(size_t alignment, size_t size)
{
	used = (used + alignment - 1) / alignment * alignment;
	if (used + size > AREA_SIZE)
		abort();
	used += size;
	return own + used - size;
}

void free(void *p)
{
	static void (*next)(void *);
	if (next == NULL)
		next = (void (*)(void *))dlsym(RTLD_NEXT, "free");
	if (own == NULL || (unsigned char *)p < own || (unsigned char *)p >= own + AREA_SIZE)
		next(p);
}

static struct {
	uint64_t id;
	uint32_t qp;
	unsigned count; /* signalled, and not polled */
} posted;

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)bad;
	if (peer == NULL) {
		peer = map("STUB_PEER", O_RDWR);
		peer_base = *(uint64_t *)(void *)peer;
	}
	unsigned char *to = peer + (wr->wr.rdma.remote_addr - peer_base), *from = (void *)(uintptr_t)wr->sg_list->addr;
	const size_t last = wr->sg_list->length - 1;
	memcpy(to, from, last);
	atomic_store_explicit((_Atomic unsigned char *)(void *)(to + last), from[last], memory_order_release);
	posted.id = wr->wr_id;
	posted.qp = qp->qp_num;
	posted.count += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
	return 0;
}

static int poll(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	(void)cq;
	int n = 0;
	for (; n < most && posted.count > 0; n++, posted.count--)
		wc[n] = (struct ibv_wc){.wr_id = posted.id, .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RDMA_WRITE, .qp_num = posted.qp};
	return n;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*next)(struct ibv_device *) = (struct ibv_context * (*)(struct ibv_device *)) dlsym(RTLD_NEXT, "ibv_open_device");
	struct ibv_context *context = next(device);
	if (context != NULL) {
		context->ops.poll_cq = poll;
		context->ops.post_send = post;
	}
	return context;
}

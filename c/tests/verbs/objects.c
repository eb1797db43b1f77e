/* Regions, completion queues and shared receive queues without queue pairs, as programs make them. */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../check.h"

/* FAILS checks that a call that returns NULL fails with an errno. */
#define FAILS(call, error) \
	do { \
		errno = 0; \
		CHECK((call) == NULL && errno == (error)); \
	} while (0)

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	CHECK(c != NULL);
	return c;
}

static void regions(struct ibv_context *c)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	static char buffer[100];
	struct ibv_pd *pd = ibv_alloc_pd(c), *other = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(mr != NULL && mr->pd == pd && mr->context == c && mr->addr == buffer && mr->length == sizeof buffer && mr->lkey != mr->rkey && mr->rkey != 0);
	struct ibv_mr *second = ibv_reg_mr(other, buffer + 1, 1, IBV_ACCESS_REMOTE_READ);
	CHECK(second != NULL && second->lkey != mr->lkey && second->rkey != mr->rkey);
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_dealloc_pd(other) == EBUSY);
	CHECK(ibv_dereg_mr(second) == 0 && ibv_dealloc_pd(other) == 0);

	static const unsigned rights[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	for (int i = 0; i < 3; i++)
		FAILS(ibv_reg_mr(pd, buffer, 1, rights[i]), EINVAL); /* no local write */
	FAILS(ibv_reg_mr(pd, buffer, 1, IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
	FAILS(ibv_reg_mr(pd, buffer, SIZE_MAX, 0), EINVAL);
	struct ibv_mr *relaxed = ibv_reg_mr(pd, buffer, 1, IBV_ACCESS_RELAXED_ORDERING); /* an optional flag */
	CHECK(relaxed != NULL && ibv_dereg_mr(relaxed) == 0);

	/* Memory that is not there, or that cannot be written. */
	char *pages = mmap(NULL, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED && munmap(pages + page, page) == 0);
	FAILS(ibv_reg_mr(pd, pages, page + 1, 0), EFAULT);
	FAILS(ibv_reg_mr(pd, pages, page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	struct ibv_mr *read_only = ibv_reg_mr(pd, pages, page, IBV_ACCESS_REMOTE_READ);
	CHECK(read_only != NULL && ibv_dereg_mr(read_only) == 0 && munmap(pages, page) == 0);

	/* A region of no bytes has keys, at any address. */
	struct ibv_mr *empty = ibv_reg_mr(pd, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(empty != NULL && empty->addr == NULL && empty->length == 0 && empty->lkey != mr->lkey && ibv_dereg_mr(empty) == 0);
	struct ibv_mr *same = ibv_reg_mr_iova(pd, buffer, sizeof buffer, (uintptr_t)buffer, 0);
	CHECK(same != NULL && ibv_dereg_mr(same) == 0);
	FAILS(ibv_reg_mr_iova(pd, buffer, sizeof buffer, (uintptr_t)buffer + 1, 0), EINVAL);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
}

static void queues(struct ibv_context *c)
{
	struct ibv_device_attr device;
	struct ibv_wc wc[40];
	int context_value;
	CHECK(ibv_query_device(c, &device) == 0);
	FAILS(ibv_create_cq(c, 0, NULL, NULL, 0), EINVAL);
	FAILS(ibv_create_cq(c, device.max_cqe + 1, NULL, NULL, 0), EINVAL);
	FAILS(ibv_create_cq(c, 1, NULL, NULL, c->num_comp_vectors), EINVAL);
	FAILS(ibv_create_cq(c, 1, NULL, NULL, -1), EINVAL);
	struct ibv_cq *cq = ibv_create_cq(c, device.max_cqe, &context_value, NULL, 0);
	CHECK(device.max_cqe >= 262144); /* which libfabric asks for without reading the limit */
	CHECK(cq != NULL && cq->context == c && cq->cqe >= device.max_cqe && cq->cq_context == &context_value && cq->channel == NULL);
	CHECK(ibv_poll_cq(cq, 40, wc) == 0 && ibv_poll_cq(cq, 0, NULL) == 0);
	CHECK(ibv_req_notify_cq(cq, 0) == 0); /* it has no channel, and no event */
	CHECK(ibv_resize_cq(cq, 1) == 0 && cq->cqe >= 1 && ibv_resize_cq(cq, 0) == EINVAL && ibv_resize_cq(cq, device.max_cqe + 1) == EINVAL);
	struct ibv_modify_cq_attr moderation = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 4, .cq_period = 10}};
	CHECK(ibv_modify_cq(cq, &moderation) == 0);
	moderation.attr_mask = IBV_CQ_ATTR_RESERVED;
	CHECK(ibv_modify_cq(cq, &moderation) == EOPNOTSUPP && ibv_destroy_cq(cq) == 0);

	struct ibv_comp_channel *channel = ibv_create_comp_channel(c);
	struct ibv_cq *with_channel = ibv_create_cq(c, 10, NULL, channel, 0);
	CHECK(channel != NULL && with_channel != NULL && with_channel->channel == channel && ibv_req_notify_cq(with_channel, 1) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY && ibv_destroy_cq(with_channel) == 0 && ibv_destroy_comp_channel(channel) == 0);
}

static void extended_queues(struct ibv_context *c)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 10, .wc_flags = IBV_WC_STANDARD_FLAGS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS};
	static const uint32_t flags[] = {0, IBV_CREATE_CQ_ATTR_SINGLE_THREADED};
	for (int i = 0; i < 2; i++) {
		attr.flags = flags[i];
		struct ibv_cq_ex *cq = ibv_create_cq_ex(c, &attr);
		CHECK(cq != NULL && cq->start_poll != NULL && cq->next_poll != NULL && cq->end_poll != NULL && cq->read_opcode != NULL && cq->read_vendor_err != NULL &&
			cq->read_byte_len != NULL && cq->read_imm_data != NULL && cq->read_qp_num != NULL && cq->read_src_qp != NULL && cq->read_wc_flags != NULL && cq->read_slid != NULL &&
			cq->read_sl != NULL && cq->read_dlid_path_bits != NULL);
		struct ibv_poll_cq_attr poll_attr = {.comp_mask = 1};
		CHECK(ibv_start_poll(cq, &poll_attr) == EINVAL);
		poll_attr.comp_mask = 0;
		for (int turn = 0; turn < 2; turn++)
			CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT); /* which end_poll does not follow */
		CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	}
	attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	FAILS(ibv_create_cq_ex(c, &attr), EOPNOTSUPP);
	attr.flags = 0;
	attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	struct ibv_cq_ex *stamped = ibv_create_cq_ex(c, &attr);
	CHECK(stamped != NULL && stamped->read_completion_ts != NULL && ibv_destroy_cq(ibv_cq_ex_to_cq(stamped)) == 0);
	struct ibv_device_attr_ex device;
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	CHECK(ibv_query_device_ex(c, NULL, &device) == 0 && device.completion_timestamp_mask != 0 && device.hca_core_clock > 0);
	CHECK(ibv_query_rt_values_ex(c, &values) == 0 && values.raw_clock.tv_nsec > 1000000000);
	values.comp_mask = 2;
	CHECK(ibv_query_rt_values_ex(c, &values) == EINVAL);
	attr.wc_flags = IBV_WC_EX_WITH_CVLAN;
	FAILS(ibv_create_cq_ex(c, &attr), EOPNOTSUPP);
	attr.wc_flags = 0;
	attr.cqe = 0;
	FAILS(ibv_create_cq_ex(c, &attr), EINVAL);
}

static int is_readable(int fd) { return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1; }

static void *acknowledge(void *event)
{
	ibv_ack_async_event(event);
	return NULL;
}

static void shared_queues(struct ibv_context *c)
{
	struct ibv_device_attr device;
	static char buffer[64];
	CHECK(ibv_query_device(c, &device) == 0 && device.max_srq > 0);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_srq_init_attr attr = {.srq_context = buffer, .attr = {.max_wr = 4, .max_sge = 2}};
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);
	CHECK(srq != NULL && srq->pd == pd && srq->context == c && srq->srq_context == buffer);
	attr.attr.max_wr = (uint32_t)device.max_srq_wr + 1;
	FAILS(ibv_create_srq(pd, &attr), EINVAL);
	struct ibv_srq_init_attr_ex extended = {.attr = {.max_wr = 1, .max_sge = 1}, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD, .srq_type = IBV_SRQT_XRC, .pd = pd};
	FAILS(ibv_create_srq_ex(c, &extended), EOPNOTSUPP);
	extended.srq_type = IBV_SRQT_BASIC;
	struct ibv_srq *basic = ibv_create_srq_ex(c, &extended);
	CHECK(basic != NULL && ibv_destroy_srq(basic) == 0);

	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge[3] = {{(uintptr_t)buffer, 32, mr->lkey}, {(uintptr_t)buffer + 32, 32, mr->lkey}, {0, 0, 0}};
	struct ibv_recv_wr wr[6], *bad = NULL;
	for (int i = 0; i < 6; i++)
		wr[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)i, .next = i < 5 ? &wr[i + 1] : NULL, .sg_list = sge, .num_sge = 2};
	CHECK(ibv_post_srq_recv(srq, wr, &bad) == ENOMEM && bad == &wr[4]); /* four fit */
	wr[5].num_sge = 17;
	CHECK(ibv_post_srq_recv(srq, &wr[5], &bad) != 0 && bad == &wr[5]);
	CHECK(ibv_modify_srq(srq, &(struct ibv_srq_attr){.max_wr = 8}, IBV_SRQ_MAX_WR) == 0 && ibv_post_srq_recv(srq, &wr[4], &bad) != 0 && bad == &wr[5]);

	/* The limit: an event when fewer receives are outstanding, here at once, and then it is 0. */
	struct ibv_srq_attr now;
	struct ibv_async_event event;
	CHECK(ibv_modify_srq(srq, &(struct ibv_srq_attr){.srq_limit = 5}, IBV_SRQ_LIMIT) == 0 && ibv_query_srq(srq, &now) == 0);
	CHECK(now.max_wr >= 8 && now.max_sge >= 2 && now.srq_limit == 5 && !is_readable(c->async_fd));
	CHECK(ibv_modify_srq(srq, &(struct ibv_srq_attr){.srq_limit = 9}, IBV_SRQ_LIMIT) == EINVAL);
	CHECK(ibv_modify_srq(srq, &(struct ibv_srq_attr){.srq_limit = 6}, IBV_SRQ_LIMIT) == 0 && is_readable(c->async_fd));
	CHECK(ibv_query_srq(srq, &now) == 0 && now.srq_limit == 0);
	CHECK(ibv_get_async_event(c, &event) == 0 && event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq && !is_readable(c->async_fd));
	CHECK(fcntl(c->async_fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(ibv_modify_srq(srq, &(struct ibv_srq_attr){.srq_limit = 6}, IBV_SRQ_LIMIT) == 0); /* the program does not take this event */
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge, &event) == 0);
	CHECK(ibv_destroy_srq(srq) == 0); /* waits for the acknowledgement of the first one */
	CHECK(pthread_join(thread, NULL) == 0 && !is_readable(c->async_fd));
	errno = 0;
	CHECK(ibv_get_async_event(c, &event) == -1 && errno == EAGAIN);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* The process is in its fabric from the first object to the last close. */
static void life(void)
{
	const int before = descriptors();
	struct ibv_context *a = open_device(), *b = open_device();
	const int opened = descriptors();
	struct ibv_cq *cq = ibv_create_cq(a, 1, NULL, NULL, 0);
	CHECK(cq != NULL && descriptors() > opened);
	struct ibv_pd *pd = ibv_alloc_pd(b);
	char byte = 0;
	struct ibv_mr *mr = ibv_reg_mr(pd, &byte, 1, 0);
	CHECK(mr != NULL && ibv_destroy_cq(cq) == 0 && ibv_close_device(a) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && (mr = ibv_reg_mr(pd, &byte, 1, 0)) != NULL); /* b is open yet */
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(b) == 0 && descriptors() == before);
}

/* A process may make domains as long as it runs. */
static void many_domains(struct ibv_context *c)
{
	static char buffer[8];
	for (int i = 0; i < 66000; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(c);
		struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 1, 0);
		CHECK(mr != NULL && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	}
}

/* A forked child opens the device itself. It can only destroy the objects of its parent. */
static void forked(struct ibv_context *c)
{
	static char buffer[8];
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, 0);
	struct ibv_cq *cq = ibv_create_cq(c, 1, NULL, NULL, 0);
	CHECK(mr != NULL && cq != NULL);
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		FAILS(ibv_reg_mr(pd, buffer, 1, 0), ENODEV);
		FAILS(ibv_create_cq(c, 1, NULL, NULL, 0), ENODEV);
		life();
		CHECK(ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(c) == 0);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(ibv_poll_cq(cq, 0, NULL) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* answer plays a member of a named fabric whose arena has another layout, for one process that joins. See src/shm/fabric_name.c. */
static void *answer(void *listener)
{
	struct {
		uint64_t magic;
		uint32_t protocol, status, version, user;
		uint64_t rest[5];
	} record;
	for (int is_sent = 0; !is_sent;) { /* a joiner that has waited for half a second asks again */
		const int s = accept(*(int *)listener, NULL, NULL);
		CHECK(s >= 0);
		if (recv(s, &record, sizeof record, 0) == sizeof record) {
			record.status = 3;
			record.version++;
			memcpy((char *)&record + 48, "9.8.7", 6);
			is_sent = send(s, &record, sizeof record, MSG_NOSIGNAL) == sizeof record;
		}
		CHECK(close(s) == 0);
	}
	return NULL;
}

/* A library that does not fit the fabric says so in one line, also without SOFTND_DEBUG. */
static void other_version(const char *fabric)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "softnd-fabric-%u-%s", (unsigned)geteuid(), fabric);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	pthread_t thread;
	char text[600];
	CHECK(bind(listener, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0 && listen(listener, 1) == 0);
	CHECK(pthread_create(&thread, NULL, answer, &listener) == 0);
	const int kept = dup(STDERR_FILENO), file = memfd_create("stderr", 0);
	struct ibv_context *c = open_device();
	CHECK(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
	errno = 0;
	struct ibv_cq *cq = ibv_create_cq(c, 1, NULL, NULL, 0);
	const int error = errno;
	CHECK(dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0 && cq == NULL && error == EOPNOTSUPP);
	const ssize_t length = pread(file, text, sizeof text - 1, 0);
	CHECK(length > 0 && close(file) == 0 && pthread_join(thread, NULL) == 0 && close(listener) == 0 && ibv_close_device(c) == 0);
	text[length] = '\0';
	CHECK(strncmp(text, "softnd: join fabric: ", 21) == 0 && strstr(text, "9.8.7") != NULL && strchr(text, '\n') == text + length - 1);
}

int main(void)
{
	char name[40];
	snprintf(name, sizeof name, "verbs-objects-%d", (int)getpid());
	CHECK(setenv("SOFTND_VERBS_FABRIC", name, 1) == 0);
	if (getenv("SOFTND_ARENA_FD") == NULL && getenv("SOFTND_CONTROL") == NULL)
		other_version(name);
	for (int turn = 0; turn < 2; turn++)
		life();
	struct ibv_context *c = open_device();
	regions(c);
	queues(c);
	extended_queues(c);
	shared_queues(c);
	forked(c);
	many_domains(c);
	CHECK(ibv_close_device(c) == 0);
	return 0;
}

/* Each way to read a counter of the port again finds its present value, with the library preloaded that answers for the device. */
#include <fcntl.h>
#include <sys/uio.h>

#include "../sides.h"
#include "identity.h"

#define FOLDER DEVICE_SYSFS DEVICE_NAME "/" COUNTERS
#define COUNTER FOLDER "port_xmit_data"

/* Calls of programs that were compiled with _FORTIFY_SOURCE. */
ssize_t __read_chk(int fd, void *to, size_t size, size_t room);
ssize_t __pread_chk(int fd, void *to, size_t size, off_t at, size_t room);
ssize_t __pread64_chk(int fd, void *to, size_t size, off64_t at, size_t room);

static uint64_t words; /* that were sent */
static int fd;         /* of the counter */
static FILE *stream;
static fpos_t first;
static fpos64_t first64;

static struct side side;

static void advance(void)
{
	CHECK(transfer(&side, &side, 1, IBV_WR_RDMA_WRITE, BYTES) == 0);
	expect(&side, 1, IBV_WC_SUCCESS);
	words += BYTES / 4;
}

static void check(const char *way, const char *text, long n)
{
	if (n <= 0 || strtoull(text, NULL, 10) != words)
		fprintf(stderr, "%s: \"%s\", want %llu\n", way, text, (unsigned long long)words);
	CHECK(n > 0 && strtoull(text, NULL, 10) == words);
}

/* check_read expects that a call, which stores into text, reads the counter. */
#define check_read(call) \
	do { \
		char text[64] = ""; \
		struct iovec parts[2] = {{text, 1}, {text + 1, sizeof text - 2}}; \
		(void)parts; \
		advance(); \
		check(#call, text, (long)(call)); \
	} while (0)

/* check_stream expects that the stream reads it after a call. */
#define check_stream(call) \
	do { \
		char text[64] = ""; \
		advance(); \
		call; \
		check(#call, text, fgets(text, sizeof text, stream) != NULL ? 1 : 0); \
		CHECK(fgetc(stream) == EOF); \
	} while (0)

static void check_all(void)
{
	enum { N = 62 };
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	check_read(pread(fd, text, N, 0));
	check_read(read(fd, text, N)); /* the descriptor is at the end then */
	check_read(pread(fd, text, N, 0));
	check_read(pread64(fd, text, N, 0));
	check_read(preadv(fd, parts, 2, 0));
	check_read(preadv64(fd, parts, 2, 0));
	check_read(__pread_chk(fd, text, N, 0, sizeof text));
	check_read(__pread64_chk(fd, text, N, 0, sizeof text));
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	check_read(readv(fd, parts, 2));
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	check_read(__read_chk(fd, text, N, sizeof text));
}

/* check_many opens a counter as often as a program that watches all counters of a port opens files. */
static void check_many(void)
{
	enum { MANY = 60, N = 62 };
	int all[MANY];
	for (int i = 0; i < MANY; i++)
		CHECK((all[i] = open(COUNTER, O_RDONLY)) >= 0);
	for (int i = 0; i < MANY; i++) {
		check_read(pread(all[i], text, N, 0));
		CHECK(close(all[i]) == 0);
	}
}

int main(void)
{
	name_fabric("live");
	struct ibv_context *c = open_device();
	open_side(&side, c, 0);
	make_qp(&side, 0, 0);
	join(&side, &side);
	CHECK((fd = open(COUNTER, O_RDONLY)) >= 0 && (stream = fopen(COUNTER, "r")) != NULL && fgetpos(stream, &first) == 0 && fgetpos64(stream, &first64) == 0);
	check_all();
	check_many();
	check_stream(rewind(stream));
	check_stream(CHECK(fseek(stream, 0, SEEK_SET) == 0));
	check_stream(CHECK(fseeko(stream, 0, SEEK_SET) == 0));
	check_stream(CHECK(fseeko64(stream, 0, SEEK_SET) == 0));
	check_stream(CHECK(fsetpos(stream, &first) == 0));
	check_stream(CHECK(fsetpos64(stream, &first64) == 0));
	/* A program may change to a directory of the device. */
	CHECK(chdir(FOLDER) == 0 && close(fd) == 0 && fclose(stream) == 0);
	CHECK((fd = open("port_xmit_data", O_RDONLY)) >= 0 && (stream = fopen("../counters/port_xmit_data", "r")) != NULL);
	check_all();
	check_stream(rewind(stream));
	CHECK(chdir("/") == 0);
	/* Other streams are as they were. */
	char text[3] = "";
	FILE *own = tmpfile();
	CHECK(own != NULL && fputs("ab", own) >= 0 && fseek(own, 1, SEEK_SET) == 0 && fgets(text, sizeof text, own) != NULL && strcmp(text, "b") == 0);
	rewind(own);
	CHECK(fgets(text, sizeof text, own) != NULL && strcmp(text, "ab") == 0 && fclose(own) == 0);
	CHECK(close(fd) == 0 && fclose(stream) == 0);
	close_side(&side);
	CHECK(ibv_close_device(c) == 0);
	return 0;
}

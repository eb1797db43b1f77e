/* Calls that take paths, with the library preloaded that answers for the device. Each test is made with a path of the device and with
 * another one. Run in a directory that can be written. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "identity.h"

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

#define DEVICE DEVICE_SYSFS DEVICE_NAME
#define NODE "/dev/infiniband/" DEVICE_NODE
#define GUID_FILE DEVICE "/node_guid"
#define NONE DEVICE "/no_such_file"
#define OTHER "/sys/class/infiniband/other0/node_guid" /* of a card that this machine does not have */

/* Calls of programs that were compiled with _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room);
ssize_t __readlinkat_chk(int dir, const char *path, char *to, size_t size, size_t room);
char *__realpath_chk(const char *path, char *to, size_t room);

/* is_guid reports whether a text is one, which libibverbs makes. */
static int is_guid(const char *text) { return strncmp(text, "0273:6e64:", 10) == 0 && strlen(text) == 20 && text[19] == '\n'; }

/* has_guid reads a descriptor, and closes it. */
static int has_guid(int fd)
{
	char text[64] = "";
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	return n > 0 && is_guid(text);
}

static int file_has_guid(FILE *f)
{
	char text[64] = "";
	int ok = f != NULL && fgets(text, sizeof text, f) != NULL && is_guid(text);
	if (f != NULL)
		fclose(f);
	return ok;
}

/* absent checks that a call has failed, and why. */
#define absent(failed) \
	do { \
		errno = 0; \
		CHECK(failed); \
		CHECK(errno == ENOENT); \
	} while (0)

static void test_open(void)
{
	const char *folder = getenv("TMPDIR");
	char created[512];
	struct stat st;
	int fd;
	CHECK(has_guid(open(GUID_FILE, O_RDONLY)) && has_guid(open64(GUID_FILE, O_RDONLY)));
	CHECK(has_guid(openat(AT_FDCWD, GUID_FILE, O_RDONLY)) && has_guid(openat64(AT_FDCWD, GUID_FILE, O_RDONLY)));
	CHECK(has_guid(__open_2(GUID_FILE, O_RDONLY)) && has_guid(__open64_2(GUID_FILE, O_RDONLY)));
	CHECK(has_guid(__openat_2(AT_FDCWD, GUID_FILE, O_RDONLY)) && has_guid(__openat64_2(AT_FDCWD, GUID_FILE, O_RDONLY)));
	CHECK(file_has_guid(fopen(GUID_FILE, "r")) && file_has_guid(fopen64(GUID_FILE, "r")));
	absent(open(NONE, O_RDONLY) < 0);
	absent(open(OTHER, O_RDONLY) < 0);
	absent(fopen(OTHER, "r") == NULL);
	absent(open("", O_RDONLY) < 0);

	/* The mode of a new file is passed on. */
	snprintf(created, sizeof created, "%s/paths-%d", folder != NULL ? folder : "/tmp", (int)getpid());
	umask(0);
	fd = open(created, O_CREAT | O_EXCL | O_RDWR, 0640);
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0640);
	close(fd);
	fd = openat(AT_FDCWD, created, O_CREAT | O_EXCL | O_RDWR, 0640);
	CHECK(fd < 0 && errno == EEXIST);
	CHECK(unlink(created) == 0);
}

/* A descriptor of a directory leads to the same texts. */
static void test_relative(void)
{
	const int dir = open(DEVICE, O_RDONLY | O_DIRECTORY);
	CHECK(dir >= 0 && has_guid(openat(dir, "node_guid", O_RDONLY)) && has_guid(openat64(dir, "node_guid", O_RDONLY)));
	CHECK(has_guid(openat(dir, "ports/../node_guid", O_RDONLY)));
	CHECK(fchdir(dir) == 0 && has_guid(open("node_guid", O_RDONLY)) && file_has_guid(fopen("./node_guid", "r")));
	CHECK(close(dir) == 0 && chdir("/") == 0);
}

/* A file of the program's own is no file of the device, whatever its name is. */
static void test_own_file(void)
{
	const char *folder = getenv("TMPDIR");
	char created[512], command[600];
	struct stat st;
	snprintf(created, sizeof created, "%s/paths-%d", folder != NULL ? folder : "/tmp", (int)getpid());
	const size_t root = strlen(created);
	strcat(created, DEVICE);
	snprintf(command, sizeof command, "mkdir -p %s", created);
	CHECK(system(command) == 0);
	strcat(created, "/node_guid");
	const int fd = open(created, O_CREAT | O_EXCL | O_RDWR, 0600);
	CHECK(fd >= 0 && write(fd, "mine", 4) == 4 && close(fd) == 0);
	CHECK(stat(created, &st) == 0 && st.st_size == 4);
	created[root] = '\0';
	snprintf(command, sizeof command, "rm -r %s", created);
	CHECK(system(command) == 0);
}

static void test_stat(void)
{
	struct stat st;
	struct stat64 st64;
	struct statx stx;
	CHECK(stat(GUID_FILE, &st) == 0 && S_ISREG(st.st_mode));
	CHECK(stat64(GUID_FILE, &st64) == 0 && S_ISREG(st64.st_mode));
	CHECK(lstat(GUID_FILE, &st) == 0 && S_ISREG(st.st_mode));
	CHECK(lstat64(GUID_FILE, &st64) == 0 && S_ISREG(st64.st_mode));
	CHECK(fstatat(AT_FDCWD, DEVICE "/ports", &st, 0) == 0 && S_ISDIR(st.st_mode));
	CHECK(fstatat64(AT_FDCWD, DEVICE, &st64, 0) == 0 && S_ISDIR(st64.st_mode));
	CHECK(statx(AT_FDCWD, NODE, 0, STATX_TYPE, &stx) == 0 && S_ISCHR(stx.stx_mode));
	absent(statx(AT_FDCWD, OTHER, 0, STATX_TYPE, &stx) != 0);
	CHECK(stat(NODE, &st) == 0 && S_ISCHR(st.st_mode));
	absent(stat(NONE, &st) != 0);
	absent(lstat(OTHER, &st) != 0);
	absent(stat(NODE "0", &st) != 0);
	absent(stat(DEVICE_SYSFS DEVICE_NAME "0", &st) != 0);
	CHECK(stat("/", &st) == 0 && S_ISDIR(st.st_mode));
}

static void test_access(void)
{
	CHECK(access(NODE, R_OK | W_OK) == 0 && access(GUID_FILE, R_OK) == 0 && access("/", X_OK) == 0);
	CHECK(faccessat(AT_FDCWD, NODE, R_OK | W_OK, 0) == 0 && faccessat(AT_FDCWD, "/", X_OK, AT_EACCESS) == 0);
	absent(access(OTHER, F_OK) != 0);
	absent(faccessat(AT_FDCWD, NONE, F_OK, 0) != 0);
}

static void test_links(void)
{
	char to[PATH_MAX], *own;
	CHECK(readlink(GUID_FILE, to, sizeof to) < 0 && errno == EINVAL); /* it is there, and no link */
	CHECK(readlinkat(AT_FDCWD, GUID_FILE, to, sizeof to) < 0 && errno == EINVAL);
	CHECK(__readlink_chk(GUID_FILE, to, sizeof to, sizeof to) < 0 && errno == EINVAL);
	CHECK(__readlinkat_chk(AT_FDCWD, GUID_FILE, to, sizeof to, sizeof to) < 0 && errno == EINVAL);
	CHECK(readlink("/proc/self/exe", to, sizeof to) > 0);
	absent(readlink(OTHER, to, sizeof to) < 0);
	CHECK(realpath(GUID_FILE, to) == to && has_guid(open(to, O_RDONLY)));
	CHECK(__realpath_chk(GUID_FILE, to, sizeof to) == to && has_guid(open(to, O_RDONLY)));
	own = realpath("/proc/self/..", NULL);
	CHECK(own != NULL && strcmp(own, "/proc") == 0);
	free(own);
	absent(realpath(OTHER, to) == NULL);
}

static int is_visible(const struct dirent *e) { return e->d_name[0] != '.'; }
static int is_visible64(const struct dirent64 *e) { return e->d_name[0] != '.'; }

static void test_directories(void)
{
	struct dirent **list;
	struct dirent64 **list64;
	DIR *dir = opendir(DEVICE "/ports/1/gids");
	CHECK(dir != NULL);
	CHECK(readdir(dir) != NULL);
	const int fd = openat(dirfd(dir), "../../../board_id", O_RDONLY); /* relative to a directory of the device */
	CHECK(fd >= 0 && close(fd) == 0);
	closedir(dir);
	CHECK(scandir(DEVICE "/ports", &list, is_visible, alphasort) == 1 && strcmp(list[0]->d_name, "1") == 0);
	free(list[0]);
	free(list);
	CHECK(scandir64(DEVICE "/device/net", &list64, is_visible64, alphasort64) == 1);
	free(list64[0]);
	free(list64);
	absent(opendir(OTHER) == NULL);
	absent(scandir(NONE, &list, NULL, NULL) < 0);
}

/* A child has no memory of its own between vfork and the end. */
static void test_children(void)
{
	int status;
	pid_t pid = vfork();
	if (pid == 0)
		_exit(access(GUID_FILE, R_OK) == 0 ? 3 : 1);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3);
	pid = fork();
	if (pid == 0)
		_exit(has_guid(open(GUID_FILE, O_RDONLY)) ? 4 : 1);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 4);
}

/* Success does not change errno, in the first call neither. */
static void test_errno(void)
{
	errno = E2BIG;
	CHECK(access(GUID_FILE, R_OK) == 0 && errno == E2BIG);
	CHECK(access("/", R_OK) == 0 && errno == E2BIG);
}

static void test_names(void)
{
	char longest[PATH_MAX + 10];
	CHECK(access(DEVICE_NODE_SYSFS "/ibdev", R_OK) == 0);
	memset(longest, 'a', sizeof longest - 1);
	memcpy(longest, DEVICE "/", sizeof DEVICE);
	longest[sizeof longest - 1] = '\0';
	CHECK(access(longest, R_OK) != 0 && errno == ENAMETOOLONG);
	setenv("SOFTND_VERBS_DEVICE", "mlx5_7", 1);
	CHECK(has_guid(open(DEVICE_SYSFS "mlx5_7/node_guid", O_RDONLY)));
	absent(access(GUID_FILE, R_OK) != 0);
	setenv("SOFTND_VERBS_DEVICE", "", 1);
	CHECK(access(GUID_FILE, R_OK) == 0);
}

int main(void)
{
	test_errno();
	test_open();
	test_relative();
	test_own_file();
	test_stat();
	test_access();
	test_links();
	test_directories();
	test_children();
	test_names();
	return 0;
}

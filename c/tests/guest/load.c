/* The library is a good guest: it is loaded and unloaded many times and leaves nothing, it changes neither signals nor the
 * children of the process. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { LOADS = 200 };

/* count counts the entries of a directory. */
static int count(const char *path)
{
	int n = 0;
	DIR *d = opendir(path);
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		n++;
	closedir(d);
	return n;
}

/* maps_contain reports whether the process maps a file whose name contains text. */
static int maps_contain(const char *text)
{
	char line[4096];
	int found = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f) != NULL)
		found |= strstr(line, text) != NULL;
	fclose(f);
	return found;
}

static void handler(int sig) { (void)sig; }

struct library {
	void *handle;
	__typeof__(snd_fabric_create) *create;
	__typeof__(snd_fabric_close) *close;
	__typeof__(snd_adapter_open) *open;
	__typeof__(snd_mr_allocate) *allocate;
	__typeof__(snd_last_error) *error;
};

static struct library load(void)
{
	struct library l = {.handle = dlopen(SOFTND_LIBRARY, RTLD_NOW | RTLD_LOCAL)};
	CHECK(l.handle != NULL);
	*(void **)&l.create = dlsym(l.handle, "snd_fabric_create");
	*(void **)&l.close = dlsym(l.handle, "snd_fabric_close");
	*(void **)&l.open = dlsym(l.handle, "snd_adapter_open");
	*(void **)&l.allocate = dlsym(l.handle, "snd_mr_allocate");
	*(void **)&l.error = dlsym(l.handle, "snd_last_error");
	CHECK(l.create != NULL && l.close != NULL && l.open != NULL && l.allocate != NULL && l.error != NULL);
	return l;
}

static void test_children(void)
{
	/* No descriptor of the library reaches a child: each is closed on exec. */
	FILE *p = popen("ls -l /proc/self/fd", "r");
	char line[512];
	while (fgets(line, sizeof line, p) != NULL)
		CHECK(strstr(line, "softnd-arena") == NULL);
	CHECK(pclose(p) == 0);
	CHECK(system("true") == 0);
	pid_t child = fork();
	if (child == 0) {
		CHECK(!maps_contain("softnd-arena"));
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	struct sigaction mine = {.sa_handler = handler}, now, before[32];
	sigset_t mask, seen;
	sigaction(SIGUSR1, &mine, NULL);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	for (int sig = 1; sig < 32; sig++) /* sanitizers have handlers */
		sigaction(sig, NULL, &before[sig]);
	const int descriptors = count("/proc/self/fd"), threads = count("/proc/self/task");
	for (int i = 0; i < LOADS; i++) {
		struct library l = load();
		const snd_fabric_options o = {.progress = i % 2 ? SND_PROGRESS_AUTO : SND_PROGRESS_MANUAL, .threading = i % 4 > 1 ? SND_THREAD_SAFE : SND_THREAD_DOMAIN};
		snd_fabric *f;
		snd_adapter *a;
		snd_mr *mr;
		CHECK(l.create(0, UINT64_C(1) << 28, &o, &f) == SND_SUCCESS && l.open(f, &a) == SND_SUCCESS && l.allocate(a, 100000, SND_ALLOW_LOCAL_WRITE, &mr) == SND_SUCCESS);
		CHECK(maps_contain("softnd-arena") && count("/proc/self/task") == threads + 2 * (i % 2));
		for (int sig = 1; sig < 32; sig++) { /* no handler but those from before */
			CHECK(sigaction(sig, NULL, &now) != 0 || now.sa_handler == before[sig].sa_handler);
		}
		pthread_sigmask(SIG_SETMASK, NULL, &seen);
		CHECK(memcmp(&seen, &mask, 8) == 0);
		if (i < 4)
			test_children();
		CHECK(l.close(f) == SND_SUCCESS);
		CHECK(l.create(5000, 0, NULL, &f) == SND_INVALID_PARAMETER && l.error()[0] != 0);
		CHECK(dlclose(l.handle) == 0);
		CHECK(!maps_contain("libsoftnd") && !maps_contain("softnd-arena"));
		CHECK(count("/proc/self/fd") == descriptors && count("/proc/self/task") == threads);
	}
	return 0;
}

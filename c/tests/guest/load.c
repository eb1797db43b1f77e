/* The library is loaded and unloaded many times. It leaves no descriptor, no mapping and no thread. */
#include <dirent.h>
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { WARM_UP = 10 };

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

static int count_maps(void)
{
	int n = 0, c;
	FILE *f = fopen("/proc/self/maps", "r");
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* wait_for_threads waits until joined threads have ended, which takes a moment. */
static void wait_for_threads(int threads)
{
	for (int i = 0; i < 60000 && count("/proc/self/task") != threads; i++)
		usleep(1000);
	CHECK(count("/proc/self/task") == threads);
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

/* The argument is how often. */
int main(int argc, char **argv)
{
	const int loads = argc > 1 ? atoi(argv[1]) : 1000;
	const int descriptors = count("/proc/self/fd"), threads = count("/proc/self/task");
	int maps = 0;
	for (int i = 0; i < loads; i++) {
		struct library l = load();
		const snd_fabric_options o = {.progress = i % 2 ? SND_PROGRESS_AUTO : SND_PROGRESS_MANUAL, .threading = i % 4 > 1 ? SND_THREAD_SAFE : SND_THREAD_DOMAIN};
		snd_fabric *f;
		snd_adapter *a;
		snd_mr *mr;
		CHECK(l.create(sizeof o, 0, UINT64_C(1) << 28, &o, &f) == SND_SUCCESS && l.open(f, &a) == SND_SUCCESS && l.allocate(a, 100000, SND_ALLOW_LOCAL_WRITE, &mr) == SND_SUCCESS);
		CHECK(maps_contain("softnd-arena"));
		wait_for_threads(threads + 2 * (i % 2));
		CHECK(l.close(f) == SND_SUCCESS);
		CHECK(l.create(sizeof o, 5000, 0, NULL, &f) == SND_INVALID_PARAMETER && l.error()[0] != 0);
		CHECK(dlclose(l.handle) == 0);
		CHECK(!maps_contain("libsoftnd") && !maps_contain("softnd-arena"));
		CHECK(count("/proc/self/fd") == descriptors);
		wait_for_threads(threads);
		if (i == WARM_UP)
			maps = count_maps(); /* the C library keeps stacks of threads */
	}
	const int left = count_maps() - maps;
	if (left > loads / 10) /* the allocator of a sanitizer adds some */
		fprintf(stderr, "%d mappings are left\n", left);
	return left > loads / 10;
}

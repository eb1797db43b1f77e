/* Signals belong to the program: its handlers, its mask and its signal stack stay as they are, and its handlers run in its own
 * threads. They have no SA_RESTART and no SA_ONSTACK, and run a thousand times a second while the library works. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "two.h"

enum { ROUNDS = 5000, OPENS = 20, SIGNALS = 64 };

static volatile sig_atomic_t handled, astray;

static void handler(int sig)
{
	(void)sig;
	handled++;
	if (syscall(SYS_gettid) != getpid()) /* the program has one thread */
		astray++;
}

static bool is_mine(int sig) { return sig != SIGKILL && sig != SIGSTOP && sig != SIGCHLD && sig != 32 && sig != 33 /* of the C library */; }

/* check_threads checks the names and the masks of the threads, and returns how many there are. */
static int check_threads(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		char path[300], line[200], name[100] = "";
		unsigned long long blocked = 0;
		snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
		FILE *f = e->d_name[0] != '.' ? fopen(path, "r") : NULL;
		if (f == NULL)
			continue;
		while (fgets(line, sizeof line, f) != NULL) {
			(void)sscanf(line, "Name: %99s", name);
			(void)sscanf(line, "SigBlk: %llx", &blocked);
		}
		fclose(f);
		n++;
		if (atol(e->d_name) == getpid())
			continue;
		CHECK(strcmp(name, "softnd") == 0 || strcmp(name, "softnd-watch") == 0);
		for (int sig = 1; sig <= SIGNALS; sig++)
			CHECK(!is_mine(sig) || (blocked >> (sig - 1) & 1) != 0);
	}
	closedir(d);
	return n;
}

static void run_rank(const char *name, uint32_t rank, snd_progress_model progress)
{
	struct two t;
	const snd_fabric_options o = {.progress = progress};
	two_join(&t, name, rank, &o);
	for (uint64_t i = 1; i <= ROUNDS; i++)
		two_round(&t, i);
	CHECK(check_threads() == (progress == SND_PROGRESS_AUTO ? 3 : 1));
	two_leave(&t);
}

int main(int argc, char **argv)
{
	static char stack[1 << 16];
	struct sigaction before[SIGNALS + 1], now;
	const struct sigaction mine = {.sa_handler = handler};
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack}, seen_stack;
	sigset_t mask, seen;
	CHECK(sigaltstack(&alternate, NULL) == 0);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	sigaddset(&mask, SIGRTMIN + 3);
	CHECK(pthread_sigmask(SIG_SETMASK, &mask, NULL) == 0);
	memset(before, 0, sizeof before);
	for (int sig = 1; sig <= SIGNALS; sig++) {
		CHECK(!is_mine(sig) || sigaction(sig, &mine, NULL) == 0);
		(void)sigaction(sig, NULL, &before[sig]);
	}
	const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	const snd_progress_model models[] = {SND_PROGRESS_MANUAL, SND_PROGRESS_AUTO};
	if (argc == 3) {
		run_rank(argv[1], 1, models[atoi(argv[2])]);
	} else {
		for (int i = 0; i < 2; i++) {
			char name[64];
			two_name(name, "signals", 2 * (long)getpid() + i);
			pid_t child = fork();
			if (child == 0) {
				execl("/proc/self/exe", argv[0], name, i == 0 ? "0" : "1", (char *)NULL);
				_exit(127);
			}
			run_rank(name, 0, models[i]);
			int status;
			while (waitpid(child, &status, 0) != child)
				;
			CHECK(status == 0);
		}
		for (int i = 0; i < OPENS; i++) {
			snd_fabric *f;
			OK(snd_fabric_create(0, UINT64_C(1) << 28, &(snd_fabric_options){.progress = models[i % 2]}, &f));
			OK(snd_fabric_close(f));
		}
	}
	while (handled <= 5)
		(void)usleep(100); /* a fast machine plays all rounds before the sixth signal */
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	for (int sig = 1; sig <= SIGNALS; sig++)
		CHECK(sigaction(sig, NULL, &now) != 0 ||
			(now.sa_handler == before[sig].sa_handler && now.sa_flags == before[sig].sa_flags && memcmp(&now.sa_mask, &before[sig].sa_mask, 8) == 0));
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &seen) == 0 && memcmp(&seen, &mask, 8) == 0);
	CHECK(sigaltstack(NULL, &seen_stack) == 0 && seen_stack.ss_sp == stack && seen_stack.ss_size == sizeof stack);
	printf("%d signals handled, %d of them in threads of the library\n", (int)handled, (int)astray);
	CHECK(handled > 5 && astray == 0);
	return 0;
}

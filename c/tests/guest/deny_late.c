/* A program that refuses membarrier after the library has begun to rely on it ends with a message. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "deny.h"
#include "linux/membarrier.h"

int main(void)
{
	int ends[2], status;
	char text[300] = "";
	CHECK(pipe(ends) == 0);
	const pid_t child = fork();
	if (child == 0) {
		snd_fabric *f;
		snd_adapter *a;
		snd_cq *cq;
		snd_result r;
		uint32_t n;
		CHECK(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
		OK(snd_fabric_create(0, 0, MANUAL, &f));
		OK(snd_adapter_open(f, &a));
		OK(snd_cq_create(a, 1, &cq));
		if (!snd_has_membarrier)
			_exit(77);
		if (!deny("membarrier"))
			_exit(2);
		(void)snd_cq_wait(cq, &r, 1, INT64_C(10000000000), &n); /* its sleep needs the barrier */
		_exit(3);
	}
	close(ends[1]);
	CHECK(waitpid(child, &status, 0) == child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		puts("skipped: the kernel refuses membarrier(2)");
		return 77;
	}
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	CHECK(read(ends[0], text, sizeof text - 1) > 0);
	CHECK(strstr(text, "membarrier(2) is refused after it has worked: install seccomp filters before") != NULL);
	return 0;
}

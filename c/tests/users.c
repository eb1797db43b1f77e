/* A member of a named fabric, or a process that tries to join one, for tests with processes of another user (package shm). */
#include <string.h>

#include "check.h"

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	const snd_fabric_options options = {.progress = SND_PROGRESS_AUTO};
	snd_fabric *f = NULL;
	snd_status s = snd_fabric_open(argv[2], 0, UINT64_C(1) << 28, -1, &options, &f);
	if (strcmp(argv[1], "join") == 0) {
		printf("%s: %s\n", snd_status_name(s), snd_last_error());
		return s == SND_SUCCESS;
	}
	OK(s);
	puts("member");
	CHECK(fflush(stdout) == 0);
	CHECK(getchar() == EOF); /* until the test closes the pipe */
	OK(snd_fabric_close(f));
	return 0;
}

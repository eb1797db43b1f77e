/* waits NAME RANK: two ranks wait for each other until standard input of rank 1 ends, and then move data. Other programs look
 * at them meanwhile. */
#include <sys/prctl.h>

#include "two.h"

int main(int argc, char **argv)
{
	struct two t;
	char c;
	CHECK(argc == 3);
	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	two_join(&t, argv[1], (uint32_t)atoi(argv[2]), &(snd_fabric_options){.progress = SND_PROGRESS_AUTO});
	OK(snd_fabric_set_timeouts(snd_job_fabric(t.job), SND_FOREVER, SND_DEFAULT_TIMEOUT));
	puts("waits");
	(void)fflush(stdout);
	while (t.rank == 1 && read(0, &c, 1) > 0)
		;
	for (uint64_t i = 1; i < 1000; i++)
		two_round(&t, i);
	two_leave(&t);
	return 0;
}

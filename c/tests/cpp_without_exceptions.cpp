/* The C++ interface in a program without exceptions. With an argument, a call fails that would throw. */
#include <softnd/softnd.hpp>

int main(int argc, char **)
{
	snd_job *h = nullptr;
	if (snd_job_init(nullptr, 10000000000, &h) != SND_SUCCESS)
		return 1;
	softnd::job job(h);
	softnd::region memory = softnd::region::allocate(job.adapter(), 4096);
	if (memory.bytes().size() != 4096 || job.exchange(17)[0] != 17)
		return 1;
	if (argc > 1)
		(void)softnd::region::allocate(job.adapter(), 0);
	return 0;
}

// Each rank writes a word into the memory of the other: ndrun -n 2 ./hello
#include <softnd/softnd.hpp>

#include <chrono>
#include <iostream>

static int run()
{
	constexpr std::int64_t limit = std::chrono::nanoseconds(std::chrono::seconds(30)).count();
	softnd::job job = softnd::job::init(limit);
	if (job.size() != 2) {
		std::cerr << "start two ranks: ndrun -n 2 ./hello\n";
		return 1;
	}
	const std::uint32_t rank = job.rank(), other = 1 - rank;
	softnd::region memory = softnd::region::allocate(job.adapter(), 4096, SND_ALLOW_LOCAL_WRITE | SND_ALLOW_REMOTE_WRITE);
	softnd::span<std::uint64_t> words = memory.as<std::uint64_t>();
	const auto all = job.exchange_windows(memory.descriptor(), limit);

	softnd::completion_queue cq = softnd::completion_queue::create(job.adapter(), 16);
	snd_endpoint_config config{};
	config.receive_cq = config.initiator_cq = cq;
	softnd::endpoint ep = job.connect(other, config, limit);
	words[0] = 42 + rank;
	const snd_sge sge = memory.sge(0, 8);
	ep.write(1, {&sge, 1}, all[other].address + 8, all[other].token);
	snd_result result[1];
	softnd::check_result(cq.wait(result, limit)[0], ep);
	job.barrier(limit);
	std::cout << "rank " << rank << " has " << words[1] << std::endl;
	return 0;
}

int main()
{
	try {
		return run();
	} catch (const softnd::error &e) {
		std::cerr << e.name() << ": " << e.what() << '\n';
		return 1;
	}
}

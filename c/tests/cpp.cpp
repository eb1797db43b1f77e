/* The C++ interface in one process: two adapters of a fabric, or ranks, and every class. */
#include <softnd/softnd.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
			std::exit(1); \
		} \
	} while (0)

static constexpr std::int64_t second = 1000000000;

template <class Call> static snd_status status_of(Call call)
{
	try {
		call();
	} catch (const softnd::error &e) {
		CHECK(std::strlen(e.what()) > 0 && std::strlen(e.name()) > 0);
		return e.status();
	}
	return SND_SUCCESS;
}

static void ownership(snd_adapter *adapter)
{
	softnd::region a = softnd::region::allocate(adapter, 4096);
	snd_mr *raw = a;
	CHECK(a.bytes().size() == 4096 && a.as<std::uint64_t>().size() == 512);
	softnd::region b = std::move(a);
	CHECK(a.get() == nullptr && b.get() == raw);
	a = std::move(b);
	CHECK(a.get() == raw && b.get() == nullptr);
	CHECK(snd_mr_length(raw) == 4096);
	a.reset();
	CHECK(snd_mr_length(raw) == 0); /* it is closed */
	{
		softnd::region c = softnd::region::allocate(adapter, 64);
		raw = c;
	}
	CHECK(snd_mr_length(raw) == 0);
	std::vector<double> memory(10);
	softnd::region d = softnd::region::register_memory(adapter, softnd::span<double>(memory));
	CHECK(d.as<double>().data() == memory.data() && d.as<double>().size() == 10);
	bool thrown = false;
	try {
		(void)d.sge(72, 9);
	} catch (const std::out_of_range &) {
		thrown = true;
	}
	CHECK(thrown && d.sge(72, 8).length == 8);
	CHECK(d.local_token() != d.remote_token() && d.descriptor().address == d.address());
	d.close(second);
	CHECK(d.get() == nullptr);
	CHECK(status_of([&] { d.close(); }) == SND_INVALID_HANDLE);
}

/* A vector moves its elements when it grows, and an exception destroys it. */
/* Elements that are const are registered for reading, and for nothing else. */
static void constants(snd_adapter *adapter)
{
	const std::vector<double> table(512, 1.5);
	softnd::region own = softnd::region::register_memory(adapter, softnd::span<const double>(table));
	CHECK(own.as<const double>()[511] == 1.5);
	own.close(second);
	softnd::region readable = softnd::region::register_memory(adapter, softnd::span<const double>(table), SND_ALLOW_REMOTE_READ);
	CHECK(readable.remote_token() != 0);
	readable.close(second);
	for (std::uint32_t flags : {SND_ALLOW_LOCAL_WRITE, SND_ALLOW_REMOTE_WRITE, SND_ALLOW_REMOTE_READ | SND_ALLOW_REMOTE_WRITE})
		CHECK(status_of([&] {
			(void)softnd::region::register_memory(adapter, softnd::span<const double>(table), flags);
		}) == SND_INVALID_PARAMETER);
}

static void unwinding(snd_adapter *adapter)
{
	std::vector<snd_mr *> raw;
	try {
		std::vector<softnd::region> regions;
		for (int i = 0; i < 10; i++) {
			regions.push_back(softnd::region::allocate(adapter, 64));
			raw.push_back(regions.back());
		}
		for (snd_mr *mr : raw)
			CHECK(snd_mr_length(mr) == 64);
		(void)softnd::region::allocate(adapter, 0);
		CHECK(false);
	} catch (const softnd::error &e) {
		CHECK(e.status() == SND_INVALID_BUFFER_SIZE);
	}
	for (snd_mr *mr : raw)
		CHECK(snd_mr_length(mr) == 0); /* it is closed */
}

/* softnd::span converts from containers and arrays, and in C++20 from and to std::span. */
static void spans(const softnd::region &region)
{
	const std::vector<int> numbers{1, 2, 3};
	int array[] = {4, 5};
	softnd::span<const int> view = numbers;
	CHECK(view.size() == 3 && view[2] == 3 && view.data() == numbers.data());
	view = array;
	CHECK(view.size() == 2 && view.first(1).size() == 1);
	static_assert(!std::is_convertible<const std::vector<int> &, softnd::span<int>>::value, "the elements are constant");
	static_assert(!std::is_convertible<std::vector<long> &, softnd::span<const int>>::value, "the elements are of another type");
#ifdef __cpp_lib_span
	std::span<std::uint64_t> words = region.as<std::uint64_t>();
	CHECK(words.size() == 512 && words.data() == snd_mr_buffer(region));
	softnd::span<std::uint64_t> part = words.subspan(1, 2);
	CHECK(part.size() == 2 && part.data() == words.data() + 1);
	std::span<const std::byte> bytes = region.bytes();
	CHECK(bytes.size() == 4096);
	static_assert(!std::is_convertible<softnd::span<const int>, std::span<int>>::value, "the elements are constant");
#else
	static_assert(__cplusplus < 202002L, "C++20 has std::span");
	CHECK(region.bytes().size() == 4096);
#endif
}

static void connection(softnd::fabric &near, softnd::fabric &far)
{
	softnd::adapter here = softnd::adapter::open(near), there = softnd::adapter::open(far);
	CHECK(here.query().max_transfer > 0);
	softnd::listener l = softnd::listener::create(there);
	l.bind({0, 0, 0});
	l.listen();
	softnd::completion_queue cq = softnd::completion_queue::create(there, 16), mine = softnd::completion_queue::create(here, 16);
	snd_endpoint_config config{};
	config.receive_cq = config.initiator_cq = cq;
	softnd::endpoint target = softnd::endpoint::create(there, config);
	softnd::region memory = softnd::region::allocate(there, 4096);
	softnd::window w = softnd::window::create(there);
	std::thread server([&] {
		softnd::connector c = l.request(10 * second);
		CHECK(c.private_data().empty());
		snd_connect_params params{nullptr, 0, 3, 2, 0};
		c.accept(target, &params, 10 * second);
		std::array<snd_result, 4> results{};
		target.receive(7);
		target.bind(1, memory, w, memory.bytes().part(8, 64), SND_ALLOW_WRITE | SND_ALLOW_READ);
		auto taken = cq.wait(results, 10 * second);
		CHECK(taken.size() == 1 && taken[0].type == SND_REQUEST_BIND);
		softnd::check_result(taken[0]);
		auto d = softnd::encode(w.descriptor());
		std::memcpy(memory.bytes().part(128, d.size()).data(), d.data(), d.size());
		snd_sge s = memory.sge(128, d.size());
		target.send(2, {&s, 1}, SND_SILENT_SUCCESS);
		taken = cq.wait(results, 10 * second); /* the empty message after the write */
		CHECK(taken.size() == 1 && taken[0].type == SND_REQUEST_RECEIVE && taken[0].request_context == 7);
		CHECK(memory.as<std::uint64_t>()[2] == 42);
		target.invalidate(3, w);
		taken = cq.wait(results, 10 * second);
		CHECK(taken.size() == 1 && taken[0].type == SND_REQUEST_INVALIDATE);
		c.disconnect(10 * second);
	});
	config.receive_cq = config.initiator_cq = mine;
	softnd::endpoint ep = softnd::endpoint::create(here, config);
	softnd::region local = softnd::region::allocate(here, 4096);
	snd_sge s = local.sge(0, SND_WINDOW_DESCRIPTOR_SIZE);
	ep.receive(1, {&s, 1});
	softnd::connector c = softnd::connector::create(here);
	c.bind({0, 0, 0});
	snd_connect_params params{nullptr, 0, 1, 4, 0};
	c.connect(ep, l.address(), &params, 10 * second);
	c.complete();
	CHECK(c.peer_address().port == l.address().port);
	CHECK(c.read_limits() == std::make_pair(1u, 3u));
	snd_result result[2];
	auto taken = mine.wait(result, 10 * second);
	CHECK(taken.size() == 1 && taken[0].bytes == SND_WINDOW_DESCRIPTOR_SIZE);
	softnd::descriptor_bytes bytes;
	std::memcpy(bytes.data(), local.bytes().data(), bytes.size());
	snd_window_descriptor d = softnd::decode(bytes);
	CHECK(d.length == 64);
	local.as<std::uint64_t>()[8] = 42;
	s = local.sge(64, 8);
	CHECK(ep.try_write(2, {&s, 1}, d.address + 8, d.token, SND_SILENT_SUCCESS) == SND_SUCCESS);
	CHECK(ep.try_send(3) == SND_SUCCESS);
	softnd::span<snd_result> got;
	while ((got = mine.poll(result)).empty())
		;
	CHECK(got.size() == 1 && got[0].request_context == 3 && got[0].status == SND_SUCCESS);
	c.disconnect(10 * second);
	server.join();
	CHECK(ep.error() != SND_SUCCESS);
	CHECK(ep.try_send(4) != SND_SUCCESS);
	CHECK(status_of([&] { ep.send(4); }) != SND_SUCCESS);
	CHECK(status_of([&] { (void)mine.wait(result, 0); }) == SND_IO_TIMEOUT);
}

int main()
{
	CHECK(status_of([] { (void)softnd::fabric::attach(-1); }) != SND_SUCCESS);
	softnd::fabric f = softnd::fabric::create(0, 0);
	softnd::fabric g = softnd::fabric::attach(f.descriptor());
	CHECK(f.address().host != g.address().host);
	softnd::adapter a = softnd::adapter::open(f);
	CHECK(std::strcmp(softnd::version(), snd_version()) == 0);
	ownership(a);
	constants(a);
	unwinding(a);
	spans(softnd::region::allocate(a, 4096));
	connection(f, g);

	softnd::job j = softnd::job::init(10 * second); /* rank 0 of 1 */
	CHECK(j.rank() == 0 && j.size() == 1);
	j.barrier(second);
	auto all = j.exchange(17.5, second);
	CHECK(all.size() == 1 && all[0] == 17.5);
	CHECK(j.exchange(true, second) == std::vector<bool>{true});
	ownership(j.adapter());
	CHECK(status_of([&] { (void)j.connect(0, snd_endpoint_config{}, second); }) == SND_INVALID_PARAMETER);
	CHECK(status_of([&] { (void)j.connect_ranks({0}, snd_endpoint_config{}, second); }) == SND_INVALID_PARAMETER);
	CHECK(j.connect_ranks({}, snd_endpoint_config{}, second).empty());
	return 0;
}

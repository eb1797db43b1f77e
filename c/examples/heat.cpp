// The diffusion of heat on a grid, divided among the ranks of a job: examples/heat in C++.
//
//	ndrun -n 4 ./heat_cpp -steps 2000 -verify
//	ndrun -n 2 ./heat -verify : -n 2 ./heat_cpp
//
// It follows the same protocol and rounds in the same places as the Go program, so ranks of both
// compute one picture. Compile it with -ffp-contract=off.
#include <softnd/softnd.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

using row_view = softnd::span<double>;
using big_endian = std::array<std::uint8_t, 8>;

// The values that ranks exchange, after 512 bytes for the text of a problem.
struct nothing {};
struct extent {
	big_endian width, height;
};
struct descriptors {
	softnd::descriptor_bytes sheet, above, below;
};
struct result {
	softnd::descriptor_bytes window;
	big_endian moved;
};

static big_endian put(std::uint64_t v)
{
	big_endian b;
	for (int i = 7; i >= 0; i--, v >>= 8)
		b[std::size_t(i)] = std::uint8_t(v);
	return b;
}

static std::size_t get(const big_endian &b)
{
	std::uint64_t v = 0;
	for (auto digit : b)
		v = v << 8 | digit;
	return v;
}

static void spread_row(row_view next, row_view north, row_view here, row_view south)
{
	const std::size_t n = here.size();
	next[0] = here[0];
	next[n - 1] = here[n - 1];
	for (std::size_t x = 1; x + 1 < n; x++)
		next[x] = here[x] + 0.2 * (((north[x] + south[x]) + (here[x - 1] + here[x + 1])) - 4 * here[x]);
}

class heat {
public:
	explicit heat(unsigned count) : steps(count) {}
	void run(bool verify);

private:
	template <class T> std::vector<T> gather(const T &value);
	std::size_t first_of(std::size_t r) const { return r * height / ranks; }
	std::size_t index(unsigned generation, long y) const;
	row_view row(unsigned g, long y) const { return cells.part(index(g, y) * width, width); }
	row_view many(unsigned g, long y, std::size_t n) const { return cells.part(index(g, y) * width, n * width); }
	void results();
	void wait_for_one();
	softnd::descriptor_bytes bind(std::uint32_t peer, snd_mr *mr, row_view part, std::uint32_t rights);
	void load(std::uint32_t peer, const softnd::region &into, row_view to, const snd_window_descriptor &from, std::size_t y);
	void send_row(std::uint32_t peer, const softnd::descriptor_bytes &to, unsigned g, std::size_t y);
	void spread(unsigned g, std::size_t y) const;

	unsigned steps;
	softnd::job job = softnd::job::init();
	std::uint32_t rank = job.rank(), ranks = job.size();
	std::size_t width = 192, height = 128, first = 0, rows = 0;
	std::uint64_t max_transfer = 0, moved = 0;
	softnd::region memory, sheet_memory;
	row_view cells, sheet;
	softnd::completion_queue cq;
	std::map<std::uint32_t, softnd::endpoint> peers;
	std::vector<softnd::window> windows;
	unsigned arrived_above = 0, arrived_below = 0, done = 0;
};

template <class T> std::vector<T> heat::gather(const T &value)
{
	// nothing has no bytes on the wire, but a size in C++
	constexpr std::size_t n = std::is_same<T, nothing>::value ? 0 : sizeof(T);
	std::vector<char> mine(512 + n), all(ranks * mine.size());
	std::memcpy(mine.data() + 512, &value, n);
	softnd::check(snd_job_exchange(job, mine.data(), mine.size(), all.data(), SND_FOREVER));
	std::vector<T> values(ranks);
	for (std::size_t r = 0; r < ranks; r++) {
		const char *from = all.data() + r * mine.size();
		if (from[0] != 0) {
			job.barrier();
			throw std::runtime_error(from);
		}
		std::memcpy(&values[r], from + 512, n);
	}
	return values;
}

// index returns the row of the block's memory for row y of a generation; -1 and rows are beyond the edges.
std::size_t heat::index(unsigned generation, long y) const
{
	const std::size_t parity = generation & 1;
	if (y == -1)
		return parity;
	if (std::size_t(y) == rows)
		return 2 + 2 * rows + parity;
	return 2 + parity * rows + std::size_t(y);
}

void heat::results()
{
	snd_result buffer[16];
	for (const snd_result &r : cq.wait(buffer)) {
		softnd::check_result(r);
		const auto peer = std::uint32_t(r.endpoint_context);
		if (r.type != SND_REQUEST_RECEIVE) {
			done++;
			continue;
		}
		(peer < rank ? arrived_above : arrived_below)++;
		peers.at(peer).receive(0);
	}
}

void heat::wait_for_one()
{
	while (done == 0)
		results();
	done = 0;
}

softnd::descriptor_bytes heat::bind(std::uint32_t peer, snd_mr *mr, row_view part, std::uint32_t rights)
{
	windows.push_back(softnd::window::create(job.adapter()));
	peers.at(peer).bind(0, mr, windows.back(), part, rights);
	wait_for_one();
	return softnd::encode(windows.back().descriptor());
}

void heat::load(std::uint32_t peer, const softnd::region &into, row_view to, const snd_window_descriptor &from, std::size_t y)
{
	const std::size_t length = to.size() * sizeof(double), place = std::size_t(to.data() - into.as<double>().data()) * sizeof(double);
	for (std::size_t at = 0; at < length;) {
		const std::size_t n = std::min<std::size_t>(length - at, max_transfer);
		const snd_sge s[] = {into.sge(place + at, n)};
		peers.at(peer).read(0, s, from.address + y * width * sizeof(double) + at, from.token);
		wait_for_one();
		moved += n;
		at += n;
	}
}

void heat::send_row(std::uint32_t peer, const softnd::descriptor_bytes &to, unsigned g, std::size_t y)
{
	const std::size_t n = width * sizeof(double);
	const snd_window_descriptor d = softnd::decode(to);
	const snd_sge s[] = {memory.sge(index(g, long(y)) * n, n)};
	peers.at(peer).write(0, s, d.address + n * (g & 1), d.token, SND_SILENT_SUCCESS);
	peers.at(peer).send(0, {}, SND_SILENT_SUCCESS);
	moved += n;
}

void heat::spread(unsigned g, std::size_t y) const
{
	const row_view next = row(g + 1, long(y)), here = row(g, long(y));
	if (first + y == 0 || first + y == height - 1)
		std::copy(here.begin(), here.end(), next.begin());
	else
		spread_row(next, row(g, long(y) - 1), here, row(g, long(y) + 1));
}

void heat::run(bool verify)
{
	const extent whole = gather(extent{put(width), put(height)})[0];
	width = get(whole.width), height = get(whole.height);
	first = first_of(rank), rows = first_of(rank + 1) - first;
	snd_adapter_info info{};
	softnd::check(snd_adapter_query(job.adapter(), &info));
	max_transfer = info.max_transfer;
	memory = softnd::region::allocate(job.adapter(), (2 * rows + 4) * width * sizeof(double));
	cells = memory.as<double>();
	std::vector<double> now;
	if (rank == 0) {
		sheet_memory = softnd::region::allocate(job.adapter(), width * height * sizeof(double));
		sheet = sheet_memory.as<double>();
		for (std::size_t y = 0; y < height; y++)
			for (std::size_t x = 0; x < width; x++)
				sheet[y * width + x] = x > width / 4 && x < width / 2 && y > height / 4 && y < height / 2 ? 100 : 0;
		now.assign(sheet.begin(), sheet.end());
	}
	gather(nothing{});

	const bool above = rank > 0, below = rank + 1 < ranks;
	if (ranks > 1)
		cq = softnd::completion_queue::create(job.adapter(), ranks * 12);
	for (std::uint32_t p = 0; p < ranks; p++) {
		const bool neighbour = p + 1 == rank || p == rank + 1;
		if (p == rank || (!neighbour && p != 0 && rank != 0))
			continue;
		snd_endpoint_config config{};
		config.receive_cq = config.initiator_cq = cq;
		config.context = p, config.receive_depth = 4, config.initiator_depth = 8;
		const auto &ep = peers.emplace(p, job.connect(p, config)).first->second;
		for (int i = 0; i < 4 && neighbour; i++)
			ep.receive(0);
	}
	descriptors mine{};
	if (above)
		mine.above = bind(rank - 1, memory, many(0, -1, 2), SND_ALLOW_WRITE | SND_THIS_ENDPOINT_ONLY);
	if (below)
		mine.below = bind(rank + 1, memory, many(0, long(rows), 2), SND_ALLOW_WRITE | SND_THIS_ENDPOINT_ONLY);
	if (rank == 0 && ranks > 1)
		mine.sheet = bind(1, sheet_memory, sheet, SND_ALLOW_READ);
	const auto all = gather(mine);
	if (rank == 0) {
		std::copy_n(sheet.data(), rows * width, row(0, 0).data());
		if (below)
			std::copy_n(sheet.data() + rows * width, width, row(0, long(rows)).data());
	} else {
		const snd_window_descriptor from = softnd::decode(all[0].sheet);
		if (below)
			load(0, memory, row(0, long(rows)), from, first + rows);
		load(0, memory, row(0, -1), from, first - 1);
		load(0, memory, many(0, 0, rows), from, first);
	}
	job.barrier();
	if (rank == 0 && ranks > 1) {
		peers.at(1).invalidate(0, windows.back());
		wait_for_one();
	}

	for (unsigned g = 0; g < steps; g++) {
		while ((above && arrived_above < g) || (below && arrived_below < g))
			results();
		spread(g, 0);
		if (rows > 1)
			spread(g, rows - 1);
		if (g + 1 < steps && above)
			send_row(rank - 1, all[rank - 1].below, g + 1, 0);
		if (g + 1 < steps && below)
			send_row(rank + 1, all[rank + 1].above, g + 1, rows - 1);
		for (std::size_t y = 1; y + 1 < rows; y++)
			spread(g, y);
	}
	job.barrier();

	result last{};
	if (rank > 0)
		last.window = bind(0, memory, many(steps, 0, rows), SND_ALLOW_READ | SND_THIS_ENDPOINT_ONLY);
	last.moved = put(moved);
	const auto blocks = gather(last);
	if (rank == 0) {
		std::copy_n(row(steps, 0).data(), rows * width, sheet.data());
		for (std::uint32_t p = 1; p < ranks; p++)
			load(p, sheet_memory, sheet.part(first_of(p) * width, (first_of(p + 1) - first_of(p)) * width), softnd::decode(blocks[p].window), 0);
	}
	job.barrier();
	if (rank != 0)
		return;
	std::printf("heat: %zux%zu, %u ranks, %u steps\n", width, height, ranks, steps);
	if (!verify)
		return;
	std::vector<double> next = now;
	for (unsigned g = 0; g < steps; g++, now.swap(next))
		for (std::size_t y = 1; y + 1 < height; y++) {
			const auto line = [&](std::vector<double> &v, std::size_t at) { return row_view(v).part(at * width, width); };
			spread_row(line(next, y), line(now, y - 1), line(now, y), line(now, y + 1));
		}
	if (std::memcmp(now.data(), sheet.data(), now.size() * sizeof(double)) != 0)
		throw std::runtime_error("not the serial result");
	std::puts("heat: identical to the serial result");
}

int main(int argc, char **argv)
{
	unsigned steps = 500;
	bool verify = false;
	for (int i = 1; i < argc; i++)
		if (argv[i] == std::string("-verify"))
			verify = true;
		else if (argv[i] == std::string("-steps") && i + 1 < argc)
			steps = unsigned(std::atoi(argv[++i]));
	try {
		heat(steps).run(verify);
	} catch (const std::exception &e) {
		std::fprintf(stderr, "heat: %s\n", e.what());
		return 1;
	}
	return 0;
}

// Package suite contains the figures that softnd has to reach, the jobs that measure them, and the comparison of the two.
package suite

// bar is one figure that softnd has to reach.
type bar struct {
	name     string
	unit     string // "" for ratios
	required float64
	aim      float64
	more     bool // more is better
	figure
}

const (
	mib   = 1 << 20
	inMiB = 1.0 / mib
)

// bars are all bars, in the order of the table.
//
// A time means nothing without its machine. A processor with a slower clock misses a figure in nanoseconds. A cache
// line takes 60 ns between two cores in one minute and 300 ns in the next. Bars are therefore ratios to what the
// machine achieves directly before and after each repeat.
//
// For bars of requests that move no line, and of whole barriers, the table says what the ratio means. An exchange takes
// 20 cycles: 4.8 ns on Zen 5 at 3.9 GHz, 7.7 ns on Sapphire Rapids at 2.6 GHz. A line takes 64 ns between two near
// cores of Zen 5, a switch 1.17 µs.
//
//	                     in place of   the ratio means
//	posted               35, 20 ns     26 and 14 ns on Zen 5; 42 and 23 ns on Sapphire Rapids, which is less strict
//	Bind and Invalidate  200, 80 ns    125 and 50 ns on Zen 5; 200 and 81 ns on Sapphire Rapids
//	message rate         27, 45 M/s    27 and 45 M/s at a line of 64 ns; less where it takes longer
//	barrier of 2         150, 80 ns    96 and 80 ns at a line of 64 ns; 150 and 125 ns at 100 ns
//	barrier of 8         10, 5 µs      the same at a switch of 1.17 µs
//	barrier of 16        25, 12 µs     the same at a switch of 1.17 µs
var bars = []bar{
	{name: "Write 8 B, half round trip ÷ raw cache line", required: 1.35, aim: 1.15,
		figure: toLimit(ours("write_lat", 8), rawLineLimit)},
	{name: "Write 8 B posted, completed, polled ÷ locked exchange", required: 5.5, aim: 3,
		figure: toLimit(ours("posted", 8).atDepth(1), lockedExchangeLimit)},
	{name: "Write 1 MiB ÷ memcpy, bandwidth", required: 0.95, aim: 1, more: true,
		figure: toLimit(ours("write_bw", mib), memcpyLimit)},
	{name: "Read 1 MiB ÷ memcpy, bandwidth", required: 0.95, aim: 1, more: true,
		figure: toLimit(ours("read_bw", mib), memcpyLimit)},
	{name: "Send 8 B, half round trip ÷ raw cache line", required: 1.5, aim: 1.15,
		figure: toLimit(ours("send_lat", 8), rawLineLimit)},
	{name: "Send 64 KiB, half round trip ÷ memcpy", required: 2, aim: 1.4,
		figure: toLimit(ours("send_lat", 64<<10), memcpyLimit)},
	{name: "Send 1 MiB ÷ memcpy, bandwidth", required: 0.8, aim: 0.95, more: true,
		figure: toLimit(ours("send_bw", mib), memcpyLimit)},
	{name: "Sends of 8 B, one pair, in the time of a raw cache line", required: 1.7, aim: 2.9, more: true,
		figure: toLimit(ours("msg_rate", 8), rawLineLimit)},
	{name: "Write 8 B by the target, private memory ÷ raw round trip", required: 1.7, aim: 1.25,
		figure: toLimit(selector{test: "write_completion", size: 8, executor: "target", memory: "private"}, rawRoundTripLimit)},
	{name: "Bind and Invalidate, nothing in flight ÷ locked exchange", required: 26, aim: 10.5,
		figure: toLimit(ours("bind_invalidate", 4096), lockedExchangeLimit)},
	{name: "Write 8 B, 64 queue pairs ÷ one, each ÷ raw cache line", required: 1.5, aim: 1.1, figure: manyPairs("write_lat")},
	{name: "Send 8 B, 64 queue pairs ÷ one, each ÷ raw cache line", required: 1.5, aim: 1.1, figure: manyPairs("send_lat")},
	{name: "barrier of 2 ÷ raw cache line", required: 1.5, aim: 1.25,
		figure: toLimit(selector{test: "barrier", ranks: 2}, rawLineLimit)},
	{name: "barrier of 8 on 2 cores ÷ switch of a core", required: 8.5, aim: 4.3,
		figure: toLimit(selector{test: "barrier", ranks: 8}, rawSwitchLimit)},
	{name: "barrier of 16 on 2 cores ÷ switch of a core", required: 21, aim: 10,
		figure: toLimit(selector{test: "barrier", ranks: 16}, rawSwitchLimit)},
	{name: "a rank blocked in Wait, of a core", unit: "%", required: 1, aim: 0.1,
		figure: value(selector{test: "blocked", events: true}, "%", 1)},
	{name: "a rank blocked in Barrier, of a core", unit: "%", required: 1, aim: 0.1,
		figure: value(selector{test: "blocked_barrier", events: true}, "%", 1)},
	{name: "p99.9 of Write 8 B, allocating 1 GB/s ÷ not, beyond the raw cache line's", required: 5, aim: 2,
		figure: beyondLimit(ours("alloc_noise", 8), rawLineNoiseLimit)},
	{name: "arena memory of a rank, 64 connected", unit: "MiB", required: 8, aim: 2,
		figure: value(selector{test: "arena_memory", ranks: 64, once: true}, "B", inMiB)},
}

// ours selects transfers between arena memory with default options.
func ours(test string, size int) selector {
	return selector{test: test, size: size, pairs: 1, executor: "auto", memory: "arena"}
}

// manyPairs is the ratio of the latency with 64 queue pairs on one completion queue to that with one. Each is relative
// to the cache line of its own time.
func manyPairs(test string) figure {
	one, many := ours(test, 8), ours(test, 8)
	many.pairs = 64
	return quotient(toLimit(many, rawLineLimit), toLimit(one, rawLineLimit))
}

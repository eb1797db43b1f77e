// Package suite holds what softnd has to reach, the measurements that show it,
// and the comparison of the two.
package suite

import "github.com/softnd/softnd/bench/measure"

// Bar is one thing that softnd has to reach.
type Bar struct {
	Name     string
	Unit     string // "" for ratios
	Required float64
	Aim      float64
	More     bool // more is better
	seen     figure
}

const (
	mib   = 1 << 20
	inMiB = 1.0 / mib
	inUS  = 1e-3 // of ns
	inM   = 1e-6
)

// Bars are all of them, in the order in which people read them.
//
// The ratios to a limit of the machine were taken repeat by repeat, next to
// each other in time.
var Bars = []Bar{
	{Name: "Write 8 B, half round trip ÷ raw cache line", Required: 1.35, Aim: 1.15,
		seen: toLimit(ours("write_lat", 8), measure.RawLine)},
	{Name: "Write 8 B posted, completed, polled, one at a time", Unit: "ns", Required: 35, Aim: 20,
		seen: value(ours("posted", 8).atDepth(1), "ns")},
	{Name: "Write 1 MiB ÷ memcpy, bandwidth", Required: 0.95, Aim: 1, More: true,
		seen: toLimit(ours("write_bw", mib), measure.Memcpy)},
	{Name: "Read 1 MiB ÷ memcpy, bandwidth", Required: 0.95, Aim: 1, More: true,
		seen: toLimit(ours("read_bw", mib), measure.Memcpy)},
	{Name: "Send 8 B, half round trip ÷ raw cache line", Required: 1.5, Aim: 1.15,
		seen: toLimit(ours("send_lat", 8), measure.RawLine)},
	{Name: "Send 64 KiB, half round trip ÷ memcpy", Required: 2, Aim: 1.4,
		seen: toLimit(ours("send_lat", 64<<10), measure.Memcpy)},
	{Name: "Send 1 MiB ÷ memcpy, bandwidth", Required: 0.8, Aim: 0.95, More: true,
		seen: toLimit(ours("send_bw", mib), measure.Memcpy)},
	{Name: "message rate, Sends of 8 B, one pair", Unit: "M/s", Required: 27, Aim: 45, More: true,
		seen: times(inM, value(ours("msg_rate", 8), "msg/s"))},
	{Name: "Write 8 B by the target, private memory ÷ raw round trip", Required: 1.7, Aim: 1.25,
		seen: toLimit(which{test: "write_completion", size: 8, executor: "target", memory: "private"}, measure.RawRoundTrip)},
	{Name: "Bind and Invalidate, nothing in flight", Unit: "ns", Required: 200, Aim: 80,
		seen: value(ours("bind_invalidate", 4096), "ns")},
	{Name: "Write 8 B, 64 queue pairs ÷ one", Required: 1.5, Aim: 1.1, seen: manyPairs("write_lat")},
	{Name: "Send 8 B, 64 queue pairs ÷ one", Required: 1.5, Aim: 1.1, seen: manyPairs("send_lat")},
	{Name: "barrier of 2", Unit: "ns", Required: 150, Aim: 80,
		seen: value(which{test: "barrier", ranks: 2}, "ns")},
	{Name: "barrier of 8 on 2 cores", Unit: "µs", Required: 10, Aim: 5,
		seen: times(inUS, value(which{test: "barrier", ranks: 8}, "ns"))},
	{Name: "barrier of 16 on 2 cores", Unit: "µs", Required: 25, Aim: 12,
		seen: times(inUS, value(which{test: "barrier", ranks: 16}, "ns"))},
	{Name: "a rank blocked in Wait, of a core", Unit: "%", Required: 1, Aim: 0.1,
		seen: value(which{test: "blocked", events: true}, "%")},
	{Name: "a rank blocked in Barrier, of a core", Unit: "%", Required: 1, Aim: 0.1,
		seen: value(which{test: "blocked_barrier", events: true}, "%")},
	{Name: "p99.9 of Write 8 B, allocating 1 GB/s ÷ not", Required: 5, Aim: 2,
		seen: value(ours("alloc_noise", 8), "ratio")},
	{Name: "arena memory of a rank, 64 connected", Unit: "MiB", Required: 8, Aim: 2,
		seen: times(inMiB, value(which{test: "arena_memory", ranks: 64, once: true}, "B"))},
}

// ours names transfers between memory of the arena, as programs get them by
// default.
func ours(test string, size int) which {
	return which{test: test, size: size, pairs: 1, executor: "auto", memory: "arena"}
}

// manyPairs is the latency with 64 queue pairs on one completion queue to that
// with one.
func manyPairs(test string) figure {
	one, many := ours(test, 8), ours(test, 8)
	many.pairs = 64
	return quotient(value(many, "ns"), value(one, "ns"))
}

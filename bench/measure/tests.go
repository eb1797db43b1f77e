package measure

import (
	"fmt"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// Tests returns all measurements, in the order in which users see them.
func Tests() []Test {
	return []Test{
		{"write_lat", "latency of a Write until its data arrive: half a round trip", 2, writeLat.run, true, true},
		{"read_lat", "latency of a Read, from post to completion", 2, readLat.run, true, true},
		{"send_lat", "latency of a Send: half a round trip", 2, sendLat.run, true, true},
		{"atomic_lat", "latency of a FetchAndAdd until the target sees the sum: half a round trip", 2, atomicLat.run, true, false},
		{"write_completion", "a Write that the target executes in private memory, from post to completion", 2, writeCompletion.run, true, false},
		{"write_bw", "bandwidth of Writes", 2, bandwidth("write_bw", nd.RequestWrite).run, true, true},
		{"read_bw", "bandwidth of Reads", 2, bandwidth("read_bw", nd.RequestRead).run, true, true},
		{"send_bw", "bandwidth of Sends", 2, bandwidth("send_bw", nd.RequestSend).run, true, true},
		{"msg_rate", "rate of small Sends on one queue pair", 2, msgRate.run, true, true},
		{"posted", "time to post a Write and poll its completion, back to back", 2, posted.run, true, false},
		{"bind_invalidate", "Bind and Invalidate of a window, nothing in flight", 2, runBind, true, false},
		{"mr_lat", "latency of registering and deregistering, allocating and freeing memory", 2, runMRLat, false, false},
		{"mr_rate", "rate of registering and deregistering, allocating and freeing memory", 2, runMRRate, false, false},
		{"connect_rate", "connections made and closed, one after the other", 2, runConnect, false, false},
		{"barrier", "barrier of all ranks", 0, runBarrier, false, false},
		{"wakeup", "time from a message to a sleeping rank until its answer arrives", 2, runWakeup, false, false},
		{"oversubscribed", "exchange with both neighbours in a ring of ranks", 0, runNeighbours, false, false},
		{"blocked", "processor time of a rank that waits while nothing happens", 0, runBlocked, false, false},
		{"alloc_noise", "tail latency of a Write while every rank allocates, relative to that while none does", 2, runAllocNoise, false, false},
		{"arena_memory", "arena memory per rank, fully connected", 0, runArenaMemory, false, false},
	}
}

// checks validate the options of tests before a job starts.
var checks = map[string]func(Options) error{
	"write_lat": writeLat.check, "read_lat": readLat.check, "send_lat": sendLat.check, "atomic_lat": atomicLat.check,
	"write_completion": writeCompletion.check, "posted": posted.check,
	"alloc_noise":     pingPong{name: "alloc_noise", eventAdvice: writeLat.eventAdvice}.check,
	"bind_invalidate": notTwoWay("bind_invalidate"), "mr_lat": notTwoWay("mr_lat"), "mr_rate": notTwoWay("mr_rate"),
	"connect_rate": notTwoWay("connect_rate"), "barrier": notTwoWay("barrier"), "wakeup": notTwoWay("wakeup"),
	"oversubscribed": notTwoWay("oversubscribed"), "blocked": notTwoWay("blocked"), "arena_memory": notTwoWay("arena_memory"),
}

// notTwoWay returns a check that refuses transfers in both directions at once.
func notTwoWay(test string) func(Options) error { return pingPong{name: test}.check }

// Check returns an error if the test does not support the options, or ranks that are helpers. helped reports for each of
// ranks 0 and 1 whether it is one.
func (t Test) Check(o Options, helped [2]bool) error {
	if check := checks[t.Name]; check != nil {
		if err := check(o); err != nil {
			return err
		}
	}
	if err := t.checkEffect(o); err != nil {
		return err
	}
	if o.Hosts > 1 {
		return t.checkHosts(o)
	}
	return t.checkHelped(o, helped)
}

// sizes returns the sizes that were asked for, or the test's own.
func sizes(o Options, own ...int) []int {
	if len(o.Sizes) > 0 {
		return o.Sizes
	}
	return own
}

func newResult(test, unit, better, remark string, o Options) report.Result {
	res := report.Result{Test: test, Provider: "softnd", Unit: unit, Better: better, Note: remark}
	if o.Inline {
		note(&res, "inline")
	}
	return res
}

// note adds a remark to a result.
func note(res *report.Result, format string, args ...any) {
	if res.Note != "" {
		res.Note += "; "
	}
	res.Note += fmt.Sprintf(format, args...)
}

package suite

import (
	"time"

	"github.com/softnd/softnd/bench/measure"
)

// Run is one job that measures something.
type Run struct {
	Test    string
	Ranks   int
	Cores   int             // that the job may use; 0 = all
	Options measure.Options // the executor included
}

const (
	quickRepeat    = 100 * time.Millisecond
	thoroughRepeat = 500 * time.Millisecond
	warmUp         = 1000 // operations
)

// Quick returns the jobs whose results the bars are about, and a few more that
// people ask for. All of them together take less than three minutes.
func Quick() []Run { return runs(quickRepeat, leastRepeats) }

// Thorough is the same with more and longer repeats.
func Thorough() []Run { return runs(thoroughRepeat, 2*leastRepeats+1) }

func runs(repeat time.Duration, repeats int) []Run {
	list := jobs()
	for i := range list {
		o := &list[i].Options
		if o.Duration == 0 {
			o.Duration = repeat
		}
		if o.Executor == "" {
			o.Executor = "auto"
		}
		o.Pairs = max(o.Pairs, 1)
		o.Repeats, o.WarmUp = repeats, warmUp
	}
	return list
}

func jobs() []Run {
	small, large := []int{8}, []int{mib}
	return []Run{
		pinned("write_lat", measure.Options{Sizes: small}),
		pinned("write_lat", measure.Options{Sizes: small, Pairs: 64}),
		pinned("posted", measure.Options{Sizes: small}),
		pinned("write_bw", measure.Options{Sizes: large}),
		pinned("read_bw", measure.Options{Sizes: large}),
		pinned("send_lat", measure.Options{Sizes: []int{8, 64 << 10}}),
		pinned("send_lat", measure.Options{Sizes: small, Pairs: 64}),
		pinned("send_bw", measure.Options{Sizes: large}),
		pinned("msg_rate", measure.Options{Sizes: small}),
		pinned("write_completion", measure.Options{Sizes: small, Executor: "target", Private: true}),
		pinned("bind_invalidate", measure.Options{Sizes: []int{4096}}),
		pinned("mr_lat", measure.Options{Sizes: []int{4096, mib}}),
		pinned("connect_rate", measure.Options{}),
		pinned("barrier", measure.Options{}),
		crowd("barrier", 8),
		crowd("barrier", 16),
		pinned("wakeup", measure.Options{}),
		crowd("oversubscribed", 8),
		pinned("blocked", measure.Options{Duration: time.Second}),
		pinned("alloc_noise", measure.Options{Sizes: small, Duration: 500 * time.Millisecond}),
		crowd("arena_memory", 64),
	}
}

// pinned is a run of two ranks, each on a core of its own.
func pinned(test string, o measure.Options) Run {
	o.Pinned = true
	return Run{Test: test, Ranks: 2, Options: o}
}

// crowd is a run of more ranks than the two cores that it may use.
func crowd(test string, ranks int) Run { return Run{Test: test, Ranks: ranks, Cores: 2} }

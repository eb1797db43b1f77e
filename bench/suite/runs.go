package suite

import (
	"time"

	"github.com/softnd/softnd/bench/measure"
)

// Plan is the order of the suite's measurements: all runs in each of several rounds. Each
// figure then has repeats from several minutes, and from several processes with
// memory at different addresses. Further rounds, up to Extra, are of those runs
// alone whose bars are not decided.
type Plan struct {
	Runs   []Run
	Rounds int
	Extra  int
	Time   time.Duration // after which no further round begins, however many were planned
}

// Run is one job that measures something.
type Run struct {
	Test    string
	Ranks   int
	Cores   int             // that the job may use; 0 = all
	once    bool            // in the first round only: it takes long, or says the same each time
	Options measure.Options // the executor included
}

const warmUp = 1000 // operations

// NewPlan returns the plan of a suite: the jobs whose results the bars are about, and a few more that people ask for. A
// quick plan takes less than three minutes. A thorough one has more repeats.
func NewPlan(quick bool) Plan {
	if quick {
		return plan(20, Plan{Rounds: 3, Extra: 3, Time: 2 * time.Minute})
	}
	return plan(40, Plan{Rounds: 6, Extra: 6, Time: 15 * time.Minute})
}

// repeatTime is short. Processes that share a core alternate every few
// milliseconds, so most repeats are not interrupted even if other processes use
// half of the core.
const repeatTime = time.Millisecond

func plan(repeats int, p Plan) Plan {
	p.Runs = jobs()
	for i := range p.Runs {
		o := &p.Runs[i].Options
		if o.Duration == 0 {
			o.Duration = repeatTime
		}
		if o.Executor == "" {
			o.Executor = "auto"
		}
		if o.Repeats == 0 {
			o.Repeats = repeats
		}
		o.Pairs, o.WarmUp = max(o.Pairs, 1), warmUp
	}
	return p
}

func jobs() []Run {
	small, large := []int{8}, []int{mib}
	return []Run{
		pinned("write_lat", measure.Options{Sizes: small}),
		manyPaired("write_lat", measure.Options{Sizes: small}),
		pinned("posted", measure.Options{Sizes: small}),
		pinned("write_bw", measure.Options{Sizes: large}),
		pinned("read_bw", measure.Options{Sizes: large}),
		pinned("send_lat", measure.Options{Sizes: []int{8, 64 << 10}}),
		manyPaired("send_lat", measure.Options{Sizes: small}),
		pinned("send_bw", measure.Options{Sizes: large}),
		pinned("msg_rate", measure.Options{Sizes: small}),
		pinned("write_completion", measure.Options{Sizes: small, Executor: "target", Private: true}),
		pinned("bind_invalidate", measure.Options{Sizes: []int{4096}}),
		pinned("barrier", measure.Options{}),
		crowd("barrier", 8),
		crowd("barrier", 16),
		once(pinned("mr_lat", measure.Options{Sizes: []int{4096, mib}})),
		once(pinned("connect_rate", measure.Options{})),
		once(pinned("wakeup", measure.Options{Duration: 100 * time.Millisecond, Repeats: leastRepeats})),
		once(crowd("oversubscribed", 8)),
		once(pinned("blocked", measure.Options{Duration: time.Second, Repeats: leastRepeats})),
		once(pinned("alloc_noise", measure.Options{Sizes: small, Duration: 500 * time.Millisecond, Repeats: leastRepeats})),
		once(crowd("arena_memory", 64)),
	}
}

// pinned is a run of two ranks, each on a core of its own.
func pinned(test string, o measure.Options) Run {
	o.Pinned = true
	return Run{Test: test, Ranks: 2, Options: o}
}

// manyPaired is a pinned run with 64 queue pairs, and longer repeats. The engine
// visits endpoints often at first and seldom later. That delays the first
// milliseconds of a loop over so many.
func manyPaired(test string, o measure.Options) Run {
	o.Pairs, o.Duration, o.Repeats = 64, 20*time.Millisecond, 10
	return pinned(test, o)
}

// crowd is a run of more ranks than the two cores that it may use.
func crowd(test string, ranks int) Run { return Run{Test: test, Ranks: ranks, Cores: 2} }

func once(r Run) Run {
	r.once = true
	return r
}

// Wants reports whether a run is part of a round, which is counted from 0. The
// card is of the rounds before it.
func (p *Plan) Wants(round int, r Run, c *Results) bool {
	switch {
	case round == 0:
		return true
	case round < p.Rounds:
		return !r.once
	}
	return c.open(r)
}

// measures reports whether a run finds what w names.
func (r Run) measures(w which) bool {
	return (r.Test == w.test || r.Test == "blocked" && w.test == "blocked_barrier") &&
		(w.ranks == 0 || w.ranks == r.Ranks) && (w.pairs == 0 || w.pairs == r.Options.Pairs)
}

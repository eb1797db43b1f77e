package suite

import (
	"errors"
	"fmt"
	"time"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
)

// plan is the order of the suite's measurements: all runs in each of several rounds, and then up to extra rounds of the runs
// whose bars are undecided.
type plan struct {
	runs   []Run
	rounds int
	extra  int
	time   time.Duration // after which no further round begins
}

// Run is one job of the suite, which measures one test.
type Run struct {
	Test    string
	Ranks   int
	Cores   int             // that the job may use; 0 = all
	once    bool            // in the first round only: it takes long, or its figure never differs
	Options measure.Options // including the executor
}

const warmUp = 1000 // operations

// Measure measures the required figures, and a few more. It calls run for each job of several rounds, which count from 1, and
// pools the results. Each figure then has repeats from several minutes, and from several processes with memory at different
// addresses. If the result of a check is still open, further rounds repeat the jobs that can decide it. A quick suite takes
// less than three minutes; the other has more rounds and repeats.
//
// Measure calls between once, after the first round, and adds its results. It omits jobs that fail, and its error names them.
func Measure(quick bool, run func(round int, r Run) ([]report.Result, error), between func() []report.Result) (found []report.Result, err error) {
	p := planOf(quick)
	begun := time.Now()
	for round := range p.rounds + p.extra {
		if round > 0 && time.Since(begun) > p.time {
			break
		}
		if round == 1 {
			found = append(found, between()...)
		}
		checked := checkAll(&report.Report{Results: found})
		for _, r := range p.runs {
			if !p.wants(round, r, checked) {
				continue
			}
			results, failed := run(round+1, r)
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("suite: %s with %d ranks: %w", r.Test, r.Ranks, failed))
			}
			found = report.Pool(found, results)
		}
	}
	return found, err
}

func planOf(quick bool) plan {
	if quick {
		return plan{runs: runs(20), rounds: 3, extra: 3, time: 2 * time.Minute}
	}
	return plan{runs: runs(40), rounds: 6, extra: 18, time: 15 * time.Minute}
}

// repeatTime is short. Processes that share a core alternate every few milliseconds, so most repeats are not interrupted even
// if other processes use half of the core.
const repeatTime = time.Millisecond

// runs returns all jobs, with the given number of repeats unless the job has its own.
func runs(repeats int) []Run {
	all := jobs()
	for i := range all {
		o := &all[i].Options
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
	return all
}

func jobs() []Run {
	small, large := []int{8}, []int{mib}
	all := []Run{
		pinned("write_lat", measure.Options{Sizes: small}),
		manyPaired("write_lat", measure.Options{Sizes: small}),
		pinned("posted", measure.Options{Sizes: small}),
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
		once(pinned("wakeup", measure.Options{Duration: 100 * time.Millisecond, Repeats: minRepeats})),
		once(crowd("oversubscribed", 8)),
		once(pinned("blocked", measure.Options{Duration: time.Second, Repeats: minRepeats})),
		once(pinned("alloc_noise", measure.Options{Sizes: small, Duration: 500 * time.Millisecond, Repeats: minRepeats})),
		once(crowd("arena_memory", 64)),
	}
	for range 3 {
		all = append(all, copying("write_bw"), copying("read_bw"))
	}
	return all
}

// pinned is a run of two ranks, each on a core of its own.
func pinned(test string, o measure.Options) Run {
	o.Pinned = true
	return Run{Test: test, Ranks: 2, Options: o}
}

// manyPaired is a pinned run with 64 queue pairs, and longer repeats. The engine checks endpoints often at first and seldom
// later. That delays the first milliseconds of a loop over so many endpoints.
func manyPaired(test string, o measure.Options) Run {
	o.Pairs, o.Duration, o.Repeats = 64, 20*time.Millisecond, 10
	return pinned(test, o)
}

// copying is a pinned run of transfers of 1 MiB. It has few repeats, because each process has other pages, and pages that compete for
// the lines of a cache change the time of all its copies. They are longer, because a burst of requests begins with a wake-up.
func copying(test string) Run {
	return pinned(test, measure.Options{Sizes: []int{mib}, Duration: 5 * time.Millisecond, Repeats: 10})
}

// crowd is a run of more ranks than the two cores that it may use.
func crowd(test string, ranks int) Run { return Run{Test: test, Ranks: ranks, Cores: 2} }

func once(r Run) Run {
	r.once = true
	return r
}

// wants reports whether a run is part of a round, which counts from 0. c is the result of the rounds before it.
func (p *plan) wants(round int, r Run, c *results) bool {
	switch {
	case round == 0:
		return true
	case round < p.rounds:
		return !r.once
	}
	return c.open(r)
}

// measures reports whether a run measures the results that w names.
func (r Run) measures(w selector) bool {
	return (r.Test == w.test || r.Test == "blocked" && w.test == "blocked_barrier") &&
		(w.ranks == 0 || w.ranks == r.Ranks) && (w.pairs == 0 || w.pairs == r.Options.Pairs)
}

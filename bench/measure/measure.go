// Package measure holds the measurements of softnd: loops over the model of
// package nd, between the ranks of a job.
package measure

import (
	"context"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/report"
)

// Test is one measurement. All ranks of a job run it at the same time, with
// the same options; rank 0 returns what was found, the others nothing.
type Test struct {
	Name  string // as on the command line: write_lat
	Title string // one line for people
	Ranks int    // that take part; 0 = any number from 2 on
	Run   func(ctx context.Context, w *World, o Options) ([]report.Result, error)
}

// World is what a test runs in: a job whose ranks have been pinned, and the
// limits of the machine between ranks 0 and 1.
type World struct {
	Job    *softnd.Job
	Limits Limits
}

// Limits measures what the machine can do at best, in nanoseconds. Ranks 0 and 1
// call its methods together; other ranks do not. Each call measures anew, briefly.
// Figures are returned on rank 0.
type Limits interface {
	// RawLine is the half round trip of a cache line between the two ranks.
	RawLine() (float64, error)
	// SampleRawLine makes n round trips of that line, and on rank 0 records half of each.
	SampleRawLine(n int, h *Histogram) error
	// Exchange is an atomic exchange by one rank, of a word of its own, while the
	// other rests.
	Exchange() (float64, error)
	// Switch is how long the two ranks take to hand over a core that they share, by
	// sched_yield(2).
	Switch() (float64, error)
	// Memcpy is a plain copy of n bytes by one rank while the other rests.
	Memcpy(n int) (float64, error)
}

// Options are what a user may choose. Zero values mean the default of the test.
type Options struct {
	Sizes         []int         // bytes; nil = the test's own
	Iterations    int           // of one repeat; 0 = as many as Duration takes
	Duration      time.Duration // of one repeat
	WarmUp        int           // iterations before the first repeat; fewer if they take longer than a repeat
	Repeats       int
	Depth         int
	Pairs         int
	Events        bool   // wait for events instead of polling
	Executor      string // auto or target: chosen when the job starts, here to be reported
	Private       bool   // memory of the process instead of the arena
	Bidirectional bool
	Inline        bool // post Sends and Writes with nd.Inline
	Validate      bool // check the data that arrives
	Pinned        bool
}

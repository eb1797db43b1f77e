// Package measure contains the measurements of softnd: loops over the model of package nd, between the ranks of a job.
package measure

import (
	"context"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/report"
)

// Test is one measurement. All ranks of a job run it at the same time with the same options. Rank 0 returns the
// results, and the others return nothing.
type Test struct {
	Name  string // as on the command line: write_lat
	Title string // one line for people
	Ranks int    // ranks of the job; 0 = any number from 2 on
	Run   func(ctx context.Context, w *World, o Options) ([]report.Result, error)

	helped bool // the ranks may be helpers
	hosts  bool // the ranks may run on two hosts
}

// World is the job of a measurement, with pinned ranks, and the limits of the machine between ranks 0 and 1.
// Ranks on two hosts are not pinned.
type World struct {
	Job    *softnd.Job // nil if there are helpers
	limits *limits
	crew   *crew // nil if there are no helpers
	wire   *wire // the limits if the ranks run on two hosts, else nil
}

// ranks are the processes of a job, as a [loop] needs them.
type ranks interface {
	Barrier(ctx context.Context) error
	Exchange(ctx context.Context, mine []byte) ([][]byte, error)
	Rank() int
	Size() int
}

func (w *World) ranks() ranks {
	if w.crew != nil {
		return w.crew
	}
	return w.Job
}

// machine measures the limits of transfers, in nanoseconds. All ranks that have limits call its methods together.
type machine interface {
	rawLine() (float64, error)
	exchange() (float64, error)
	memcpy(size int) (float64, error)
}

func (w *World) machine() machine {
	if w.crew != nil {
		return w.crew
	}
	return w.limits
}

// Options are the choices of a user. Zero values mean the default of the test.
type Options struct {
	Sizes         []int         // bytes; nil = the test's own
	Iterations    int           // of one repeat; 0 = as many as Duration takes
	Duration      time.Duration // of one repeat
	WarmUp        int           // iterations before the first repeat; fewer if they take longer than a repeat
	Repeats       int
	Depth         int
	Pairs         int
	Events        bool   // wait for events instead of polling
	Executor      string // auto or target; chosen when the job starts, and reported here
	Private       bool   // memory of the process instead of the arena
	Bidirectional bool
	Inline        bool // post Sends and Writes with nd.Inline
	Validate      bool // check the data that arrives
	Pinned        bool
	Hosts         int // on which the ranks run; 0 = 1
}

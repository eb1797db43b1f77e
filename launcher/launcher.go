package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// MaxRanks is the most ranks that a job can have.
const MaxRanks = 1024

// FirstFile is the descriptor in a rank of the first of [Config.Files].
const FirstFile = 3

// Config says what to run.
type Config struct {
	// Parts are the programs. Ranks are numbered through them in this order; a job has 1
	// to MaxRanks.
	Parts []Part

	RankEnv func(rank int) []string // nil: none; beats the part's Env
	Files   []*os.File              // inherited by each rank from FirstFile on

	// Socket is given, before anything else is told of a rank, the other end of a socket
	// that this rank alone inherits, behind Files. It must not block for long; an error
	// stops the job. To read the file blocks no thread. nil: ranks have none.
	Socket func(rank int, file *os.File) error

	// Aborts brings the wishes of ranks that the job ends; nil: none.
	Aborts <-chan Abort
	// Ended is called when a rank has ended with 0 before the job was being stopped; an
	// error counts as the rank's failure. nil: 0 is always good.
	Ended func(rank int) error

	// Causes is called at the first failure of a rank. It returns the ranks whose leaving
	// may have caused that failure, the nearest first and the first cause last. While one
	// of them runs, the ranks are not asked to end for up to a second: a cause that fails in
	// that time, or aborts the job, counts as the first to fail. It must not block. nil:
	// the rank that ends first counts.
	Causes func(victim int) []int

	// CPUs gives the processors on which a rank runs from its first instruction on. nil,
	// or none for a rank: those of the caller.
	CPUs func(rank int) []int

	// StopAtStart tells which ranks stop before their first instruction and stay so until
	// they get SIGCONT; Stopped is called for each, from Run. nil: none does. It takes
	// ptrace, but no tracer stays.
	StopAtStart func(rank int) bool
	Stopped     func(rank, pid int)

	// Notice is called from Run with a message that the user should see at once: one of the
	// launcher's own processes is stopped. nil: the message is dropped.
	Notice func(text string)

	// Timeout is how long the job may run, 0: without limit. Then it is explained, and the
	// ranks that still run are stopped as after a failure.
	Timeout time.Duration

	// Explain is called when the job's time is over, before the first signal that ends the
	// job is passed on, and when Ask says so. It gets the report so far. What it returns becomes
	// Report.Hang. It runs in a goroutine of its own, one call at a time, and the ranks are
	// not asked to end before it has returned, unless that takes 5 seconds or another
	// signal ends the job. It may still run when Run has returned. nil: nothing is called.
	Explain func(why Occasion, r *Report) (hang []string)
	Ask     <-chan struct{}

	explainTime time.Duration // 0: as it should be

	// Stdin is the standard input of the ranks in StdinRanks, each named once; nil: of rank
	// 0. The others', and everybody's if Stdin is nil or a terminal that another process
	// group has in the foreground: /dev/null. One rank inherits the file itself, so what it
	// does not read stays there. Several get a copy through pipes: the slowest sets the
	// pace, and one that has closed its input or ended is left out.
	Stdin      *os.File
	StdinRanks []int

	Stdout, Stderr io.Writer
	Output         Output // in which form, and to which files

	// Signals brings signals to pass on, from CatchSignals; nil: none.
	Signals <-chan os.Signal

	// Grace is the time between asking ranks to end (SIGTERM) and killing them, after
	// a failure; it is also what the ranks' own children get when all ranks have ended.
	// SignalGrace is the time after a signal from the user. 0: 250 ms and 5 s.
	Grace, SignalGrace time.Duration
}

// Errors of Run that a caller may tell apart.
var (
	ErrKeeperLost = errors.New("the process that keeps the job ended before the job")
	ErrNotServed  = errors.New("main does not call launcher.Serve first")
)

// Run starts a job, passes on its output and signals, and returns when no process of
// the job is left. The job is brought down when a rank fails or aborts it, when a
// signal says so, when its time is over, when ctx ends, when its output cannot be
// written, and when the caller dies.
//
// Each line of a rank arrives in one piece, labelled "[rank] " unless Output says
// otherwise. A line that the rank did not end is ended for it, except in form Plain
// without time stamps, which adds nothing; one longer than 1 MiB arrives in pieces of
// that length. If Stdout or Stderr is a terminal, a carriage return ends a line too,
// and stays a carriage return. All other bytes arrive as they are, and every byte
// does: a slow writer slows the ranks.
//
// The report is nil only if the job could not be begun. A rank's failure is no error
// of Run. Errors: [ErrNotServed]; [ErrKeeperLost] if someone killed the job's keeper
// (the ranks are gone then too); the cause of ctx's end; the output's first write
// error; and the system's reason if pipes or ranks could not be made.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("start the job: %w", err)
	}
	return Prepare(cfg.ranks()).Run(ctx, cfg)
}

func (cfg *Config) check() error {
	if !served {
		return ErrNotServed
	}
	for i, p := range cfg.Parts {
		if p.Ranks < 1 {
			return fmt.Errorf("part %d has %d ranks: each has at least 1", i, p.Ranks)
		}
		if len(p.Args) == 0 {
			return fmt.Errorf("part %d has no program", i)
		}
	}
	if n := cfg.ranks(); n < 1 || n > MaxRanks {
		return fmt.Errorf("%d ranks: a job has 1 to %d", n, MaxRanks)
	}
	for i, rank := range cfg.StdinRanks {
		if rank < 0 || rank >= cfg.ranks() || slices.Contains(cfg.StdinRanks[:i], rank) {
			return fmt.Errorf("standard input for rank %d, the %dth that is named: the job has ranks 0 to %d, each to be named once", rank, i+1, cfg.ranks()-1)
		}
	}
	return cfg.Output.check()
}

// readers are the ranks that get the standard input.
func (cfg *Config) readers() []int {
	switch {
	case cfg.Stdin == nil || inBackground(cfg.Stdin):
		return nil
	case cfg.StdinRanks == nil:
		return []int{0}
	}
	return cfg.StdinRanks
}

func (cfg *Config) job(programs []*os.File) job {
	j := job{
		Ranks:       cfg.ranks(),
		Parts:       cfg.jobParts(programs),
		RankEnv:     make([][]string, cfg.ranks()),
		CPUs:        make([][]int, cfg.ranks()),
		Held:        make([]bool, cfg.ranks()),
		Programs:    len(programs),
		Files:       len(cfg.Files),
		Socket:      cfg.Socket != nil,
		Grace:       cfg.Grace,
		SignalGrace: cfg.SignalGrace,
	}
	if j.Grace == 0 {
		j.Grace = 250 * time.Millisecond
	}
	if j.SignalGrace == 0 {
		j.SignalGrace = 5 * time.Second
	}
	for rank := range j.Ranks {
		if cfg.RankEnv != nil {
			j.RankEnv[rank] = cfg.RankEnv(rank)
		}
		if cfg.CPUs != nil {
			j.CPUs[rank] = cfg.CPUs(rank)
		}
		if cfg.StopAtStart != nil {
			j.Held[rank] = cfg.StopAtStart(rank)
		}
	}
	return j
}

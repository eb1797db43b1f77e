package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// MaxRanks is the most ranks that a job can have.
const MaxRanks = 1024

// FirstFile is the descriptor in a rank of the first of [Config.Files].
const FirstFile = 3

// Config says what to run.
type Config struct {
	Ranks int // 1 to MaxRanks

	// The program is Path, not looked up, relative to Dir unless it is absolute; or
	// Program, an open file that need not have a name any more. Args holds its
	// arguments from argv[0] on; the base name of argv[0] stands in messages.
	Path    string
	Program *os.File
	Args    []string

	Dir     string                  // where ranks start; "" is the caller's directory
	Env     []string                // "name=value"; a later entry beats an earlier one
	RankEnv func(rank int) []string // nil: none; beats Env
	Files   []*os.File              // inherited by each rank from FirstFile on, and nothing else is

	Stdin          *os.File // of rank 0; nil and the other ranks': /dev/null
	Stdout, Stderr io.Writer

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
// the job is left. The job is brought down when a rank fails, when a signal says so,
// when ctx ends, when its output cannot be written, and when the caller dies.
//
// Each line of a rank arrives in one piece, labelled "[rank] ". A line that the rank
// did not end is ended for it; one longer than 1 MiB arrives in labelled pieces of
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
	f, err := begin(cfg)
	if err != nil {
		return nil, fmt.Errorf("start the job: %w", err)
	}
	return f.run(ctx)
}

func (cfg *Config) check() error {
	switch {
	case !served:
		return ErrNotServed
	case cfg.Ranks < 1 || cfg.Ranks > MaxRanks:
		return fmt.Errorf("%d ranks: a job has 1 to %d", cfg.Ranks, MaxRanks)
	case len(cfg.Args) == 0:
		return errors.New("no program is given")
	}
	return nil
}

func (cfg *Config) job() job {
	j := job{
		Ranks:       cfg.Ranks,
		Path:        cfg.Path,
		Program:     cfg.Program != nil,
		Args:        cfg.Args,
		Dir:         cfg.Dir,
		Env:         cfg.Env,
		RankEnv:     make([][]string, cfg.Ranks),
		Files:       len(cfg.Files),
		Grace:       cfg.Grace,
		SignalGrace: cfg.SignalGrace,
	}
	if j.Grace == 0 {
		j.Grace = 250 * time.Millisecond
	}
	if j.SignalGrace == 0 {
		j.SignalGrace = 5 * time.Second
	}
	if cfg.RankEnv != nil {
		for rank := range j.RankEnv {
			j.RankEnv[rank] = cfg.RankEnv(rank)
		}
	}
	return j
}

package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// maxRanks is the maximum number of ranks of a job.
const maxRanks = 1024

// FirstFile is the descriptor number that the first of [Config.Files] has in a rank.
const FirstFile = 3

// Config describes a job.
type Config struct {
	// Apps are the programs of the job. Ranks are numbered through them in this order. A job
	// has 1 to 1024 ranks.
	Apps []App

	RankEnv func(rank int) []string // environment of one rank; takes precedence over App.Env; may be nil
	Files   []*os.File              // each rank inherits them from descriptor FirstFile on

	// RankSocket is called with the launcher's end of a socket pair. The rank inherits the other
	// end as the descriptor after Files; no other rank has it. RankSocket is called before any
	// other callback about the rank. It must not block for long; an error stops the job. The
	// file is in non-blocking mode. If RankSocket is nil, ranks get no socket.
	RankSocket func(rank int, file *os.File) error

	// Aborts receives the requests of ranks to end the job. It may be nil.
	Aborts <-chan Abort
	// CheckExit is called when a rank has exited with 0 before the launcher began to stop the
	// job. If it returns an error, the rank has failed. If CheckExit is nil, 0 is a success.
	CheckExit func(rank int) error

	// Causes is called when a rank fails for the first time in a job. It returns the ranks that
	// may have caused that failure by leaving the job, nearest first, root cause last. The
	// launcher gives those that still run up to a second before it stops the job. One that fails
	// or aborts the job in that second counts as the first to fail. Causes must not block. If it
	// is nil, the rank that exited first is the first to fail.
	Causes func(victim int) []int

	// OnDeath is called from Run when a rank fails before the launcher has begun to stop the job. text
	// says which rank, and how. The other ranks go on: only an abort, a signal, Timeout or an error of the
	// launcher stops them. If OnDeath is nil, the first rank that fails stops the job.
	OnDeath func(rank int, text string)

	// CPUs returns the processors to which a rank is bound before its first instruction. If CPUs
	// is nil or returns none, the rank inherits the affinity of the caller.
	CPUs func(rank int) []int

	// StopAtStart reports whether a rank stops before its first instruction and waits for
	// SIGCONT. OnStopped is called from Run for each rank that is stopped this way. The stop uses
	// ptrace, but no tracer stays attached. If StopAtStart is nil, no rank stops.
	StopAtStart func(rank int) bool
	OnStopped   func(rank, pid int)

	// Warn is called from Run with messages about the launcher's own helper processes: one of
	// them is stopped, or has printed an error. If Warn is nil, these messages are dropped.
	Warn func(text string)

	// Timeout limits the run time of the job; 0 means no limit. When it expires, the launcher
	// calls Diagnose and then stops the ranks as after a failure.
	Timeout time.Duration

	// Diagnose is called with the report so far when Timeout expires, before the launcher
	// forwards the first signal that ends the job, and for each value received from
	// DiagnoseNow. Its result becomes Report.Hang. Diagnose runs in its own goroutine, one call
	// at a time. The launcher does not ask the ranks to end before it returns, except after 5
	// seconds or after another signal that ends the job. It may still run when Run returns. If
	// Diagnose is nil, the launcher does not wait.
	Diagnose    func(trigger Trigger, r *Report) (hang []string)
	DiagnoseNow <-chan struct{}

	diagnosisTimeout time.Duration // for tests; 0 means the constant of that name

	// Stdin is the standard input of the ranks in StdinRanks, or of rank 0 if StdinRanks is nil.
	// StdinRanks names each rank at most once. All other ranks read /dev/null. So do all ranks if
	// Stdin is nil, or is a terminal whose foreground process group is not the caller's. A single
	// rank inherits Stdin itself, so input that it does not read stays there. Several ranks get
	// copies through pipes. The slowest of them sets the pace. A rank that has closed its input
	// or has exited gets no more copies. If another process reads the same input, one read may still
	// wait when Run returns, and take what comes.
	Stdin      *os.File
	StdinRanks []int

	Stdout, Stderr io.Writer
	Output         Output // format and files of the ranks' output

	// Signals delivers the signals to forward. It may be nil. SIGINT, SIGTERM, SIGHUP and SIGQUIT
	// end the job. SIGTSTP suspends the ranks and the caller, if a shell with job control started
	// the caller; SIGCONT resumes the ranks. All other signals are only forwarded.
	Signals <-chan os.Signal

	// Grace is the time between SIGTERM and SIGKILL after a failure. Processes that outlive all
	// ranks of a job get the same time. SignalGrace is the time between a signal from the user and
	// SIGKILL. 0 means 250 ms and 5 s.
	Grace, SignalGrace time.Duration
}

// Errors of [Job.Run].
var (
	errSupervisorLost = errors.New("a helper process of the launcher ended before the job")
	errNotServed      = errors.New("main does not call launcher.Serve first")
)

func (cfg *Config) check() error {
	if !served {
		return errNotServed
	}
	before := 0
	for i, a := range cfg.Apps {
		if a.Ranks < 1 {
			return fmt.Errorf("program %d: invalid number of ranks %d: want 1 or more", i, a.Ranks)
		}
		if len(a.Args) == 0 {
			return fmt.Errorf("program %d: no arguments: want at least the program's name", i)
		}
		if a.After < 0 || a.Listeners < 0 || a.Listeners > before || i == 0 && a.After > 0 {
			return fmt.Errorf("program %d: invalid start %v after %d listeners: %d ranks are before it", i, a.After, a.Listeners, before)
		}
		before += a.Ranks
	}
	if n := cfg.ranks(); n < 1 || n > maxRanks {
		return fmt.Errorf("invalid number of ranks %d: want 1 to %d", n, maxRanks)
	}
	for i, rank := range cfg.StdinRanks {
		switch {
		case rank < 0 || rank >= cfg.ranks():
			return fmt.Errorf("standard input: rank %d does not exist: want 0 to %d", rank, cfg.ranks()-1)
		case slices.Contains(cfg.StdinRanks[:i], rank):
			return fmt.Errorf("standard input: rank %d is listed twice: list each rank once", rank)
		}
	}
	return cfg.Output.check()
}

// stdinRanks returns the ranks that get the standard input.
func (cfg *Config) stdinRanks() []int {
	switch {
	case cfg.Stdin == nil || inBackground(cfg.Stdin):
		return nil
	case cfg.StdinRanks == nil:
		return []int{0}
	}
	return cfg.StdinRanks
}

// spec returns the description of the job that is sent to the supervisor.
func (cfg *Config) spec(programs []*os.File) jobSpec {
	j := jobSpec{
		Ranks:       cfg.ranks(),
		Apps:        cfg.appSpecs(programs),
		RankEnv:     make([][]string, cfg.ranks()),
		CPUs:        make([][]int, cfg.ranks()),
		StopAtStart: make([]bool, cfg.ranks()),
		Programs:    len(programs),
		Files:       len(cfg.Files),
		Socket:      cfg.RankSocket != nil,
		GoOn:        cfg.OnDeath != nil,
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
			j.StopAtStart[rank] = cfg.StopAtStart(rank)
		}
	}
	return j
}

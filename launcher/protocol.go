package launcher

import (
	"slices"
	"syscall"
	"time"
)

// Front and keeper talk over one stream socket, see codec.go. Both run the same executable,
// so there is no version to agree on. Open files travel with the bytes, see wire.go.
//
//	front                     keeper
//	orderStart   ──────────→                    once, before any other, with the files of the job
//	             ←──────────  eventPorts        for each few ranks, before they start: the front's ends of their ports
//	             ←──────────  eventStarted      one per rank
//	             ←──────────  eventRefused      a rank could not start: the rest is killed
//	orderSignal  ──────────→
//	orderStop    ──────────→
//	             ←──────────  eventStopping     answers the first order that ends the job
//	             ←──────────  eventEnded        one per started rank, in the order of their deaths; after the first
//	                                            failure the keeper waits for orderStop, at most twice lastWords
//	             ←──────────  eventDone         nothing of the job is left, or it is named
//	end of stream ─────────→                    the front is gone: kill everything
//
// The end of the keeper's stream without eventDone means that the keeper died.

type orderKind int

const (
	orderStart  orderKind = iota + 1 // Job
	orderSignal                      // Signal: forward it; a signal that ends programs ends the job
	orderStop                        // stop every rank as after a failure
)

type order struct {
	Kind   orderKind
	Job    job
	Signal syscall.Signal
}

func (o *order) fields(c *codec) {
	number(c, &o.Kind)
	number(c, &o.Signal)
	if o.Kind == orderStart {
		o.Job.fields(c)
	}
}

type eventKind int

const (
	eventPorts    eventKind = iota + 1 // Rank: the first, Ranks: how many; files
	eventStarted                       // Rank, PID
	eventRefused                       // Rank, Errno, Problem
	eventStopping                      // Signal; 0 after orderStop
	eventEnded                         // Rank, Status, Usage, Stopping
	eventDone                          // Leftover, Stuck, Problem
)

type event struct {
	Kind   eventKind
	Rank   int
	Ranks  int
	PID    int
	Errno  syscall.Errno
	Signal syscall.Signal
	Status syscall.WaitStatus
	Usage  Usage

	Stopping bool      // the job was already coming down when the keeper saw this rank end
	Leftover []Process // outlived their ranks in a job that ended by itself, and were stopped
	Stuck    []Process // did not go, although killed
	Problem  string    // what failed: a step of the start, the look for what is left
}

func (e *event) fields(c *codec) {
	number(c, &e.Kind)
	number(c, &e.Rank)
	number(c, &e.Ranks)
	number(c, &e.PID)
	number(c, &e.Errno)
	number(c, &e.Signal)
	number(c, &e.Status)
	number(c, &e.Usage.Wall)
	number(c, &e.Usage.User)
	number(c, &e.Usage.System)
	number(c, &e.Usage.MaxRSS)
	flag(c, &e.Stopping)
	each(c, &e.Leftover, processFields)
	each(c, &e.Stuck, processFields)
	text(c, &e.Problem)
}

// job is what the keeper needs to know to start the ranks.
type job struct {
	Ranks       int
	Parts       []jobPart
	RankEnv     [][]string
	CPUs        [][]int
	Held        []bool // stopped before the first instruction
	Programs    int
	Files       int
	Socket      bool  // each rank has a socket of its own
	Readers     []int // the ranks that get the standard input
	Cgroup      group // to be made for the ranks
	Grace       time.Duration
	SignalGrace time.Duration

	// In the keeper, what came with the order, in this sequence.
	programs, files []int
	inputs          []int // for Readers: the standard input itself if there is one, else pipes
}

func (j *job) fields(c *codec) {
	number(c, &j.Ranks)
	each(c, &j.Parts, partFields)
	each(c, &j.RankEnv, texts)
	each(c, &j.CPUs, numbers)
	each(c, &j.Held, flag)
	number(c, &j.Programs)
	number(c, &j.Files)
	flag(c, &j.Socket)
	numbers(c, &j.Readers)
	text(c, &j.Cgroup)
	number(c, &j.Grace)
	number(c, &j.SignalGrace)
}

func partFields(c *codec, p *jobPart) {
	number(c, &p.Ranks)
	text(c, &p.Path)
	number(c, &p.Program)
	texts(c, &p.Args)
	text(c, &p.Dir)
	texts(c, &p.Env)
}

func processFields(c *codec, p *Process) {
	number(c, &p.PID)
	text(c, &p.Name)
}

// unpack takes the files that came with the order, and does what is the same for all ranks.
func (j *job) unpack(from *receiver) error {
	for i := range j.Parts {
		j.Parts[i].Env = mergeEnv(nil, j.Parts[i].Env)
	}
	for _, part := range []struct {
		to *[]int
		n  int
	}{{&j.programs, j.Programs}, {&j.files, j.Files}, {&j.inputs, len(j.Readers)}} {
		fds, err := from.take(part.n)
		if err != nil {
			return err
		}
		*part.to = fds
	}
	return nil
}

// input is what rank gets as standard input; the keeper's own, which is /dev/null, if it
// gets none.
func (j *job) input(rank int) int {
	if i := slices.Index(j.Readers, rank); i >= 0 {
		return j.inputs[i]
	}
	return 0
}

package launcher

import (
	"slices"
	"syscall"
	"time"
)

// Front end and supervisor exchange these messages over one stream socket, see codec.go. Both run
// the same executable, so the protocol has no version. Open files are sent with the bytes, see
// wire.go.
//
//	front end                 supervisor
//	orderStart   ──────────→                    once, first, with the files of the job
//	             ←──────────  eventPipes        before each batch of ranks starts: the front end's ends of their pipes
//	             ←──────────  eventStarted      one for each rank
//	             ←──────────  eventRefused      a rank could not be started: the others are killed
//	orderSignal  ──────────→
//	orderStop    ──────────→
//	             ←──────────  eventStopping     answers the first order that ends the job
//	             ←──────────  eventEnded        one for each started rank, in the order of their exits; after the first
//	                                            failure the supervisor waits for orderStop, at most twice causeTimeout,
//	                                            unless jobSpec.GoOn
//	             ←──────────  eventDone         no process of the job is left, except those listed
//	end of stream ─────────→                    the front end has died: kill everything
//
// The end of the supervisor's stream without eventDone means that the supervisor has died.

type orderKind int

const (
	orderStart  orderKind = iota + 1 // Job
	orderSignal                      // Signal: forward it; end the job if it is a terminating signal
	orderStop                        // stop all ranks as after a failure
)

type order struct {
	Kind   orderKind
	Job    jobSpec
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
	eventPipes    eventKind = iota + 1 // Rank: the first rank, Ranks: their number; files
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
	Usage  usage

	Stopping bool      // the job was being stopped when the supervisor noticed this exit
	Leftover []process // processes that outlived the ranks of a job that was not stopped
	Stuck    []process // processes that could not be killed
	Problem  string    // the step of the start that failed, or the error of descendants
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

// jobSpec is what the supervisor needs to start the ranks.
type jobSpec struct {
	Ranks       int
	Apps        []appSpec
	RankEnv     [][]string
	CPUs        [][]int
	StopAtStart []bool // of each rank: stop before the first instruction
	Programs    int
	Files       int
	Socket      bool      // each rank has a socket of its own
	GoOn        bool      // a rank that fails does not stop the others
	Readers     []int     // ranks that get the standard input
	Cgroup      cgroupDir // to be created for the ranks
	Grace       time.Duration
	SignalGrace time.Duration

	// Set in the supervisor by unpack: files that were sent with the order, in this sequence.
	programs, files []int
	inputs          []int // one for each of Readers: the standard input itself if there is one reader, else pipes
}

func (j *jobSpec) fields(c *codec) {
	number(c, &j.Ranks)
	each(c, &j.Apps, appFields)
	each(c, &j.RankEnv, texts)
	each(c, &j.CPUs, numbers)
	each(c, &j.StopAtStart, flag)
	number(c, &j.Programs)
	number(c, &j.Files)
	flag(c, &j.Socket)
	flag(c, &j.GoOn)
	numbers(c, &j.Readers)
	text(c, &j.Cgroup)
	number(c, &j.Grace)
	number(c, &j.SignalGrace)
}

func appFields(c *codec, p *appSpec) {
	number(c, &p.Ranks)
	text(c, &p.Path)
	number(c, &p.Program)
	texts(c, &p.Args)
	text(c, &p.Dir)
	texts(c, &p.Env)
	number(c, &p.After)
	number(c, &p.Listeners)
}

func processFields(c *codec, p *process) {
	number(c, &p.PID)
	text(c, &p.Name)
}

// unpack takes the files that were sent with the order, and prepares what all ranks share.
func (j *jobSpec) unpack(from *receiver) error {
	for i := range j.Apps {
		j.Apps[i].Env = mergeEnv(nil, j.Apps[i].Env)
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

// input returns the descriptor of rank's standard input: the supervisor's own, which is
// /dev/null, for ranks that get none.
func (j *jobSpec) input(rank int) int {
	if i := slices.Index(j.Readers, rank); i >= 0 {
		return j.inputs[i]
	}
	return 0
}

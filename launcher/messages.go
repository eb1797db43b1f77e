package launcher

import (
	"syscall"
	"time"
)

// Front and keeper talk over one stream socket, in gob, which keeps arguments and
// variables that are not valid UTF-8 as they are. Both run the same executable, so
// there is no version to agree on.
//
//	front                     keeper
//	orderStart   ──────────→                    once, before any other
//	             ←──────────  eventStarted      one per rank
//	             ←──────────  eventRefused      a rank could not start: the rest is killed
//	orderSignal  ──────────→
//	orderStop    ──────────→
//	             ←──────────  eventStopping     answers the first order that ends the job
//	             ←──────────  eventEnded        one per started rank, in the order of their deaths
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

type eventKind int

const (
	eventStarted  eventKind = iota + 1 // Rank, PID
	eventRefused                       // Rank, Errno
	eventStopping                      // Signal; 0 after orderStop
	eventEnded                         // Rank, Status, Stopping
	eventDone                          // Leftover, Stuck, Problem
)

type event struct {
	Kind   eventKind
	Rank   int
	PID    int
	Errno  syscall.Errno
	Signal syscall.Signal
	Status syscall.WaitStatus

	Stopping bool      // the job was already coming down when the keeper saw this rank end
	Leftover []Process // outlived their ranks in a job that ended by itself, and were killed
	Stuck    []Process // did not go, although killed
	Problem  string    // why the keeper could not look for what is left
}

// job is what the keeper needs to know to start the ranks.
type job struct {
	Ranks       int
	Path        string // of the program; unused if Program is set
	Program     bool   // the program is an inherited descriptor
	Args        []string
	Dir         string
	Env         []string
	RankEnv     [][]string
	Files       int
	Grace       time.Duration
	SignalGrace time.Duration
}

// The keeper inherits rank 0's standard input as descriptor 0 and, from socketFD
// on, without gaps: the socket, the program if it is a descriptor, the files for
// the ranks, and for each rank the writing ends of its standard output and error.
const socketFD = 3

func (j *job) programFD() int { return socketFD + 1 }

func (j *job) filesFD() int {
	if j.Program {
		return j.programFD() + 1
	}
	return socketFD + 1
}

func (j *job) outputFD(rank int) int { return j.filesFD() + j.Files + 2*rank }

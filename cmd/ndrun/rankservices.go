package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/jobline"
	"github.com/softnd/softnd/internal/pmi"
	"github.com/softnd/softnd/internal/unixsock"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/shm"
)

// services are what ndrun does for running ranks: it speaks PMI with those that are
// programs of MPICH, and keeps a line to those of softnd. Both are served by this
// process and not by the job's keeper, since what ranks say may be anything and the
// keeper must not stumble over it; should this process end, the job goes with it.
type services struct {
	ranks  int
	line   *jobline.Server
	pmi    *pmi.Server
	aborts chan launcher.Abort

	mu      sync.Mutex
	refused []string // what ranks asked for in vain; guarded by mu
}

// serve begins the services of a job and enters them into cfg. ended is told of each rank
// that exits with 0.
func serve(p *plan, cfg *launcher.Config, arena *shm.Arena, ended func(rank int)) (*services, error) {
	s := &services{ranks: len(p.ranks), aborts: make(chan launcher.Abort, len(p.ranks))}
	abort := func(rank, code int, reason string) {
		select {
		case s.aborts <- launcher.Abort{Rank: rank, Code: code, Reason: reason}:
		default: // the job comes down for the others in the queue
		}
	}
	var err error
	if s.line, err = jobline.Listen(s.ranks, arena.File(), arena.ID(), abort); err != nil {
		return nil, fmt.Errorf("listen for the ranks: %w", err)
	}
	s.pmi = pmi.NewServer(s.ranks, "softnd-"+strconv.Itoa(os.Getpid()), pmi.Notices{
		Abort: abort, Refused: s.refuse, AppNum: func(rank int) int { return p.ranks[rank].part },
	})
	cfg.Aborts = s.aborts
	cfg.Ended = func(rank int) error {
		ended(rank)
		return s.pmi.Ended(rank)
	}
	cfg.Socket = s.socket
	return s, nil
}

// socket begins to serve PMI over a rank's socket.
func (s *services) socket(rank int, file *os.File) error {
	s.pmi.Serve(rank, &unixsock.Conn{File: file})
	return nil
}

// env is how a rank finds the services. files is the number of files that all ranks
// inherit; the rank's own follows them.
func (s *services) env(rank, files int) []string {
	number, size := strconv.Itoa(rank), strconv.Itoa(s.ranks)
	return []string{
		softnd.EnvFabric + "=" + s.line.Address().String(),
		pmi.EnvFD + "=" + strconv.Itoa(launcher.FirstFile+files),
		pmi.EnvRank + "=" + number,
		pmi.EnvSize + "=" + size,
		"PMI_SPAWNED=0",             // whatever has started ndrun
		"MPI_LOCALRANKID=" + number, // all ranks are local
		"MPI_LOCALNRANKS=" + size,
	}
}

func (s *services) refuse(rank int, what string) {
	const most = 8 // a rank may ask for ever
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("rank %d asked PMI %s: refused", rank, what)
	if len(s.refused) < most && !slices.Contains(s.refused, line) {
		s.refused = append(s.refused, line)
	}
}

// end ends the services when the job has ended, and returns what the user should know.
func (s *services) end(report *launcher.Report) []string {
	for rank := range s.ranks {
		// Of ranks that were stopped there is nothing to be learned; their sockets close.
		_ = s.pmi.Ended(rank)
	}
	silent := s.line.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.refused
	if report == nil {
		return lines
	}
	for _, rank := range silent {
		r := report.Ranks[rank]
		if !r.Ended || r.Stopped || !r.Status.Exited() {
			continue
		}
		const panicked = 2 // what a Go program exits with
		switch r.Status.ExitStatus() {
		case 0:
			lines = append(lines, fmt.Sprintf("rank %d (%s, pid %d) exited without Job.Close; to its peers it has died", rank, r.Program, r.PID))
		case panicked:
			lines = append(lines, fmt.Sprintf("rank %d exited in the middle of the job with the code of a Go program that panics; what it said is above, labelled [%d]", rank, rank))
		}
	}
	return lines
}

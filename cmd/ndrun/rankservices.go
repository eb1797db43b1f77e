package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/controlchannel"
	"github.com/softnd/softnd/internal/meet/pmi"
	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/shm"
)

// rankServices are the servers that ndrun runs for its ranks: PMI for programs of MPICH, and the
// control channel for programs of softnd. Both run in this process and not in the job's
// supervisor, which must not depend on the input of ranks. If this process dies, the job is
// killed.
type rankServices struct {
	ranks   int
	channel *controlchannel.Server
	pmi     *pmi.Server
	aborts  chan launcher.Abort

	mu      sync.Mutex
	refused []string // messages about refused requests; guarded by mu
}

// startRankServices starts the services of a job and sets them in cfg. ended is called for each
// rank that exits with 0. journal is nil without the checker.
func startRankServices(p *plan, cfg *launcher.Config, arena *shm.Arena, journal *os.File, ended func(rank int)) (*rankServices, error) {
	s := &rankServices{ranks: len(p.ranks), aborts: make(chan launcher.Abort, len(p.ranks))}
	abort := func(rank, code int, reason string) {
		select {
		case s.aborts <- launcher.Abort{Rank: rank, Code: code, Reason: reason}:
		default: // an earlier abort in the queue ends the job
		}
	}
	var err error
	if s.channel, err = controlchannel.Listen(s.ranks, arena.File(), journal, arena.Info().ID, abort); err != nil {
		return nil, fmt.Errorf("listen on control channel: %w", err)
	}
	s.pmi = pmi.NewServer(s.ranks, "softnd-"+strconv.Itoa(os.Getpid()), pmi.Notices{
		Abort: abort, Refused: s.refuse, AppNum: func(rank int) int { return p.ranks[rank].app },
	})
	cfg.Aborts = s.aborts
	cfg.CheckExit = func(rank int) error {
		ended(rank)
		return s.pmi.Ended(rank)
	}
	cfg.RankSocket = s.serveSocket
	return s, nil
}

// serveSocket serves PMI on a rank's socket.
func (s *rankServices) serveSocket(rank int, file *os.File) error {
	s.pmi.Serve(rank, &unixsock.Conn{File: file})
	return nil
}

// env returns the variables by which a rank finds the services. files is the number of files that
// all ranks inherit. The rank's socket follows them.
func (s *rankServices) env(rank, files int) []string {
	number, size := strconv.Itoa(rank), strconv.Itoa(s.ranks)
	return []string{
		softnd.EnvControl + "=" + s.channel.Address().String(),
		pmi.EnvFD + "=" + strconv.Itoa(launcher.FirstFile+files),
		pmi.EnvRank + "=" + number,
		pmi.EnvSize + "=" + size,
		"PMI_SPAWNED=0",             // even if ndrun itself runs under PMI
		"MPI_LOCALRANKID=" + number, // all ranks are local
		"MPI_LOCALNRANKS=" + size,
	}
}

func (s *rankServices) refuse(rank int, what string) {
	const most = 8 // a rank may repeat requests forever
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("rank %d: PMI request refused: %s", rank, what)
	if len(s.refused) < most && !slices.Contains(s.refused, line) {
		s.refused = append(s.refused, line)
	}
}

// end stops the services when the job has ended, and returns messages for the user.
func (s *rankServices) end(report *launcher.Report) []string {
	for rank := range s.ranks {
		// The result says nothing about ranks that were stopped. Ended closes their sockets.
		_ = s.pmi.Ended(rank)
	}
	silent := s.channel.Close()
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
		const panicked = 2 // exit code of a Go program after a panic
		switch r.Status.ExitStatus() {
		case 0:
			lines = append(lines, fmt.Sprintf("rank %d (%s, pid %d) exited without calling Job.Close (in C snd_job_close): its peers take it for dead", rank, r.Program, r.PID))
		case panicked:
			lines = append(lines, fmt.Sprintf("rank %d exited with code 2 without calling Job.Close, as after a Go panic: see its output above, labelled [%d]", rank, rank))
		}
	}
	return lines
}

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/internal/testkit/traffic"
	"github.com/softnd/softnd/shm"
)

// soakSample is what a rank reports.
type soakSample struct {
	Descriptors, Goroutines int
	InUse                   uint64 // bytes of the arena
	Private                 uint64 // bytes of memory that the process shares with no other
	Counts                  traffic.Totals
}

// exceeds reports whether a process uses more than in a rest before. It may watch some more peers.
func (s soakSample) exceeds(before soakSample) bool {
	const descriptors, goroutines = 4, 8
	return s.Descriptors > before.Descriptors+descriptors || s.Goroutines > before.Goroutines+goroutines || s.InUse > before.InUse
}

// soakRank is a rank that may die at any time, and come back as another process.
type soakRank struct {
	job   *softnd.Job
	links []*traffic.Link
}

var roleSoak = proctest.Role("soak", runSoak)

// runSoak is the life of a rank. Its arguments are the name of the fabric, the rank, the executor and the seed.
func runSoak(self *proctest.Self) error {
	ctx := context.Background() // the soak may take longer than other tests
	rank, err1 := strconv.Atoi(self.Args[1])
	executor, err2 := endpoint.ParseExecutor(self.Args[2])
	seed, err3 := strconv.ParseUint(self.Args[3], 10, 64)
	arena, err4 := shm.OpenFabric(ctx, self.Args[0], shm.Config{Ranks: soakRanks})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	job, err := jobaccess.Join(ctx, arena, rank, false, softnd.WithExecutor(executor), softnd.WithReceiveTimeout(softnd.NoLimit))
	if err != nil {
		return err
	}
	r := &soakRank{job: job.(*softnd.Job)}
	shared, err := traffic.NewSharedReceives(ctx, r.job.Adapter())
	if err != nil {
		return err
	}
	for peer := range soakRanks {
		if peer != rank {
			r.links = append(r.links, &traffic.Link{Rand: rand.New(rand.NewPCG(seed, uint64(peer))), Job: r.job, Peer: peer, Posts: true, Steps: 1000, Shared: shared})
		}
	}
	self.Say("ready")
	stop := func() {}
	for {
		order, err := self.Hear()
		if err != nil {
			return err
		}
		switch order {
		case "work":
			work, cancel := context.WithCancel(ctx)
			var done sync.WaitGroup
			for _, l := range r.links {
				done.Go(func() { runLink(work, l) })
			}
			stop = func() { cancel(); done.Wait() }
		case "rest":
			stop()
			self.Say("rests")
		case "measure":
			b, err := json.Marshal(r.sample())
			if err != nil {
				return err
			}
			self.Say("%s", b)
		case "end":
			return errors.Join(shared.Close(ctx), r.job.Close())
		}
	}
}

// runLink makes connections with a peer that may come back. A broken promise ends the process.
func runLink(ctx context.Context, l *traffic.Link) {
	for ctx.Err() == nil {
		if l.Run(ctx); l.Broken != nil {
			fmt.Fprintln(os.Stderr, l.Broken)
			os.Exit(proctest.ExitError)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// sample measures this process, which rests.
func (r *soakRank) sample() (s soakSample) {
	ranktest.DropRequests(r.job)
	debug.FreeOSMemory()
	for _, l := range r.links {
		s.Counts.Add(&l.Counts)
	}
	s.Goroutines, s.InUse = runtime.NumGoroutine(), jobaccess.Of(r.job).Member.InUse()
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.Descriptors = len(entries)
	}
	status, _ := os.ReadFile("/proc/self/status")
	if _, text, ok := strings.Cut(string(status), "RssAnon:"); ok {
		fmt.Sscanf(text, "%d kB", &s.Private)
		s.Private <<= 10
	}
	return s
}

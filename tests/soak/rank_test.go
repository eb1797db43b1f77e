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
	"sync/atomic"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Numbers of the counters of a rank.
const (
	soakSessions = iota
	soakSends
	soakWrites
	soakReads
	soakAtomics
	soakNumbers
	soakRelays
	soakBinds
	soakRegistrations
	soakInvalidates
	soakSendInvalidates
	soakLocalInvalidates
	soakRevocations
	soakTooLate
	soakMessages
	soakPrivileged
	soakSilents
	soakFences
	soakInlines
	soakCounters
)

var soakNames = [soakCounters]string{"sessions", "Sends", "Writes", "Reads", "atomics", "requests with a number", "fenced relays", "Binds", "fast registrations", "Invalidates", "SendAndInvalidates",
	"local invalidations", "revocations under way", "requests too late", "messages received", "privileged", "silent", "fenced", "inline"}

// soakSample is what a rank reports.
type soakSample struct {
	Descriptors, Goroutines int
	InUse                   uint64 // bytes of the arena
	Private                 uint64 // bytes of memory that the process shares with no other
	Counts                  [soakCounters]int64
}

// exceeds reports whether a process uses more than in a rest before. It may watch some more peers.
func (s soakSample) exceeds(before soakSample) bool {
	const descriptors, goroutines = 4, 8
	return s.Descriptors > before.Descriptors+descriptors || s.Goroutines > before.Goroutines+goroutines || s.InUse > before.InUse
}

const soakReceives = 48 // of the shared receive queue of a rank

// soakRank is a rank that may die at any time, and come back as another process.
type soakRank struct {
	job    *softnd.Job
	srq    nd.SharedReceiveQueue
	inbox  nd.MemoryRegion
	counts [soakCounters]atomic.Int64
}

var roleSoak = proctest.Role("soak", runSoak)

// runSoak is the life of a rank. Its arguments are the name of the fabric, the rank, the executor and the seed.
func runSoak(self *proctest.Self) error {
	ctx := context.Background() // the soak may take longer than other tests
	rank, err1 := strconv.Atoi(self.Args[1])
	executor, err2 := endpoint.ParseExecutor(self.Args[2])
	seed, err3 := strconv.ParseUint(self.Args[3], 10, 64)
	fabric, err4 := shm.OpenFabric(ctx, self.Args[0], shm.Config{Ranks: soakRanks})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	job, err := jobaccess.Join(ctx, fabric.Arena, fabric.Close, rank, false, softnd.WithExecutor(executor), softnd.WithReceiveTimeout(softnd.NoLimit))
	if err != nil {
		return err
	}
	r := &soakRank{job: job.(*softnd.Job)}
	if err := r.open(ctx); err != nil {
		return err
	}
	var links []*soakLink
	for peer := range soakRanks {
		if peer != rank {
			links = append(links, &soakLink{Rand: rand.New(rand.NewPCG(seed, uint64(peer))), rank: r, peer: peer})
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
			for _, l := range links {
				done.Go(func() { l.run(work) })
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
			return errors.Join(r.srq.Close(), r.inbox.Close(ctx), r.job.Close())
		}
	}
}

// open creates what all sessions of the rank share.
func (r *soakRank) open(ctx context.Context) (err error) {
	a := r.job.Adapter()
	if r.inbox, err = a.Allocate(ctx, soakReceives*soakMessage, nd.AllowLocalWrite); err != nil {
		return err
	}
	if r.srq, err = a.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{Depth: soakReceives}); err != nil {
		return err
	}
	for i := range uint64(soakReceives) {
		err = errors.Join(err, r.receive(i))
	}
	return err
}

// receive posts a receive of the shared queue.
func (r *soakRank) receive(i uint64) error { return r.srq.Receive(i, r.letter(i)) }

func (r *soakRank) letter(i uint64) nd.SGL {
	return nd.One(nd.SGEOf(r.inbox, int(i)*soakMessage, soakMessage))
}

func (r *soakRank) count(what int) { r.counts[what].Add(1) }

// fail ends the process: a promise was broken.
func (r *soakRank) fail(err error) {
	fmt.Fprintf(os.Stderr, "rank %d: %v\n%s", r.job.Rank(), err, debug.Stack())
	os.Exit(proctest.ExitError)
}

// sample measures this process, which rests.
func (r *soakRank) sample() (s soakSample) {
	ranktest.DropRequests(r.job)
	debug.FreeOSMemory()
	for i := range r.counts {
		s.Counts[i] = r.counts[i].Load()
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

//go:build linux

package ndcheck_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/softndtest"
)

// side is one rank of a test: connected to the other, with a queue for each direction and some memory.
type side struct {
	t    *testing.T
	ctx  context.Context
	job  *softnd.Job
	ep   nd.Endpoint
	recv nd.CompletionQueue
	init nd.CompletionQueue
	mr   nd.MemoryRegion

	aside chan struct{} // between all sides; the checker does not know it
}

const memory = 4096

// watchdog ends ranks that hang. A loaded machine takes a minute for 5,000 binds.
const watchdog = 5 * time.Minute

// run returns the error of must that has ended a role, nil if none has.
func (s *side) run(role func(s *side)) (err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			err = f.err
		default:
			panic(f)
		}
	}()
	role(s)
	return nil
}

// must ends the rank with an error of a call.
func (s *side) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

type failure struct{ err error }

func (s *side) sge(offset, n int) nd.SGL { return nd.One(nd.SGEOf(s.mr, offset, n)) }

// result takes the next result of a queue.
func (s *side) result(q nd.CompletionQueue) nd.Result {
	var r [1]nd.Result
	_, err := q.Wait(s.ctx, r[:])
	s.must(err)
	return r[0]
}

// done takes the next result of the initiator queue, which must be a success.
func (s *side) done() {
	if r := s.result(s.init); r.Status != nd.Success {
		s.must(nd.Explain(s.ep, r))
	}
}

func (s *side) received() nd.Result {
	r := s.result(s.recv)
	if r.Status != nd.Success {
		s.must(nd.Explain(s.ep, r))
	}
	return r
}

// tell lets a side that calls hear go on.
func (s *side) tell() {
	select {
	case s.aside <- struct{}{}:
	case <-s.ctx.Done():
		s.must(s.ctx.Err())
	}
}

func (s *side) hear() {
	select {
	case <-s.aside:
	case <-s.ctx.Done():
		s.must(s.ctx.Err())
	}
}

func (s *side) barrier() { s.must(s.job.Barrier(s.ctx)) }

// bind binds a window on the endpoint, and returns it.
func (s *side) bind(offset, n int, flags nd.OpFlags) nd.MemoryWindow {
	w, err := s.job.Adapter().CreateMemoryWindow(s.ctx)
	s.must(err)
	s.must(s.ep.Bind(1, s.mr, w, s.mr.Bytes()[offset:offset+n], flags))
	s.done()
	return w
}

// give passes a descriptor to the other side.
func (s *side) give(d nd.WindowDescriptor) {
	_, err := s.job.ExchangeWindows(s.ctx, d)
	s.must(err)
}

func (s *side) get() nd.WindowDescriptor {
	all, err := s.job.ExchangeWindows(s.ctx, nd.WindowDescriptor{})
	s.must(err)
	return all[1-s.job.Rank()]
}

// close ends the connection properly.
func (s *side) close() {
	s.barrier()
	s.must(s.ep.Close())
	s.must(s.recv.Close())
	s.must(s.init.Close())
	s.must(s.mr.Close(s.ctx))
}

// watch runs the roles as ranks with the checker, and returns its findings. Each role gets its side; a role that ends
// early leaves the rest to the end of the job. Ranks 0 and 1 are connected.
func watch(t *testing.T, cfg nd.EndpointConfig, depth int, first, second func(s *side), more ...softnd.Option) []ndcheck.Finding {
	t.Helper()
	return watchAll(t, cfg, depth, []func(s *side){first, second}, more...)
}

// watchAll is watch for any number of roles.
func watchAll(t *testing.T, cfg nd.EndpointConfig, depth int, roles []func(s *side), more ...softnd.Option) []ndcheck.Finding {
	t.Helper()
	journal, err := ndcheck.NewJournal(make([]byte, ndcheck.JournalSize), nil)
	if err != nil {
		t.Fatal(err)
	}
	return watchWith(t, journal, cfg, depth, roles, more...)
}

// watchWith is watchAll with a journal, nil = each rank has its own.
func watchWith(t *testing.T, journal *ndcheck.Journal, cfg nd.EndpointConfig, depth int, roles []func(s *side), more ...softnd.Option) []ndcheck.Finding {
	t.Helper()
	var mu sync.Mutex
	var found []ndcheck.Finding
	aside := make(chan struct{})
	options := softnd.WithChecker(ndcheck.Options{Journal: journal, Report: func(f ndcheck.Finding) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, f)
	}})
	t.Run("ranks", func(t *testing.T) { // whose end closes the jobs
		softndtest.Run(t, len(roles), func(ctx context.Context, job *softnd.Job) error {
			ctx, cancel := context.WithTimeout(ctx, watchdog)
			defer cancel()
			return (&side{t: t, ctx: ctx, job: job, aside: aside}).run(func(s *side) {
				a := job.Adapter()
				var err error
				s.recv, err = a.CreateCompletionQueue(ctx, depth)
				s.must(err)
				s.init, err = a.CreateCompletionQueue(ctx, depth)
				s.must(err)
				s.mr, err = a.Allocate(ctx, memory, nd.AllowLocalWrite)
				s.must(err)
				cfg := cfg
				cfg.ReceiveCQ, cfg.InitiatorCQ = s.recv, s.init
				if job.Rank() < 2 {
					s.ep, err = job.Connect(ctx, 1-job.Rank(), cfg)
					s.must(err)
				}
				roles[job.Rank()](s)
			})
		}, append(more, options, softnd.WithReceiveTimeout(5*time.Second))...) // some roles wait for it, and others may be paused
	})
	mu.Lock()
	defer mu.Unlock()
	return found
}

// writeSilently posts Writes of which every n-th has a result.
func (s *side) writeSilently(d nd.WindowDescriptor, n int) {
	for i := 1; i <= 4*n; {
		flags := nd.SilentSuccess
		if i%n == 0 {
			flags = 0
		}
		err := s.ep.Write(0, s.sge(0, 8), d.Address, d.Token, flags)
		if errors.Is(err, nd.NoMoreEntries) {
			continue // the Writes before it are executed soon
		}
		s.must(err)
		if flags == 0 {
			s.done()
		}
		i++
	}
}

// second makes another connection of the two ranks, with the same queues.
func (s *side) second() nd.Endpoint { return s.connect(1 - s.job.Rank()) }

func (s *side) connect(peer int) nd.Endpoint {
	ep, err := s.job.Connect(s.ctx, peer, nd.EndpointConfig{ReceiveCQ: s.recv, InitiatorCQ: s.init})
	s.must(err)
	return ep
}

// open replaces the region by one with other rights.
func (s *side) open(flags nd.RegionFlags) {
	s.must(s.mr.Close(s.ctx))
	var err error
	s.mr, err = s.job.Adapter().Allocate(s.ctx, memory, flags)
	s.must(err)
}

func (s *side) inlineThreshold() int {
	info, err := s.job.Adapter().Query()
	s.must(err)
	return int(info.InlineRequestThreshold)
}

func (s *side) thirdWith(entries int) {
	ep, err := s.job.Adapter().CreateEndpoint(s.ctx, nd.EndpointConfig{ReceiveCQ: s.recv, InitiatorCQ: s.init, MaxInitiatorSGE: entries})
	s.must(err)
	s.must(ep.Close())
}

func (s *side) serveSends(n int) {
	for i := range 32 {
		s.must(s.ep.Receive(uint64(i), nd.SGL{}))
	}
	s.barrier()
	for range n {
		s.received()
		s.must(s.ep.Receive(0, nd.SGL{}))
	}
	s.close()
}

// sendFresh sends empty messages with an entry of a region that serves a number of them.
func (s *side) sendFresh(regions, each int) {
	s.barrier()
	for range regions {
		mr, err := s.job.Adapter().Register(s.ctx, make([]byte, 64), 0)
		s.must(err)
		for range each {
			s.must(s.ep.Send(1, nd.One(nd.SGEOf(mr, 0, 0)), 0))
			s.done()
		}
		s.must(mr.Close(s.ctx))
	}
	s.close()
}

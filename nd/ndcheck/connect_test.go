//go:build linux

package ndcheck_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/softndtest"
)

// aWhile is longer than a cycle lasts before the checker reports it.
const aWhile = 2 * time.Second

// connecting are programs of several ranks that wait for each other, or seem to.
var connecting = map[string]struct {
	ranks int
	stuck bool // each rank waits for the one before it
	role  func(s *side)
}{
	"a circle": {3, true, func(s *side) { s.connect(s.rankBefore()); s.connect(s.rankAfter()) }},
	"no circle": {3, false, func(s *side) {
		first := []int{1, 0, 0}[s.job.Rank()]
		s.connect(first)
		s.connect(3 - s.job.Rank() - first)
	}},
	"Dial before Accept": {2, true, func(s *side) {
		l := s.listen()
		s.dial(s.rankBefore())
		s.must(s.accept(l))
	}},
	// The job takes requests from its own listener, which does not mean that the program accepts any.
	"Connect of package nd after one of the job": {2, true, func(s *side) {
		s.second()
		a := s.job.Adapter()
		l, err := a.CreateListener(s.ctx)
		s.must(err)
		list, err := a.QueryAddressList()
		s.must(err)
		s.must(l.Bind(netip.AddrPortFrom(list[0], 0)))
		s.must(l.Listen(4))
		addr, err := l.LocalAddress()
		s.must(err)
		all, err := s.job.Exchange(s.ctx, []byte(addr.String()))
		s.must(err)
		to, err := netip.ParseAddrPort(string(all[s.rankBefore()]))
		s.must(err)
		ep, err := a.CreateEndpoint(s.ctx, s.config())
		s.must(err)
		c, err := a.CreateConnector(s.ctx)
		s.must(err)
		s.must(c.Connect(s.ctx, ep, to, nd.ConnectParams{}))
	}},
	// Other goroutines accept, and take their time.
	"a ring of Dials": {3, false, func(s *side) {
		l := s.listen()
		if s.job.Rank() == 0 { // an order without a circle, so that all have accepted once
			s.dial(s.rankAfter())
			s.must(s.accept(l))
		} else {
			s.must(s.accept(l))
			s.dial(s.rankAfter())
		}
		s.barrier()
		accepted := make(chan error, 1)
		go func() {
			time.Sleep(aWhile)
			accepted <- s.accept(l)
		}()
		s.dial(s.rankAfter())
		s.must(<-accepted)
		s.barrier()
	}},
}

func (s *side) rankBefore() int { return (s.job.Rank() + s.job.Size() - 1) % s.job.Size() }
func (s *side) rankAfter() int  { return (s.job.Rank() + 1) % s.job.Size() }

func (s *side) config() nd.EndpointConfig {
	return nd.EndpointConfig{ReceiveCQ: s.recv, InitiatorCQ: s.init}
}

// listen returns a listener, when all ranks have one.
func (s *side) listen() *softnd.Listener {
	l, err := s.job.Listen(s.ctx)
	s.must(err)
	s.barrier()
	return l
}

func (s *side) dial(peer int) {
	_, err := s.job.Dial(s.ctx, peer, s.config())
	s.must(err)
}

func (s *side) accept(l *softnd.Listener) error {
	_, _, err := l.Accept(s.ctx, s.config())
	return err
}

func TestConnects(t *testing.T) {
	t.Parallel()
	for name, p := range connecting {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := 0
			if p.stuck {
				want = p.ranks
			}
			found := watchConnects(t, p.ranks, want, p.role)
			if len(found) != want {
				t.Errorf("%d findings, want %d: %v", len(found), want, found)
			}
			for _, f := range found {
				if f.Rule.ID != "N603" || !strings.HasPrefix(f.Site, "nd/ndcheck/") || f.OtherRank != (f.Rank+p.ranks-1)%p.ranks {
					t.Error(f)
				}
			}
		})
	}
}

// watchConnects runs a role as ranks with the checker, and returns its findings. If there are as many as wanted, it ends the calls of
// the ranks, which must wait then.
func watchConnects(t *testing.T, ranks, want int, role func(s *side)) []ndcheck.Finding {
	var mu sync.Mutex
	var found []ndcheck.Finding
	complete, end := context.WithCancel(t.Context())
	defer end()
	journal, err := ndcheck.NewJournal(make([]byte, ndcheck.JournalSize), nil)
	if err != nil {
		t.Fatal(err)
	}
	check := softnd.WithChecker(ndcheck.Options{Journal: journal, Report: func(f ndcheck.Finding) {
		mu.Lock()
		defer mu.Unlock()
		if found = append(found, f); len(found) == want {
			end()
		}
	}})
	softndtest.Run(t, ranks, func(ctx context.Context, job *softnd.Job) error {
		ctx, cancel := context.WithTimeout(ctx, watchdog)
		defer cancel()
		defer context.AfterFunc(complete, cancel)()
		q, err := job.Adapter().CreateCompletionQueue(ctx, 64)
		if err != nil {
			return err
		}
		err = (&side{t: t, ctx: ctx, job: job, recv: q, init: q}).run(role)
		if want > 0 && !errors.Is(err, nd.Canceled) {
			return fmt.Errorf("the call does not wait: %v", err)
		}
		if want > 0 {
			return nil
		}
		return err
	}, check)
	mu.Lock()
	defer mu.Unlock()
	return found
}

// standIn is the provider of a process whose connections a test makes.
type standIn struct {
	nd.Provider
	addr       netip.Addr
	connecting chan struct{} // gets an element when Connect waits for an Accept
	accepted   chan struct{} // gets an element for each Accept
}

func (p *standIn) QueryAddressList() ([]netip.Addr, error) { return []netip.Addr{p.addr}, nil }

func (p *standIn) OpenAdapter(context.Context, nd.AdapterID) (nd.Adapter, error) {
	return &standInAdapter{provider: p}, nil
}

type standInAdapter struct {
	nd.Adapter
	provider *standIn
}

func (a *standInAdapter) Query() (nd.AdapterInfo, error) { return nd.AdapterInfo{}, nil }

func (a *standInAdapter) CreateConnector(context.Context) (nd.Connector, error) {
	return &standInConnector{provider: a.provider}, nil
}

func (a *standInAdapter) CreateListener(context.Context) (nd.Listener, error) {
	return &standInListener{}, nil
}

type standInConnector struct {
	nd.Connector
	provider *standIn
}

func (c *standInConnector) LocalAddress() (netip.AddrPort, error) { return netip.AddrPort{}, nil }

func (c *standInConnector) Connect(ctx context.Context, _ nd.Endpoint, _ netip.AddrPort, _ nd.ConnectParams) error {
	c.provider.connecting <- struct{}{}
	<-c.provider.accepted
	return nil
}

// standInListener has a connection request at any time.
type standInListener struct{ nd.Listener }

func (l *standInListener) GetConnectionRequest(context.Context, nd.Connector) error { return nil }

// checkedProcess is a process with the checker.
type checkedProcess struct {
	*ndcheck.Provider
	*standIn
	adapter nd.Adapter
}

// watchProcesses returns three processes with the checker, and its findings.
func watchProcesses(t *testing.T) (all [3]checkedProcess, found chan ndcheck.Finding) {
	journal, err := ndcheck.NewJournal(make([]byte, ndcheck.JournalSize), nil)
	if err != nil {
		t.Fatal(err)
	}
	found = make(chan ndcheck.Finding, len(all))
	for rank := range all {
		p := &standIn{addr: netip.AddrFrom4([4]byte{127, 0, 0, byte(rank + 1)}), connecting: make(chan struct{}, 1), accepted: make(chan struct{}, 1)}
		w := checkedProcess{ndcheck.Wrap(p, ndcheck.Options{Rank: rank, Journal: journal, Report: func(f ndcheck.Finding) { found <- f }}), p, nil}
		t.Cleanup(w.End)
		if w.adapter, err = w.Provider.OpenAdapter(t.Context(), nd.AdapterID(0)); err != nil {
			t.Fatal(err)
		}
		all[rank] = w
	}
	return all, found
}

// connect connects the process with another one. It returns when that has accepted.
func (w checkedProcess) connect(t *testing.T, to checkedProcess) {
	c, err := w.adapter.CreateConnector(t.Context())
	if err == nil {
		err = c.Connect(t.Context(), nil, netip.AddrPortFrom(to.addr, 1), nd.ConnectParams{})
	}
	if err != nil {
		t.Error(err)
	}
}

func expectNone(t *testing.T, found chan ndcheck.Finding) {
	t.Helper()
	for len(found) > 0 {
		t.Error(<-found)
	}
}

// expectAll waits until each rank has a finding.
func expectAll(t *testing.T, found chan ndcheck.Finding) {
	t.Helper()
	var ranks [3]bool
	for range ranks {
		select {
		case f := <-found:
			ranks[f.Rank] = true
		case <-time.After(watchdog):
			t.Fatalf("findings of ranks: %v", ranks)
		}
	}
	if ranks != [...]bool{true, true, true} {
		t.Errorf("findings of ranks: %v", ranks)
	}
}

// Each rank reports the cycle, although one of them begins to wait after the first checks of the others.
func TestLateWait(t *testing.T) {
	t.Parallel()
	p, found := watchProcesses(t)
	defer p[0].WaitFor(p[1].addr)()
	defer p[1].WaitFor(p[2].addr)()
	time.Sleep(aWhile)
	expectNone(t, found)
	defer p[2].WaitFor(p[0].addr)()
	expectAll(t, found)
}

// A connection of two ranks ends no wait for another one: rank 1 has dialed a listener of rank 0, which waits for its Connect.
func TestConnectionBesideAWait(t *testing.T) {
	t.Parallel()
	p, found := watchProcesses(t)
	defer p[0].WaitFor(p[1].addr)()
	p[1].accepted <- struct{}{}
	p[1].connect(t, p[0])
	defer p[1].WaitFor(p[2].addr)()
	defer p[2].WaitFor(p[0].addr)()
	expectAll(t, found)
}

// Rank 1 goes on after ranks 0 and 1 have connected, before the call of rank 0 has returned. Either may be the one that connects.
func TestLateReturn(t *testing.T) {
	for active := range 2 {
		t.Run(fmt.Sprintf("rank %d connects", active), func(t *testing.T) {
			t.Parallel()
			p, found := watchProcesses(t)
			defer p[0].WaitFor(p[1].addr)()
			connected := p[1].WaitFor(p[0].addr)
			p[active].accepted <- struct{}{}
			p[active].connect(t, p[1-active])
			connected()
			defer p[1].WaitFor(p[2].addr)()
			defer p[2].WaitFor(p[0].addr)()
			time.Sleep(aWhile)
			expectNone(t, found)
		})
	}
}

// Two ranks connect with each other. Other goroutines get the requests, and accept them late. Rank 1 gets its request before both ranks wait,
// since these waits would be a cycle until then.
func TestLateAccept(t *testing.T) {
	t.Parallel()
	p, found := watchProcesses(t)
	var calls sync.WaitGroup
	for rank := range 2 {
		calls.Go(func() { p[rank].connect(t, p[1-rank]) })
		<-p[rank].connecting
		l, err := p[1-rank].adapter.CreateListener(t.Context())
		if err == nil {
			err = l.GetConnectionRequest(t.Context(), nil)
		}
		if err != nil {
			t.Error(err)
		}
	}
	time.Sleep(aWhile)
	expectNone(t, found)
	for rank := range 2 {
		p[rank].accepted <- struct{}{}
	}
	calls.Wait()
}

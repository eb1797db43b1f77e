//go:build linux

package ndcheck_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/shm"
)

// party is a process of an arena, which may be watched or not.
type party struct {
	t       *testing.T
	ctx     context.Context
	adapter nd.Adapter
	queue   nd.CompletionQueue
	memory  nd.MemoryRegion
}

func (p *party) must(err error) {
	if err != nil {
		p.t.Helper()
		p.t.Fatal(err)
	}
}

// enter returns a process that has entered an arena, with the provider that wrap returns.
func enter(t *testing.T, ctx context.Context, arena *shm.Arena, wrap func(p nd.Provider) nd.Provider) *party {
	p := &party{t: t, ctx: ctx}
	m, err := arena.Join(shm.NoRank)
	p.must(err)
	inner, err := endpoint.New(m, endpoint.Options{})
	p.must(err)
	provider := wrap(inner)
	t.Cleanup(func() {
		p.must(provider.Close())
		p.must(m.Leave())
	})
	list, err := provider.QueryAddressList()
	p.must(err)
	id, err := provider.ResolveAddress(list[0])
	p.must(err)
	p.adapter, err = provider.OpenAdapter(ctx, id)
	p.must(err)
	p.queue, err = p.adapter.CreateCompletionQueue(ctx, 64)
	p.must(err)
	p.memory, err = p.adapter.Allocate(ctx, memory, nd.AllowLocalWrite)
	p.must(err)
	return p
}

func (p *party) endpoint() (nd.Endpoint, nd.Connector) {
	ep, err := p.adapter.CreateEndpoint(p.ctx, nd.EndpointConfig{ReceiveCQ: p.queue, InitiatorCQ: p.queue})
	p.must(err)
	c, err := p.adapter.CreateConnector(p.ctx)
	p.must(err)
	return ep, c
}

// connect connects two processes, and returns the endpoint of each.
func (p *party) connect(to *party) (active, passive nd.Endpoint) {
	l, err := to.adapter.CreateListener(p.ctx)
	p.must(err)
	list, err := to.adapter.QueryAddressList()
	p.must(err)
	p.must(l.Bind(netip.AddrPortFrom(list[0], 0)))
	p.must(l.Listen(4))
	addr, err := l.LocalAddress()
	p.must(err)
	active, c := p.endpoint()
	passive, answer := to.endpoint()
	accepted := make(chan error, 1)
	go func() {
		err := l.GetConnectionRequest(p.ctx, answer)
		if err == nil {
			err = answer.Accept(p.ctx, passive, nd.ConnectParams{})
		}
		accepted <- err
	}()
	p.must(c.Connect(p.ctx, active, addr, nd.ConnectParams{}))
	p.must(c.CompleteConnect(p.ctx))
	p.must(<-accepted)
	return active, passive
}

func (p *party) result() nd.Status {
	var r [1]nd.Result
	_, err := p.queue.Wait(p.ctx, r[:])
	p.must(err)
	return r[0].Status
}

// A token that no watched process has issued may be that of a process that is not watched, and with which this one is or was
// connected.
func TestTokenOfUnwatchedProcess(t *testing.T) {
	for name, isOver := range map[string]bool{"connected": false, "connected before": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), watchdog)
			defer cancel()
			arena, err := shm.Create(shm.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { arena.Close() })
			journal, err := ndcheck.NewJournal(make([]byte, ndcheck.JournalSize), nil)
			if err != nil {
				t.Fatal(err)
			}
			watched := func(rank int) *party {
				return enter(t, ctx, arena, func(p nd.Provider) nd.Provider {
					return ndcheck.Wrap(p, ndcheck.Options{Rank: rank, Journal: journal, Report: func(ndcheck.Finding) {}})
				})
			}
			owner, user := watched(0), watched(1)
			other := enter(t, ctx, arena, func(p nd.Provider) nd.Provider { return p })
			first, second := user.connect(other)
			w, err := other.adapter.CreateMemoryWindow(ctx)
			other.must(err)
			other.must(second.Bind(1, other.memory, w, other.memory.Bytes(), nd.AllowWrite))
			if status := other.result(); status != nd.Success {
				t.Fatal(status)
			}
			if isOver {
				user.must(first.Close())
			}
			ep, _ := user.connect(owner)
			user.must(nd.WriteTo(ep, 1, nd.One(nd.SGEOf(user.memory, 0, 8)), w.Descriptor(), 0))
			if status := user.result(); status != nd.AccessViolation {
				t.Fatal(status)
			}
			if found, _ := journal.Findings(); len(found) != 0 {
				t.Error(found)
			}
		})
	}
}

// Without a journal in common, a token that is not known may be another process's.
func TestUnknownProcess(t *testing.T) {
	found := watchWith(t, nil, nd.EndpointConfig{}, 64, []func(s *side){func(s *side) { s.give(s.bind(0, 64, nd.AllowRead).Descriptor()); s.barrier() }, func(s *side) {
		d := s.get()
		s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
		s.result(s.init)
		s.barrier()
	}})
	if len(found) != 0 {
		t.Error(found)
	}
}

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

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/shm"
)

// correct are programs without a mistake that a simple checker would report.
var correct = map[string]struct {
	cfg   nd.EndpointConfig
	roles [2]func(s *side)
}{
	// All requests have one context, and some have no result.
	"equal contexts": {roles: [2]func(s *side){
		func(s *side) { s.give(s.bind(0, memory, nd.AllowWrite).Descriptor()); s.barrier(); s.close() },
		func(s *side) {
			d := s.get()
			for i := range 200 {
				at := i % 8 * 64
				s.mr.Bytes()[at]++
				s.must(s.ep.Write(0, s.sge(at, 64), d.Address+uint64(at), d.Token, []nd.OpFlags{nd.SilentSuccess, 0}[i%2]))
				if i%8 == 7 {
					for range 4 {
						s.done()
					}
				}
			}
			s.barrier()
			s.close()
		}}},
	// The receiver of a message writes to the bytes that the sender has written to.
	"a Send orders Writes": {roles: [2]func(s *side){
		func(s *side) { s.bounce(s.bind(0, 64, nd.AllowWrite).Descriptor(), true) },
		func(s *side) { s.bounce(nd.WindowDescriptor{}, false) }}},
	// A wait for a slot of a full queue submits deferred requests.
	"a wait for a slot": {cfg: nd.EndpointConfig{InitiatorDepth: 4}, roles: [2]func(s *side){
		func(s *side) {
			for range 4 {
				s.must(s.ep.Receive(1, nd.SGL{}))
			}
			s.barrier()
			for range 4 {
				s.received()
			}
			s.barrier()
			s.close()
		},
		func(s *side) {
			s.barrier()
			for range 4 {
				s.must(s.ep.Send(1, nd.SGL{}, nd.Defer|nd.SilentSuccess))
			}
			s.must(s.ep.WaitSlot(s.ctx))
			s.barrier()
			s.close()
		}}},
	// A Write of a word, and a Read that polls it.
	"a flag": {roles: [2]func(s *side){
		func(s *side) { s.give(s.bind(0, 64, nd.AllowRead|nd.AllowWrite).Descriptor()); s.second(); s.barrier() },
		func(s *side) {
			d := s.get()
			ep := s.second()
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
			s.must(ep.Read(2, s.sge(64, 8), d.Address, d.Token, 0))
			s.done()
			s.done()
			s.barrier()
		}}},
	// The answer of the peer says that the Send is complete, before its result is taken.
	"an answer": {roles: [2]func(s *side){
		func(s *side) {
			s.must(s.ep.Receive(1, s.sge(0, 64)))
			s.barrier()
			s.received()
			s.must(s.ep.Send(2, nd.SGL{}, 0))
			s.done()
			s.close()
		},
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			s.barrier()
			s.must(s.ep.Send(2, s.sge(64, 64), 0))
			s.received()
			s.mr.Bytes()[64]++
			s.done()
			s.close()
		}}},
	// The number of a bind returns after 4,096 binds.
	"tokens return": {roles: [2]func(s *side){
		func(s *side) {
			w, err := s.job.Adapter().CreateMemoryWindow(s.ctx)
			s.must(err)
			for i := range 5000 {
				s.must(s.ep.Bind(0, s.mr, w, s.mr.Bytes()[i%32:64], nd.AllowWrite))
				s.done()
				if i%500 == 499 {
					s.give(w.Descriptor())
					s.barrier()
				}
				s.must(s.ep.Invalidate(0, w, 0))
				s.done()
			}
			s.must(w.Close(s.ctx))
			s.close()
		},
		func(s *side) {
			for range 10 {
				d := s.get()
				s.must(nd.WriteTo(s.ep, 0, s.sge(0, 8), d, 0))
				s.done()
				s.barrier()
			}
			s.close()
		}}},
	// A wait for the messages of a shared receive queue, while the own requests are silent.
	"shared receive queue": {roles: [2]func(s *side){
		func(s *side) { s.receiveShared() },
		func(s *side) {
			ep := s.second()
			s.barrier()
			s.must(ep.Receive(1, nd.SGL{}))
			s.must(ep.Send(2, nd.SGL{}, 0))
			s.done()
			s.received()
			time.Sleep(700 * time.Millisecond)
			s.must(ep.Send(3, s.sge(0, 8), 0))
			s.done()
			s.barrier()
		}}},
	// A goroutine waits while another one posts silent requests.
	"a goroutine waits": {roles: [2]func(s *side){
		func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.barrier() },
		func(s *side) {
			d := s.get()
			got := make(chan error, 1)
			go func() {
				var r [1]nd.Result
				_, err := s.init.Wait(s.ctx, r[:])
				got <- err
			}()
			for range 10 {
				s.must(s.ep.Write(1, s.sge(0, 8), d.Address, d.Token, nd.SilentSuccess))
				time.Sleep(70 * time.Millisecond)
			}
			s.must(s.ep.Write(1, s.sge(0, 8), d.Address, d.Token, 0))
			s.must(<-got)
			s.barrier()
		}}},
	// Memory that a Receive without bytes names may change: the message is about other bytes.
	"empty messages": {roles: [2]func(s *side){
		func(s *side) {
			s.must(s.ep.Receive(1, s.sge(0, 64)))
			s.give(s.bind(0, 64, nd.AllowWrite).Descriptor())
			s.received()
			s.close()
		},
		func(s *side) {
			d := s.get()
			s.mr.Bytes()[0] = 1
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
			s.must(s.ep.Send(2, nd.SGL{}, 0))
			s.done()
			s.done()
			s.close()
		}}},
	// The owner hears of the Writes before the writer takes their result.
	"the message is first": {roles: [2]func(s *side){
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			w := s.bind(0, 64, nd.AllowWrite)
			s.give(w.Descriptor())
			s.received()
			time.Sleep(20 * time.Millisecond)
			s.must(w.Close(s.ctx))
			s.close()
		},
		func(s *side) {
			d := s.get()
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
			s.must(s.ep.Send(2, nd.SGL{}, 0))
			time.Sleep(10 * time.Millisecond)
			s.done()
			s.done()
			s.close()
		}}},
	// The results of a closed endpoint may be taken later, and its memory closed before.
	"closed first": {roles: [2]func(s *side){
		func(s *side) { s.barrier(); s.must(s.ep.Receive(1, nd.SGL{})); s.received(); s.barrier() },
		func(s *side) {
			s.must(s.ep.Receive(1, s.sge(64, 64)))
			s.barrier()
			s.must(s.ep.Send(1, nd.SGL{}, 0))
			s.done()
			s.must(s.ep.Flush(s.ctx))
			s.must(s.ep.Close())
			s.must(s.mr.Close(s.ctx))
			if r := s.result(s.recv); r.Status != nd.Canceled || r.RequestContext != 1 {
				s.must(errors.New("the flushed Receive has another result"))
			}
			s.barrier()
		}}},
}

// bounce writes and sends, and answers messages in the same way.
func (s *side) bounce(d nd.WindowDescriptor, first bool) {
	for range 16 {
		s.must(s.ep.Receive(1, nd.SGL{}))
	}
	all, err := s.job.ExchangeWindows(s.ctx, d)
	s.must(err)
	ep := s.ep
	if s.job.Rank() == 0 { // it writes to its own memory over a connection with itself
		ep = s.loopback()
	}
	s.barrier()
	for i := range 200 {
		if i > 0 || !first {
			s.received()
			s.must(s.ep.Receive(1, nd.SGL{}))
		}
		s.must(nd.WriteTo(ep, 2, s.sge(64, 64), all[0], 0))
		if s.job.Rank() == 0 {
			s.done() // the Send is on another connection
		}
		s.must(s.ep.Send(3, nd.SGL{}, 0))
		s.done()
		if s.job.Rank() != 0 {
			s.done()
		}
	}
	s.barrier()
}

// loopback connects this rank with itself, and returns the active side.
func (s *side) loopback() nd.Endpoint {
	a := s.job.Adapter()
	l, err := a.CreateListener(s.ctx)
	s.must(err)
	list, err := a.QueryAddressList()
	s.must(err)
	s.must(l.Bind(netip.AddrPortFrom(list[0], 0)))
	s.must(l.Listen(4))
	addr, err := l.LocalAddress()
	s.must(err)
	create := func() (nd.Endpoint, nd.Connector) {
		ep, err := a.CreateEndpoint(s.ctx, nd.EndpointConfig{ReceiveCQ: s.recv, InitiatorCQ: s.init})
		s.must(err)
		c, err := a.CreateConnector(s.ctx)
		s.must(err)
		return ep, c
	}
	active, c := create()
	passive, answer := create()
	accepted := make(chan error, 1)
	go func() {
		err := l.GetConnectionRequest(s.ctx, answer)
		if err == nil {
			err = answer.Accept(s.ctx, passive, nd.ConnectParams{})
		}
		accepted <- err
	}()
	s.must(c.Connect(s.ctx, active, addr, nd.ConnectParams{}))
	s.must(c.CompleteConnect(s.ctx))
	s.must(<-accepted)
	return active
}

func (s *side) receiveShared() {
	shared, err := s.job.Adapter().CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{})
	s.must(err)
	q, err := s.job.Adapter().CreateCompletionQueue(s.ctx, 64)
	s.must(err)
	ep, err := s.job.Connect(s.ctx, 1, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q, SharedReceive: shared})
	s.must(err)
	s.must(shared.Receive(8, s.sge(0, 64)))
	s.must(shared.Receive(8, s.sge(64, 64)))
	s.barrier()
	s.must(ep.Send(9, nd.SGL{}, nd.SilentSuccess))
	for range 2 { // it waits for longer than the checker does
		if r := s.result(q); r.Status != nd.Success || r.RequestContext != 8 {
			s.must(nd.Explain(ep, r))
		}
	}
	s.barrier()
}

func TestCorrectPrograms(t *testing.T) {
	t.Parallel()
	for name, p := range correct {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, f := range watch(t, p.cfg, 64, p.roles[0], p.roles[1]) {
				t.Error(f)
			}
		})
	}
}

// A message that invalidates is named as the reason, with the line of its sender.
func TestInvalidationByMessage(t *testing.T) {
	found := watch(t, nd.EndpointConfig{}, 64, func(s *side) {
		s.must(s.ep.Receive(1, nd.SGL{}))
		s.give(s.bind(0, 64, nd.AllowWrite).Descriptor())
		s.received()
		s.barrier()
	}, func(s *side) {
		d := s.get()
		s.must(s.ep.SendAndInvalidate(1, nd.SGL{}, d.Token, 0))
		s.must(nd.WriteTo(s.ep, 2, s.sge(0, 8), d, 0))
		s.done()
		s.result(s.init)
		s.barrier()
	})
	if len(found) != 1 || found[0].Rule.ID != "N101" || found[0].OtherRank != 1 || !strings.Contains(found[0].OtherSite, "TestInvalidationByMessage.func2") {
		t.Error(found)
	}
}

// A message that was refused has invalidated nothing: the owner is named as the reason.
func TestRefusedInvalidation(t *testing.T) {
	const depth = 4
	found := watch(t, nd.EndpointConfig{InitiatorDepth: depth}, 64, func(s *side) {
		w := s.bind(0, 64, nd.AllowWrite)
		s.give(w.Descriptor())
		s.barrier()
		s.must(s.ep.Receive(1, nd.SGL{}))
		s.barrier()
		s.must(s.ep.Invalidate(2, w, 0))
		s.done()
		for range depth - 1 { // now the Sends complete, and the Write begins
			s.must(s.ep.Receive(1, nd.SGL{}))
		}
		s.barrier()
	}, func(s *side) {
		d := s.get()
		for range depth {
			s.must(s.ep.Send(1, nd.SGL{}, 0)) // it waits for a Receive
		}
		if err := s.ep.SendAndInvalidate(2, nd.SGL{}, d.Token, 0); !errors.Is(err, nd.NoMoreEntries) {
			s.must(fmt.Errorf("the queue is not full: %v", err))
		}
		s.barrier()
		s.done()
		s.must(nd.WriteTo(s.ep, 3, s.sge(0, 8), d, 0))
		s.barrier()
		for range depth - 1 {
			s.done()
		}
		s.result(s.init)
		s.barrier()
	})
	if len(found) != 1 || found[0].Rule.ID != "N107" || found[0].OtherRank != 0 || !strings.Contains(found[0].OtherSite, "TestRefusedInvalidation.func1") {
		t.Error(found)
	}
}

// Objects and requests that have ended are forgotten, also if a few queues and regions serve many connections.
func TestNothingStays(t *testing.T) {
	arena, err := shm.Create(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	m, err := arena.Join(shm.NoRank)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := endpoint.New(m, endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var found []ndcheck.Finding
	p := ndcheck.Wrap(inner, ndcheck.Options{Report: func(f ndcheck.Finding) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, f)
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	list, err := p.QueryAddressList()
	must(err)
	id, err := p.ResolveAddress(list[0])
	must(err)
	a, err := p.OpenAdapter(ctx, id)
	must(err)
	q, err := a.CreateCompletionQueue(ctx, 64)
	must(err)
	mr, err := a.Allocate(ctx, 4096, nd.AllowLocalWrite)
	must(err)
	l, err := a.CreateListener(ctx)
	must(err)
	must(l.Bind(netip.AddrPortFrom(list[0], 0)))
	must(l.Listen(4))
	addr, err := l.LocalAddress()
	must(err)
	for i := range 100 {
		active, err := a.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q, Context: 5})
		must(err)
		passive, err := a.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q, Context: 5})
		must(err)
		c, err := a.CreateConnector(ctx)
		must(err)
		answer, err := a.CreateConnector(ctx)
		must(err)
		accepted := make(chan error, 1)
		go func() {
			err := l.GetConnectionRequest(ctx, answer)
			if err == nil {
				err = answer.Accept(ctx, passive, nd.ConnectParams{})
			}
			accepted <- err
		}()
		must(c.Connect(ctx, active, addr, nd.ConnectParams{}))
		must(c.CompleteConnect(ctx))
		must(<-accepted)
		w, err := a.CreateMemoryWindow(ctx)
		must(err)
		must(passive.Bind(1, mr, w, mr.Bytes(), nd.AllowWrite))
		for k := range 5 {
			must(passive.Receive(0, nd.One(nd.SGEOf(mr, k*64, 64))))
		}
		must(active.Send(0, nd.SGL{}, nd.SilentSuccess))
		must(active.Send(0, nd.SGL{}, 0))
		must(active.Send(0, nd.SGL{}, nd.SilentSuccess)) // its success has no result
		if i%2 == 0 {
			must(active.Flush(ctx))
		}
		must(active.Close())
		must(passive.Close())
		must(w.Close(ctx))
		for {
			var results [8]nd.Result
			n := q.Poll(results[:])
			for _, r := range results[:n] {
				if r.EndpointContext != 5 || r.RequestContext > 1 {
					t.Fatalf("result %+v", r)
				}
			}
			if n == 0 {
				break
			}
		}
	}
	must(mr.Close(ctx))
	must(q.Close())
	must(l.Close())
	if endpoints, requests, objects := p.Sizes(); endpoints+requests+objects != 0 { // a closed queue has no results
		t.Errorf("%d endpoints, %d requests, %d objects are left", endpoints, requests, objects)
	}
	must(a.Close(ctx))
	must(p.Close())
	must(m.Leave())
	for _, f := range found {
		if id := f.Rule.ID; id != "N602" && id != "N501" { // on purpose
			t.Error(f)
		}
	}
}

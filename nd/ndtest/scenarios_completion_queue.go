package ndtest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/nd"
)

// startPendingNotify starts a Notify of type t and checks that it blocks.
func (s *side) startPendingNotify(q nd.CompletionQueue, t nd.NotifyType) <-chan error {
	w := s.async(func() error { return q.Notify(s.ctx, t) })
	s.wantPending(w)
	return w
}

// sendOnDemand sends n empty messages, each after a barrier.
func (c *conn) sendOnDemand(n int) {
	for i := range uint64(n) {
		c.barrier()
		c.must(c.ep.Send(i, nd.SGL{}, 0))
		c.wantResult(nd.Success, i)
	}
}

// receiveAny posts n empty Receives with request contexts from 0.
func (c *conn) receiveAny(n int) {
	for i := range uint64(n) {
		c.must(c.ep.Receive(i, nd.SGL{}))
	}
}

// notifyAllWaiters checks that one plain message ends a Notify of each of the types. It cannot observe
// when a Notify begins to wait. On a busy machine a Notify may start after the message, so a failed
// attempt is repeated with more time.
func notifyAllWaiters(types ...nd.NotifyType) (a, p func(*side)) {
	return func(s *side) {
			c := s.pair(connOptions{})
			for settle := 20 * time.Millisecond; settle < 20*time.Second; settle *= 8 {
				if s.notifyWithin(c, types, settle) {
					s.tell(false)
					return
				}
			}
			s.fatalf("one message has not ended all Notify calls of types %v", types)
		}, func(s *side) {
			c := s.pair(connOptions{})
			for hear[bool](s) {
				s.must(c.ep.Send(1, nd.SGL{}, 0))
				c.wantResult(nd.Success, 1)
			}
		}
}

// notifyWithin starts the Notify calls, gives them settle to begin to wait, and has the peer send a message. It
// reports whether the message has ended all of them. It ends one at least, however late it arrives: the others
// get settle after that.
func (s *side) notifyWithin(c *conn, types []nd.NotifyType, settle time.Duration) bool {
	ctx, cancel := s.withCancel()
	c.receiveAny(1)
	ended := make(chan error, len(types))
	for _, t := range types {
		s.wantPending(s.async(func() error {
			err := c.cq.Notify(ctx, t)
			ended <- err
			return err
		}))
	}
	time.Sleep(settle)
	s.tell(true)
	s.must(s.await(ended))
	all, limit := true, time.After(settle)
	for range types[1:] {
		var err error
		select {
		case err = <-ended:
		case <-limit:
			all = false
			cancel()
			err = s.await(ended)
		}
		if all || !errors.Is(err, nd.Canceled) {
			s.must(err)
		}
	}
	c.wantReceive(nd.Success, 0)
	s.wantEmpty(c.cq)
	return all
}

// overrunQueue posts n requests, which have more results than c's completion queue has entries.
func (c *conn) overrunQueue(n int, post func(reqCtx uint64) error) {
	for i := range uint64(n) {
		if err := post(i); errors.Is(err, nd.InternalError) {
			return // the endpoint has failed because of the overrun
		} else {
			c.must(err)
		}
	}
}

// overrunDepth returns a number of requests far above the entries of a completion queue of depth 4.
// Providers may add entries to the depth.
func (s *side) overrunDepth() int {
	return int(min(1024, s.info.MaxReceiveQueueDepth, s.info.MaxInitiatorQueueDepth))
}

// wantOverrun checks that Notify of an overrun queue fails with BufferOverflow.
func (s *side) wantOverrun(q nd.CompletionQueue) {
	for range 2 {
		s.want(nd.BufferOverflow, q.Notify(s.ctx, nd.NotifyAny))
	}
}

// skipUnlessResize skips the row if the adapter lacks CQResizeSupported. Resize must then fail with
// NotSupported.
func (s *side) skipUnlessResize() {
	if !s.info.AdapterFlags.Has(nd.CQResizeSupported) {
		s.want(nd.NotSupported, s.newQueue(16).Resize(32))
		s.skipf("the adapter lacks the flag CQResizeSupported")
	}
}

var queueScenarios = []scenario{
	{id: "C191", title: "an overrun breaks the completion queue and the endpoints that use it", active: func(s *side) {
		n := s.overrunDepth()
		c := s.pair(connOptions{CQDepth: 4, Endpoint: nd.EndpointConfig{ReceiveDepth: n}})
		other := s.pair(connOptions{ShareWith: c})
		c.overrunQueue(n, func(x uint64) error { return c.ep.Receive(x, nd.SGL{}) })
		s.must(c.ep.Flush(c.ctx))
		s.wantOverrun(c.cq)
		stored := make([]nd.Result, n)
		stored = stored[:c.cq.Poll(stored)]
		if len(stored) < 4 || len(stored) == n {
			s.fatalf("Poll of the overrun queue: %d results of %d requests, want at least the depth 4, and not all", len(stored), n)
		}
		for i, r := range stored {
			if r.Status != nd.Canceled || r.RequestContext != uint64(i) || r.EndpointContext != c.context {
				s.fatalf("result %d is %+v, want Canceled of that request", i, r)
			}
		}
		s.wantOverrun(c.cq)
		s.eventually("Endpoint.Err of the other endpoint is not nil", func() bool { return other.ep.Err() != nil })
		if err := other.ep.Send(1, nd.SGL{}, 0); err != nil {
			s.want(nd.InternalError, err)
		}
		s.wantEmpty(c.cq)
		if k, err := c.cq.Wait(s.ctx, stored[:1]); k != 0 || !errors.Is(err, nd.BufferOverflow) {
			s.errorf("Wait of the overrun queue: %d, %v, want 0 and BufferOverflow", k, err)
		}
	}, passive: func(s *side) {
		c, other := s.pair(connOptions{}), s.pair(connOptions{})
		for _, x := range []*conn{c, other} {
			x.wantDisconnected()
			x.wantErrorState()
		}
	}},

	{id: "C192", title: "an overrun ends Notify with BufferOverflow, even if its entries do not end Notify", active: func(s *side) {
		n := s.overrunDepth()
		c := s.pair(connOptions{CQDepth: 4, Endpoint: nd.EndpointConfig{InitiatorDepth: n}})
		waiter := s.startPendingNotify(c.cq, nd.NotifyErrors)
		c.overrunQueue(n, func(x uint64) error { return c.ep.Write(x, nd.SGL{}, c.peerRegion.Address, c.peerRegion.Token, 0) })
		s.want(nd.BufferOverflow, s.await(waiter))
		s.wantOverrun(c.cq)
		var first [4]nd.Result
		if k := c.cq.Poll(first[:]); k != len(first) {
			s.fatalf("Poll of the overrun queue: %d results, want the 4 stored ones", k)
		}
		for i, r := range first {
			c.checkResult(r, nd.Success, uint64(i))
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.wantDisconnected()
		c.wantErrorState()
	}},

	{id: "C193", title: "an entry ends one Notify, even if it is not taken", active: func(s *side) {
		c := s.pair(connOptions{})
		c.receiveAny(2)
		first := s.startPendingNotify(c.cq, nd.NotifyAny)
		s.barrier()
		s.must(s.await(first))
		second := s.startPendingNotify(c.cq, nd.NotifyAny)
		s.barrier()
		s.must(s.await(second))
		c.wantReceive(nd.Success, 0)
		c.wantReceive(nd.Success, 1)
	}, passive: func(s *side) {
		s.pair(connOptions{}).sendOnDemand(2)
	}},

	rowOf("C194", "one entry ends all waiting Notify calls")(notifyAllWaiters(nd.NotifyAny, nd.NotifyAny, nd.NotifyAny)),
	rowOf("C195", "a plain message ends Notify of a queue armed for solicited events and then for any")(notifyAllWaiters(nd.NotifySolicited, nd.NotifyAny)),
	rowOf("C196", "a plain message ends Notify of a queue armed for any event and then for errors")(notifyAllWaiters(nd.NotifyAny, nd.NotifyErrors)),

	{id: "C197", title: "Resize checks its limits and keeps the entries", active: func(s *side) {
		s.skipUnlessResize()
		const depth = 100
		c := s.prepare(connOptions{CQDepth: 16, Endpoint: nd.EndpointConfig{ReceiveDepth: depth}})
		c.receiveAny(10)
		s.must(c.ep.Flush(c.ctx))
		s.want(nd.BufferOverflow, c.cq.Resize(5))
		s.want(nd.InvalidParameter, c.cq.Resize(int(s.info.MaxCompletionQueueDepth)+1))
		s.want(nd.InvalidParameter, c.cq.Resize(0))
		s.must(c.cq.Resize(depth))
		for i := uint64(10); i < depth; i++ { // flushed at once, so that the queue becomes full
			s.must(c.ep.Receive(i, nd.SGL{}))
		}
		for i := range uint64(depth) {
			c.wantReceive(nd.Canceled, i)
		}
		s.wantEmpty(c.cq)
	}},

	{id: "C198", title: "Resize under traffic neither loses nor duplicates results", active: func(s *side) {
		s.skipUnlessResize()
		c := s.pair(connOptions{})
		for range resizeRounds {
			s.barrier()
			for i := range uint64(resizeBatch) {
				s.must(c.ep.Send(i, nd.SGL{}, 0))
			}
			for i := range uint64(resizeBatch) {
				c.wantResult(nd.Success, i)
			}
		}
	}, passive: func(s *side) {
		s.skipUnlessResize()
		c := s.pair(connOptions{CQDepth: 32})
		var over atomic.Bool
		resizing := s.async(func() error {
			for depth := 0; !over.Load(); depth++ {
				if err := c.cq.Resize([]int{32, 500, 64}[depth%3]); err != nil {
					return err
				}
			}
			return nil
		})
		defer over.Store(true)
		serial := uint64(0)
		for range resizeRounds {
			for i := range uint64(resizeBatch) {
				s.must(c.ep.Receive(serial+i, nd.SGL{}))
			}
			s.barrier()
			for range resizeBatch {
				c.wantReceive(nd.Success, serial)
				serial++
			}
		}
		over.Store(true)
		s.must(s.await(resizing))
		s.wantEmpty(c.cq)
	}},

	{id: "C199", title: "two endpoints that share a completion queue keep their order and contexts", active: func(s *side) {
		c := s.pair(connOptions{})
		d := s.pair(connOptions{ShareWith: c})
		s.barrier() // the Receives are posted
		for i := range uint64(16) {
			s.must(c.ep.Send(i, nd.SGL{}, 0))
			s.must(d.ep.Write(i, d.sge(0, 8), d.peerRegion.Address, d.peerRegion.Token, 0))
		}
		s.wantInterleaved(16, c, d)
		for i := range uint64(16) {
			s.must(d.ep.Send(i, nd.SGL{}, 0))
			d.wantResult(nd.Success, i)
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		d := s.pair(connOptions{ShareWith: c})
		c.receiveAny(16)
		d.receiveAny(16)
		s.barrier()
		s.wantInterleaved(16, c, d)
	}},

	{id: "C200", title: "Close of a completion queue cancels its Notify and Wait calls", active: func(s *side) {
		q := s.newQueue(16)
		waiters := []<-chan error{
			s.startPendingNotify(q, nd.NotifyAny), s.startPendingNotify(q, nd.NotifyErrors), s.startPendingNotify(q, nd.NotifySolicited),
			s.async(func() error { _, err := q.Wait(s.ctx, make([]nd.Result, 1)); return err }),
		}
		for _, w := range waiters { // long enough that all calls wait
			s.wantPending(w)
		}
		s.must(q.Close())
		for _, w := range waiters {
			s.want(nd.Canceled, s.await(w))
		}
	}},
}

const (
	resizeRounds = 20
	resizeBatch  = 16
)

// rowOf makes a row from the two sides that a function returns.
func rowOf(id, title string) func(a, p func(*side)) scenario {
	return func(a, p func(*side)) scenario { return scenario{id: id, title: title, active: a, passive: p} }
}

// wantInterleaved takes n results of each connection from their shared completion queue. The results of
// each connection must be Success, in the order of posting.
func (s *side) wantInterleaved(n int, conns ...*conn) {
	seen := make(map[uint64]uint64)
	for _, c := range conns {
		seen[c.context] = 0
	}
	for range n * len(conns) {
		r := s.takeResult(conns[0].cq)
		want, ok := seen[r.EndpointContext]
		if !ok || r.Status != nd.Success || r.RequestContext != want {
			s.fatalf("result %+v, want Success of the next request of a connection (next by context: %v)", r, seen)
		}
		seen[r.EndpointContext]++
	}
	s.wantEmpty(conns[0].cq)
}

package ndtest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/nd"
)

// notifying begins a Notify and makes sure that it waits.
func (s *side) notifying(q nd.CompletionQueue, t nd.NotifyType) <-chan error {
	w := s.begun(func() error { return q.Notify(s.ctx, t) })
	s.pending(w)
	return w
}

// sendOnDemand sends an empty message each of the n times that the other half asks.
func (c *conn) sendOnDemand(n int) {
	for i := range uint64(n) {
		c.meet()
		c.must(c.ep.Send(i, nil, 0))
		c.done(nd.Success, i)
	}
}

// receiveAny posts n empty receives, numbered from 0.
func (c *conn) receiveAny(n int) {
	for i := range uint64(n) {
		c.must(c.ep.Receive(i, nil))
	}
}

// waitersFire checks that one plain message ends one Notify call of each type. Nothing tells when
// a call waits, so that one of a busy machine may be late: it is given more time then.
func waitersFire(types ...nd.NotifyType) (a, p func(*side)) {
	return func(s *side) {
			c := s.pair(shape{})
			for settle := 20 * time.Millisecond; settle < 10*time.Second; settle *= 8 {
				if s.fire(c, types, settle) {
					s.tell(false)
					return
				}
			}
			s.fatalf("one message has not ended all of %v", types)
		}, func(s *side) {
			c := s.pair(shape{})
			for hear[bool](s) {
				s.must(c.ep.Send(1, nil, 0))
				c.done(nd.Success, 1)
			}
		}
}

// fire has Notify calls wait for a message, and tells whether it has ended all of them in time.
func (s *side) fire(c *conn, types []nd.NotifyType, settle time.Duration) bool {
	ctx, cancel := s.cancelable()
	c.receiveAny(1)
	var waiters []<-chan error
	for _, t := range types {
		w := s.begun(func() error { return c.cq.Notify(ctx, t) })
		s.pending(w)
		waiters = append(waiters, w)
	}
	time.Sleep(settle)
	s.tell(true)
	all := true
	for _, w := range waiters {
		var err error
		select {
		case err = <-w:
		case <-time.After(settle):
			all = false
			cancel()
			err = s.ended(w)
		}
		if all || err != nil && !errors.Is(err, nd.Canceled) {
			s.must(err)
		}
	}
	c.received(nd.Success, 0)
	s.empty(c.cq)
	return all
}

// overrun makes more entries than the queue of c, created for 4, has room for.
func (c *conn) overrun(n int, post func(reqCtx uint64) error) {
	for i := range uint64(n) {
		if err := post(i); errors.Is(err, nd.InternalError) {
			return // the overrun is known already
		} else {
			c.must(err)
		}
	}
}

// tooDeep is a depth far above what any provider adds to a queue of 4.
func (s *side) tooDeep() int {
	return int(min(1024, s.info.MaxReceiveQueueDepth, s.info.MaxInitiatorQueueDepth))
}

// overran checks what a broken queue says.
func (s *side) overran(q nd.CompletionQueue) {
	for range 2 {
		s.want(nd.BufferOverflow, q.Notify(s.ctx, nd.NotifyAny))
	}
}

// needResize skips the row for an adapter without Resize, which has to say so.
func (s *side) needResize() {
	if !s.info.AdapterFlags.Has(nd.CQResizeSupported) {
		s.want(nd.NotSupported, s.queue(16).Resize(32))
		s.skipf("the adapter does not show CQResizeSupported")
	}
}

var queueScenarios = []scenario{
	{id: "C191", title: "an overrun breaks the queue and the endpoints that use it", active: func(s *side) {
		n := s.tooDeep()
		c := s.pair(shape{CQ: 4, Limits: nd.EndpointConfig{ReceiveDepth: n}})
		other := s.pair(shape{With: c})
		c.overrun(n, func(x uint64) error { return c.ep.Receive(x, nil) })
		s.must(c.ep.Flush())
		s.overran(c.cq)
		stored := make([]nd.Result, n)
		stored = stored[:c.cq.Poll(stored)]
		if len(stored) < 4 || len(stored) == n {
			s.fatalf("%d entries are stored of %d, in a queue for 4", len(stored), n)
		}
		for i, r := range stored {
			if r.Status != nd.Canceled || r.RequestContext != uint64(i) || r.EndpointContext != c.context {
				s.fatalf("entry %d is %+v", i, r)
			}
		}
		s.overran(c.cq)
		s.eventually("the other endpoint fails", func() bool { return other.ep.Err() != nil })
		if err := other.ep.Send(1, nil, 0); err != nil {
			s.want(nd.InternalError, err)
		}
		s.empty(c.cq)
		if k, err := c.cq.Wait(s.ctx, stored[:1]); k != 0 || !errors.Is(err, nd.BufferOverflow) {
			s.errorf("Wait returns %d, %v", k, err)
		}
	}, passive: func(s *side) {
		c, other := s.pair(shape{}), s.pair(shape{})
		for _, x := range []*conn{c, other} {
			x.peerEnded()
			x.dead()
		}
	}},

	{id: "C192", title: "an overrun by entries that do not end a Notify ends it with BufferOverflow", active: func(s *side) {
		n := s.tooDeep()
		c := s.pair(shape{CQ: 4, Limits: nd.EndpointConfig{InitiatorDepth: n}})
		waiter := s.notifying(c.cq, nd.NotifyErrors)
		c.overrun(n, func(x uint64) error { return c.ep.Write(x, nil, c.far.Address, c.far.Token, 0) })
		s.want(nd.BufferOverflow, s.ended(waiter))
		s.overran(c.cq)
		var first [4]nd.Result
		if k := c.cq.Poll(first[:]); k != len(first) {
			s.fatalf("%d stored entries can be read, of 4 at least", k)
		}
		for i, r := range first {
			c.check(r, nd.Success, uint64(i))
		}
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.peerEnded()
		c.dead()
	}},

	{id: "C193", title: "an entry ends Notify once, even if it is left unread", active: func(s *side) {
		c := s.pair(shape{})
		c.receiveAny(2)
		first := s.notifying(c.cq, nd.NotifyAny)
		s.meet()
		s.must(s.ended(first))
		second := s.notifying(c.cq, nd.NotifyAny)
		s.meet()
		s.must(s.ended(second))
		c.received(nd.Success, 0)
		c.received(nd.Success, 1)
	}, passive: func(s *side) {
		s.pair(shape{}).sendOnDemand(2)
	}},

	rowOf("C194", "one entry ends all waiting Notify calls")(waitersFire(nd.NotifyAny, nd.NotifyAny, nd.NotifyAny)),
	rowOf("C195", "a queue armed SOLICITED and then ANY fires for a plain message")(waitersFire(nd.NotifySolicited, nd.NotifyAny)),
	rowOf("C196", "a queue armed ANY and then ERRORS fires for a plain message")(waitersFire(nd.NotifyAny, nd.NotifyErrors)),

	{id: "C197", title: "Resize keeps its limits and the entries", active: func(s *side) {
		s.needResize()
		const depth = 100
		c := s.prepare(shape{CQ: 16, Limits: nd.EndpointConfig{ReceiveDepth: depth}})
		c.receiveAny(10)
		s.must(c.ep.Flush())
		s.want(nd.BufferOverflow, c.cq.Resize(5))
		s.want(nd.InvalidParameter, c.cq.Resize(int(s.info.MaxCompletionQueueDepth)+1))
		s.want(nd.InvalidParameter, c.cq.Resize(0))
		s.must(c.cq.Resize(depth))
		for i := uint64(10); i < depth; i++ { // flushed at once, so that the queue fills up
			s.must(c.ep.Receive(i, nil))
		}
		for i := range uint64(depth) {
			c.received(nd.Canceled, i)
		}
		s.empty(c.cq)
	}},

	{id: "C198", title: "Resize up and down under traffic loses and doubles nothing", active: func(s *side) {
		s.needResize()
		c := s.pair(shape{})
		for range resizeRounds {
			s.meet()
			for i := range uint64(resizeBatch) {
				s.must(c.ep.Send(i, nil, 0))
			}
			for i := range uint64(resizeBatch) {
				c.done(nd.Success, i)
			}
		}
	}, passive: func(s *side) {
		s.needResize()
		c := s.pair(shape{CQ: 32})
		var over atomic.Bool
		resizing := s.begun(func() error {
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
				s.must(c.ep.Receive(serial+i, nil))
			}
			s.meet()
			for range resizeBatch {
				c.received(nd.Success, serial)
				serial++
			}
		}
		over.Store(true)
		s.must(s.ended(resizing))
		s.empty(c.cq)
	}},

	{id: "C199", title: "two endpoints share a queue, each with its order and its context", active: func(s *side) {
		c := s.pair(shape{})
		d := s.pair(shape{With: c})
		s.meet() // receives are posted
		for i := range uint64(16) {
			s.must(c.ep.Send(i, nil, 0))
			s.must(d.ep.Write(i, d.sge(0, 8), d.far.Address, d.far.Token, 0))
		}
		s.inTurns(16, c, d)
		for i := range uint64(16) {
			s.must(d.ep.Send(i, nil, 0))
			d.done(nd.Success, i)
		}
	}, passive: func(s *side) {
		c := s.pair(shape{})
		d := s.pair(shape{With: c})
		c.receiveAny(16)
		d.receiveAny(16)
		s.meet()
		s.inTurns(16, c, d)
	}},

	{id: "C200", title: "Close of a queue cancels its waiters", active: func(s *side) {
		q := s.queue(16)
		waiters := []<-chan error{
			s.notifying(q, nd.NotifyAny), s.notifying(q, nd.NotifyErrors), s.notifying(q, nd.NotifySolicited),
			s.begun(func() error { _, err := q.Wait(s.ctx, make([]nd.Result, 1)); return err }),
		}
		for _, w := range waiters { // so long that all have begun
			s.pending(w)
		}
		s.must(q.Close())
		for _, w := range waiters {
			s.want(nd.Canceled, s.ended(w))
		}
	}},
}

const (
	resizeRounds = 20
	resizeBatch  = 16
)

// rowOf makes a row of two halves that a function returns.
func rowOf(id, title string) func(a, p func(*side)) scenario {
	return func(a, p func(*side)) scenario { return scenario{id: id, title: title, active: a, passive: p} }
}

// inTurns takes n results of each connection from the queue that they share: those of each come
// in the order of posting, and successful.
func (s *side) inTurns(n int, conns ...*conn) {
	seen := make(map[uint64]uint64)
	for _, c := range conns {
		seen[c.context] = 0
	}
	for range n * len(conns) {
		r := s.take(conns[0].cq)
		want, ok := seen[r.EndpointContext]
		if !ok || r.Status != nd.Success || r.RequestContext != want {
			s.fatalf("got %+v, and had seen %v", r, seen)
		}
		seen[r.EndpointContext]++
	}
	s.empty(conns[0].cq)
}

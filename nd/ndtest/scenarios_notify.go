package ndtest

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// Notifications of completion queues, and overlapped requests.
var notifyScenarios = []scenario{
	{id: "C014", title: "two completion queues of the largest depth at once", active: func(s *side) {
		most := int(s.info.MaxCompletionQueueDepth)
		for _, q := range []nd.CompletionQueue{s.newQueue(most), s.newQueue(most)} {
			s.wantEmpty(q)
		}
	}},
	{id: "C015", title: "canceled notifications end in the order of cancellation", active: func(s *side) {
		s.newNotifyRequests().cancelBoth(0, 1, true)
	}},
	{id: "C016", title: "canceled notifications end in the order of cancellation, reversed", active: func(s *side) {
		s.newNotifyRequests().cancelBoth(1, 0, true)
	}},
	{id: "C017", title: "one cancel ends all notifications of a queue in the order of request", active: func(s *side) {
		s.newNotifyRequests().cancelOne(true)
	}},
	{id: "C018", title: "notify and cancel 200 times with the same objects", active: func(s *side) {
		w := s.newNotifyRequests()
		for range 200 {
			w.cancelBoth(0, 1, false)
			w.cancelBoth(1, 0, false)
			w.cancelOne(false)
		}
		for _, q := range w.queues { // no canceled waiter remains that takes the event
			cfg := nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q, ReceiveDepth: 1, InitiatorDepth: 1, MaxReceiveSGE: 1, MaxInitiatorSGE: 1}
			ep, err := s.ad.CreateEndpoint(s.ctx, cfg)
			s.must(err)
			s.cleanup(func() { ep.Close() })
			s.must(ep.Receive(5, nd.SGL{}))
			s.must(ep.Flush(s.ctx))
			s.must(q.Notify(s.ctx, nd.NotifyAny))
		}
	}},
	{id: "C019", title: "a completion ends a Notify", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		c.must(c.ep.Send(7, c.sge(0, 64), 0))
		c.wantResult(nd.Success, 7)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(9, c.sge(0, 128)))
		s.wantEmpty(c.cq)
		n := s.async(func() error { return c.cq.Notify(s.ctx, nd.NotifyAny) })
		s.wantPending(n)
		s.barrier()
		s.must(s.await(n))
		c.wantOneReceive(nd.Result{RequestContext: 9, BytesTransferred: 64})
	}},
	{id: "C020", title: "a completion between Poll and Notify is not missed", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		c.must(c.ep.Send(7, c.sge(0, 64), 0))
		c.wantResult(nd.Success, 7)
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(9, c.sge(0, 128)))
		s.wantEmpty(c.cq)
		s.barrier()
		s.barrier() // the Send has completed, so the result is here
		s.must(c.cq.Notify(s.ctx, nd.NotifyAny))
		c.wantOneReceive(nd.Result{RequestContext: 9, BytesTransferred: 64})
	}},
	{id: "C021", title: "Notify only after an empty Poll misses none of 2,048 messages", active: func(s *side) {
		sendAll(s, (*conn).gatherNotified, 32)
	}, passive: func(s *side) {
		receiveAll(s, (*conn).gatherNotified, 32)
	}},
	{id: "C022", title: "Poll without Notify returns every completion, and nothing else", active: func(s *side) {
		sendAll(s, (*conn).gatherPolling, 8)
	}, passive: func(s *side) {
		receiveAll(s, (*conn).gatherPolling, 8)
	}},
	{id: "C023", title: "the result of an operation that succeeded at once is success", active: func(s *side) {
		for _, atOnce := range []bool{true, false} {
			var o ndcompat.Overlapped
			c := s.prepare(connOptions{})
			c.connect(hear[netip.AddrPort](s))
			if atOnce {
				c.completeConnect()
			} else {
				s.must(o.Start(s.ctx, c.connector.CompleteConnect))
			}
			s.must(o.Result(true))
			s.must(o.Result(false))
			c.wantAlive()
		}
	}, passive: func(s *side) {
		for range 2 {
			l, addr := s.listen(0)
			s.tell(addr)
			c := s.prepare(connOptions{})
			c.accept(l)
			c.wantAlive()
		}
	}},
}

// notifyRequests is two idle completion queues, two overlapped requests for notifications, and the
// channel that receives the requests that end.
type notifyRequests struct {
	*side
	queues   [2]nd.CompletionQueue
	sets     [2]ndcompat.OverlappedSet
	requests [2]ndcompat.Overlapped
	events   chan *ndcompat.Overlapped
}

func (s *side) newNotifyRequests() *notifyRequests {
	w := &notifyRequests{side: s, queues: [2]nd.CompletionQueue{s.newQueue(16), s.newQueue(16)}, events: make(chan *ndcompat.Overlapped, 4)}
	for i := range w.requests {
		w.requests[i].OnEnd = func(o *ndcompat.Overlapped) { w.events <- o }
	}
	return w
}

// start starts request i as a Notify of queue q.
func (w *notifyRequests) start(i, q int) {
	w.must(w.sets[q].Start(w.ctx, &w.requests[i], func(ctx context.Context) error { return w.queues[q].Notify(ctx, nd.NotifyAny) }))
}

// wantPending checks that both requests are pending. With wait, it checks after 10 ms.
func (w *notifyRequests) wantPending(wait bool) {
	if wait {
		time.Sleep(10 * time.Millisecond)
	}
	for i := range w.requests {
		w.want(nd.Pending, w.requests[i].Result(false))
	}
}

// wantCanceled checks that these requests have ended with Canceled, in this order, and no others.
func (w *notifyRequests) wantCanceled(order ...int) {
	if len(w.events) != len(order) {
		w.fatalf("%d requests have ended when Cancel returned, want %d", len(w.events), len(order))
	}
	for _, i := range order {
		if o := <-w.events; o != &w.requests[i] {
			w.fatalf("the requests ended in another order than %v", order)
		}
		w.want(nd.Canceled, w.requests[i].Result(false))
	}
}

// cancelBoth starts a Notify of each queue and cancels the queues, one after the other.
func (w *notifyRequests) cancelBoth(first, second int, wait bool) {
	w.start(0, 0)
	w.start(1, 1)
	w.wantPending(wait)
	w.sets[first].Cancel()
	w.wantCanceled(first)
	w.want(nd.Pending, w.requests[second].Result(false))
	w.sets[second].Cancel()
	w.wantCanceled(second)
}

// cancelOne starts two Notify of one queue and cancels the queue once.
func (w *notifyRequests) cancelOne(wait bool) {
	w.start(0, 0)
	w.start(1, 0)
	w.wantPending(wait)
	w.sets[0].Cancel()
	w.wantCanceled(0, 1)
}

// wantOneReceive checks that the receive completion queue contains one result, of a Receive.
func (c *conn) wantOneReceive(want nd.Result) {
	var results [2]nd.Result
	n := c.rcq.Poll(results[:])
	want.EndpointContext, want.RequestType = c.context, nd.RequestReceive
	if n != 1 || results[0] != want {
		c.fatalf("Poll: %d results %+v, want one: %+v", n, results[:n], want)
	}
}

// gatherer takes n results and calls each for every one. Gatherers differ in how they wait.
type gatherer func(c *conn, n int, each func(nd.Result))

// gatherNotified calls Notify when a Poll was empty.
func (c *conn) gatherNotified(n int, each func(nd.Result)) {
	c.gather(n, each, func() { c.must(c.cq.Notify(c.ctx, nd.NotifyAny)) })
}

// gatherPolling calls Poll only.
func (c *conn) gatherPolling(n int, each func(nd.Result)) {
	polls := 0
	c.gather(n, each, func() {
		c.must(c.ctx.Err())
		polls++
		yield(polls)
	})
}

func (c *conn) gather(n int, each func(nd.Result), idle func()) {
	var results [8]nd.Result
	for n > 0 {
		got := c.cq.Poll(results[:])
		if got == 0 {
			idle()
		}
		for _, r := range results[:got] {
			if r.Status != nd.Success {
				c.fatalf("result %+v, want status Success (Endpoint.Err: %v)", r, c.ep.Err())
			}
			each(r)
		}
		n -= got
	}
	if n < 0 {
		c.fatalf("Poll: %d results more than requests", -n)
	}
}

const (
	messageSize = 8  // size of a message that contains its number
	batch       = 64 // messages per batch of Receives
)

var deepQueues = connOptions{Endpoint: nd.EndpointConfig{ReceiveDepth: batch, InitiatorDepth: batch}}

// sendAll sends n batches of numbered messages, with eight outstanding.
func sendAll(s *side, gather gatherer, n int) {
	c := s.pair(deepQueues)
	sent, completed := 0, 0
	post := func() {
		at := sent % batch * messageSize
		binary.LittleEndian.PutUint64(c.memory.mem[at:], uint64(sent))
		s.must(c.ep.Send(uint64(sent), c.sge(at, messageSize), 0))
		sent++
	}
	for end := batch; end <= n*batch; end += batch {
		s.barrier() // the Receives are posted, so that no Send waits for a slow peer
		for range 8 {
			post()
		}
		gather(c, batch, func(r nd.Result) {
			if r.RequestContext != uint64(completed) || r.RequestType != nd.RequestSend {
				s.fatalf("result %d is %+v, want that of Send %d", completed, r, completed)
			}
			completed++
			if sent < end {
				post()
			}
		})
	}
	s.wantEmpty(c.cq)
}

// receiveAll receives n batches of numbered messages.
func receiveAll(s *side, gather gatherer, n int) {
	c := s.pair(deepQueues)
	received := 0
	for range n {
		for i := range batch {
			s.must(c.ep.Receive(uint64(received+i), c.sge(i*messageSize, messageSize)))
		}
		s.barrier()
		gather(c, batch, func(r nd.Result) {
			number := binary.LittleEndian.Uint64(c.memory.mem[received%batch*messageSize:])
			if r.RequestContext != uint64(received) || number != uint64(received) || r.RequestType != nd.RequestReceive {
				s.fatalf("result %[1]d is %+[2]v with message %[3]d, want Receive %[1]d with message %[1]d", received, r, number)
			}
			received++
		})
	}
	s.wantEmpty(c.cq)
}

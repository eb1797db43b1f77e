package ndtest

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// Connections at scale.
var connectScenarios = slices.Concat(manyScenarios, refusedScenarios)

var manyScenarios = []scenario{
	{id: "C024", title: "each connection request ends one waiting call, oldest first", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		s.crew(3, func(i int, w *side) {
			c := w.prepare(shape{Region: 4096, Data: []byte{byte(i)}})
			c.connect(to)
			c.complete()
			if len(c.data) != 1 || c.data[0] != byte(i) {
				w.errorf("client %d got the answer %v", i, c.data)
			}
		})()
		for range 3 { // one at a time
			s.meet()
			c := s.prepare(shape{Region: 4096})
			c.connect(to)
			c.complete()
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		var seen [3]bool
		var mu sync.Mutex
		s.crew(3, func(i int, w *side) {
			c := w.prepare(shape{Region: 4096})
			c.request(l)
			c.shape.Data = c.data
			c.must(c.connector.Accept(c.ctx, c.ep, c.shape.params()))
			mu.Lock()
			defer mu.Unlock()
			if len(c.data) != 1 || c.data[0] > 2 || seen[c.data[0]] {
				w.fatalf("request %v came twice, or from nowhere", c.data)
			}
			seen[c.data[0]] = true
		})()
		var connectors [3]nd.Connector
		ended := make(chan int, len(connectors))
		for i := range connectors {
			connectors[i] = s.fresh()
			call := s.begun(func() error {
				err := l.GetConnectionRequest(s.ctx, connectors[i])
				ended <- i
				return err
			})
			s.pending(call) // so that it is before the next
		}
		for i := range connectors {
			s.meet()
			s.eventually("a call takes the request", func() bool { return len(ended) > 0 })
			if got := <-ended; got != i {
				s.fatalf("call %d took request %d", got, i)
			}
			c := s.prepare(shape{Region: 4096})
			s.must(connectors[i].Accept(s.ctx, c.ep, c.shape.params()))
		}
	}},
	{id: "C025", title: "receives are posted before the connection exists", active: func(s *side) {
		c := s.pair(first)
		c.bothWays()
	}, passive: func(s *side) {
		c := s.pair(first)
		c.bothWays()
	}},
	{id: "C026", title: "a message of 4,096 bytes each way on queues of depth 1", active: func(s *side) {
		c := s.pair(first)
		c.bothWays()
		s.empty(c.cq)
		s.meet()
	}, passive: func(s *side) {
		c := s.pair(first)
		c.bothWays()
		s.empty(c.cq)
		s.meet()
	}},
	{id: "C027", title: "data that has completed is not lost in the disconnection", active: func(s *side) {
		for range 5 {
			c := s.pair(first)
			c.bothWays()
			s.must(c.connector.Disconnect(s.ctx)) // right after the Receive
			s.empty(c.cq)
		}
	}, passive: func(s *side) {
		for range 5 {
			c := s.pair(first)
			c.bothWays()
			s.must(c.connector.Disconnect(s.ctx)) // right after the Send, which the peer may not have seen
			s.empty(c.cq)
		}
	}},
	{id: "C028", title: "both sides disconnect", active: endTogether, passive: endTogether},
	{id: "C029", title: "NotifyDisconnect reports the peer's disconnection once", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		c.disconnect()
	}, passive: func(s *side) {
		c := s.prepare(shape{})
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		events := make(chan error, 2)
		o := ndcompat.Overlapped{OnEnd: func(o *ndcompat.Overlapped) { events <- o.Result(false) }}
		s.must(o.Start(s.ctx, c.connector.NotifyDisconnect))
		s.tell(c.memory.far())
		hear[nd.WindowDescriptor](s)
		s.pending(events)
		s.want(nd.Pending, o.Result(false))
		s.meet()
		s.must(s.ended(events))
		c.disconnect()
		if len(events) != 0 {
			s.errorf("a second report")
		}
	}},
	{id: "C030", title: "a pending NotifyDisconnect ends once, whatever comes together", active: endWatched, passive: endWatched},
	{id: "C035", title: "two workers a side connect, exchange, disconnect and release for 100 ms", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		until := time.Now().Add(100 * time.Millisecond)
		var mu sync.Mutex
		var used []netip.AddrPort
		s.crew(2, func(_ int, w *side) {
			for ok := true; ok; ok = time.Now().Before(until) {
				c := w.prepare(first)
				c.connect(to)
				c.complete()
				local, err := c.connector.LocalAddress()
				w.must(err)
				c.bothWays()
				c.disconnect()
				w.release()
				mu.Lock()
				used = append(used, local)
				mu.Unlock()
			}
		})()
		slices.SortFunc(used, netip.AddrPort.Compare)
		for _, a := range slices.Compact(used) { // no address is still taken
			c := s.fresh()
			s.must(c.Bind(a))
			s.must(c.Close())
		}
		s.tell("over")
		s.pair(shape{}).alive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		ctx, cancel := s.cancelable()
		join := s.crew(2, func(_ int, w *side) {
			for {
				c := w.prepare(first)
				c.connector = w.fresh()
				if err := l.GetConnectionRequest(ctx, c.connector); err != nil {
					w.want(nd.Canceled, err)
					return
				}
				w.must(c.connector.Accept(w.ctx, c.ep, c.shape.params()))
				c.bothWays()
				c.disconnect()
				w.release()
			}
		})
		hear[string](s)
		cancel()
		join()
		s.must(l.Close())
		s.listenAt(addr) // the address is not taken any more
		s.pair(shape{}).alive()
	}},
	{id: "C036", title: "read limits out of range are capped silently", active: func(s *side) {
		most := int(s.info.MaxInboundReadLimit)
		for _, in := range []int{6, most + 6} {
			c := s.pair(shape{In: in, Out: -1})
			inbound, outbound, err := c.connector.ReadLimits()
			s.must(err)
			if inbound > min(in, most) || outbound != 0 {
				s.errorf("asked for %d and 0, got %d and %d", in, inbound, outbound)
			}
			c.alive()
		}
	}, passive: func(s *side) {
		for range 2 {
			c := s.pair(shape{In: 6, Out: 6})
			inbound, outbound, err := c.connector.ReadLimits()
			s.must(err)
			if inbound != 0 || outbound > 6 || outbound < 1 {
				s.errorf("the peer lets 6 Reads in and sends none; got %d and %d", inbound, outbound)
			}
			c.alive()
		}
	}},
	{id: "C037", title: "port 0 becomes an ephemeral port that no other live connector has", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		var seen []uint16
		for range 4 {
			c := s.prepare(shape{Region: 4096})
			c.connect(to)
			local, err := c.connector.LocalAddress()
			s.must(err)
			c.complete()
			after, err := c.connector.LocalAddress()
			s.must(err)
			if p := local.Port(); p < nd.EphemeralPortFirst || slices.Contains(seen, p) || local.Addr() != s.addr || after != local {
				s.errorf("bound to %v, later %v; taken are %v", local, after, seen)
			}
			seen = append(seen, local.Port())
			s.tell(local)
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		for range 4 {
			c := s.prepare(shape{Region: 4096})
			c.accept(l)
			local := hear[netip.AddrPort](s)
			if peer, err := c.connector.PeerAddress(); err != nil || peer != local {
				s.errorf("the peer is at %v, %v, and says %v", peer, err, local)
			}
		}
	}},
}

// first is the shape of a connection of ndconn: one request in each queue, and a receive posted
// before there is a connection.
var first = shape{
	Limits: nd.EndpointConfig{ReceiveDepth: 1, InitiatorDepth: 1, MaxReceiveSGE: 1, MaxInitiatorSGE: 1},
	Before: func(c *conn) { c.must(c.ep.Receive(1, c.sge(0, 4096))) },
}

// bothWays has the active side send 4,096 bytes into the receive of shape first, and the passive
// side answer.
func (c *conn) bothWays() {
	if c.role == passive {
		c.take4096()
	}
	fill(c.memory.mem[8192:8192+4096], uint64(c.role))
	c.must(c.ep.Send(2, c.sge(8192, 4096), 0))
	c.done(nd.Success, 2)
	if c.role == active {
		c.take4096()
	}
}

func (c *conn) take4096() {
	if r := c.received(nd.Success, 1); r.BytesTransferred != 4096 {
		c.errorf("%d bytes, want 4096", r.BytesTransferred)
	}
	c.holds(c.memory.mem[:4096], uint64(1-c.role))
}

// endTogether is either half of a graceful disconnection.
func endTogether(s *side) {
	c := s.pair(first)
	c.bothWays()
	s.meet()
	c.disconnect()
	s.want(nd.ConnectionDisconnected, c.ep.Err())
	s.empty(c.cq)
}

// endWatched is either half of a disconnection with a NotifyDisconnect under way, which is
// canceled afterwards.
func endWatched(s *side) {
	c := s.pair(shape{})
	events := make(chan error, 2)
	o := ndcompat.Overlapped{OnEnd: func(o *ndcompat.Overlapped) { events <- o.Result(false) }}
	var set ndcompat.OverlappedSet
	s.must(set.Start(s.ctx, &o, c.connector.NotifyDisconnect))
	s.pending(events)
	s.meet()
	c.disconnect()
	set.Cancel()
	if len(events) != 1 {
		s.fatalf("%d events of one request", len(events))
	}
	s.wantOneOf(<-events, nd.Success, nd.Canceled)
}

package ndtest

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// Connections: establishment, exchange, disconnection, addresses.
var connectScenarios = slices.Concat(connectionBasics, connectRefusedScenarios)

var connectionBasics = []scenario{
	{id: "C024", title: "each connection request completes one GetConnectionRequest, the oldest first", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		s.workers(3, func(i int, w *side) {
			c := w.prepare(connOptions{RegionSize: 4096, PrivateData: []byte{byte(i)}})
			c.connect(to)
			c.completeConnect()
			if len(c.peerData) != 1 || c.peerData[0] != byte(i) {
				w.errorf("client %[1]d: private data %[2]v, want its own number %[1]d", i, c.peerData)
			}
		})()
		for hear[bool](s) {
			for range 3 { // one at a time
				s.barrier()
				c := s.prepare(connOptions{RegionSize: 4096})
				c.connect(to)
				c.completeConnect()
			}
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		var seen [3]bool
		var mu sync.Mutex
		s.workers(3, func(i int, w *side) {
			c := w.prepare(connOptions{RegionSize: 4096})
			c.getRequest(l)
			c.opts.PrivateData = c.peerData
			c.must(c.connector.Accept(c.ctx, c.ep, c.opts.connectParams()))
			mu.Lock()
			defer mu.Unlock()
			if len(c.peerData) != 1 || c.peerData[0] > 2 || seen[c.peerData[0]] {
				w.fatalf("connection request with data %v: delivered twice, or sent by no client", c.peerData)
			}
			seen[c.peerData[0]] = true
		})()
		// On a busy machine a call may begin to wait after the next one, so a failed attempt is repeated with more time.
		var order []int
		for settle := 20 * time.Millisecond; order == nil || !slices.IsSorted(order); settle *= 8 {
			if settle > 20*time.Second {
				s.fatalf("the calls of GetConnectionRequest, numbered from the oldest, returned in the order %v, want the oldest first", order)
			}
			s.tell(true)
			order = nil
			var connectors [3]nd.Connector
			ended := make(chan int, len(connectors))
			for i := range connectors {
				connectors[i] = s.newConnector()
				s.wantPending(s.async(func() error {
					err := l.GetConnectionRequest(s.ctx, connectors[i])
					ended <- i
					return err
				}))
				time.Sleep(settle)
			}
			for range connectors {
				s.barrier()
				s.eventually("a GetConnectionRequest has returned", func() bool { return len(ended) > 0 })
				i := <-ended
				c := s.prepare(connOptions{RegionSize: 4096})
				s.must(connectors[i].Accept(s.ctx, c.ep, c.opts.connectParams()))
				order = append(order, i)
			}
		}
		s.tell(false)
	}},
	{id: "C025", title: "Receives may be posted before the connection exists", active: func(s *side) {
		c := s.pair(depthOne)
		c.exchange4096()
	}, passive: func(s *side) {
		c := s.pair(depthOne)
		c.exchange4096()
	}},
	{id: "C026", title: "a message of 4,096 bytes each way on queues of depth 1", active: func(s *side) {
		c := s.pair(depthOne)
		c.exchange4096()
		s.wantEmpty(c.cq)
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(depthOne)
		c.exchange4096()
		s.wantEmpty(c.cq)
		s.barrier()
	}},
	{id: "C027", title: "a Disconnect loses no data of completed requests", active: func(s *side) {
		for range 5 {
			c := s.pair(depthOne)
			c.exchange4096()
			s.must(c.connector.Disconnect(s.ctx)) // right after the Receive
			s.wantEmpty(c.cq)
		}
	}, passive: func(s *side) {
		for range 5 {
			c := s.pair(depthOne)
			c.exchange4096()
			s.must(c.connector.Disconnect(s.ctx)) // right after the Send, whose message the peer may not have polled yet
			s.wantEmpty(c.cq)
		}
	}},
	{id: "C028", title: "both sides disconnect", active: disconnectTogether, passive: disconnectTogether},
	{id: "C029", title: "NotifyDisconnect reports the peer's disconnection once", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		c.disconnect()
	}, passive: func(s *side) {
		c := s.prepare(connOptions{})
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		events := make(chan error, 2)
		o := ndcompat.Overlapped{OnEnd: func(o *ndcompat.Overlapped) { events <- o.Result(false) }}
		s.must(o.Start(s.ctx, c.connector.NotifyDisconnect))
		s.tell(c.memory.descriptor())
		hear[nd.WindowDescriptor](s)
		s.wantPending(events)
		s.want(nd.Pending, o.Result(false))
		s.barrier()
		s.must(s.await(events))
		c.disconnect()
		if len(events) != 0 {
			s.errorf("NotifyDisconnect reported a second disconnection, want one")
		}
	}},
	{id: "C030", title: "a pending NotifyDisconnect ends once if disconnection and cancellation race", active: disconnectNotified, passive: disconnectNotified},
	{id: "C035", title: "two workers on each side connect, exchange, disconnect and close for 100 ms", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		until := time.Now().Add(100 * time.Millisecond)
		var mu sync.Mutex
		var used []netip.AddrPort
		s.workers(2, func(_ int, w *side) {
			for ok := true; ok; ok = time.Now().Before(until) {
				c := w.prepare(depthOne)
				c.connect(to)
				c.completeConnect()
				local, err := c.connector.LocalAddress()
				w.must(err)
				c.exchange4096()
				c.disconnect()
				w.releaseAll()
				mu.Lock()
				used = append(used, local)
				mu.Unlock()
			}
		})()
		slices.SortFunc(used, netip.AddrPort.Compare)
		for _, a := range slices.Compact(used) { // every address is free again
			c := s.newConnector()
			s.must(c.Bind(a))
			s.must(c.Close())
		}
		s.tell("over")
		s.pair(connOptions{}).wantAlive()
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		ctx, cancel := s.withCancel()
		join := s.workers(2, func(_ int, w *side) {
			for {
				c := w.prepare(depthOne)
				c.connector = w.newConnector()
				if err := l.GetConnectionRequest(ctx, c.connector); err != nil {
					w.want(nd.Canceled, err)
					return
				}
				w.must(c.connector.Accept(w.ctx, c.ep, c.opts.connectParams()))
				c.exchange4096()
				c.disconnect()
				w.releaseAll()
			}
		})
		hear[string](s)
		cancel()
		join()
		s.must(l.Close())
		s.listenAt(addr) // the address is free again
		s.pair(connOptions{}).wantAlive()
	}},
	{id: "C036", title: "read limits above the maximum are reduced without an error", active: func(s *side) {
		most := int(s.info.MaxInboundReadLimit)
		for _, in := range []int{6, most + 6} {
			c := s.pair(connOptions{InboundReads: in, OutboundReads: -1})
			inbound, outbound, err := c.connector.ReadLimits()
			s.must(err)
			if inbound > min(in, most) || outbound != 0 {
				s.errorf("ReadLimits after a request for %d in and 0 out: %d in and %d out", in, inbound, outbound)
			}
			c.wantAlive()
		}
	}, passive: func(s *side) {
		for range 2 {
			c := s.pair(connOptions{InboundReads: 6, OutboundReads: 6})
			inbound, outbound, err := c.connector.ReadLimits()
			s.must(err)
			if inbound != 0 || outbound > 6 || outbound < 1 {
				s.errorf("ReadLimits with a peer that asked for 6 in and 0 out: %d in and %d out, want 0 in and 1 to 6 out", inbound, outbound)
			}
			c.wantAlive()
		}
	}},
	{id: "C037", title: "Bind to port 0 assigns an ephemeral port that no other open connector has", active: func(s *side) {
		to := hear[netip.AddrPort](s)
		var seen []uint16
		for range 4 {
			c := s.prepare(connOptions{RegionSize: 4096})
			c.connect(to)
			local, err := c.connector.LocalAddress()
			s.must(err)
			c.completeConnect()
			after, err := c.connector.LocalAddress()
			s.must(err)
			if p := local.Port(); p < nd.EphemeralPortFirst || slices.Contains(seen, p) || local.Addr() != s.addr || after != local {
				s.errorf("LocalAddress: %v, after CompleteConnect %v, want the same, with an ephemeral port other than %v", local, after, seen)
			}
			seen = append(seen, local.Port())
			s.tell(local)
		}
	}, passive: func(s *side) {
		l, addr := s.listen(0)
		s.tell(addr)
		for range 4 {
			c := s.prepare(connOptions{RegionSize: 4096})
			c.accept(l)
			local := hear[netip.AddrPort](s)
			if peer, err := c.connector.PeerAddress(); err != nil || peer != local {
				s.errorf("PeerAddress: %v, %v, want %v", peer, err, local)
			}
		}
	}},
}

// depthOne describes the connection that ndconn makes: both queues have depth 1, and a Receive is posted
// before the connection exists.
var depthOne = connOptions{
	Endpoint:      nd.EndpointConfig{ReceiveDepth: 1, InitiatorDepth: 1, MaxReceiveSGE: 1, MaxInitiatorSGE: 1},
	BeforeConnect: func(c *conn) { c.must(c.ep.Receive(1, c.sge(0, 4096))) },
}

// exchange4096 sends 4,096 bytes from the active side into the Receive of depthOne, and then 4,096 bytes
// back.
func (c *conn) exchange4096() {
	if c.role == passive {
		c.receive4096()
	}
	fill(c.memory.mem[8192:8192+4096], uint64(c.role))
	c.must(c.ep.Send(2, c.sge(8192, 4096), 0))
	c.wantResult(nd.Success, 2)
	if c.role == active {
		c.receive4096()
	}
}

func (c *conn) receive4096() {
	if r := c.wantReceive(nd.Success, 1); r.BytesTransferred != 4096 {
		c.errorf("result of the Receive: %d bytes, want 4096", r.BytesTransferred)
	}
	c.wantPattern(c.memory.mem[:4096], uint64(1-c.role))
}

// disconnectTogether is each side of a disconnection by both sides.
func disconnectTogether(s *side) {
	c := s.pair(depthOne)
	c.exchange4096()
	s.barrier()
	c.disconnect()
	s.want(nd.ConnectionDisconnected, c.ep.Err())
	s.wantEmpty(c.cq)
}

// disconnectNotified is each side of a disconnection with a pending NotifyDisconnect, which is canceled
// after the disconnection.
func disconnectNotified(s *side) {
	c := s.pair(connOptions{})
	events := make(chan error, 2)
	o := ndcompat.Overlapped{OnEnd: func(o *ndcompat.Overlapped) { events <- o.Result(false) }}
	var set ndcompat.OverlappedSet
	s.must(set.Start(s.ctx, &o, c.connector.NotifyDisconnect))
	s.wantPending(events)
	s.barrier()
	c.disconnect()
	set.Cancel()
	if len(events) != 1 {
		s.fatalf("NotifyDisconnect ended %d times, want once", len(events))
	}
	s.wantOneOf(<-events, nd.Success, nd.Canceled)
}

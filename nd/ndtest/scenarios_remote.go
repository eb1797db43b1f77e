package ndtest

import (
	"net/netip"

	"github.com/softnd/softnd/nd"
)

// maxReads returns how many Reads an endpoint may have in progress, at most 4,096, so that each Read
// has some bytes of the default region.
func (s *side) maxReads() int {
	return int(min(s.info.MaxOutboundReadLimit, s.info.MaxInitiatorQueueDepth, s.info.MaxCompletionQueueDepth, 4096))
}

// disconnectRaces is the number of connections of C122.
const disconnectRaces = 8

// pendingWrites is how many Writes C117 has outstanding, unless the adapter's limit is lower.
const pendingWrites = 256

var remoteScenarios = []scenario{
	{id: "C115", title: "as many Reads as the outbound limit, by a side with an inbound limit of 0", active: func(s *side) {
		n := s.maxReads()
		entries := min(max(256, 2*n), int(s.info.MaxCompletionQueueDepth))
		c := s.pair(connOptions{CQDepth: entries, InboundReads: -1, OutboundReads: n, Endpoint: nd.EndpointConfig{InitiatorDepth: n}})
		s.tell(n)
		c.wantExactReadLimits(0, min(n, hear[int](s)))
		part := len(c.memory.mem) / n
		for i := range n {
			c.must(c.ep.Read(uint64(i), c.sge(i*part, part), c.peerRegion.Address+uint64(i*part), c.peerRegion.Token, 0))
		}
		for i := range n {
			c.wantLength(c.wantResult(nd.Success, uint64(i)), part)
		}
		c.wantPattern(c.memory.mem[:n*part], 1)
	}, passive: func(s *side) {
		in := int(s.info.MaxInboundReadLimit)
		c := s.pair(connOptions{InboundReads: in, BeforeConnect: fillRegion(1)})
		s.tell(in)
		c.wantExactReadLimits(min(in, hear[int](s)), 0)
	}},
	{id: "C116", title: "the passive side may send first", active: func(s *side) {
		c := s.prepare(connOptions{BeforeConnect: fillRegion(2)})
		c.must(c.ep.Receive(1, c.sge(0, nd.WindowDescriptorSize)))
		c.connect(hear[netip.AddrPort](s))
		c.completeConnect()
		c.wantLength(c.wantReceive(nd.Success, 1), nd.WindowDescriptorSize)
		var d nd.WindowDescriptor
		s.must(d.UnmarshalBinary(c.memory.mem[:nd.WindowDescriptorSize]))
		c.write(64, 512, d.Address, d.Token)
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.prepare(connOptions{})
		w := s.newWindow()
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		c.must(c.ep.Bind(1, c.memory.mr, w, c.memory.mem[4096:8192], nd.AllowWrite))
		words, err := w.Descriptor().MarshalBinary()
		s.must(err)
		copy(c.memory.mem, words)
		c.must(c.ep.Send(2, c.sge(0, len(words)), 0))
		c.wantResult(nd.Success, 1)
		c.wantResult(nd.Success, 2)
		c.wantAlive()
		want := make([]byte, 64+512)
		fill(want, 2)
		s.wantEqual(c.memory.mem[4096:][:512], want[64:])
	}},
	{id: "C117", title: "as many Writes as the queue's depth (at most 256) complete in order", active: func(s *side) {
		n := int(min(pendingWrites, s.info.MaxInitiatorQueueDepth))
		c := s.pair(connOptions{Endpoint: nd.EndpointConfig{InitiatorDepth: n}, BeforeConnect: fillRegion(1)})
		d := c.hearDescriptor()
		for i := range n {
			c.must(c.ep.Write(uint64(i), c.sge(64*i, 64), d.Address+uint64(64*i), d.Token, 0))
		}
		for i := range n {
			c.wantLength(c.wantResult(nd.Success, uint64(i)), 64)
		}
		s.tell(n)
		c.sendDone()
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionFlags: nd.AllowRemoteWrite})
		c.must(c.ep.Receive(1, nd.SGL{}))
		c.bindAndTell(0, len(c.memory.mem), nd.AllowWrite)
		n := hear[int](s)
		c.wantReceive(nd.Success, 1)
		c.wantPattern(c.memory.mem[:64*n], 1)
	}},
	{id: "C118", title: "Writes and Reads complete although the target's program makes no call", active: func(s *side) {
		c := s.pair(connOptions{RegionSize: windowSize, BeforeConnect: fillRegion(1)})
		_ = hear[string](s)
		c.write(0, 512, c.peerRegion.Address, c.peerRegion.Token)
		c.read(0, windowSize, c.peerRegion.Address, c.peerRegion.Token)
		mine, theirs := make([]byte, 512), make([]byte, windowSize)
		fill(mine, 1)
		fill(theirs, 2)
		s.wantEqual(c.memory.mem, append(mine, theirs[512:]...))
		fill(c.memory.mem, 3)
		c.write(0, windowSize, c.peerRegion.Address, c.peerRegion.Token)
		s.tell("done")
		c.sendDone()
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: windowSize, BeforeConnect: fillRegion(2)})
		c.must(c.ep.Receive(1, nd.SGL{}))
		s.tell("asleep")
		_ = hear[string](s) // unlike barrier, no call of the provider before the peer is done
		c.wantReceive(nd.Success, 1)
		c.wantPattern(c.memory.mem, 3)
	}},
	{id: "C119", title: "the adapter has the flag InOrderDMASupported", active: func(s *side) {
		if !s.info.AdapterFlags.Has(nd.InOrderDMASupported) {
			s.errorf("Query: AdapterFlags %v, want InOrderDMASupported", s.info.AdapterFlags)
		}
	}},
	{id: "C120", title: "a target may poll in memory for the last byte of a Write (up to 1 MiB)",
		active: func(s *side) { pingPongWrites(s, false) }, passive: func(s *side) { pingPongWrites(s, false) }},
	{id: "C121", title: "the peer may write into the source of a Write whose result has not been taken (up to 1 MiB)",
		active: func(s *side) { pingPongWrites(s, true) }, passive: func(s *side) { pingPongWrites(s, true) }},
	{id: "C122", title: "a Send that races with the peer's Disconnect completes with Success or Canceled", active: func(s *side) {
		for range disconnectRaces {
			c := s.pair(connOptions{})
			s.barrier()
			c.must(c.ep.Send(1, c.sge(0, 1), 0))
			c.must(c.connector.NotifyDisconnect(s.ctx)) // the Send may complete only when this side disconnects, too
			c.disconnectRacing()
			r := c.nextResult(true)
			if r.RequestContext != 1 || r.Status != nd.Success && r.Status != nd.Canceled {
				s.errorf("result of the last Send: %v, want request 1 with Success or Canceled", r.Status)
			}
		}
	}, passive: func(s *side) {
		for range disconnectRaces {
			c := s.pair(connOptions{BeforeConnect: func(c *conn) { c.must(c.ep.Receive(1, c.sge(0, 64))) }})
			s.barrier()
			c.disconnectRacing()
			if r := c.nextResult(false); r.Status != nd.Success && r.Status != nd.Canceled {
				s.errorf("result of the Receive: %v, want Success or Canceled", r.Status)
			}
		}
	}},
}

// disconnectRacing calls Disconnect. On a slow machine the peer may disconnect too late, which is allowed
// here.
func (c *conn) disconnectRacing() {
	c.wantOneOf(c.connector.Disconnect(c.ctx), nd.Success, nd.IOTimeout, nd.ConnectionAborted)
}

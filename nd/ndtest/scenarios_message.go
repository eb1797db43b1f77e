package ndtest

import (
	"bytes"
	"math"
	"net/netip"

	"github.com/softnd/softnd/nd"
)

// pollResult takes the next result with Poll, without blocking in the provider.
func (s *side) pollResult(cq nd.CompletionQueue) nd.Result {
	var one [1]nd.Result
	for polls := 1; cq.Poll(one[:]) == 0; polls++ {
		if s.ctx.Err() != nil {
			s.fatalf("Poll has returned no result before the scenario ended, want one")
		}
		yield(polls)
	}
	return one[0]
}

// roundTrips is the number of round trips in each mode.
const roundTrips = 200

// pingPong is each side of the round trips. The active side sends first.
func pingPong(s *side) {
	c := s.pair(connOptions{SplitCQs: true})
	for _, take := range []func(nd.CompletionQueue) nd.Result{s.takeResult, s.pollResult} {
		c.must(c.ep.Receive(0, c.sge(0, 1)))
		s.barrier()
		for i := range uint64(roundTrips) {
			send := func() {
				c.memory.mem[64] = byte(i)
				c.must(c.ep.Send(1000+i, c.sge(64, 1), 0))
			}
			if s.role == active {
				send()
			}
			c.wantLength(c.checkResult(take(c.rcq), nd.Success, i), 1)
			if got := c.memory.mem[0]; got != byte(i) {
				c.fatalf("round %d: the message is %d, want %d", i, got, byte(i))
			}
			if i+1 < roundTrips {
				c.must(c.ep.Receive(i+1, c.sge(0, 1)))
			}
			if s.role == passive {
				send()
			}
			c.wantLength(c.checkResult(take(c.cq), nd.Success, 1000+i), 1)
		}
		s.barrier()
	}
}

var messageScenarios = []scenario{
	{id: "C104", title: "as many Receives as the queue's depth, all with the same list", active: func(s *side) {
		const depth = 12
		c := s.prepare(connOptions{CQDepth: depth, Endpoint: nd.EndpointConfig{ReceiveDepth: depth}})
		list := nd.List(c.sge(0, 40).First, c.sge(64, 100).First)
		for i := range uint64(depth) {
			c.must(c.ep.Receive(i, list))
		}
		s.want(nd.NoMoreEntries, c.ep.Receive(depth, list))
		c.must(c.ep.Flush(c.ctx))
		for i := range uint64(depth) {
			c.wantReceivesFlushed(i)
		}
		c.wantEmpty(c.cq)
	}},
	{id: "C105", title: "the private data of Accept can be read before CompleteConnect", active: func(s *side) {
		c := s.prepare(connOptions{})
		c.connect(hear[netip.AddrPort](s))
		if !bytes.Equal(c.peerData, []byte{0, 0, 1, 44}) {
			s.errorf("GetPrivateData: %x, want 0000012c", c.peerData)
		}
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.prepare(connOptions{PrivateData: []byte{0, 0, 1, 44}})
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		c.wantAlive()
	}},
	{id: "C106", title: "the request type of a Send is 1, that of a Receive 0", active: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(1, nd.SGL{}))
		s.barrier()
		c.must(c.ep.Send(2, nd.SGL{}, 0))
		if r := c.wantResult(nd.Success, 2); r.RequestType != 1 {
			s.errorf("result of a Send: request type %d, want 1", r.RequestType)
		}
		if r := c.wantReceive(nd.Success, 1); r.RequestType != 0 {
			s.errorf("result of a Receive: request type %d, want 0", r.RequestType)
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(7, nd.SGL{}))
		s.barrier()
		if r := c.checkResult(s.takeResult(c.cq), nd.Success, 7); r.RequestType != 0 {
			s.errorf("result of a Receive: request type %d, want 0", r.RequestType)
		}
		c.must(c.ep.Send(7, nd.SGL{}, 0))
		if r := c.checkResult(s.takeResult(c.cq), nd.Success, 7); r.RequestType != 1 {
			s.errorf("result of a Send: request type %d, want 1", r.RequestType)
		}
	}},
	{id: "C107", title: "a stream of messages of 1 B to 1 MiB with flow-control credits", active: streamSend, passive: streamReceive},
	{id: "C108", title: "an inline Send below the threshold", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		mem := make([]byte, max(int(s.info.InlineRequestThreshold), 1)-1)
		fill(mem, 1)
		c.must(c.ep.Send(1, nd.One(nd.SGE{Buffer: mem}), nd.Inline)) // not registered
		clear(mem)                                                   // the caller's again when Send returns
		c.wantLength(c.wantResult(nd.Success, 1), len(mem))
		s.tell(len(mem))
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(1, c.sge(0, 64<<10)))
		s.barrier()
		r := c.wantReceive(nd.Success, 1)
		n := hear[int](s)
		c.wantLength(r, n)
		c.wantPattern(c.memory.mem[:n], 1)
	}},
	{id: "C109", title: "results distinguish messages of 0 and of 1 byte", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		for i := range 10 {
			c.must(c.ep.Send(uint64(i), c.sge(0, i%2), 0))
			c.wantLength(c.wantResult(nd.Success, uint64(i)), i%2)
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		for i := range uint64(10) {
			c.must(c.ep.Receive(i, c.sge(0, 64)))
		}
		s.barrier()
		for i := range 10 {
			c.wantLength(c.wantReceive(nd.Success, uint64(i)), i%2)
		}
	}},
	{id: "C110", title: "a server's Receives are canceled when its client exits", exits: true, ownProvider: true, remote: active, active: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Send(1, nd.SGL{}, 0))
		c.wantResult(nd.Success, 1)
		s.exit()
	}, passive: func(s *side) {
		s.expectPeerExit()
		c := s.pair(connOptions{BeforeConnect: func(c *conn) {
			for i := range uint64(3) {
				c.must(c.ep.Receive(i, c.sge(0, 64)))
			}
		}})
		c.wantReceive(nd.Success, 0)
		c.wantReceivesFlushed(1, 2)
	}},
	{id: "C111", title: "a completion queue as deep as the queues holds the results of both", active: func(s *side) {
		c := s.pair(connOptions{})
		for i := range uint64(16) {
			c.must(c.ep.Receive(i, c.sge(0, 64)))
		}
		s.barrier()
		for i := range uint64(16) {
			c.must(c.ep.Send(i, c.sge(0, 64), 0))
		}
		for i := range uint64(16) {
			c.wantResult(nd.Success, i)
			c.wantReceive(nd.Success, i)
		}
		s.barrier()
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{CQDepth: 16})
		for i := range uint64(16) {
			c.must(c.ep.Receive(i, c.sge(0, 64)))
		}
		s.barrier()
		for i := range uint64(16) {
			c.must(c.ep.Send(i, c.sge(64, 64), 0))
		}
		s.barrier() // the peer has taken all its results
		for i := range uint64(16) {
			c.wantResult(nd.Success, i)
			c.wantReceive(nd.Success, i)
		}
		c.wantAlive()
	}},
	{id: "C112", title: "each result has the context of its request", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		for _, x := range contexts {
			c.must(c.ep.Send(x, nd.SGL{}, 0))
			c.must(c.ep.Write(x^1, c.sge(0, 8), c.peerRegion.Address, c.peerRegion.Token, 0))
			c.must(c.ep.Read(x^2, c.sge(0, 8), c.peerRegion.Address, c.peerRegion.Token, 0))
		}
		for _, x := range contexts {
			c.wantResult(nd.Success, x)
			c.wantResult(nd.Success, x^1)
			c.wantResult(nd.Success, x^2)
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		for _, x := range contexts {
			c.must(c.ep.Receive(x, nd.SGL{}))
		}
		s.barrier()
		for _, x := range contexts {
			c.wantReceive(nd.Success, x)
		}
	}},
	{id: "C113", title: "200 round trips of 1 byte, blocking and polling", active: pingPong, passive: pingPong},
	{id: "C114", title: "flushed results need not be taken before Close", active: disconnectUnread, passive: disconnectUnread},
	{id: "C127", title: "a message from a region of 1 byte to a region of 1 byte", active: func(s *side) {
		c := s.pair(connOptions{RegionSize: 1, BeforeConnect: fillRegion(9)})
		s.barrier()
		c.must(c.ep.Send(1, c.sge(0, 1), 0))
		c.wantLength(c.wantResult(nd.Success, 1), 1)
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: 1})
		c.must(c.ep.Receive(1, c.sge(0, 1)))
		s.barrier()
		c.wantLength(c.wantReceive(nd.Success, 1), 1)
		c.wantPattern(c.memory.mem, 9)
	}},
}

// contexts are request contexts that a program might use. They stay distinct if their lowest two bits
// change.
var contexts = []uint64{math.MaxUint64, 0, 1 << 63, math.MaxUint32, 0x7fff_dead_beef_0008}

// disconnectUnread is each side of a connection that ends with a full receive queue.
func disconnectUnread(s *side) {
	const depth = 8
	c := s.pair(connOptions{CQDepth: depth, Endpoint: nd.EndpointConfig{ReceiveDepth: depth}, BeforeConnect: func(c *conn) {
		for i := range uint64(depth) {
			c.must(c.ep.Receive(i, c.sge(0, 64)))
		}
	}})
	c.disconnect()
	c.must(c.ep.Close())
	c.must(c.cq.Close())
}

package ndtest

import (
	"bytes"
	"math"
	"net/netip"
	"slices"

	"github.com/softnd/softnd/nd"
)

// polled takes the next result without ever blocking in the provider.
func (s *side) polled(cq nd.CompletionQueue) nd.Result {
	var one [1]nd.Result
	for looks := 1; cq.Poll(one[:]) == 0; looks++ {
		if s.ctx.Err() != nil {
			s.fatalf("polled in vain")
		}
		idle(looks)
	}
	return one[0]
}

// roundTrips is how many messages of 1 byte go to and fro, in each mode.
const roundTrips = 200

// pingPong is either half: the active one serves.
func pingPong(s *side) {
	c := s.pair(shape{Split: true})
	for _, take := range []func(nd.CompletionQueue) nd.Result{s.take, s.polled} {
		c.must(c.ep.Receive(0, c.sge(0, 1)))
		s.meet()
		for i := range uint64(roundTrips) {
			send := func() {
				c.memory.mem[64] = byte(i)
				c.must(c.ep.Send(1000+i, c.sge(64, 1), 0))
			}
			if s.role == active {
				send()
			}
			c.carried(c.check(take(c.rcq), nd.Success, i), 1)
			if got := c.memory.mem[0]; got != byte(i) {
				c.fatalf("round %d: got %d", i, got)
			}
			if i+1 < roundTrips {
				c.must(c.ep.Receive(i+1, c.sge(0, 1)))
			}
			if s.role == passive {
				send()
			}
			c.carried(c.check(take(c.cq), nd.Success, 1000+i), 1)
		}
		s.meet()
	}
}

var exampleScenarios = []scenario{
	{id: "C104", title: "as many Receives as the queue is deep, all with one list", active: func(s *side) {
		const depth = 12
		c := s.prepare(shape{CQ: depth, Limits: nd.EndpointConfig{ReceiveDepth: depth}})
		list := slices.Concat(c.sge(0, 40), c.sge(64, 100))
		for i := range uint64(depth) {
			c.must(c.ep.Receive(i, list))
		}
		s.want(nd.NoMoreEntries, c.ep.Receive(depth, list))
		c.must(c.ep.Flush())
		for i := range uint64(depth) {
			c.receivesFlushed(i)
		}
		c.empty(c.cq)
	}},
	{id: "C105", title: "what Accept carries is there before CompleteConnect", active: func(s *side) {
		c := s.prepare(shape{})
		c.connect(hear[netip.AddrPort](s))
		if !bytes.Equal(c.data, []byte{0, 0, 1, 44}) {
			s.errorf("the private data is %x", c.data)
		}
		c.complete()
		c.alive()
	}, passive: func(s *side) {
		c := s.prepare(shape{Data: []byte{0, 0, 1, 44}})
		l, addr := s.listen(0)
		s.tell(addr)
		c.accept(l)
		c.alive()
	}},
	{id: "C106", title: "results tell a Send (1) from a Receive (0)", active: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(1, nil))
		s.meet()
		c.must(c.ep.Send(2, nil, 0))
		if r := c.done(nd.Success, 2); r.RequestType != 1 {
			s.errorf("a Send has the type %d", r.RequestType)
		}
		if r := c.received(nd.Success, 1); r.RequestType != 0 {
			s.errorf("a Receive has the type %d", r.RequestType)
		}
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(7, nil))
		s.meet()
		if r := c.check(s.take(c.cq), nd.Success, 7); r.RequestType != 0 {
			s.errorf("a Receive has the type %d", r.RequestType)
		}
		c.must(c.ep.Send(7, nil, 0))
		if r := c.check(s.take(c.cq), nd.Success, 7); r.RequestType != 1 {
			s.errorf("a Send has the type %d", r.RequestType)
		}
	}},
	{id: "C107", title: "a stream of messages of 1 B to 1 MiB under credits", active: stream, passive: drain},
	{id: "C108", title: "Inline for less than the threshold", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		mem := make([]byte, max(int(s.info.InlineRequestThreshold), 1)-1)
		fill(mem, 1)
		c.must(c.ep.Send(1, []nd.SGE{{Buffer: mem}}, nd.Inline)) // not registered
		clear(mem)                                               // and ours again
		c.carried(c.done(nd.Success, 1), len(mem))
		s.tell(len(mem))
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(1, c.sge(0, 64<<10)))
		s.meet()
		r := c.received(nd.Success, 1)
		n := hear[int](s)
		c.carried(r, n)
		c.holds(c.memory.mem[:n], 1)
	}},
	{id: "C109", title: "messages of 0 and of 1 byte are told apart", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		for i := range 10 {
			c.must(c.ep.Send(uint64(i), c.sge(0, i%2), 0))
			c.carried(c.done(nd.Success, uint64(i)), i%2)
		}
	}, passive: func(s *side) {
		c := s.pair(shape{})
		for i := range uint64(10) {
			c.must(c.ep.Receive(i, c.sge(0, 64)))
		}
		s.meet()
		for i := range 10 {
			c.carried(c.received(nd.Success, uint64(i)), i%2)
		}
	}},
	{id: "C110", title: "a server's Receives are canceled when its client exits", exits: true, own: true, away: active, active: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Send(1, nil, 0))
		c.done(nd.Success, 1)
		s.exit()
	}, passive: func(s *side) {
		s.survive()
		c := s.pair(shape{Before: func(c *conn) {
			for i := range uint64(3) {
				c.must(c.ep.Receive(i, c.sge(0, 64)))
			}
		}})
		c.received(nd.Success, 0)
		c.receivesFlushed(1, 2)
	}},
	{id: "C111", title: "a completion queue as deep as the queues, and all results unread", active: func(s *side) {
		c := s.pair(shape{})
		for i := range uint64(16) {
			c.must(c.ep.Receive(i, c.sge(0, 64)))
		}
		s.meet()
		for i := range uint64(16) {
			c.must(c.ep.Send(i, c.sge(0, 64), 0))
		}
		for i := range uint64(16) {
			c.done(nd.Success, i)
			c.received(nd.Success, i)
		}
		s.meet()
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{CQ: 16})
		for i := range uint64(16) {
			c.must(c.ep.Receive(i, c.sge(0, 64)))
		}
		s.meet()
		for i := range uint64(16) {
			c.must(c.ep.Send(i, c.sge(64, 64), 0))
		}
		s.meet() // the peer has got all its results
		for i := range uint64(16) {
			c.done(nd.Success, i)
			c.received(nd.Success, i)
		}
		c.alive()
	}},
	{id: "C112", title: "each result has the context of its own request", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		for _, x := range contexts {
			c.must(c.ep.Send(x, nil, 0))
			c.must(c.ep.Write(x^1, c.sge(0, 8), c.far.Address, c.far.Token, 0))
			c.must(c.ep.Read(x^2, c.sge(0, 8), c.far.Address, c.far.Token, 0))
		}
		for _, x := range contexts {
			c.done(nd.Success, x)
			c.done(nd.Success, x^1)
			c.done(nd.Success, x^2)
		}
	}, passive: func(s *side) {
		c := s.pair(shape{})
		for _, x := range contexts {
			c.must(c.ep.Receive(x, nil))
		}
		s.meet()
		for _, x := range contexts {
			c.received(nd.Success, x)
		}
	}},
	{id: "C113", title: "round trips of 1 byte, blocking and polling (200)", active: pingPong, passive: pingPong},
	{id: "C114", title: "a flush that nobody reads", active: unread, passive: unread},
	{id: "C127", title: "a message out of a region of 1 byte", active: func(s *side) {
		c := s.pair(shape{Region: 1, Before: filled(9)})
		s.meet()
		c.must(c.ep.Send(1, c.sge(0, 1), 0))
		c.carried(c.done(nd.Success, 1), 1)
	}, passive: func(s *side) {
		c := s.pair(shape{Region: 1})
		c.must(c.ep.Receive(1, c.sge(0, 1)))
		s.meet()
		c.carried(c.received(nd.Success, 1), 1)
		c.holds(c.memory.mem, 9)
	}},
}

// contexts that a program might use. They stay distinct when the lowest two bits change.
var contexts = []uint64{math.MaxUint64, 0, 1 << 63, math.MaxUint32, 0x7fff_dead_beef_0008}

// unread is either half of a connection that ends with a full receive queue.
func unread(s *side) {
	const depth = 8
	c := s.pair(shape{CQ: depth, Limits: nd.EndpointConfig{ReceiveDepth: depth}, Before: func(c *conn) {
		for i := range uint64(depth) {
			c.must(c.ep.Receive(i, c.sge(0, 64)))
		}
	}})
	c.disconnect()
	c.must(c.ep.Close())
	c.must(c.cq.Close())
}

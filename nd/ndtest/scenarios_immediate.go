package ndtest

import (
	"time"

	"github.com/softnd/softnd/nd"
)

// messageSizes are the lengths of messages and Writes with immediate data.
var messageSizes = []int{0, 1, 31, 48, 500, 4096, 60_000}

var immediateScenarios = []scenario{
	{id: "X101", title: "SendImmediate delivers a message and a number", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		for i, n := range messageSizes {
			fill(c.memory.mem, uint64(i))
			s.barrier() // the Receive is posted
			c.must(c.ep.SendImmediate(uint64(i), c.sge(0, n), ^uint32(i), 0))
			c.wantDone(nd.RequestSend, uint64(i), n)
		}
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		for i, n := range messageSizes {
			c.must(c.ep.Receive(uint64(i), c.sge(0, n+8)))
			clear(c.memory.mem)
			s.barrier()
			c.wantNumber(nd.RequestReceiveImmediate, uint64(i), n, ^uint32(i))
			s.wantPattern(c.memory.mem[:n], uint64(i))
			s.wantZero(c.memory.mem[n:])
		}
	}},
	{id: "X102", title: "WriteImmediate writes, then completes a Receive with a number and without its buffers", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		for i, n := range messageSizes {
			fill(c.memory.mem, uint64(i))
			s.barrier() // the Receive is posted
			c.must(c.ep.WriteImmediate(uint64(i), c.sge(0, n), c.peerRegion.Address+3, c.peerRegion.Token, ^uint32(i), 0))
			c.wantDone(nd.RequestWrite, uint64(i), n)
		}
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		for i, n := range messageSizes {
			c.must(c.ep.Receive(uint64(i), c.sge(len(c.memory.mem)-8, i))) // smaller than the Write
			clear(c.memory.mem)
			s.barrier()
			c.wantNumber(nd.RequestReceiveWriteImmediate, uint64(i), n, ^uint32(i))
			s.wantPattern(c.memory.mem[3:3+n], uint64(i))
			s.wantZero(c.memory.mem[3+n:])
		}
	}},
	{id: "X103", title: "WriteImmediate through a window gathers its entries", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		d := c.hearDescriptor()
		fill(c.memory.mem[:300], 1)
		copy(c.memory.mem[1000:], c.memory.mem[100:300])
		c.must(c.ep.WriteImmediate(1, nd.List(c.sge(0, 100).First, c.sge(1000, 200).First), d.Address, d.Token, 8, 0))
		c.wantDone(nd.RequestWrite, 1, 300)
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		c.must(c.ep.Receive(1, nd.SGL{}))
		c.bindAndTell(500, 300, nd.AllowWrite)
		c.wantNumber(nd.RequestReceiveWriteImmediate, 1, 300, 8)
		s.wantPattern(c.memory.mem[500:800], 1)
	}},
	{id: "X104", title: "an empty WriteImmediate delivers its number, with any address and token", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		s.barrier()
		for i, d := range []nd.WindowDescriptor{{}, {Address: ^uint64(0), Token: ^nd.Token(0)}} {
			c.must(c.ep.WriteImmediate(uint64(i), nd.SGL{}, d.Address, d.Token, uint32(i), 0))
			c.wantDone(nd.RequestWrite, uint64(i), 0)
		}
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		c.receiveAny(2)
		s.barrier()
		for i := range uint64(2) {
			c.wantNumber(nd.RequestReceiveWriteImmediate, i, 0, uint32(i))
		}
		c.wantAlive()
	}},
	{id: "X105", title: "messages and Writes with and without a number keep their order", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		fill(c.memory.mem, 1)
		for round := range uint64(4) {
			s.barrier()
			at := func(i int) uint64 { return c.peerRegion.Address + 4096 + 100*uint64(i) }
			c.must(c.ep.Write(0, c.sge(0, 100), at(0), c.peerRegion.Token, 0))
			c.must(c.ep.WriteImmediate(1, c.sge(100, 100), at(1), c.peerRegion.Token, uint32(round), 0))
			c.must(c.ep.Send(2, c.sge(0, 10), 0))
			c.must(c.ep.Write(3, c.sge(200, 100), at(2), c.peerRegion.Token, 0))
			c.must(c.ep.SendImmediate(4, c.sge(0, 20), ^uint32(round), 0))
			c.must(c.ep.WriteImmediate(5, nd.SGL{}, 0, 0, uint32(round)+9, 0))
			for i, want := range []struct {
				kind nd.RequestType
				n    int
			}{{nd.RequestWrite, 100}, {nd.RequestWrite, 100}, {nd.RequestSend, 10}, {nd.RequestWrite, 100}, {nd.RequestSend, 20}, {nd.RequestWrite, 0}} {
				c.wantDone(want.kind, uint64(i), want.n)
			}
		}
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		want := make([]byte, 300)
		fill(want, 1)
		for round := range uint32(4) {
			clear(c.memory.mem)
			for i := range 4 {
				c.must(c.ep.Receive(uint64(i), c.sge(100*i, 100)))
			}
			s.barrier()
			c.wantNumber(nd.RequestReceiveWriteImmediate, 0, 100, round)
			s.wantEqual(c.memory.mem[4096:4296], want[:200])
			c.wantLength(c.wantReceive(nd.Success, 1), 10)
			c.wantNumber(nd.RequestReceiveImmediate, 2, 20, ^round)
			s.wantEqual(c.memory.mem[4096:4396], want)
			c.wantNumber(nd.RequestReceiveWriteImmediate, 3, 0, round+9)
			s.wantZero(c.memory.mem[:100])
			s.wantEqual(c.memory.mem[100:110], want[:10])
			s.wantEqual(c.memory.mem[200:220], want[:20])
		}
	}},
	{id: "X106", title: "a WriteImmediate waits for a Receive", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		fill(c.memory.mem, 1)
		c.must(c.ep.WriteImmediate(1, c.sge(0, 100), c.peerRegion.Address, c.peerRegion.Token, 3, 0))
		s.wantEmpty(c.cq)
		s.barrier()
		c.wantDone(nd.RequestWrite, 1, 100)
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		s.barrier()
		c.must(c.ep.Receive(1, nd.SGL{}))
		c.wantNumber(nd.RequestReceiveWriteImmediate, 1, 100, 3)
		s.wantPattern(c.memory.mem[:100], 1)
	}},
	unreceived("X107", "WriteImmediate", nd.RequestWrite, func(c *conn) error {
		return c.ep.WriteImmediate(1, c.sge(0, 100), c.peerRegion.Address, c.peerRegion.Token, 3, 0)
	}),
	unreceived("X108", "WriteImmediate without bytes", nd.RequestWrite, func(c *conn) error { return c.ep.WriteImmediate(1, nd.SGL{}, 0, 0, 3, 0) }),
	unreceived("X109", "SendImmediate", nd.RequestSend, func(c *conn) error { return c.ep.SendImmediate(1, c.sge(0, 100), 3, 0) }),
	{id: "X110", title: "numbers of a shared receive queue wait without limit (tested: 2 x ReceiveTimeout)", timed: true, active: func(s *side) {
		s.skipUnlessSharedReceive()
		c := s.immediatePair(connOptions{})
		fill(c.memory.mem, 1)
		s.must(c.ep.WriteImmediate(1, c.sge(0, 1000), c.peerRegion.Address, c.peerRegion.Token, 5, 0))
		s.must(c.ep.SendImmediate(2, c.sge(0, 100), 6, 0))
		s.barrier()
		c.wantDone(nd.RequestWrite, 1, 1000)
		c.wantDone(nd.RequestSend, 2, 100)
	}, passive: func(s *side) {
		s.skipUnlessSharedReceive()
		q := s.newSharedQueue(0)
		s.skipUnless(nd.ImmediateSupported)
		c := s.pair(sharedReceiveOptions(q))
		s.barrier()
		time.Sleep(2 * s.ReceiveTimeout) // the time that the row tests
		s.wantEmpty(c.rcq)
		s.must(q.Receive(7, c.sge(5000, 10)))
		c.wantNumber(nd.RequestReceiveWriteImmediate, 7, 1000, 5)
		s.wantPattern(c.memory.mem[:1000], 1)
		s.wantZero(c.memory.mem[1000:])
		s.must(q.Receive(8, c.sge(5000, 200)))
		c.wantNumber(nd.RequestReceiveImmediate, 8, 100, 6)
		s.wantPattern(c.memory.mem[5000:5100], 1)
	}},
	{id: "X111", title: "a number ends a Notify for solicited events only with SendAndSolicitEvent", active: func(s *side) {
		c := s.immediatePair(connOptions{})
		for i, f := range []nd.OpFlags{0, nd.SendAndSolicitEvent} {
			s.barrier() // the Notify is pending
			c.must(c.ep.WriteImmediate(1, nd.SGL{}, 0, 0, uint32(i), f))
			c.wantResult(nd.Success, 1)
			s.barrier()
			s.barrier()
			c.must(c.ep.SendImmediate(2, nd.SGL{}, uint32(i), f))
			c.wantResult(nd.Success, 2)
			s.barrier()
		}
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{SplitCQs: true})
		for i := range uint32(2) {
			for _, kind := range []nd.RequestType{nd.RequestReceiveWriteImmediate, nd.RequestReceiveImmediate} {
				c.must(c.ep.Receive(1, nd.SGL{}))
				wait, stop := c.startNotify(c.rcq, nd.NotifySolicited)
				s.barrier()
				s.barrier() // the number has arrived
				if i == 0 {
					s.wantPending(wait)
					stop()
				} else {
					s.must(s.await(wait))
				}
				c.wantNumber(kind, 1, 0, i)
			}
		}
	}},
}

// unreceived is a row in which a request waits for a Receive of the peer, which posts none.
func unreceived(id, name string, kind nd.RequestType, post func(*conn) error) scenario {
	return scenario{id: id, title: name + " without a Receive completes with IOTimeout", timed: true, active: func(s *side) {
		c := s.immediatePair(connOptions{})
		begin := time.Now()
		c.must(post(c))
		if r := c.wantResult(nd.IOTimeout, 1); r.RequestType != kind || r.BytesTransferred != 0 {
			s.errorf("result %+v, want a %v of 0 bytes", r, kind)
		}
		if d := time.Since(begin); d < s.ReceiveTimeout*9/10 {
			s.errorf("the request completed after %v, want at least 9/10 of ReceiveTimeout (%v)", d, s.ReceiveTimeout)
		}
		c.wantErrorState()
		s.barrier()
	}, passive: func(s *side) {
		c := s.immediatePair(connOptions{})
		s.barrier() // the request has ended
		c.wantDisconnected()
		s.wantEmpty(c.cq)
	}}
}

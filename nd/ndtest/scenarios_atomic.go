package ndtest

import (
	"slices"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

// Atomics change 8 bytes of the peer's memory. The old value goes to the region of the active side, at oldAt.
const oldAt = 512

// adds is how many additions each of several sides makes at the same time.
const adds = 200

var atomicScenarios = slices.Concat(atomicResults, atomicOrder, atomicRefusals, atomicRevocations)

var atomicResults = []scenario{
	{id: "X001", title: "FetchAndAdd adds to 8 bytes, wraps around, and returns what they were", active: func(s *side) {
		c := s.atomicPair()
		for i, step := range []struct{ add, old uint64 }{{7, 40}, {0, 47}, {^uint64(0), 47}, {1 << 63, 46}, {1 << 63, 1<<63 + 46}} {
			c.add(uint64(i), oldAt, c.peerRegion, 64, step.add, 0)
			c.wantDone(nd.RequestFetchAndAdd, uint64(i), 8)
			c.wantNumberAt(oldAt, step.old)
		}
		s.wantZero(c.memory.mem[:oldAt])
		s.wantZero(c.memory.mem[oldAt+8:])
		s.barrier()
	}, passive: func(s *side) { numberChanges(s, 40, 46) }},
	{id: "X002", title: "CompareAndSwap stores if 8 bytes are equal, and returns what they were", active: func(s *side) {
		c := s.atomicPair()
		for i, step := range []struct{ compare, swap, old uint64 }{{39, 1, 40}, {40, 1 << 60, 40}, {40, 2, 1 << 60}, {1 << 60, 0, 1 << 60}, {0, 3, 0}} {
			c.must(c.ep.CompareAndSwap(uint64(i), c.sge(oldAt, 8).First, c.peerRegion.Address+64, c.peerRegion.Token, step.compare, step.swap, 0))
			c.wantDone(nd.RequestCompareAndSwap, uint64(i), 8)
			c.wantNumberAt(oldAt, step.old)
		}
		s.barrier()
	}, passive: func(s *side) { numberChanges(s, 40, 3) }},
	{id: "X003", title: "Swap stores 8 bytes, and returns what they were", active: func(s *side) {
		c := s.atomicPair()
		old := uint64(40)
		for i, v := range []uint64{0, ^uint64(0), 12} {
			c.must(c.ep.Swap(uint64(i), c.sge(oldAt, 8).First, c.peerRegion.Address+64, c.peerRegion.Token, v, 0))
			c.wantDone(nd.RequestSwap, uint64(i), 8)
			c.wantNumberAt(oldAt, old)
			old = v
		}
		s.barrier()
	}, passive: func(s *side) { numberChanges(s, 40, 12) }},
	{id: "X004", title: "a silent atomic makes a result only if it fails", active: func(s *side) {
		c := s.atomicPair()
		c.add(1, oldAt, c.peerRegion, 64, 5, nd.SilentSuccess)
		c.add(2, oldAt+8, c.peerRegion, 64, 1, 0)
		c.wantDone(nd.RequestFetchAndAdd, 2, 8)
		c.wantNumberAt(oldAt, 40)
		c.wantNumberAt(oldAt+8, 45)
		s.wantEmpty(c.cq)
		s.barrier()
		c.must(c.ep.Swap(3, c.sge(oldAt, 8).First, c.peerRegion.Address, ^c.peerRegion.Token, 1, nd.SilentSuccess))
		c.wantResult(nd.AccessViolation, 3)
		c.wantBroken()
	}, passive: func(s *side) {
		numberChanges(s, 40, 46).wantBroken()
	}},
	{id: "X005", title: "additions of two connections and of the owner are exact", active: func(s *side) {
		first := s.atomicPair()
		ends := []*conn{first, first.anotherConn()}
		for i := range uint64(adds) {
			for k, c := range ends {
				c.add(i, oldAt+8*k, c.peerRegion, 64, 1, 0)
			}
			for _, c := range ends {
				c.wantDone(nd.RequestFetchAndAdd, i, 8)
			}
		}
		s.barrier()
	}, passive: func(s *side) {
		c := s.atomicPair()
		c.anotherConn()
		word := c.sharedWord(64)
		for range adds {
			atomic.AddUint64(word, 1)
		}
		s.barrier()
		if got := atomic.LoadUint64(word); got != 3*adds {
			s.errorf("the sum is %d, want %d", got, 3*adds)
		}
	}},
	{id: "X006", title: "a number that two connections and the owner change by CompareAndSwap loses no change", active: func(s *side) {
		first := s.atomicPair()
		ends := []*conn{first, first.anotherConn()}
		done, old := [2]int{}, [2]uint64{}
		for done[0]+done[1] < 2*adds { // the first may win each time
			for k, c := range ends {
				c.must(c.ep.CompareAndSwap(1, c.sge(oldAt+8*k, 8).First, c.peerRegion.Address+64, c.peerRegion.Token, old[k], old[k]+1, 0))
			}
			for k, c := range ends {
				c.wantDone(nd.RequestCompareAndSwap, 1, 8)
				if got := c.number(oldAt + 8*k); got == old[k] {
					done[k]++
					old[k]++
				} else {
					old[k] = got
				}
			}
		}
		s.tell(done[0] + done[1])
	}, passive: func(s *side) {
		c := s.atomicPair()
		c.anotherConn()
		word := c.sharedWord(64)
		for n := 0; n < adds; {
			if v := atomic.LoadUint64(word); atomic.CompareAndSwapUint64(word, v, v+1) {
				n++
			}
		}
		if want, got := uint64(adds+hear[int](s)), atomic.LoadUint64(word); got != want {
			s.errorf("the number is %d, want %d", got, want)
		}
	}},
}

// numberChanges is the passive side of a row: the number at offset 64 is first at first and then last, and nothing else changes.
func numberChanges(s *side, first, last uint64) *conn {
	s.skipUnless(nd.AtomicsSupported)
	o := atomicOptions()
	o.BeforeConnect = func(c *conn) { c.setNumber(64, first) }
	c := s.pair(o)
	s.barrier()
	c.wantNumberAt(64, last)
	s.wantZero(c.memory.mem[:64])
	s.wantZero(c.memory.mem[72:])
	return c
}

// sharedWord returns the number at an offset of the region for atomic instructions.
func (c *conn) sharedWord(off int) *uint64 {
	words, err := nd.View[uint64](c.memory.mem)
	c.must(err)
	return &words[off/8]
}

var atomicOrder = []scenario{
	{id: "X010", title: "atomics take effect in the order of posting, more than the outbound read limit", active: func(s *side) {
		c := s.atomicPair()
		const n = 15
		for i := range uint64(n) {
			at := c.sge(oldAt+8*int(i), 8).First
			switch i % 3 {
			case 0:
				c.must(c.ep.FetchAndAdd(i, at, c.peerRegion.Address, c.peerRegion.Token, 1, 0))
			case 1:
				c.must(c.ep.CompareAndSwap(i, at, c.peerRegion.Address, c.peerRegion.Token, i, i+1, 0))
			default:
				c.must(c.ep.Swap(i, at, c.peerRegion.Address, c.peerRegion.Token, i+1, 0))
			}
		}
		for i := range uint64(n) {
			c.wantDone(atomics[i%3].kind, i, 8)
			c.wantNumberAt(oldAt+8*int(i), i)
		}
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.atomicPair()
		c.wantAlive()
		c.wantNumberAt(0, 15)
	}},
	{id: "X011", title: "the effects of Writes, atomics and Sends appear in the order of posting", active: func(s *side) {
		c := s.atomicPair()
		for i := range uint64(20) {
			s.barrier() // the Receive is posted
			c.setNumber(0, 100*i)
			c.must(c.ep.Write(1, c.sge(0, 8), c.peerRegion.Address+64, c.peerRegion.Token, 0))
			c.add(2, oldAt, c.peerRegion, 64, 5, 0)
			c.must(c.ep.Send(3, nd.SGL{}, 0))
			c.wantResult(nd.Success, 1)
			c.wantDone(nd.RequestFetchAndAdd, 2, 8)
			c.wantNumberAt(oldAt, 100*i)
			c.wantResult(nd.Success, 3)
		}
	}, passive: func(s *side) {
		c := s.atomicPair()
		for i := range uint64(20) {
			c.must(c.ep.Receive(i, nd.SGL{}))
			s.barrier()
			c.wantReceive(nd.Success, i)
			c.wantNumberAt(64, 100*i+5)
		}
	}},
	{id: "X012", title: "an atomic with ReadFence does not change what an earlier Read returns (1 MiB)", active: func(s *side) {
		const long = 1 << 20
		s.skipUnless(nd.AtomicsSupported)
		c := s.pair(connOptions{RegionSize: long + 64, RegionFlags: atomicRights})
		for i := range uint64(3) {
			c.must(c.ep.Read(1, c.sge(0, long), c.peerRegion.Address, c.peerRegion.Token, 0))
			c.add(2, long, c.peerRegion, long-8, 1, nd.ReadFence)
			c.wantResult(nd.Success, 1)
			c.wantDone(nd.RequestFetchAndAdd, 2, 8)
			c.wantNumberAt(long-8, i)
			c.wantNumberAt(long, i)
		}
		c.wantAlive()
	}, passive: func(s *side) {
		s.skipUnless(nd.AtomicsSupported)
		s.pair(connOptions{RegionSize: 1 << 20, RegionFlags: atomicRights}).wantAlive()
	}},
	{id: "X013", title: "a Send with ReadFence can carry the old value of an earlier atomic", active: func(s *side) {
		c := s.atomicPair()
		for i := range uint64(20) {
			s.barrier() // the Receive is posted
			c.add(1, oldAt, c.peerRegion, 0, 3, 0)
			c.must(c.ep.Send(2, c.sge(oldAt, 8), nd.ReadFence))
			c.wantDone(nd.RequestFetchAndAdd, 1, 8)
			c.wantNumberAt(oldAt, 3*i)
			c.wantResult(nd.Success, 2)
		}
	}, passive: func(s *side) {
		c := s.atomicPair()
		for i := range uint64(20) {
			c.must(c.ep.Receive(1, c.sge(64, 8)))
			s.barrier()
			c.wantLength(c.wantReceive(nd.Success, 1), 8)
			c.wantNumberAt(64, 3*i)
		}
	}},
	{id: "X014", title: "without outbound Reads, an atomic fails", active: func(s *side) {
		s.skipUnless(nd.AtomicsSupported)
		c := s.pair(connOptions{OutboundReads: -1, RegionFlags: atomicRights})
		c.add(1, oldAt, c.peerRegion, 0, 1, 0)
		c.wantResult(nd.InvalidDeviceRequest, 1)
		c.wantBroken()
	}, passive: func(s *side) {
		c := s.atomicPair()
		c.wantBroken()
		s.wantZero(c.memory.mem)
	}},
	{id: "X015", title: "atomics that are posted after the end of the connection complete with Canceled", active: func(s *side) {
		c := s.atomicPair()
		c.must(c.ep.Flush(c.ctx))
		for i, a := range atomics {
			c.must(a.post(c, uint64(i), c.sge(oldAt, 8).First, c.peerRegion, 0))
		}
		for i, a := range atomics {
			if r := c.wantResult(nd.Canceled, uint64(i)); r.RequestType != a.kind || r.BytesTransferred != 0 {
				s.errorf("result %+v, want a %v of 0 bytes", r, a.kind)
			}
		}
	}, passive: func(s *side) {
		c := s.atomicPair()
		c.wantBroken()
		s.wantZero(c.memory.mem)
	}},
}

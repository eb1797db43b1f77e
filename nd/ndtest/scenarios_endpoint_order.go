package ndtest

import (
	"bytes"
	"fmt"

	"github.com/softnd/softnd/nd"
)

var endpointOrderScenarios = []scenario{
	{id: "C214", title: "posts to a failed endpoint succeed and complete with Canceled", active: func(s *side) {
		c, w := s.pair(connOptions{}), s.newWindow()
		s.must(c.ep.Flush(c.ctx))
		s.must(c.ep.Receive(1, c.sge(0, 64)))
		c.wantReceive(nd.Canceled, 1)
		s.must(c.ep.Send(2, c.sge(0, 64), 0))
		c.postWrite(3, 64)
		c.postRead(4, 64)
		s.must(c.ep.Bind(5, c.memory.mr, w, c.memory.mem, nd.AllowRead))
		s.must(c.ep.Invalidate(6, w, 0))
		c.wantFlushed(2, 3, 4, 5, 6)
		s.wantEmpty(c.cq)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.wantDisconnected()
		c.wantErrorState()
	}},

	{id: "C215", title: "an empty Read succeeds with any address and token", active: func(s *side) {
		c := s.pair(connOptions{})
		s.must(c.ep.Read(1, nd.SGL{}, c.peerRegion.Address, c.peerRegion.Token, 0))
		s.must(c.ep.Read(2, nd.SGL{}, 0, 0, 0))
		for i := range uint64(2) {
			if r := c.wantResult(nd.Success, i+1); r.BytesTransferred != 0 || r.RequestType != nd.RequestRead {
				s.errorf("result %+v, want a Read of 0 bytes", r)
			}
		}
		c.wantAlive()
	}, passive: func(s *side) {
		s.pair(connOptions{}).wantAlive()
	}},

	{id: "C216", title: "more Reads than the outbound limit all succeed, in order", active: func(s *side) {
		const n, size = 16, 4096
		c := s.pair(connOptions{InboundReads: 2, OutboundReads: 2})
		s.barrier()
		for i := range n {
			at := (n - 1 - i) * size // other offsets than at the peer
			s.must(c.ep.Read(uint64(i), c.sge(at, size), c.peerRegion.Address+uint64(i*size), c.peerRegion.Token, 0))
		}
		for i := range n {
			c.wantResult(nd.Success, uint64(i))
			at := (n - 1 - i) * size
			s.wantPattern(c.memory.mem[at:at+size], uint64(i))
		}
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{InboundReads: 2, OutboundReads: 2})
		for i := range 16 {
			fill(c.memory.mem[i*4096:(i+1)*4096], uint64(i))
		}
		s.barrier()
		c.wantAlive()
	}},

	{id: "C217", title: "a Read into three entries fills them in order", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		sizes := []int{100, 1, 5000}[:min(3, s.info.MaxReadSGE)]
		starts := []int{20_000, 10_000, 1000} // out of order and with gaps
		var sge []nd.SGE
		total := 0
		for i, n := range sizes {
			sge = append(sge, c.sge(starts[i], n).First)
			total += n
		}
		s.must(c.ep.Read(1, nd.List(sge...), c.peerRegion.Address+3, c.peerRegion.Token, 0))
		if r := c.wantResult(nd.Success, 1); r.BytesTransferred != uint32(total) {
			s.errorf("result of the Read: %d bytes, want %d", r.BytesTransferred, total)
		}
		want := make([]byte, total+3)
		fill(want, 2)
		want = want[3:]
		for i, n := range sizes {
			got := c.memory.mem[starts[i] : starts[i]+n]
			if string(got) != string(want[:n]) {
				s.errorf("entry %d has other bytes than the source", i)
			}
			want = want[n:]
			clear(got)
		}
		s.wantZero(c.memory.mem) // no byte outside the entries has changed
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		fill(c.memory.mem, 2)
		s.barrier()
	}},

	{id: "C218", title: "results of an endpoint may be taken after its Close", active: func(s *side) {
		c := s.pair(connOptions{})
		c.receiveAny(3)
		for i := range uint64(8) {
			c.postWrite(100+i, 64)
		}
		s.must(c.ep.Close())
		next := map[bool]uint64{true: 100, false: 0} // by kind of queue
		results := make([]nd.Result, 32)
		for _, r := range results[:c.cq.Poll(results)] {
			kind := r.RequestType.Initiator()
			ok := r.Status == nd.Canceled || kind && r.Status == nd.Success
			if !ok || r.EndpointContext != c.context || r.RequestContext != next[kind] {
				s.fatalf("result %+v, want Canceled (or Success of a Write) of request %d", r, next[kind])
			}
			next[kind]++
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.receiveAny(1)
		c.wantDisconnected()
		c.wantReceivesFlushed(0)
		c.wantErrorState()
	}},

	{id: "C219", title: "Flush of an endpoint does not affect another one with the same completion queue", active: func(s *side) {
		c := s.pair(connOptions{})
		d := s.pair(connOptions{ShareWith: c})
		c.receiveAny(3)
		d.receiveAny(3)
		s.must(c.ep.Flush(c.ctx))
		c.wantReceivesFlushed(0, 1, 2)
		s.wantEmpty(c.cq)
		c.wantErrorState()
		s.barrier()
		for i := range uint64(3) {
			d.wantReceive(nd.Success, i)
		}
		d.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		d := s.pair(connOptions{ShareWith: c})
		c.receiveAny(1)
		s.barrier()
		c.wantDisconnected()
		c.wantReceivesFlushed(0)
		for i := range uint64(3) {
			s.must(d.ep.Send(i, nd.SGL{}, 0))
			d.wantResult(nd.Success, i)
		}
		c.wantErrorState()
		d.wantAlive()
	}},

	{id: "C245", title: "a Send with ReadFence can carry the data of an earlier Read", active: func(s *side) {
		c := s.pair(connOptions{RegionSize: fencedSize})
		want := make([]byte, fencedSize)
		for i := range uint64(fencedRounds) {
			fill(want, i)
			s.barrier()
			c.postRead(1, fencedSize)
			s.must(c.ep.Send(2, c.sge(fencedSize-fencedTail, fencedTail), nd.ReadFence))
			_ = hear[string](s) // this side has not polled
			if !bytes.Equal(c.memory.mem, want) {
				s.fatalf("round %d: the data of the Read is not in memory when the fenced Send has arrived, want it there", i)
			}
			c.wantResult(nd.Success, 1)
			c.wantResult(nd.Success, 2)
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: fencedSize + fencedTail})
		source, tail := c.memory.mem[:fencedSize], c.memory.mem[fencedSize:]
		for i := range uint64(fencedRounds) {
			fill(source, i)
			s.must(c.ep.Receive(i, c.sge(fencedSize, fencedTail)))
			s.barrier()
			c.wantReceive(nd.Success, i)
			s.tell("received")
			if !bytes.Equal(tail, source[fencedSize-fencedTail:]) {
				s.fatalf("the fenced Send has carried other bytes than those of the Read before it")
			}
			for k := len(source) - 1; k >= 0; k -= 4096 { // a Read that has not copied its data yet reads wrong bytes
				source[k] ^= 0xff
			}
		}
	}},

	{id: "C246", title: "a Send posted after a Read completes after it, without a fence", active: func(s *side) {
		c := s.pair(connOptions{RegionSize: fencedSize})
		for i := range uint64(fencedRounds) {
			s.barrier()
			c.postRead(2*i, fencedSize)
			s.must(c.ep.Send(2*i+1, c.sge(0, 0), 0))
			c.wantResult(nd.Success, 2*i)
			c.wantRegionPattern(i)
			c.wantResult(nd.Success, 2*i+1)
			s.barrier()
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: fencedSize})
		for i := range uint64(fencedRounds) {
			fill(c.memory.mem, i)
			s.must(c.ep.Receive(i, nd.SGL{}))
			s.barrier()
			c.wantReceive(nd.Success, i)
			s.barrier() // the peer's Read may still be in progress
		}
	}},

	{id: "C247", title: "concurrent posts of two goroutines and a Flush: each request has one result", active: func(s *side) {
		n := s.concurrentPosts()
		c := s.pair(connOptions{CQDepth: 4 * n, SplitCQs: true, Endpoint: nd.EndpointConfig{ReceiveDepth: n, InitiatorDepth: n}})
		s.must(postRange(0, n/2, func(x uint64) error { return c.ep.Receive(x, c.sge(0, 64)) })) // for the peer's messages
		s.barrier()
		done := []<-chan error{
			s.async(func() error {
				return postRange(n/2, n, func(x uint64) error { return c.ep.Receive(x, c.sge(0, 64)) })
			}),
			s.async(func() error { return postRange(0, n, func(x uint64) error { return c.ep.Send(x, c.sge(64, 64), 0) }) }),
		}
		_ = hear[string](s)
		s.must(c.ep.Flush(c.ctx))
		for _, d := range done {
			s.must(s.await(d))
		}
		c.wantSuccessThenCanceled(n, true)
		c.wantSuccessThenCanceled(n, false)
	}, passive: func(s *side) {
		n := s.concurrentPosts()
		c := s.pair(connOptions{CQDepth: 4 * n, SplitCQs: true, Endpoint: nd.EndpointConfig{ReceiveDepth: n, InitiatorDepth: n}})
		for i := range uint64(n) {
			s.must(c.ep.Receive(i, c.sge(0, 64)))
		}
		s.barrier()
		for i := range n / 2 {
			if i == n/4 {
				s.tell("flush") // while both sides send
			}
			s.must(c.ep.Send(uint64(i), c.sge(64, 64), 0))
		}
		c.wantDisconnected()
		c.wantSuccessThenCanceled(n/2, true)
		c.wantSuccessThenCanceled(n, false)
	}},
}

const (
	fencedSize   = 2 << 20
	fencedRounds = 4
	fencedTail   = 16 // so small that a provider may copy it when posted
)

// concurrentPosts returns how many requests of each kind C247 posts.
func (s *side) concurrentPosts() int {
	return int(min(600, s.info.MaxInitiatorQueueDepth, s.info.MaxReceiveQueueDepth))
}

// postRange posts the requests first to end-1.
func postRange(first, end int, post func(uint64) error) error {
	for x := first; x < end; x++ {
		if err := post(uint64(x)); err != nil {
			return fmt.Errorf("post %d: %w", x, err)
		}
	}
	return nil
}

// wantSuccessThenCanceled checks that the requests 0 to n-1 of a queue have one result each, in order.
// Results with Success must precede those with Canceled.
func (c *conn) wantSuccessThenCanceled(n int, initiator bool) {
	canceled := false
	for i := range uint64(n) {
		r := c.nextResult(initiator)
		canceled = canceled || r.Status == nd.Canceled
		if canceled {
			c.checkResult(r, nd.Canceled, i)
		} else {
			c.checkResult(r, nd.Success, i)
		}
	}
	if initiator {
		c.wantEmpty(c.cq)
	} else {
		c.wantEmpty(c.rcq)
	}
}

package ndtest

import (
	"bytes"
	"fmt"

	"github.com/softnd/softnd/nd"
)

var endpointOrderScenarios = []scenario{
	{id: "C214", title: "posts to a failed endpoint succeed and complete with Canceled", active: func(s *side) {
		c, w := s.pair(shape{}), s.window()
		s.must(c.ep.Flush())
		s.must(c.ep.Receive(1, c.sge(0, 64)))
		c.received(nd.Canceled, 1)
		s.must(c.ep.Send(2, c.sge(0, 64), 0))
		c.write(3, 64)
		c.read(4, 64)
		s.must(c.ep.Bind(5, c.memory.mr, w, c.memory.mem, nd.AllowRead))
		s.must(c.ep.Invalidate(6, w, 0))
		c.flushed(2, 3, 4, 5, 6)
		s.empty(c.cq)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.peerEnded()
		c.dead()
	}},

	{id: "C215", title: "an empty Read succeeds, whatever it names", active: func(s *side) {
		c := s.pair(shape{})
		s.must(c.ep.Read(1, nil, c.far.Address, c.far.Token, 0))
		s.must(c.ep.Read(2, nil, 0, 0, 0))
		for i := range uint64(2) {
			if r := c.done(nd.Success, i+1); r.BytesTransferred != 0 || r.RequestType != nd.RequestRead {
				s.errorf("%+v", r)
			}
		}
		c.alive()
	}, passive: func(s *side) {
		s.pair(shape{}).alive()
	}},

	{id: "C216", title: "more Reads than the outbound limit all succeed, in order", active: func(s *side) {
		const n, size = 16, 4096
		c := s.pair(shape{In: 2, Out: 2})
		s.meet()
		for i := range n {
			at := (n - 1 - i) * size // elsewhere than at the peer
			s.must(c.ep.Read(uint64(i), c.sge(at, size), c.far.Address+uint64(i*size), c.far.Token, 0))
		}
		for i := range n {
			c.done(nd.Success, uint64(i))
			at := (n - 1 - i) * size
			s.holds(c.memory.mem[at:at+size], uint64(i))
		}
		c.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{In: 2, Out: 2})
		for i := range 16 {
			fill(c.memory.mem[i*4096:(i+1)*4096], uint64(i))
		}
		s.meet()
		c.alive()
	}},

	{id: "C217", title: "a Read into three entries is split at the right bytes", active: func(s *side) {
		c := s.pair(shape{})
		s.meet()
		sizes := []int{100, 1, 5000}[:min(3, s.info.MaxReadSGE)]
		starts := []int{20_000, 10_000, 1000} // not in order, and with gaps
		var sge []nd.SGE
		total := 0
		for i, n := range sizes {
			sge = append(sge, c.sge(starts[i], n)...)
			total += n
		}
		s.must(c.ep.Read(1, sge, c.far.Address+3, c.far.Token, 0))
		if r := c.done(nd.Success, 1); r.BytesTransferred != uint32(total) {
			s.errorf("%d bytes, want %d", r.BytesTransferred, total)
		}
		want := make([]byte, total+3)
		fill(want, 2)
		want = want[3:]
		for i, n := range sizes {
			got := c.memory.mem[starts[i] : starts[i]+n]
			if string(got) != string(want[:n]) {
				s.errorf("entry %d holds other bytes", i)
			}
			want = want[n:]
			clear(got)
		}
		s.blank(c.memory.mem) // nothing beside the entries
	}, passive: func(s *side) {
		c := s.pair(shape{})
		fill(c.memory.mem, 2)
		s.meet()
	}},

	{id: "C218", title: "results of a closed endpoint may be taken", active: func(s *side) {
		c := s.pair(shape{})
		c.receiveAny(3)
		for i := range uint64(8) {
			c.write(100+i, 64)
		}
		s.must(c.ep.Close())
		next := map[bool]uint64{true: 100, false: 0} // by kind of queue
		results := make([]nd.Result, 32)
		for _, r := range results[:c.cq.Poll(results)] {
			kind := r.RequestType.Initiator()
			ok := r.Status == nd.Canceled || kind && r.Status == nd.Success
			if !ok || r.EndpointContext != c.context || r.RequestContext != next[kind] {
				s.fatalf("%+v, want request %d", r, next[kind])
			}
			next[kind]++
		}
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.receiveAny(1)
		c.peerEnded()
		c.receivesFlushed(0)
		c.dead()
	}},

	{id: "C219", title: "Flush of one endpoint leaves the other on its queue alone", active: func(s *side) {
		c := s.pair(shape{})
		d := s.pair(shape{With: c})
		c.receiveAny(3)
		d.receiveAny(3)
		s.must(c.ep.Flush())
		c.receivesFlushed(0, 1, 2)
		s.empty(c.cq)
		c.dead()
		s.meet()
		for i := range uint64(3) {
			d.received(nd.Success, i)
		}
		d.alive()
	}, passive: func(s *side) {
		c := s.pair(shape{})
		d := s.pair(shape{With: c})
		c.receiveAny(1)
		s.meet()
		c.peerEnded()
		c.receivesFlushed(0)
		for i := range uint64(3) {
			s.must(d.ep.Send(i, nil, 0))
			d.done(nd.Success, i)
		}
		c.dead()
		d.alive()
	}},

	{id: "C245", title: "a fenced Send starts when the data of earlier Reads is in place: it can carry it", active: func(s *side) {
		c := s.pair(shape{Region: fencedSize})
		want := make([]byte, fencedSize)
		for i := range uint64(fencedRounds) {
			fill(want, i)
			s.meet()
			c.read(1, fencedSize)
			s.must(c.ep.Send(2, c.sge(fencedSize-fencedTail, fencedTail), nd.ReadFence))
			_ = hear[string](s) // no result has been taken, nor looked for
			if !bytes.Equal(c.memory.mem, want) {
				s.fatalf("the data of the Read was not in place in round %d", i)
			}
			c.done(nd.Success, 1)
			c.done(nd.Success, 2)
		}
	}, passive: func(s *side) {
		c := s.pair(shape{Region: fencedSize + fencedTail})
		source, tail := c.memory.mem[:fencedSize], c.memory.mem[fencedSize:]
		for i := range uint64(fencedRounds) {
			fill(source, i)
			s.must(c.ep.Receive(i, c.sge(fencedSize, fencedTail)))
			s.meet()
			c.received(nd.Success, i)
			s.tell("received")
			if !bytes.Equal(tail, source[fencedSize-fencedTail:]) {
				s.fatalf("the message was sent before the data of the Read was in place")
			}
			for k := len(source) - 1; k >= 0; k -= 4096 { // what would be read late is read wrong
				source[k] ^= 0xff
			}
		}
	}},

	{id: "C246", title: "a Send behind a Read completes behind it, without a fence", active: func(s *side) {
		c := s.pair(shape{Region: fencedSize})
		for i := range uint64(fencedRounds) {
			s.meet()
			c.read(2*i, fencedSize)
			s.must(c.ep.Send(2*i+1, c.sge(0, 0), 0))
			c.done(nd.Success, 2*i)
			c.holdsAll(i)
			c.done(nd.Success, 2*i+1)
			s.meet()
		}
	}, passive: func(s *side) {
		c := s.pair(shape{Region: fencedSize})
		for i := range uint64(fencedRounds) {
			fill(c.memory.mem, i)
			s.must(c.ep.Receive(i, nil))
			s.meet()
			c.received(nd.Success, i)
			s.meet() // the Read may still be under way
		}
	}},

	{id: "C247", title: "posts of two goroutines and a Flush of a third: one result each", active: func(s *side) {
		n := s.posts()
		c := s.pair(shape{CQ: 4 * n, Split: true, Limits: nd.EndpointConfig{ReceiveDepth: n, InitiatorDepth: n}})
		s.must(posted(0, n/2, func(x uint64) error { return c.ep.Receive(x, c.sge(0, 64)) })) // for the peer's messages
		s.meet()
		done := []<-chan error{
			s.begun(func() error {
				return posted(n/2, n, func(x uint64) error { return c.ep.Receive(x, c.sge(0, 64)) })
			}),
			s.begun(func() error { return posted(0, n, func(x uint64) error { return c.ep.Send(x, c.sge(64, 64), 0) }) }),
		}
		_ = hear[string](s)
		s.must(c.ep.Flush())
		for _, d := range done {
			s.must(s.ended(d))
		}
		c.inTwoParts(n, true)
		c.inTwoParts(n, false)
	}, passive: func(s *side) {
		n := s.posts()
		c := s.pair(shape{CQ: 4 * n, Split: true, Limits: nd.EndpointConfig{ReceiveDepth: n, InitiatorDepth: n}})
		for i := range uint64(n) {
			s.must(c.ep.Receive(i, c.sge(0, 64)))
		}
		s.meet()
		for i := range n / 2 {
			if i == n/4 {
				s.tell("flush") // while both sides transfer
			}
			s.must(c.ep.Send(uint64(i), c.sge(64, 64), 0))
		}
		c.peerEnded()
		c.inTwoParts(n/2, true)
		c.inTwoParts(n, false)
	}},
}

const (
	fencedSize   = 2 << 20
	fencedRounds = 4
	fencedTail   = 16 // so small that a provider may take it at once
)

// posts is how many requests of each kind C247 posts.
func (s *side) posts() int {
	return int(min(600, s.info.MaxInitiatorQueueDepth, s.info.MaxReceiveQueueDepth))
}

// posted posts the requests first to end-1.
func posted(first, end int, post func(uint64) error) error {
	for x := first; x < end; x++ {
		if err := post(uint64(x)); err != nil {
			return fmt.Errorf("post %d: %w", x, err)
		}
	}
	return nil
}

// inTwoParts checks that the requests 0 to n-1 of a queue have one result each, in order, and
// that those that succeeded come before those that were canceled.
func (c *conn) inTwoParts(n int, initiator bool) {
	canceled := false
	for i := range uint64(n) {
		r := c.next(initiator)
		canceled = canceled || r.Status == nd.Canceled
		if canceled {
			c.check(r, nd.Canceled, i)
		} else {
			c.check(r, nd.Success, i)
		}
	}
	if initiator {
		c.empty(c.cq)
	} else {
		c.empty(c.rcq)
	}
}

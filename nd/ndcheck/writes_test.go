//go:build linux

package ndcheck_test

import (
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// writers are programs in which rank 1 breaks a rule, or seems to, while peers write to its memory.
var writers = map[string]struct {
	rule  string // "" = it breaks none
	roles []func(s *side)
}{
	// The peer writes to other bytes than those that rank 1 sends and changes.
	"a Write elsewhere": {"N201", []func(s *side){
		func(s *side) {
			d := s.get()
			s.hear()
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
			s.done()
			s.tell()
			s.hear()
			s.must(s.ep.Receive(2, s.sge(0, 64)))
			s.received()
			s.barrier()
		},
		func(s *side) {
			s.give(s.bind(64, 64, nd.AllowWrite).Descriptor())
			s.must(s.ep.Send(1, s.sge(0, 64), 0))
			s.tell()
			s.hear()
			s.mr.Bytes()[5]++
			s.tell()
			s.done()
			s.barrier()
		}}},
	// The peer writes to the bytes that rank 1 sends, before or after the post of the Send. This is a mistake, but not that
	// of the rule.
	"a Write to the source": {"", []func(s *side){
		func(s *side) {
			d := s.get()
			s.hear()
			s.mr.Bytes()[1] = 1
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
			s.done()
			s.must(s.ep.Receive(2, s.sge(64, 64)))
			s.received()
			s.barrier()
		},
		func(s *side) {
			s.give(s.bind(32, 64, nd.AllowWrite).Descriptor())
			s.must(s.ep.Send(1, s.sge(0, 64), 0))
			s.tell()
			s.done()
			s.barrier()
		}}},
	"a Write in flight": {"", []func(s *side){
		func(s *side) { s.writeLate(false, false) },
		func(s *side) { s.sendEarly() }}},
	"a Write that ends": {"", []func(s *side){
		func(s *side) { s.writeLate(false, true) },
		func(s *side) { s.sendEarly() }}},
	"a Write before a Send": {"", []func(s *side){
		func(s *side) { s.writeLate(true, true) },
		func(s *side) { s.sendEarly() }}},
	"a Write before a Send, in flight": {"", []func(s *side){
		func(s *side) { s.writeLate(true, false) },
		func(s *side) { s.sendEarly() }}},
	// Rank 2 writes to rank 1, but cannot know that the first Write of rank 1 to rank 0 is complete.
	"a Write of another rank": {"N301", []func(s *side){
		func(s *side) { s.connectThree(); s.barrier() },
		func(s *side) { s.writeTwice(true) },
		func(s *side) {
			_, ep, all := s.connectThree()
			s.tell() // so that it learns nothing by connectThree after the Write
			s.hear()
			s.sendFlag(ep, all[1])
		}}},
	// Rank 0 sees the bytes of the first Write, and tells it to rank 2, which tells it to rank 1.
	"a flag over another rank": {"", []func(s *side){
		func(s *side) {
			_, ep, all := s.connectThree()
			s.poll(0)
			s.sendFlag(ep, all[2])
		},
		func(s *side) { s.writeTwice(false) },
		func(s *side) {
			_, ep, all := s.connectThree()
			s.poll(0)
			s.sendFlag(ep, all[1])
		}}},
}

// fill returns a program whose rank 1 has n Writes in flight on several connections. All are to other bytes.
func fill(n int) []func(s *side) {
	const each = 4096
	connect := func(s *side) (all []nd.Endpoint) {
		for i := 0; i < n; i += each {
			ep, err := s.job.Connect(s.ctx, 1-s.job.Rank(), nd.EndpointConfig{ReceiveCQ: s.recv, InitiatorCQ: s.init, InitiatorDepth: each})
			s.must(err)
			all = append(all, ep)
		}
		return all
	}
	return []func(s *side){
		func(s *side) { connect(s); s.give(s.bind(0, memory, nd.AllowWrite).Descriptor()); s.barrier() },
		func(s *side) {
			all, d := connect(s), s.get()
			for i := range n {
				to, err := d.Slice(i/each*8, 8)
				s.must(err)
				s.must(nd.WriteTo(all[i/each], 1, s.sge(0, 8), to, 0))
			}
			for range n {
				s.done()
			}
			s.barrier()
		}}
}

// The checker says that it cannot watch all requests, and only then.
func TestSightLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("to fill the table of accesses takes too long with the race detector")
	}
	const room = 1 << 13
	for n, rule := range map[int]string{room: "", room + 3: "N902"} {
		expectRule(t, rule, watchAll(t, nd.EndpointConfig{}, 2*room, fill(n)))
	}
	// Silent Writes beyond the depth of the queue are complete.
	found := watch(t, nd.EndpointConfig{}, 64, func(s *side) {
		s.second()
		s.second()
		s.give(s.bind(0, 64, nd.AllowWrite).Descriptor())
		s.barrier()
	}, func(s *side) {
		all := []nd.Endpoint{s.ep, s.second(), s.second()}
		d := s.get()
		for i := range room + 1000 {
			to, err := d.Slice(i%3*8, 8)
			s.must(err)
			s.must(nd.WriteTo(all[i%3], 1, s.sge(0, 8), to, nd.SilentSuccess))
		}
		s.barrier()
	})
	expectRule(t, "N803", found)
}

// writeLate posts a Write that waits behind a Send, and takes its result before the bytes are compared.
func (s *side) writeLate(sends, takes bool) {
	d := s.get()
	s.mr.Bytes()[1] = 1
	s.must(s.ep.Send(1, nd.SGL{}, 0))
	s.must(nd.WriteTo(s.ep, 2, s.sge(0, 64), d, 0))
	n := 2
	if sends {
		s.must(s.ep.Send(3, nd.SGL{}, 0))
		n++
	}
	s.tell()
	s.hear()
	if takes {
		for range n {
			s.done()
		}
	}
	s.must(s.ep.Receive(4, s.sge(64, 64)))
	s.barrier()
}

// sendEarly posts a Send of the bytes that writeLate writes to, before they change.
func (s *side) sendEarly() {
	s.give(s.bind(0, 64, nd.AllowWrite).Descriptor())
	s.hear()
	s.must(s.ep.Send(1, s.sge(0, 64), 0))
	s.must(s.ep.Receive(2, nd.SGL{}))
	s.must(s.ep.Receive(3, nd.SGL{}))
	s.poll(1)
	s.tell()
	s.done()
	s.barrier()
}

// poll waits until a byte is not zero.
func (s *side) poll(at int) {
	for s.mr.Bytes()[at] == 0 && s.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// connectThree connects three ranks. It returns two endpoints: to ranks 1 and 2, to 0 and 2, or to 0 and 1. Every rank grants the
// right to write to its first bytes.
func (s *side) connectThree() (first, last nd.Endpoint, all []nd.WindowDescriptor) {
	if s.job.Rank() < 2 {
		first, last = s.second(), s.connect(2)
	} else {
		first, last = s.connect(0), s.connect(1)
		s.ep = first
	}
	all, err := s.job.ExchangeWindows(s.ctx, s.bind(0, 64, nd.AllowWrite).Descriptor())
	s.must(err)
	return first, last, all
}

func (s *side) sendFlag(ep nd.Endpoint, d nd.WindowDescriptor) {
	s.mr.Bytes()[64] = 1
	s.must(nd.WriteTo(ep, 1, s.sge(64, 8), d, 0))
	s.done()
	s.barrier()
}

// writeTwice writes to rank 0 over two connections. Between the Writes, it polls a flag. If it tells the first one, it waits before
// until another rank calls tell.
func (s *side) writeTwice(tells bool) {
	ep, _, all := s.connectThree()
	if tells {
		s.hear()
	}
	s.mr.Bytes()[64] = 1
	s.must(nd.WriteTo(s.ep, 1, s.sge(64, 8), all[0], 0))
	if tells {
		s.tell()
	}
	s.poll(0)
	s.must(nd.WriteTo(ep, 2, s.sge(64, 8), all[0], 0))
	s.done()
	s.done()
	s.barrier()
}

func TestWrites(t *testing.T) {
	for name, p := range writers {
		t.Run(name, func(t *testing.T) { expectRule(t, p.rule, watchAll(t, nd.EndpointConfig{}, 64, p.roles)) })
	}
}

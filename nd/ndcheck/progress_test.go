//go:build linux

package ndcheck_test

import (
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// progressing are programs that learn that some of their requests are complete, and others not.
var progressing = map[string]struct {
	rule  string // that rank 1 breaks, "" = none
	roles [2]func(s *side)
}{
	// A result says that the silent requests before it are complete, and not those behind it.
	"a silent request behind a result": {"N201", [2]func(s *side){
		func(s *side) { s.receiveLate(1, 2) },
		func(s *side) {
			s.barrier()
			s.must(s.ep.Send(1, nd.SGL{}, 0))
			s.must(s.ep.Send(2, s.sge(64, 64), nd.SilentSuccess))
			s.changeLate()
		}}},
	"a silent request before a result": {"", [2]func(s *side){
		func(s *side) { s.receiveLate(2, 1) },
		func(s *side) {
			s.barrier()
			s.must(s.ep.Send(2, s.sge(64, 64), nd.SilentSuccess))
			s.must(s.ep.Send(1, nd.SGL{}, 0))
			s.changeLate()
		}}},
	// The Receive for the answer may change the bytes of a Send, but the program has changed them before.
	"a change before the Receive for an answer": {"N201", [2]func(s *side){
		func(s *side) {
			s.must(s.ep.Receive(1, s.sge(0, 64)))
			s.barrier()
			s.received()
			s.must(s.ep.Send(2, s.sge(64, 64), 0))
			s.done()
			s.barrier()
		},
		func(s *side) {
			s.barrier()
			s.must(s.ep.Send(1, s.sge(0, 64), 0))
			s.mr.Bytes()[5]++
			s.must(s.ep.Receive(2, s.sge(0, 64)))
			s.received()
			s.done()
			s.barrier()
		}}},
	// A message of the peer says nothing about a Read, whether the Read itself has a fence or not.
	"a message during a Read": {"N204", [2]func(s *side){
		(*side).answerBeforeRead,
		func(s *side) { s.useBeforeRead(0) }}},
	"a message during a fenced Read": {"N204", [2]func(s *side){
		(*side).answerBeforeRead,
		func(s *side) { s.useBeforeRead(nd.ReadFence) }}},
	// The sender of a message that invalidates knows it, although the receiver has not taken the message.
	"an invalidation that is not taken": {"N101", [2]func(s *side){
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			s.give(s.bind(0, 64, nd.AllowWrite).Descriptor())
			s.barrier()
		},
		func(s *side) {
			d := s.get()
			s.must(s.ep.SendAndInvalidate(1, nd.SGL{}, d.Token, 0))
			s.must(nd.WriteTo(s.ep, 2, s.sge(0, 8), d, 0))
			s.done()
			s.result(s.init)
			s.barrier()
		}}},
	// Requests behind a Read that waits. A fence lets all of them wait, but Inline takes the bytes at the post.
	"behind a fence": {"", [2]func(s *side){
		(*side).receiveAfterRead,
		func(s *side) {
			s.postRead()
			s.must(s.ep.Send(3, nd.SGL{}, nd.ReadFence))
			s.must(s.ep.Send(4, s.sge(0, 64), 0))
			s.finish(4)
		}}},
	"inline behind a fence": {"N204", [2]func(s *side){
		(*side).receiveAfterRead,
		func(s *side) {
			s.postRead()
			s.must(s.ep.Send(3, s.sge(0, 64), nd.ReadFence|nd.Inline))
			s.must(s.ep.Send(4, nd.SGL{}, 0))
			s.finish(4)
		}}},
	"an invalidation behind a Read": {"N304", [2]func(s *side){
		(*side).receiveAfterRead,
		func(s *side) {
			d := s.postRead()
			s.must(s.ep.SendAndInvalidate(3, nd.SGL{}, d.Token, 0))
			s.must(s.ep.Send(4, nd.SGL{}, 0))
			s.finish(4)
		}}},
	"two Reads of the same bytes": {"", [2]func(s *side){
		(*side).receiveAfterRead,
		func(s *side) {
			d := s.postRead()
			s.must(nd.ReadFrom(s.ep, 3, s.sge(64, 64), d, 0))
			s.must(s.ep.Send(4, nd.SGL{}, 0))
			s.must(s.ep.Send(5, nd.SGL{}, 0))
			s.finish(5)
		}}},
	// The window allows the peer to write only.
	"a Read without the right": {"N103", [2]func(s *side){
		func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.barrier() },
		func(s *side) {
			d := s.get()
			s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 8), d, 0))
			s.result(s.init)
			s.barrier()
		}}},
	// One queue of depth 4 has the results of Receives and Sends.
	"too many results": {"N502", [2]func(s *side){
		func(s *side) { s.second(); s.barrier() },
		func(s *side) { s.fillQueue(2, 3) }}},
	"just enough results": {"", [2]func(s *side){
		func(s *side) { s.second(); s.barrier() },
		func(s *side) { s.fillQueue(2, 2) }}},
	// A request of the owner has invalidated the region.
	"an invalidated region": {"N101", [2]func(s *side){
		func(s *side) {
			mr := s.registerFast()
			d := nd.WindowDescriptor{Address: 1 << 20, Length: memory, Token: mr.RemoteToken()}
			s.must(s.ep.InvalidateRegion(2, mr, 0))
			s.done()
			s.give(d)
			s.barrier()
		},
		(*side).writeInVain}},
	"a region that a Read has invalidated": {"N101", [2]func(s *side){
		func(s *side) { s.give(s.bind(0, 64, nd.AllowRead).Descriptor()); s.barrier(); s.barrier() },
		func(s *side) {
			d := s.get()
			sge := nd.One(nd.SGEOf(s.registerFast(), 0, 64))
			s.must(nd.ReadFrom(s.ep, 1, sge, d, nd.ReadLocalInvalidate))
			s.done()
			s.barrier()
			s.must(nd.ReadFrom(s.ep, 2, sge, d, 0))
			s.result(s.init)
			s.barrier()
		}}},
	// The peer has ended the connection of the window, which the program binds again without a failed result.
	"a window of an ended connection": {"N102", [2]func(s *side){
		func(s *side) {
			w := s.bind(0, 64, nd.AllowWrite)
			s.barrier()
			for s.ep.Err() == nil && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			s.ep = s.second()
			s.must(s.ep.Bind(1, s.mr, w, s.mr.Bytes()[:64], nd.AllowWrite))
			s.done()
			s.give(w.Descriptor())
			s.barrier()
		},
		func(s *side) {
			s.barrier()
			s.must(s.ep.Close())
			s.ep = s.second()
			s.writeTo(s.get(), 60)
		}}},
	// The peer has disconnected, but this side has not, so the window is still bound.
	"a window of a disconnected peer": {"N404", [2]func(s *side){
		func(s *side) {
			w := s.bind(0, 64, nd.AllowWrite)
			ep := s.second()
			s.barrier()
			for s.ep.Err() == nil && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			s.must(ep.Bind(1, s.mr, w, s.mr.Bytes()[:64], nd.AllowWrite))
			s.mustBe(s.init, nd.InvalidDeviceRequest)
			s.must(s.ep.Connector().Disconnect(s.ctx))
			s.barrier()
		},
		func(s *side) {
			s.second()
			s.barrier()
			s.must(s.ep.Connector().Disconnect(s.ctx))
			s.barrier()
		}}},
	// The refused Bind ends nothing: the token of the window is valid.
	"a token of a disconnected peer": {"N102", [2]func(s *side){
		func(s *side) {
			nd.Expect(s.job.Adapter(), "bound twice", "N404")
			w := s.bind(0, 64, nd.AllowWrite)
			d := w.Descriptor()
			ep, last := s.second(), s.second()
			s.barrier()
			for s.ep.Err() == nil && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			s.must(ep.Bind(1, s.mr, w, s.mr.Bytes()[:64], nd.AllowWrite))
			s.mustBe(s.init, nd.InvalidDeviceRequest)
			s.give(d)
			s.barrier()
			s.must(s.ep.Connector().Disconnect(s.ctx))
			s.must(last.Close())
			s.barrier()
		},
		func(s *side) {
			s.second()
			last := s.second()
			s.barrier()
			first := s.ep.Connector()
			var disconnect sync.WaitGroup
			defer disconnect.Wait()
			disconnect.Go(func() { _ = first.Disconnect(s.ctx) })
			s.ep = last
			s.writeTo(s.get(), 60)
			s.barrier()
		}}},
	// This side has disconnected, too, in another goroutine, so the window may be bound again.
	"a window of a disconnection of both": {"N102", [2]func(s *side){
		func(s *side) {
			w := s.bind(0, 64, nd.AllowWrite)
			first := s.ep.Connector()
			s.ep = s.second()
			var disconnect sync.WaitGroup
			defer disconnect.Wait()
			disconnect.Go(func() { _ = first.Disconnect(s.ctx) })
			s.hear()
			s.must(s.ep.Bind(1, s.mr, w, s.mr.Bytes()[:64], nd.AllowWrite))
			s.done()
			s.give(w.Descriptor())
			s.barrier()
		},
		func(s *side) {
			first := s.ep
			s.ep = s.second()
			for first.Err() == nil && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			s.tell()
			s.writeTo(s.get(), 60)
			s.must(first.Connector().Disconnect(s.ctx))
		}}},
	// A message of the peer has invalidated the window, so its memory is free for another peer.
	"memory for the next peer": {"", [2]func(s *side){
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			s.give(s.bind(0, 64, nd.AllowWrite).Descriptor())
			s.received()
			first := s.ep
			s.ep = s.loopback()
			s.bind(0, 64, nd.AllowWrite)
			s.ep = first
			s.barrier()
		},
		func(s *side) {
			d := s.get()
			s.must(s.ep.SendAndInvalidate(1, nd.SGL{}, d.Token, 0))
			s.done()
			s.barrier()
		}}},
}

// receiveAfterRead posts the Receives of postRead and of two messages.
func (s *side) receiveAfterRead() {
	s.mr.Bytes()[5] = 7 // so that the Read changes the bytes of rank 1
	s.give(s.bind(0, 64, nd.AllowRead).Descriptor())
	s.hear()
	for i := range 3 {
		s.must(s.ep.Receive(1, s.sge(64*(i+1), 64)))
	}
	for range 3 {
		s.received()
	}
	s.barrier()
}

// postRead posts a Read that waits behind a Send.
func (s *side) postRead() nd.WindowDescriptor {
	d := s.get()
	s.must(s.ep.Send(1, nd.SGL{}, 0))
	s.must(nd.ReadFrom(s.ep, 2, s.sge(0, 64), d, 0))
	return d
}

// finish lets the other side go on, and takes n results.
func (s *side) finish(n int) {
	s.tell()
	for range n {
		s.done()
	}
	s.barrier()
}

// fillQueue posts requests whose results come to one queue of depth 4.
func (s *side) fillQueue(receives, sends int) {
	q, err := s.job.Adapter().CreateCompletionQueue(s.ctx, 4)
	s.must(err)
	ep, err := s.job.Connect(s.ctx, 0, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})
	s.must(err)
	for range receives {
		s.must(ep.Receive(1, nd.SGL{}))
	}
	for range sends {
		s.must(ep.Send(2, nd.SGL{}, 0))
	}
	s.must(ep.Flush(s.ctx))
	s.barrier()
}

// registerFast returns a region that a request has registered.
func (s *side) registerFast() nd.MemoryRegion {
	f := s.fastRegistration(memory)
	s.must(s.ep.FastRegister(1, f, 0))
	s.done()
	return f.Region
}

// writeInVain writes to memory whose token is invalid.
func (s *side) writeInVain() {
	d := s.get()
	s.must(nd.WriteTo(s.ep, 2, s.sge(0, 8), d, 0))
	s.result(s.init)
	s.barrier()
}

// receiveLate posts Receives, and further ones when the other side calls tell.
func (s *side) receiveLate(first, later int) {
	for i := range first + later {
		if i == first {
			s.barrier()
			s.hear()
		}
		s.must(s.ep.Receive(1, s.sge(i*64, 64)))
	}
	for range first + later {
		s.received()
	}
	s.barrier()
}

// changeLate takes a result, changes the bytes of a silent request, and completes that.
func (s *side) changeLate() {
	s.done()
	s.mr.Bytes()[64]++
	s.must(s.ep.Send(3, nd.SGL{}, 0))
	s.tell()
	s.done()
	s.barrier()
}

// answerBeforeRead sends a message before the Receive that the Read of the other side waits for.
func (s *side) answerBeforeRead() {
	s.give(s.bind(0, 64, nd.AllowRead).Descriptor())
	s.hear()
	s.must(s.ep.Send(1, nd.SGL{}, 0))
	s.done()
	s.hear()
	s.must(s.ep.Receive(2, nd.SGL{}))
	s.must(s.ep.Receive(3, s.sge(64, 64)))
	s.received()
	s.received()
	s.barrier()
}

// useBeforeRead takes a message while a Read waits behind a Send, and then sends the data of the Read.
func (s *side) useBeforeRead(flags nd.OpFlags) {
	s.must(s.ep.Receive(1, nd.SGL{}))
	d := s.get()
	s.must(s.ep.Send(2, nd.SGL{}, 0))
	s.must(nd.ReadFrom(s.ep, 3, s.sge(0, 64), d, flags))
	s.tell()
	s.received()
	s.must(s.ep.Send(4, s.sge(0, 64), 0))
	s.tell()
	for range 3 {
		s.done()
	}
	s.barrier()
}

func TestProgress(t *testing.T) {
	for name, p := range progressing {
		t.Run(name, func(t *testing.T) {
			expectRule(t, p.rule, watch(t, nd.EndpointConfig{InlineSize: 64}, 64, p.roles[0], p.roles[1]))
		})
	}
}

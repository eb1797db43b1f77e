package ndtest

import (
	"time"

	"github.com/softnd/softnd/nd"
)

// needShared skips the row for an adapter without shared receive queues, which has to say so.
func (s *side) needShared() {
	if s.info.MaxSharedReceiveQueueDepth == 0 {
		_, err := s.ad.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: 16, MaxSGE: 1})
		s.want(nd.NotSupported, err)
		s.skipf("the adapter has no shared receive queues")
	}
}

// shared creates a shared receive queue.
func (s *side) shared(threshold int) nd.SharedReceiveQueue {
	q, err := s.ad.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: 16, MaxSGE: 4, Threshold: threshold})
	s.must(err)
	s.atEnd(func() { q.Close() })
	return q
}

// onShared is the shape of an endpoint that takes its receives from q.
func onShared(q nd.SharedReceiveQueue) shape {
	return shape{Split: true, Limits: nd.EndpointConfig{SharedReceive: q}}
}

var sharedScenarios = []scenario{
	{id: "C241", title: "a message waits for a receive of a shared queue (2 x ReceiveTimeout), without limit", active: func(s *side) {
		s.needShared()
		c := s.pair(shape{})
		fill(c.memory.mem[:100], 1)
		s.must(c.ep.Send(1, c.sge(0, 100), 0))
		s.meet()
		c.done(nd.Success, 1)
		c.receiveAny(1)
		s.meet()
		s.must(c.ep.Send(2, nil, 0))
		c.done(nd.Success, 2)
		c.received(nd.Success, 0)
	}, passive: func(s *side) {
		s.needShared()
		q := s.shared(0)
		c := s.pair(onShared(q))
		s.meet()
		time.Sleep(2 * s.ReceiveTimeout) // the row is about this wait
		s.empty(c.rcq)
		s.must(q.Receive(7, c.sge(0, 200)))
		if r := c.received(nd.Success, 7); r.BytesTransferred != 100 {
			s.errorf("%+v", r)
		}
		s.holds(c.memory.mem[:100], 1)
		s.must(q.Receive(8, nil))
		s.meet()
		c.received(nd.Success, 8)
		s.must(c.ep.Send(9, nil, 0))
		c.done(nd.Success, 9)
	}},

	{id: "C242", title: "Notify of a shared queue returns when fewer receives than the threshold are left", active: func(s *side) {
		s.needShared()
		s.pair(shape{}).sendOnDemand(3)
	}, passive: func(s *side) {
		s.needShared()
		q := s.shared(4)
		c := s.pair(onShared(q))
		for i := range uint64(6) {
			s.must(q.Receive(i, nil))
		}
		low := s.begun(func() error { return q.Notify(s.ctx) })
		for i := range uint64(3) {
			s.pending(low)
			s.meet()
			c.received(nd.Success, i)
		}
		s.must(s.ended(low))
	}},

	{id: "C243", title: "results of a shared queue go to the endpoint that took the receive", active: func(s *side) {
		s.needShared()
		ends := []*conn{s.pair(shape{}), s.pair(shape{})}
		s.meet()
		for i, which := range sharedOrder {
			c := ends[which]
			fill(c.memory.mem[:64], uint64(i))
			s.must(c.ep.Send(1, c.sge(0, 64), 0))
			c.done(nd.Success, 1)
		}
	}, passive: func(s *side) {
		s.needShared()
		q := s.shared(0)
		ends := []*conn{s.pair(onShared(q)), s.pair(onShared(q))}
		memory := ends[0].memory
		for i := range sharedOrder {
			s.must(q.Receive(uint64(i), memory.sge(i*64, 64)))
		}
		s.meet()
		for i, which := range sharedOrder {
			ends[which].received(nd.Success, uint64(i))
			s.holds(memory.mem[i*64:(i+1)*64], uint64(i))
		}
		for _, c := range ends {
			s.empty(c.rcq)
		}
	}},
}

// sharedOrder says which endpoint takes the messages of C243, one after the other.
var sharedOrder = []int{0, 1, 1, 0, 1, 0, 0, 1}

package ndtest

import (
	"time"

	"github.com/softnd/softnd/nd"
)

// skipUnlessSharedReceive skips the row for an adapter without shared receive queues, which has to say so.
func (s *side) skipUnlessSharedReceive() {
	if s.info.MaxSharedReceiveQueueDepth == 0 {
		_, err := s.ad.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: 16, MaxSGE: 1})
		s.want(nd.NotSupported, err)
		s.skipf("the adapter has no shared receive queues")
	}
}

// newSharedQueue creates a shared receive queue.
func (s *side) newSharedQueue(threshold int) nd.SharedReceiveQueue {
	q, err := s.ad.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: 16, MaxSGE: 4, Threshold: threshold})
	s.must(err)
	s.cleanup(func() { q.Close() })
	return q
}

// sharedReceiveOptions is the shape of an endpoint that takes its receives from q.
func sharedReceiveOptions(q nd.SharedReceiveQueue) connOptions {
	return connOptions{SplitCQs: true, Endpoint: nd.EndpointConfig{SharedReceive: q}}
}

var sharedScenarios = []scenario{
	{id: "C241", title: "a message waits for a receive of a shared queue (2 x ReceiveTimeout), without limit", active: func(s *side) {
		s.skipUnlessSharedReceive()
		c := s.pair(connOptions{})
		fill(c.memory.mem[:100], 1)
		s.must(c.ep.Send(1, c.sge(0, 100), 0))
		s.barrier()
		c.wantResult(nd.Success, 1)
		c.receiveAny(1)
		s.barrier()
		s.must(c.ep.Send(2, nil, 0))
		c.wantResult(nd.Success, 2)
		c.wantReceive(nd.Success, 0)
	}, passive: func(s *side) {
		s.skipUnlessSharedReceive()
		q := s.newSharedQueue(0)
		c := s.pair(sharedReceiveOptions(q))
		s.barrier()
		time.Sleep(2 * s.ReceiveTimeout) // the row is about this wait
		s.wantEmpty(c.rcq)
		s.must(q.Receive(7, c.sge(0, 200)))
		if r := c.wantReceive(nd.Success, 7); r.BytesTransferred != 100 {
			s.errorf("%+v", r)
		}
		s.wantPattern(c.memory.mem[:100], 1)
		s.must(q.Receive(8, nil))
		s.barrier()
		c.wantReceive(nd.Success, 8)
		s.must(c.ep.Send(9, nil, 0))
		c.wantResult(nd.Success, 9)
	}},

	{id: "C242", title: "Notify of a shared queue returns when fewer receives than the threshold are left", active: func(s *side) {
		s.skipUnlessSharedReceive()
		s.pair(connOptions{}).sendOnDemand(3)
	}, passive: func(s *side) {
		s.skipUnlessSharedReceive()
		q := s.newSharedQueue(4)
		c := s.pair(sharedReceiveOptions(q))
		for i := range uint64(6) {
			s.must(q.Receive(i, nil))
		}
		low := s.async(func() error { return q.Notify(s.ctx) })
		for i := range uint64(3) {
			s.wantPending(low)
			s.barrier()
			c.wantReceive(nd.Success, i)
		}
		s.must(s.await(low))
	}},

	{id: "C243", title: "results of a shared queue go to the endpoint that took the receive", active: func(s *side) {
		s.skipUnlessSharedReceive()
		ends := []*conn{s.pair(connOptions{}), s.pair(connOptions{})}
		s.barrier()
		for i, which := range sharedOrder {
			c := ends[which]
			fill(c.memory.mem[:64], uint64(i))
			s.must(c.ep.Send(1, c.sge(0, 64), 0))
			c.wantResult(nd.Success, 1)
		}
	}, passive: func(s *side) {
		s.skipUnlessSharedReceive()
		q := s.newSharedQueue(0)
		ends := []*conn{s.pair(sharedReceiveOptions(q)), s.pair(sharedReceiveOptions(q))}
		memory := ends[0].memory
		for i := range sharedOrder {
			s.must(q.Receive(uint64(i), memory.sge(i*64, 64)))
		}
		s.barrier()
		for i, which := range sharedOrder {
			ends[which].wantReceive(nd.Success, uint64(i))
			s.wantPattern(memory.mem[i*64:(i+1)*64], uint64(i))
		}
		for _, c := range ends {
			s.wantEmpty(c.rcq)
		}
	}},
}

// sharedOrder says which endpoint takes the messages of C243, one after the other.
var sharedOrder = []int{0, 1, 1, 0, 1, 0, 0, 1}

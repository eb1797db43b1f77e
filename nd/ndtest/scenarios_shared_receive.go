package ndtest

import (
	"time"

	"github.com/softnd/softnd/nd"
)

// skipUnlessSharedReceive skips the row if the adapter has no shared receive queues. Creating one must then
// fail with NotSupported.
func (s *side) skipUnlessSharedReceive() {
	if s.info.MaxSharedReceiveQueueDepth == 0 {
		_, err := s.ad.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: 16, MaxSGE: 1})
		s.want(nd.NotSupported, err)
		s.skipf("the adapter has no shared receive queues (MaxSharedReceiveQueueDepth is 0)")
	}
}

// newSharedQueue creates a shared receive queue.
func (s *side) newSharedQueue(threshold int) nd.SharedReceiveQueue {
	q, err := s.ad.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: 16, MaxSGE: 4, Threshold: threshold})
	s.must(err)
	s.cleanup(func() { q.Close() })
	return q
}

// sharedReceiveOptions describes an endpoint that takes its Receives from q.
func sharedReceiveOptions(q nd.SharedReceiveQueue) connOptions {
	return connOptions{SplitCQs: true, Endpoint: nd.EndpointConfig{SharedReceive: q}}
}

var sharedScenarios = []scenario{
	{id: "C241", title: "a message waits for a Receive of a shared queue without limit (tested: 2 x ReceiveTimeout)", timed: true, active: func(s *side) {
		s.skipUnlessSharedReceive()
		c := s.pair(connOptions{})
		fill(c.memory.mem[:100], 1)
		s.must(c.ep.Send(1, c.sge(0, 100), 0))
		s.barrier()
		c.wantResult(nd.Success, 1)
		c.receiveAny(1)
		s.barrier()
		s.must(c.ep.Send(2, nd.SGL{}, 0))
		c.wantResult(nd.Success, 2)
		c.wantReceive(nd.Success, 0)
	}, passive: func(s *side) {
		s.skipUnlessSharedReceive()
		q := s.newSharedQueue(0)
		c := s.pair(sharedReceiveOptions(q))
		s.barrier()
		time.Sleep(2 * s.ReceiveTimeout) // the time that the row tests
		s.wantEmpty(c.rcq)
		s.must(q.Receive(7, c.sge(0, 200)))
		if r := c.wantReceive(nd.Success, 7); r.BytesTransferred != 100 {
			s.errorf("result %+v, want 100 bytes", r)
		}
		s.wantPattern(c.memory.mem[:100], 1)
		s.must(q.Receive(8, nd.SGL{}))
		s.barrier()
		c.wantReceive(nd.Success, 8)
		s.must(c.ep.Send(9, nd.SGL{}, 0))
		c.wantResult(nd.Success, 9)
	}},

	{id: "C242", title: "Notify of a shared queue returns when it has fewer Receives than the threshold", active: func(s *side) {
		s.skipUnlessSharedReceive()
		s.pair(connOptions{}).sendOnDemand(3)
	}, passive: func(s *side) {
		s.skipUnlessSharedReceive()
		q := s.newSharedQueue(4)
		c := s.pair(sharedReceiveOptions(q))
		for i := range uint64(6) {
			s.must(q.Receive(i, nd.SGL{}))
		}
		low := s.async(func() error { return q.Notify(s.ctx) })
		for i := range uint64(3) {
			s.wantPending(low)
			s.barrier()
			c.wantReceive(nd.Success, i)
		}
		s.must(s.await(low))
	}},

	{id: "C243", title: "the result of a shared Receive goes to the endpoint that took the Receive", active: func(s *side) {
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

// sharedOrder gives the endpoint of each message of C243, in order.
var sharedOrder = []int{0, 1, 1, 0, 1, 0, 0, 1}

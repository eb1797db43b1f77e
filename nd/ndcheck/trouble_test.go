//go:build linux

package ndcheck_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
)

// troubled are programs that see the end of a connection or of a wait, and later break a rule about objects that they
// leave behind.
var troubled = map[string]struct {
	rule  string // "" = the program may do that
	roles [2]func(s *side)
}{
	// The end of a connection is no failure.
	"it has flushed another endpoint": {"N501", [2]func(s *side){
		func(s *side) { s.second(); s.barrier() },
		func(s *side) {
			ep := s.second()
			s.must(ep.Receive(1, nd.SGL{}))
			s.must(ep.Flush(s.ctx))
			s.mustBe(s.recv, nd.Canceled)
			s.leaveResult()
			s.barrier()
		}}},
	"the peer has disconnected": {"N602", [2]func(s *side){
		func(s *side) { s.must(s.second().Connector().Disconnect(s.ctx)); s.barrier() },
		func(s *side) {
			ep := s.second()
			s.must(ep.Receive(1, nd.SGL{}))
			s.must(ep.Connector().NotifyDisconnect(s.ctx))
			s.must(ep.Connector().Disconnect(s.ctx))
			s.mustBe(s.recv, nd.Canceled)
			s.leaveRequest()
			s.barrier()
		}}},
	// After a failure it goes on.
	"a failure, and it goes on": {"N602", [2]func(s *side){
		func(s *side) { s.must(s.second().Close()); s.barrier() },
		func(s *side) {
			s.failure()
			s.bind(0, 64, nd.AllowRead)
			s.leaveRequest()
			s.barrier()
		}}},
	"a failure, and deferred requests": {"N505", [2]func(s *side){
		func(s *side) { s.must(s.second().Close()); s.barrier() },
		func(s *side) {
			s.failure()
			s.bind(0, 64, nd.AllowRead)
			s.must(s.ep.Send(1, nd.SGL{}, nd.Defer))
			s.must(s.ep.Close())
			s.barrier()
		}}},
	"a wait without a result, and it goes on": {"N501", [2]func(s *side){
		func(s *side) { s.barrier() },
		func(s *side) {
			s.waitInVain(s.init)
			s.bind(0, 64, nd.AllowRead)
			s.leaveResult()
			s.barrier()
		}}},
	"a wait without a result, and another one": {"N601", [2]func(s *side){
		func(s *side) { s.barrier(); s.must(s.ep.Send(1, nd.SGL{}, 0)); s.done(); s.barrier() },
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{})) // before the wait
			s.waitInVain(s.recv)
			s.barrier()
			s.received()
			s.must(s.job.Adapter().Close(s.ctx))
			s.barrier()
			s.must(s.job.Close())
		}}},
	"the queue is closed during a wait": {"N602", [2]func(s *side){
		func(s *side) { s.barrier() },
		func(s *side) {
			q, err := s.job.Adapter().CreateCompletionQueue(s.ctx, 8)
			s.must(err)
			ended := make(chan error)
			go func() { ended <- q.Notify(s.ctx, nd.NotifyAny) }()
			time.Sleep(20 * time.Millisecond) // the wait begins
			s.must(q.Close())
			if <-ended == nil {
				s.must(errors.New("the closed queue has a result"))
			}
			s.leaveRequest()
			s.barrier()
		}}},

	// After a failure it gives up everything, also what has not failed.
	"a failure, and a result is left": {"", [2]func(s *side){
		func(s *side) { s.must(s.second().Close()); s.barrier() },
		func(s *side) { s.failure(); s.leaveResult(); s.barrier() }}},
	"a failure, and a request is left": {"", [2]func(s *side){
		func(s *side) { s.must(s.second().Close()); s.barrier() },
		func(s *side) { s.failure(); s.leaveRequest(); s.barrier() }}},
	"a failure, and objects are left": {"", [2]func(s *side){
		func(s *side) { s.must(s.second().Close()); s.barrier() },
		func(s *side) {
			s.failure()
			s.must(s.job.Adapter().Close(s.ctx))
			s.barrier()
			s.must(s.job.Close())
		}}},
	"an exchange fails, and a request is left": {"", [2]func(s *side){
		func(s *side) {
			if _, err := s.job.Exchange(s.ctx, nil); nd.StatusOf(err) != nd.InvalidDeviceState {
				s.must(fmt.Errorf("the exchange of one rank: %v", err))
			}
			s.leaveRequest()
			s.tell()
		},
		func(s *side) {
			if err := s.job.Barrier(s.ctx); nd.StatusOf(err) != nd.InvalidDeviceState {
				s.must(fmt.Errorf("the barrier of the other: %v", err))
			}
			s.hear()
		}}},
	// The first of two barriers of the exchange has told the owner that the Writes are done.
	"an exchange fails, and the owner ends the window": {"", [2]func(s *side){
		func(s *side) {
			w := s.bind(0, 64, nd.AllowWrite)
			s.give(w.Descriptor())
			s.tell() // so that it learns nothing by give after the Write
			if _, err := s.job.Exchange(s.ctx, nil); nd.StatusOf(err) != nd.InvalidDeviceState {
				s.must(fmt.Errorf("the exchange of one rank: %v", err))
			}
			s.must(w.Close(s.ctx))
			s.hear()
		},
		func(s *side) {
			d := s.get()
			s.hear()
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
			s.done()
			if err := s.job.Barrier(s.ctx); nd.StatusOf(err) != nd.InvalidDeviceState {
				s.must(fmt.Errorf("the barrier of the other: %v", err))
			}
			s.tell()
		}}},
	// Requests from before the failure may succeed, which does not mean that it goes on.
	"a failure, and older results": {"", [2]func(s *side){
		func(s *side) { s.must(s.second().Close()); s.barrier() },
		func(s *side) {
			w, err := s.job.Adapter().CreateMemoryWindow(s.ctx)
			s.must(err)
			s.must(s.ep.Bind(1, s.mr, w, s.mr.Bytes(), nd.AllowRead))
			s.failure()
			s.done()
			s.leaveRequest()
			s.barrier()
		}}},
	// It goes on, but without the endpoint that has failed, and without the queue that it has waited for in vain.
	"results of a failed endpoint": {"", [2]func(s *side){
		func(s *side) {
			ep := s.second()
			s.barrier()
			s.must(ep.Close())
			s.barrier()
			s.must(s.ep.Send(1, nd.SGL{}, 0))
			s.done()
			s.barrier()
		},
		func(s *side) {
			ep := s.second()
			w, err := s.job.Adapter().CreateMemoryWindow(s.ctx)
			s.must(err)
			s.must(ep.Bind(1, s.mr, w, s.mr.Bytes(), nd.AllowRead))
			s.must(ep.Receive(1, nd.SGL{}))
			s.barrier()
			s.mustBe(s.recv, nd.Canceled)
			s.must(s.ep.Receive(2, nd.SGL{}))
			s.barrier()
			s.received()
			s.must(s.init.Close())
			s.barrier()
		}}},
	"results of an ended wait": {"", [2]func(s *side){
		func(s *side) {
			s.barrier()
			s.must(s.ep.Send(1, nd.SGL{}, 0))
			s.done()
			s.barrier()
		},
		func(s *side) {
			s.waitInVain(s.init)
			s.must(s.ep.Receive(2, nd.SGL{}))
			s.barrier()
			s.received()
			s.leaveResult()
			s.barrier()
		}}},
}

// mustBe takes a result, which must have a status.
func (s *side) mustBe(q nd.CompletionQueue, want nd.Status) {
	if r := s.result(q); r.Status != want {
		s.must(errors.New("the result is " + r.Status.String()))
	}
}

// failure takes the failed result of a second endpoint, which the peer closes without a disconnection.
func (s *side) failure() {
	s.must(s.second().Receive(1, nd.SGL{}))
	s.mustBe(s.recv, nd.Canceled)
}

// waitInVain waits for a result that does not come.
func (s *side) waitInVain(q nd.CompletionQueue) {
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := q.Wait(ctx, make([]nd.Result, 1)); err == nil {
		s.must(errors.New("the queue has a result"))
	}
}

// leaveResult closes the initiator queue, which has a result.
func (s *side) leaveResult() {
	w, err := s.job.Adapter().CreateMemoryWindow(s.ctx)
	s.must(err)
	s.must(s.ep.Bind(1, s.mr, w, s.mr.Bytes(), nd.AllowRead))
	s.must(s.init.Close())
}

// leaveRequest closes the endpoint, which has a request in flight.
func (s *side) leaveRequest() {
	s.must(s.ep.Send(1, nd.SGL{}, 0))
	s.must(s.ep.Close())
}

// expectRule reports findings that are not one of a rule; "" = there must be none.
func expectRule(t *testing.T, rule string, found []ndcheck.Finding) {
	t.Helper()
	if (rule != "") != (len(found) == 1) || len(found) > 0 && found[0].Rule.ID != rule {
		t.Errorf("the rule is %q: %v", rule, found)
	}
}

func TestTrouble(t *testing.T) {
	for name, p := range troubled {
		t.Run(name, func(t *testing.T) {
			expectRule(t, p.rule, watch(t, nd.EndpointConfig{}, 64, p.roles[0], p.roles[1]))
		})
	}
}

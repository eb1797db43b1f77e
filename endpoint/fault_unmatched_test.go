package endpoint

import (
	"context"
	"testing"
	"time"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// unmatched checks that no rule of a side has matched an operation.
func (s *side) unmatched() {
	s.t.Helper()
	for i := range s.plan.Rules() {
		if n, _ := s.plan.Counts(i); n != 0 {
			s.t.Errorf("rule %d of %s matched %d operations, want none", i+1, s.name, n)
		}
	}
}

// TestFaultOnlyAfterSuccess: a request that fails by itself has no phase complete.
func TestFaultOnlyAfterSuccess(t *testing.T) {
	rule := on("write", faults.Rule{Phase: "complete", Action: "fail", Status: nd.IOTimeout})
	runEach(t, faultSetups(), func(t *testing.T, s setup) {
		p := newFaultyPair(t, s, []faults.Rule{rule}, nil)
		far := p.b.memory
		far.Token++
		p.a.must(order{Do: doWrite, Parts: mine(0, 100), Far: far})
		p.a.expect(initiatorQueue, failure(nd.RequestWrite, 0, nd.AccessViolation))
		p.a.unmatched()
	})
}

// TestFaultOnlyAfterCheck: neither has a Read whose payload check fails.
func TestFaultOnlyAfterCheck(t *testing.T) {
	corrupt := on("read", faults.Rule{Action: "corrupt", Nth: 2})
	for _, rule := range []faults.Rule{{Action: "delay", Delay: time.Millisecond}, {Action: "fail", Status: nd.IOTimeout}, {Action: "drop"}} {
		rule.Phase, rule.Nth = "complete", 2
		runEach(t, faultSetups(), func(t *testing.T, s setup) {
			s.Both = checkedPayloads
			p := newFaultyPair(t, s, []faults.Rule{corrupt, on("read", rule)}, nil)
			p.a.must(order{Do: doRead, Parts: mine(0, 100), Far: p.b.memory})
			p.a.expect(initiatorQueue, success(nd.RequestRead, 0, 100))
			p.a.must(order{Do: doRead, Context: 1, Parts: mine(0, 100), Far: p.b.memory})
			p.a.expect(initiatorQueue, failure(nd.RequestRead, 1, nd.DataChecksumError))
			if n, fired := p.a.plan.Counts(1); n != 1 || fired != 0 {
				t.Errorf("%s: the rule matched %d operations and acted %d times, want 1 and 0", rule.Action, n, fired)
			}
		})
	}
}

// TestFaultOverrunMovesNothing: a rule that overruns the queue before a Write prevents the transfer.
func TestFaultOverrunMovesNothing(t *testing.T) {
	onFaulty(t, []faults.Rule{on("write", faults.Rule{Action: "overrun"})}, func(t *testing.T, p *pair) {
		p.a.must(order{Do: doFillByte, Len: 8, N: 1})
		p.b.must(order{Do: doFillByte, Len: 8, N: 7})
		p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory})
		p.ended(nd.InternalError)
		if p.b.must(order{Do: doLongestRun, Len: 8, N: 7}).N != 8 {
			t.Error("it has written")
		}
	})
}

// TestFaultCorruptsNoFailedRead: the sink of a Read that fails does not change.
func TestFaultCorruptsNoFailedRead(t *testing.T) {
	runEach(t, faultSetups(), func(t *testing.T, s setup) {
		p := newFaultyPair(t, s, []faults.Rule{on("read", faults.Rule{Action: "corrupt"})}, nil)
		p.a.must(order{Do: doFillByte, Len: 8, N: 7})
		far := p.b.memory
		far.Token++
		p.a.must(order{Do: doRead, Parts: mine(0, 8), Far: far})
		p.a.expect(initiatorQueue, failure(nd.RequestRead, 0, nd.AccessViolation))
		if p.a.must(order{Do: doLongestRun, Len: 8, N: 7}).N != 8 {
			t.Error("the sink has changed")
		}
	})
}

// TestFaultNeedsMessage: a Receive that fails because the message is too long has received none.
func TestFaultNeedsMessage(t *testing.T) {
	for _, n := range []int{40, 1000} { // in a ring entry, and not
		runEach(t, faultSetups(), func(t *testing.T, s setup) {
			p := newFaultyPair(t, s, nil, []faults.Rule{on("receive", faults.Rule{Action: "fail", Status: nd.IOTimeout})})
			p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
			p.a.must(order{Do: doSend, Parts: mine(0, n)})
			p.b.expect(receiveQueue, failure(nd.RequestReceive, 0, nd.BufferOverflow))
			p.b.unmatched()
		})
	}
}

// TestFaultNeedsConnection: a call that fails because there is no connection meets no rule.
func TestFaultNeedsConnection(t *testing.T) {
	rule := faults.Rule{Operations: []string{"complete-connect", "accept", "disconnect"}, Action: "fail", Status: nd.IOTimeout}
	p := newFaultyPair(t, setup{Unwired: true}, []faults.Rule{rule}, nil)
	c, ep := p.a.connectorAt(0), p.a.endpointAt(0)
	for what, err := range map[string]error{
		"complete connect": c.CompleteConnect(t.Context()), "accept": c.Accept(t.Context(), ep, nd.ConnectParams{}), "disconnect": c.Disconnect(t.Context()),
	} {
		if s := nd.StatusOf(err); s == nd.Success || s == nd.IOTimeout {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.a.unmatched()
}

// TestFaultDelayOfCallIsCanceled: the context of a call ends its delay.
func TestFaultDelayOfCallIsCanceled(t *testing.T) {
	p := newFaultyPair(t, setup{Unwired: true}, []faults.Rule{on("create-window", faults.Rule{Action: "delay", Delay: time.Hour})}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := p.a.adapter.CreateMemoryWindow(ctx)
		result <- err
	}()
	proctest.Eventually(t, "the delay begins", func() bool {
		_, fired := p.a.plan.Counts(0)
		return fired == 1
	})
	cancel()
	if err := proctest.Receive(t, "the call returns", result); nd.StatusOf(err) != nd.Canceled {
		t.Errorf("%v", err)
	}
}

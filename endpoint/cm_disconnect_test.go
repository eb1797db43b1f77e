package endpoint

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

var disconnect = order{Do: doDisconnect}

// goodEnd disconnects both sides and requires success of both.
func (p *pair) goodEnd(first, second *side) {
	p.a.t.Helper()
	done := first.start(disconnect)
	second.must(disconnect)
	if r := <-done; r.Status != nd.Success {
		p.a.t.Fatalf("%s: disconnect: %s", first.name, r.Text)
	}
}

func TestDisconnect(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		for _, x := range []*side{p.a, p.b} {
			x.must(order{Do: doReceive, Context: 1, Parts: mine(0, 100)})
			x.must(order{Do: doReceive, Context: 2})
		}
		p.a.must(order{Do: doSend, Context: 3, Parts: mine(0, 100)})
		p.a.expect(initiatorQueue, success(nd.RequestSend, 3, 100))
		p.goodEnd(p.a, p.b)
		p.b.expect(receiveQueue, success(nd.RequestReceive, 1, 100), failure(nd.RequestReceive, 2, nd.Canceled))
		p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled), failure(nd.RequestReceive, 2, nd.Canceled))
		for _, x := range []*side{p.a, p.b} {
			x.must(order{Do: doNotify})
			x.refuse(nd.ConnectionInvalid, disconnect)
			x.refuse(nd.ConnectionDisconnected, order{Do: doWhy})
			// The endpoints cannot be connected again.
			x.refuse(nd.ConnectionActive, order{Do: doConnect, Addr: p.b.must(order{Do: doListen}).Addr})
			x.refuse(nd.ConnectionInvalid, order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory})
			x.refuse(nd.ConnectionInvalid, order{Do: doSend})
			x.must(order{Do: doReceive, Context: 9})
			x.expect(receiveQueue, failure(nd.RequestReceive, 9, nd.Canceled))
		}
	})
}

// TestDisconnectByPeerOnly: the peer's Disconnect is a notice. Requests outstanding here
// stay outstanding.
func TestDisconnectByPeerOnly(t *testing.T) {
	onEvery(t, setup{Both: sideOptions{DisconnectTimeout: proctest.Timeout}}, func(t *testing.T, p *pair) {
		p.b.must(order{Do: doReceive, Context: 1, Parts: mine(0, 100)})
		notice := p.b.start(order{Do: doNotify})
		left := p.a.start(disconnect)
		if r := <-notice; r.Status != nd.Success {
			t.Fatal(r.Text)
		}
		p.b.refuse(nd.ConnectionDisconnected, order{Do: doWhy})
		p.b.must(order{Do: doNotify})
		p.b.nothing(receiveQueue)
		p.b.must(order{Do: doReceive, Context: 2})
		p.b.must(order{Do: doWrite, Context: 3, Parts: mine(0, 8), Far: p.a.memory})
		p.b.must(order{Do: doSend, Context: 4})
		p.b.expect(initiatorQueue, failure(nd.RequestWrite, 3, nd.Canceled), failure(nd.RequestSend, 4, nd.Canceled))
		p.b.nothing(receiveQueue)
		select {
		case r := <-left:
			t.Errorf("disconnect of one side alone has ended: %s", r.Text)
		default:
		}
		p.b.must(disconnect)
		if r := <-left; r.Status != nd.Success {
			t.Error(r.Text)
		}
		p.b.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled), failure(nd.RequestReceive, 2, nd.Canceled))
	})
}

func TestDisconnectTimeout(t *testing.T) {
	const timeout = 50 * time.Millisecond
	for _, s := range everySetup(setup{Both: sideOptions{DisconnectTimeout: timeout}}) {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, s)
			p.b.must(order{Do: doReceive, Context: 1})
			began := time.Now()
			r := p.a.refuse(nd.IOTimeout, disconnect)
			if took := time.Since(began); took < timeout {
				t.Errorf("the peer was given %v, want %v at least", took, timeout)
			}
			if !strings.Contains(r.Text, "within "+timeout.String()) {
				t.Errorf("error %q, want it to name the time limit %v", r.Text, timeout)
			}
			p.b.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
			if p.b.process == nil {
				if err := p.b.endpointAt(0).Err(); !errors.Is(err, nd.ConnectionDisconnected) || !strings.Contains(err.Error(), "ended before this side did") {
					t.Errorf("the cause is %v, want it not to advise a Disconnect", err)
				}
			}
			p.b.refuse(nd.ConnectionAborted, disconnect)
			p.b.refuse(nd.ConnectionInvalid, disconnect)
			p.a.refuse(nd.ConnectionInvalid, disconnect)
		})
	}
}

// TestLateDisconnect: the peer disconnects after more than two seconds, as a process on busy cores may.
func TestLateDisconnect(t *testing.T) {
	t.Parallel() // it waits for time-outs
	p := newPair(t, setup{})
	done := p.a.start(order{Do: doDisconnect})
	time.Sleep(2500 * time.Millisecond)
	p.b.must(order{Do: doDisconnect})
	if r := <-done; r.Status != nd.Success {
		t.Errorf("disconnect returns %v (%s)", r.Status, r.Text)
	}
}

// TestDisconnectTimeoutInOtherProcess: the limit reaches the other process of a pair.
func TestDisconnectTimeoutInOtherProcess(t *testing.T) {
	t.Parallel()
	const timeout = 50 * time.Millisecond
	p := newPair(t, setup{Processes: true, Both: sideOptions{DisconnectTimeout: timeout}})
	if r := p.b.refuse(nd.IOTimeout, disconnect); !strings.Contains(r.Text, "within "+timeout.String()) {
		t.Errorf("error %q, want it to name the time limit %v", r.Text, timeout)
	}
}

// TestDisconnectDeliversData: data whose send has succeeded arrives, however the connection ends, even
// if the receiver has not run in between.
func TestDisconnectDeliversData(t *testing.T) {
	t.Parallel()
	ends := map[string]order{
		"disconnect":      disconnect,
		"flush":           {Do: doFlush},
		"close endpoint":  {Do: doCloseEndpoint},
		"close connector": {Do: doCloseLink},
	}
	for name, end := range ends {
		for _, private := range []bool{false, true} {
			s := setup{Processes: true, Private: [2]bool{private, false}, Both: sideOptions{DisconnectTimeout: proctest.Timeout}}
			t.Run(fmt.Sprintf("%s/%v", name, s), func(t *testing.T) {
				p := newPair(t, s)
				at, sizes := 0, []int{49, 5000, 70_000, 3000, 0, 8, 48, 1} // a large message behind a small one would wait for the receiver
				var sends, receives []nd.Result
				for i, n := range sizes {
					p.b.must(order{Do: doReceive, Context: uint64(i), Parts: mine(at, n+100)})
					at += n + 100
					receives = append(receives, success(nd.RequestReceive, uint64(i), n))
					sends = append(sends, success(nd.RequestSend, uint64(i), n))
				}
				p.b.must(order{Do: doReceive, Context: 99, Parts: mine(at, 100)}) // no small receive, for which a sender would wait
				p.a.fill(0, 0, 100_000, 7)
				p.b.process.Stop()
				for i, n := range sizes {
					p.a.must(order{Do: doSend, Context: uint64(i), Parts: mine(0, n)})
				}
				p.a.expect(initiatorQueue, sends...)
				ended := p.a.start(end)
				if end.Do != doDisconnect {
					<-ended
				} else {
					time.Sleep(time.Millisecond) // so that it has usually begun
				}
				p.b.process.Resume()
				p.b.expect(receiveQueue, receives...)
				at = 0
				for _, n := range sizes {
					if p.b.sum(0, at, n) != p.a.sum(0, 0, n) {
						t.Errorf("message of %d bytes: the data differ", n)
					}
					at += n + 100
				}
				if end.Do == doDisconnect {
					p.b.must(disconnect)
					if r := <-ended; r.Status != nd.Success {
						t.Error(r.Text)
					}
				}
				p.b.expect(receiveQueue, failure(nd.RequestReceive, 99, nd.Canceled))
			})
		}
	}
}

// TestDisconnectDuringTransfers: when Disconnect returns, no transfer uses this process's memory.
func TestDisconnectDuringTransfers(t *testing.T) {
	t.Parallel()
	const n, rounds = 3*window.ChunkSize + 3000, 6 // a Disconnect can come between two chunks
	onEvery(t, setup{Both: sideOptions{Size: n}}, func(t *testing.T, p *pair) {
		p.b.fill(0, 0, n, 3)
		var fates []<-chan reply
		for range rounds {
			p.b.must(order{Do: doWrite, Parts: mine(0, n), Far: p.a.memory, Flags: nd.SilentSuccess})
			p.b.must(order{Do: doRead, Parts: mine(0, n), Far: p.a.memory, Flags: nd.SilentSuccess})
		}
		fates = append(fates, p.b.start(disconnect))
		p.a.must(disconnect)
		p.a.fill(0, 0, n, 4)
		before := p.a.sum(0, 0, n)
		for _, f := range fates {
			if r := <-f; r.Status != nd.Success {
				t.Error(r.Text)
			}
		}
		if p.a.sum(0, 0, n) != before {
			t.Error("memory has changed after the disconnect")
		}
		p.a.must(order{Do: doDeregister})
	})
}

// TestDisconnectAfterAbort: after an abort Disconnect reports the abort, once.
func TestDisconnectAfterAbort(t *testing.T) {
	ends := map[string]func(p *pair){
		"peer's flush":           func(p *pair) { p.b.must(order{Do: doFlush}) },
		"peer's endpoint closed": func(p *pair) { p.b.must(order{Do: doCloseEndpoint}) },
		"peer's connector closed": func(p *pair) {
			p.b.must(order{Do: doCloseLink})
		},
		"peer gone": func(p *pair) { p.b.must(order{Do: doCloseProvider}) },
		"own flush": func(p *pair) { p.a.must(order{Do: doFlush}) },
		"own violation": func(p *pair) {
			p.a.must(order{Do: doWrite, Parts: mine(0, 8)})
			p.a.results(initiatorQueue, 1)
		},
		"peer's violation": func(p *pair) {
			p.b.must(order{Do: doWrite, Parts: mine(0, 8)})
			p.b.results(initiatorQueue, 1)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			for _, s := range someSetups(setup{}) {
				t.Run(s.String(), func(t *testing.T) {
					p := newPair(t, s)
					p.a.must(order{Do: doReceive, Context: 1})
					end(p)
					p.a.must(order{Do: doNotify})
					p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
					p.a.refuse(nd.ConnectionAborted, disconnect)
					p.a.refuse(nd.ConnectionInvalid, disconnect)
				})
			}
		})
	}
}

// TestAcceptOfConnectionClosedAtOnce: the passive side's Accept succeeds although the active side has disconnected
// by then, and both disconnect gracefully.
func TestAcceptOfConnectionClosedAtOnce(t *testing.T) {
	const rounds = 50
	for _, s := range []setup{{Unwired: true}, {Unwired: true, Processes: true}} {
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			addr := p.b.must(order{Do: doListen}).Addr
			for i := range rounds {
				if i > 0 {
					p.a.must(order{Do: doEndpoint})
					p.b.must(order{Do: doEndpoint})
				}
				p.b.must(order{Do: doReceive, Endpoint: i, Context: uint64(i), Parts: mine(0, 60)})
				accepted := p.b.start(order{Do: doAccept, Endpoint: i})
				p.a.must(order{Do: doConnect, Endpoint: i, Addr: addr})
				p.a.must(order{Do: doComplete, Endpoint: i})
				p.a.must(order{Do: doSend, Endpoint: i, Parts: mine(0, 4)})
				p.a.results(initiatorQueue, 1)
				left := p.a.start(order{Do: doDisconnect, Endpoint: i})
				if r := <-accepted; r.Status != nd.Success {
					t.Fatalf("round %d: accept: %s", i, r.Text)
				}
				p.b.must(order{Do: doDisconnect, Endpoint: i})
				if r := <-left; r.Status != nd.Success {
					t.Fatalf("round %d: disconnect: %s", i, r.Text)
				}
				if r := p.b.results(receiveQueue, 1)[0]; r.Status != nd.Success || r.RequestContext != uint64(i) {
					t.Fatalf("round %d: %v", i, r)
				}
			}
		})
	}
}

// TestDisconnectCanceled: a canceled Disconnect stops waiting, and the disconnect continues.
func TestDisconnectCanceled(t *testing.T) {
	p := newPair(t, setup{Both: sideOptions{DisconnectTimeout: proctest.Timeout}})
	p.a.refuse(nd.Canceled, order{Do: doNotify, Timeout: time.Millisecond})
	p.a.refuse(nd.Canceled, order{Do: doDisconnect, Timeout: time.Millisecond})
	p.b.must(order{Do: doNotify})
	p.b.must(disconnect)
	p.a.must(order{Do: doNotify})
}

// TestDisconnectCanceledStillTimesOut: the peer's time to disconnect stays limited after the call
// was canceled, even if its context had ended before the call.
func TestDisconnectCanceledStillTimesOut(t *testing.T) {
	for _, canceled := range []time.Duration{time.Nanosecond, time.Millisecond} {
		p := newPair(t, setup{Both: sideOptions{DisconnectTimeout: 30 * time.Millisecond}})
		p.b.must(order{Do: doReceive, Context: 1})
		awaitEngineSleeps(t, p.a)
		// On a slow machine the time-out can end before the context's end is noticed.
		if r := p.a.do(order{Do: doDisconnect, Timeout: canceled}); r.Status != nd.Canceled && r.Status != nd.IOTimeout {
			t.Errorf("disconnect returns %v (%s), want canceled or an I/O timeout", r.Status, r.Text)
		}
		p.b.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
		p.a.must(order{Do: doNotify})
	}
}

// TestNotifyDisconnectEndsOnClose: Connector.Close ends NotifyDisconnect.
func TestNotifyDisconnectEndsOnClose(t *testing.T) {
	p := newPair(t, setup{})
	notice := p.a.start(order{Do: doNotify})
	other := p.b.start(order{Do: doNotify})
	time.Sleep(time.Millisecond) // so that they usually wait
	p.a.must(order{Do: doCloseLink})
	if r := <-notice; r.Status != nd.Canceled && r.Status != nd.InvalidHandle {
		t.Errorf("notice of a connector that is closed: %v (%s)", r.Status, r.Text)
	}
	if r := <-other; r.Status != nd.Success {
		t.Errorf("notice at the peer: %v (%s)", r.Status, r.Text)
	}
}

func TestNotConnectedYet(t *testing.T) {
	p := newPair(t, setup{Unwired: true})
	p.a.refuse(nd.ConnectionInvalid, disconnect)
	p.a.refuse(nd.ConnectionInvalid, order{Do: doNotify})
	p.a.refuse(nd.ConnectionInvalid, order{Do: doComplete})
	p.a.must(order{Do: doReceive, Context: 1})
	window := p.a.newWindow()
	for _, o := range []order{
		{Do: doSend}, {Do: doSendRevoking}, {Do: doWrite}, {Do: doRead},
		{Do: doBind, Window: window, Len: 8, Flags: nd.AllowRead}, {Do: doInvalidate, Window: window},
	} {
		p.a.refuse(nd.ConnectionInvalid, o)
	}
	p.a.nothing(initiatorQueue)
	p.a.nothing(receiveQueue)
	if r := p.a.do(order{Do: doWhy}); r.Status != nd.Success {
		t.Errorf("an endpoint that was never connected gives a reason: %s", r.Text)
	}
}

// A request that fails for lack of a connection names the endpoint's state and what to do about
// it.
func TestPostWithoutConnection(t *testing.T) {
	why := func(want string, err error) {
		t.Helper()
		if nd.StatusOf(err) != nd.ConnectionInvalid || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %q at its end", err, want)
		}
	}
	ep := newUnconnected(t).endpoints[0]
	why("the endpoint is not connected yet: connection invalid: post when Connect and CompleteConnect, or Accept, have returned", ep.Send(1, nd.SGL{}, 0))
	wantStatus(t, ep.Close(), nd.Success)
	why("the endpoint was closed: connection invalid: connect a new endpoint", ep.Send(1, nd.SGL{}, 0))
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		p.goodEnd(p.a, p.b)
		if got := p.a.do(order{Do: doSend}).Text; !strings.Contains(got, "the endpoint has been disconnected") || strings.Contains(got, "connect it") {
			t.Errorf("a Send after a disconnect says %q", got)
		}
	})
}

package endpoint

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// stays checks that n receives are outstanding, and that peer i's connection works: its next
// message takes the oldest, of the given context.
func (p *pair) stays(i, n int, context uint64) {
	p.a.t.Helper()
	p.queue().mu.Lock()
	got := p.queue().outstanding()
	p.queue().mu.Unlock()
	if got != uint64(n) {
		p.a.t.Errorf("%d receives are outstanding, want %d", got, n)
	}
	peer := p.peers[i]
	peer.must(order{Do: doSend, Context: 99, Parts: mine(0, 8)})
	peer.expect(initiatorQueue, success(nd.RequestSend, 99, 8))
	p.a.expect(receiveQueue, of(i, success(nd.RequestReceive, context, 8)))
}

// fails checks that a message of peer 0 ends the connection of side 0's first endpoint, and
// nothing else.
func (p *pair) fails(o order, receive, send nd.Status) {
	p.a.t.Helper()
	peer := p.b
	for context := uint64(2); context <= 3; context++ {
		p.a.must(order{Do: doReceive, Context: context, Parts: mine(0, 100)})
	}
	o.Context = 1
	peer.must(o)
	peer.must(order{Do: doSend, Context: 2})
	p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, receive))
	peer.expect(initiatorQueue, failure(nd.RequestSend, 1, send), failure(nd.RequestSend, 2, nd.Canceled))
	p.a.must(order{Do: doNotify})
	p.a.refuse(receive, order{Do: doWhy})
	p.stays(1, 2, 2)
	p.a.nothing(receiveQueue)
}

// onSomeShared runs a test with each executor once, and two peers.
func onSomeShared(t *testing.T, test func(t *testing.T, p *pair)) {
	t.Helper()
	onEach(t, append(someSetups(shared(setup{}, 2)), shared(setup{Processes: true}, 2)), test)
}

// TestSharedReceiveTooSmall: the message that took a receive it does not fit into fails, and
// with it its connection.
func TestSharedReceiveTooSmall(t *testing.T) {
	t.Parallel()
	for _, room := range []int{0, 7, 60} {
		for _, n := range []int{8, 61, 70_000} {
			if n <= room {
				continue
			}
			t.Run(fmt.Sprintf("%d for %d", n, room), func(t *testing.T) {
				onSomeShared(t, func(t *testing.T, p *pair) {
					p.a.fill(0, 0, 200_000, 1)
					before := p.a.sum(0, 100_000+room, 100_000-room)
					p.a.must(order{Do: doReceive, Context: 1, Parts: mine(100_000, room)})
					p.fails(order{Do: doSend, Parts: mine(0, n)}, nd.BufferOverflow, nd.RemoteError)
					if p.a.sum(0, 100_000+room, 100_000-room) != before {
						t.Error("bytes after the receive have changed")
					}
				})
			})
		}
	}
}

func TestSharedReceiveInvalid(t *testing.T) {
	for _, n := range []int{8, 70_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onSomeShared(t, func(t *testing.T, p *pair) {
				p.a.must(order{Do: doReceive, Context: 1, Parts: []part{{Len: n, Token: 1<<31 + 12345}}})
				p.fails(order{Do: doSend, Parts: mine(0, n)}, nd.AccessViolation, nd.RemoteError)
			})
		})
	}
}

// TestSharedReceiveInvalidates: a message may invalidate a window of its endpoint, even after a
// long wait, and no other window.
func TestSharedReceiveInvalidates(t *testing.T) {
	onEvery(t, shared(setup{}, 2), func(t *testing.T, p *pair) {
		peer, w := p.b, p.a.newWindow()
		d := p.a.bind(w, 0, 100, nd.AllowWrite)
		peer.must(order{Do: doSendRevoking, Context: 1, Parts: mine(0, 60_000), Far: d})
		peer.must(order{Do: doWrite, Context: 2, Parts: mine(0, 8), Far: p.a.memory})
		peer.nothing(initiatorQueue)
		p.a.must(order{Do: doReceive, Context: 1, Parts: mine(0, 60_000)})
		want := success(nd.RequestReceiveAndInvalidate, 1, 60_000)
		want.InvalidatedToken = d.Token
		p.a.expect(receiveQueue, want)
		peer.expect(initiatorQueue, success(nd.RequestSend, 1, 60_000), success(nd.RequestWrite, 2, 8))
		d = p.a.bind(w, 0, 100, nd.AllowWrite) // the window can be bound again

		p.a.must(order{Do: doReceive, Context: 3, Parts: mine(0, 8)})
		p.peers[1].must(order{Do: doSendRevoking, Context: 3, Far: d})
		p.a.expect(receiveQueue, of(1, failure(nd.RequestReceive, 3, nd.InvalidDeviceRequest)))
		p.peers[1].expect(initiatorQueue, failure(nd.RequestSend, 3, nd.RemoteError))
		peer.must(order{Do: doWrite, Context: 4, Parts: mine(0, 8), Far: d})
		peer.expect(initiatorQueue, success(nd.RequestWrite, 4, 8))
	})
}

// TestSharedReceiveMemoryDeregistered: a message whose receive memory is deregistered while it
// waits fails when it gets its receive.
func TestSharedReceiveMemoryDeregistered(t *testing.T) {
	p := newPair(t, shared(setup{}, 2))
	peer := p.b
	peer.must(order{Do: doSend, Context: 1, Parts: mine(0, 1000)})
	peer.must(order{Do: doDeregister})
	for context := uint64(1); context <= 2; context++ {
		p.a.must(order{Do: doReceive, Context: context, Parts: mine(0, 1000)})
	}
	p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
	peer.expect(initiatorQueue, failure(nd.RequestSend, 1, nd.AccessViolation))
	p.stays(1, 1, 2)
}

// startMessage makes the first message of peer 0, which is a process, take a receive of context 1
// and stop half-way: it stops the sender.
func (p *pair) startMessage(t *testing.T, n int) {
	t.Helper()
	peer := p.b
	peer.must(order{Do: doSend, Context: 1, Parts: mine(0, n)})
	ep := p.a.endpointAt(0).(*queuePair)
	proctest.Eventually(t, "the start of the message waits, and the sender is stopped between two copies", func() bool {
		p.queue().mu.Lock()
		waits := len(p.queue().waiting) == 1
		p.queue().mu.Unlock()
		if !waits {
			return false
		}
		peer.process.Stop()
		if ep.conn.peerQP.Hazard.Load() == 0 {
			return true
		}
		peer.process.Resume() // the end of the connection would wait for the end of the copy
		return false
	})
	for context := uint64(1); context <= 3; context++ {
		p.a.must(order{Do: doReceive, Context: context, Parts: mine(0, n)})
	}
	proctest.Eventually(t, "the message is half-way through", func() bool {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		return ep.rq.posted != ep.rq.completed && ep.resp.messageReceived > 0 && !ep.serving
	})
}

// TestSharedReceiveConnectionEndsDuringMessage: each kind of end of the connection of a message that has a
// receive cancels that receive, and leaves the others to other endpoints.
func TestSharedReceiveConnectionEndsDuringMessage(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *pair){
		"peer dies": func(p *pair) { p.b.process.kill() },
		"flush":     func(p *pair) { p.a.must(order{Do: doFlush}) },
		"close":     func(p *pair) { p.a.must(order{Do: doCloseEndpoint}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := setup{Processes: true, Private: [2]bool{false, true}, Both: sideOptions{Size: 1 << 20}}
			p := newPair(t, shared(s, 2))
			p.startMessage(t, 1<<20)
			end(p)
			p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
			p.stays(1, 2, 2)
			if peer := p.b; name != "peer dies" {
				peer.process.Resume()
				peer.expect(initiatorQueue, failure(nd.RequestSend, 1, nd.Canceled))
			}
		})
	}
}

// bothWait makes a message of each peer wait for a receive, that of peer 0 first.
func (p *pair) bothWait(t *testing.T) {
	t.Helper()
	q := p.queue()
	for i, peer := range p.peers {
		peer.must(order{Do: doSend, Context: 1, Parts: mine(0, 8)})
		proctest.Eventually(t, "its message waits", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.waiting) == i+1
		})
	}
}

// TestSharedReceiveWaitingConnectionEnds: a connection that ends while its message waits takes no receive
// from those behind it.
func TestSharedReceiveWaitingConnectionEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *pair){
		"peer dies": func(p *pair) { p.b.process.kill(); p.a.must(order{Do: doNotify}) },
		"flush":     func(p *pair) { p.a.must(order{Do: doFlush}) },
		"close":     func(p *pair) { p.a.must(order{Do: doCloseEndpoint}) },
		"peer disconnects": func(p *pair) {
			p.b.start(disconnect)
			p.a.must(order{Do: doNotify})
		},
		"disconnect": func(p *pair) {
			bye := p.b.start(disconnect)
			p.a.must(disconnect)
			if a := <-bye; a.Status != nd.Success {
				p.a.t.Error(a.Text)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, shared(setup{Processes: true}, 2))
			p.bothWait(t)
			end(p)
			for context := uint64(1); context <= 2; context++ {
				p.a.must(order{Do: doReceive, Context: context, Parts: mine(0, 8)})
			}
			p.a.expect(receiveQueue, of(1, success(nd.RequestReceive, 1, 8)))
			p.peers[1].expect(initiatorQueue, success(nd.RequestSend, 1, 8))
			p.stays(1, 1, 2)
		})
	}
}

// TestSharedReceiveGoesToNextWaiter: if an endpoint ends before it takes a receive that it waits
// for, the next one gets it.
func TestSharedReceiveGoesToNextWaiter(t *testing.T) {
	p := newPair(t, shared(setup{Processes: true}, 2))
	p.bothWait(t)
	first := p.a.endpointAt(0).(*queuePair)
	first.mu.Lock() // so that it cannot take the receive
	p.a.must(order{Do: doReceive, Context: 1, Parts: mine(0, 8)})
	p.a.endpointAt(1).(*queuePair).progress()
	p.a.nothing(receiveQueue)
	first.terminate(first.opError("test", nd.Canceled, "as asked", ""))
	first.mu.Unlock()
	p.a.expect(receiveQueue, of(1, success(nd.RequestReceive, 1, 8)))
	p.peers[1].expect(initiatorQueue, success(nd.RequestSend, 1, 8))
}

// TestSharedReceiveForgedMessages: a forged message that claims knowledge of the receives ends the
// connection, and takes none of them.
func TestSharedReceiveForgedMessages(t *testing.T) {
	for name, slot := range map[string]ring.Words{
		"placed":                                 {wire.Header(wire.SendPlaced, wire.FlagFirst|wire.FlagLast, 0, 0), 8},
		"placed, acknowledgement requested":      {wire.Header(wire.SendPlaced, wire.FlagFirst|wire.FlagLast|wire.FlagAckRequest, 0, 0), 8},
		"failed":                                 {wire.Header(wire.SendFailed, wire.FlagFirst|wire.FlagLast|wire.FlagAckRequest, 0, 0), uint64(nd.BufferOverflow)},
		"inline, no acknowledgement requested":   {wire.Header(wire.SendInEntry, wire.FlagFirst|wire.FlagLast, 8, 0), 8},
		"fragment, no acknowledgement requested": {wire.Header(wire.SendFragment, wire.FlagFirst|wire.FlagLast, 0, 0), 8, 8, 0, 8},
	} {
		for _, over := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/connection over=%v", name, over), func(t *testing.T) {
				p := newPair(t, shared(setup{}, 2))
				for context := uint64(1); context <= 2; context++ {
					p.a.must(order{Do: doReceive, Context: context, Parts: mine(0, 100)})
				}
				owner, attacker := p.a.endpointAt(0).(*queuePair), p.b.endpointAt(0).(*queuePair)
				owner.mu.Lock()
				attacker.mu.Lock()
				attacker.conn.out.Push(&slot)
				attacker.mu.Unlock()
				if over { // the last read of the ring must reject it, too
					owner.terminate(owner.opError("test", nd.ConnectionAborted, "as asked", ""))
				} else {
					owner.progressLocked()
				}
				owner.mu.Unlock()
				p.a.refuse(nd.ConnectionAborted, order{Do: doWhy})
				p.a.nothing(receiveQueue)
				p.stays(1, 2, 1)
			})
		}
	}
}

// TestSharedReceiveForgedDuringMessage: when the connection ends, forged statements about the
// receive that the message has taken have no effect.
func TestSharedReceiveForgedDuringMessage(t *testing.T) {
	p := newPair(t, shared(setup{}, 2))
	for context := uint64(1); context <= 2; context++ {
		p.a.must(order{Do: doReceive, Context: context, Parts: mine(0, 100)})
	}
	owner, attacker := p.a.endpointAt(0).(*queuePair), p.b.endpointAt(0).(*queuePair)
	owner.mu.Lock()
	attacker.mu.Lock()
	attacker.conn.out.Push(&ring.Words{wire.Header(wire.SendFragment, wire.FlagFirst|wire.FlagAckRequest, 0, 0), 0, 0, 0, 50})
	owner.progressLocked()
	attacker.conn.out.Push(&ring.Words{wire.Header(wire.SendPlaced, wire.FlagFirst|wire.FlagLast, 0, 0), 50})
	attacker.mu.Unlock()
	if owner.rq.posted-owner.rq.completed != 1 {
		t.Error("the message has taken no receive")
	}
	owner.terminate(owner.opError("test", nd.ConnectionAborted, "as asked", ""))
	owner.mu.Unlock()
	p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
	p.stays(1, 1, 2)
}

// TestPeerStateWithUnknownReceiveKind: such queue-pair state is refused.
func TestPeerStateWithUnknownReceiveKind(t *testing.T) {
	p := newPair(t, setup{Unwired: true})
	p.a.endpointAt(0).(*queuePair).localQP.SharedReceive = 2
	addr := p.b.must(order{Do: doListen}).Addr
	connected := p.a.start(order{Do: doConnect, Addr: addr})
	p.b.refuse(nd.ConnectionAborted, order{Do: doAccept})
	p.b.must(order{Do: doCloseEndpoint})
	p.b.must(order{Do: doCloseLink})
	p.a.must(order{Do: doCloseLink})
	<-connected
}

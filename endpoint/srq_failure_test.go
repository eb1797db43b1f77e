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
func (r *star) stays(i, n int, context uint64) {
	r.owner.t.Helper()
	r.queue().mu.Lock()
	got := r.queue().outstanding()
	r.queue().mu.Unlock()
	if got != uint64(n) {
		r.owner.t.Errorf("%d receives are outstanding, want %d", got, n)
	}
	p := r.peers[i]
	p.must(order{Do: doSend, Context: 99, Parts: mine(0, 8)})
	p.expect(initiatorQueue, success(nd.RequestSend, 99, 8))
	r.owner.expect(receiveQueue, of(i, success(nd.RequestReceive, context, 8)))
}

// fails checks that a message of peer 0 ends the connection of the owner's first endpoint, and
// nothing else.
func (r *star) fails(o order, receive, send nd.Status) {
	r.owner.t.Helper()
	p := r.peers[0]
	for context := uint64(2); context <= 3; context++ {
		r.owner.must(order{Do: doReceive, Context: context, Parts: mine(0, 100)})
	}
	o.Context = 1
	p.must(o)
	p.must(order{Do: doSend, Context: 2})
	r.owner.expect(receiveQueue, failure(nd.RequestReceive, 1, receive))
	p.expect(initiatorQueue, failure(nd.RequestSend, 1, send), failure(nd.RequestSend, 2, nd.Canceled))
	r.owner.must(order{Do: doNotify})
	r.owner.refuse(receive, order{Do: doWhy})
	r.stays(1, 2, 2)
	r.owner.nothing(receiveQueue)
}

// onSomeStars runs a test with each executor once, and two peers.
func onSomeStars(t *testing.T, test func(t *testing.T, r *star)) {
	t.Helper()
	runEach(t, append(someSetups(setup{}), setup{Processes: true}), func(t *testing.T, s setup) {
		test(t, newStar(t, s, nd.SharedReceiveQueueConfig{}, 2))
	})
}

// TestSharedReceiveTooSmall: the message that took a receive it does not fit into fails, and
// with it its connection.
func TestSharedReceiveTooSmall(t *testing.T) {
	for _, room := range []int{0, 7, 60} {
		for _, n := range []int{8, 61, 70_000} {
			if n <= room {
				continue
			}
			t.Run(fmt.Sprintf("%d for %d", n, room), func(t *testing.T) {
				onSomeStars(t, func(t *testing.T, r *star) {
					r.owner.fill(0, 0, 200_000, 1)
					before := r.owner.sum(0, 100_000+room, 100_000-room)
					r.owner.must(order{Do: doReceive, Context: 1, Parts: mine(100_000, room)})
					r.fails(order{Do: doSend, Parts: mine(0, n)}, nd.BufferOverflow, nd.RemoteError)
					if r.owner.sum(0, 100_000+room, 100_000-room) != before {
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
			onSomeStars(t, func(t *testing.T, r *star) {
				r.owner.must(order{Do: doReceive, Context: 1, Parts: []part{{Len: n, Token: 1<<31 + 12345}}})
				r.fails(order{Do: doSend, Parts: mine(0, n)}, nd.AccessViolation, nd.RemoteError)
			})
		})
	}
}

// TestSharedReceiveInvalidates: a message may invalidate a window of its endpoint, even after a
// long wait, and no other window.
func TestSharedReceiveInvalidates(t *testing.T) {
	onEveryStar(t, setup{}, 2, func(t *testing.T, r *star) {
		p, w := r.peers[0], r.owner.window()
		d := r.owner.bind(w, 0, 100, nd.AllowWrite)
		p.must(order{Do: doSendRevoking, Context: 1, Parts: mine(0, 60_000), Far: d})
		p.must(order{Do: doWrite, Context: 2, Parts: mine(0, 8), Far: r.owner.memory})
		p.nothing(initiatorQueue)
		r.owner.must(order{Do: doReceive, Context: 1, Parts: mine(0, 60_000)})
		want := success(nd.RequestReceiveAndInvalidate, 1, 60_000)
		want.InvalidatedToken = d.Token
		r.owner.expect(receiveQueue, want)
		p.expect(initiatorQueue, success(nd.RequestSend, 1, 60_000), success(nd.RequestWrite, 2, 8))
		d = r.owner.bind(w, 0, 100, nd.AllowWrite) // the window can be bound again

		r.owner.must(order{Do: doReceive, Context: 3, Parts: mine(0, 8)})
		r.peers[1].must(order{Do: doSendRevoking, Context: 3, Far: d})
		r.owner.expect(receiveQueue, of(1, failure(nd.RequestReceive, 3, nd.InvalidDeviceRequest)))
		r.peers[1].expect(initiatorQueue, failure(nd.RequestSend, 3, nd.RemoteError))
		p.must(order{Do: doWrite, Context: 4, Parts: mine(0, 8), Far: d})
		p.expect(initiatorQueue, success(nd.RequestWrite, 4, 8))
	})
}

// TestSharedReceiveMemoryDeregistered: a message whose receive memory is deregistered while it
// waits fails when it gets its receive.
func TestSharedReceiveMemoryDeregistered(t *testing.T) {
	r := newStar(t, setup{}, nd.SharedReceiveQueueConfig{}, 2)
	p := r.peers[0]
	p.must(order{Do: doSend, Context: 1, Parts: mine(0, 1000)})
	p.must(order{Do: doDeregister})
	for context := uint64(1); context <= 2; context++ {
		r.owner.must(order{Do: doReceive, Context: context, Parts: mine(0, 1000)})
	}
	r.owner.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
	p.expect(initiatorQueue, failure(nd.RequestSend, 1, nd.AccessViolation))
	r.stays(1, 1, 2)
}

// startMessage makes the first message of peer 0, which is a process, take a receive of context 1
// and stop half-way: it stops the sender.
func (r *star) startMessage(t *testing.T, n int) {
	t.Helper()
	p := r.peers[0]
	p.must(order{Do: doSend, Context: 1, Parts: mine(0, n)})
	ep := r.owner.local.endpoint(0).(*queuePair)
	proctest.Eventually(t, "the start of the message waits, and the sender is stopped between two copies", func() bool {
		r.queue().mu.Lock()
		waits := len(r.queue().waiting) == 1
		r.queue().mu.Unlock()
		if !waits {
			return false
		}
		p.process.Stop()
		if ep.conn.peerQP.Hazard.Load() == 0 {
			return true
		}
		p.process.Resume() // the end of the connection would wait for the end of the copy
		return false
	})
	for context := uint64(1); context <= 3; context++ {
		r.owner.must(order{Do: doReceive, Context: context, Parts: mine(0, n)})
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
	for name, end := range map[string]func(r *star){
		"peer dies": func(r *star) { r.peers[0].process.kill() },
		"flush":     func(r *star) { r.owner.must(order{Do: doFlush}) },
		"close":     func(r *star) { r.owner.must(order{Do: doCloseEndpoint}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := setup{Processes: true, Private: [2]bool{false, true}, Both: sideOptions{Size: 1 << 20}}
			r := newStar(t, s, nd.SharedReceiveQueueConfig{}, 2)
			r.startMessage(t, 1<<20)
			end(r)
			r.owner.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
			r.stays(1, 2, 2)
			if p := r.peers[0]; name != "peer dies" {
				p.process.Resume()
				p.expect(initiatorQueue, failure(nd.RequestSend, 1, nd.Canceled))
			}
		})
	}
}

// bothWait makes a message of each peer wait for a receive, that of peer 0 first.
func (r *star) bothWait(t *testing.T) {
	t.Helper()
	q := r.queue()
	for i, p := range r.peers {
		p.must(order{Do: doSend, Context: 1, Parts: mine(0, 8)})
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
	for name, end := range map[string]func(r *star){
		"peer dies": func(r *star) { r.peers[0].process.kill(); r.owner.must(order{Do: doNotify}) },
		"flush":     func(r *star) { r.owner.must(order{Do: doFlush}) },
		"close":     func(r *star) { r.owner.must(order{Do: doCloseEndpoint}) },
		"peer disconnects": func(r *star) {
			r.peers[0].start(disconnect)
			r.owner.must(order{Do: doNotify})
		},
		"disconnect": func(r *star) {
			bye := r.peers[0].start(disconnect)
			r.owner.must(disconnect)
			if a := <-bye; a.Status != nd.Success {
				r.owner.t.Error(a.Text)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newStar(t, setup{Processes: true}, nd.SharedReceiveQueueConfig{}, 2)
			r.bothWait(t)
			end(r)
			for context := uint64(1); context <= 2; context++ {
				r.owner.must(order{Do: doReceive, Context: context, Parts: mine(0, 8)})
			}
			r.owner.expect(receiveQueue, of(1, success(nd.RequestReceive, 1, 8)))
			r.peers[1].expect(initiatorQueue, success(nd.RequestSend, 1, 8))
			r.stays(1, 1, 2)
		})
	}
}

// TestSharedReceiveGoesToNextWaiter: if an endpoint ends before it takes a receive that it waits
// for, the next one gets it.
func TestSharedReceiveGoesToNextWaiter(t *testing.T) {
	r := newStar(t, setup{Processes: true}, nd.SharedReceiveQueueConfig{}, 2)
	r.bothWait(t)
	first := r.owner.local.endpoint(0).(*queuePair)
	first.mu.Lock() // so that it cannot take the receive
	r.owner.must(order{Do: doReceive, Context: 1, Parts: mine(0, 8)})
	r.owner.local.endpoint(1).(*queuePair).progress()
	r.owner.nothing(receiveQueue)
	first.terminate(first.opError("test", nd.Canceled, "as asked", ""))
	first.mu.Unlock()
	r.owner.expect(receiveQueue, of(1, success(nd.RequestReceive, 1, 8)))
	r.peers[1].expect(initiatorQueue, success(nd.RequestSend, 1, 8))
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
				r := newStar(t, setup{}, nd.SharedReceiveQueueConfig{}, 2)
				for context := uint64(1); context <= 2; context++ {
					r.owner.must(order{Do: doReceive, Context: context, Parts: mine(0, 100)})
				}
				owner, attacker := r.owner.local.endpoint(0).(*queuePair), r.peers[0].local.endpoint(0).(*queuePair)
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
				r.owner.refuse(nd.ConnectionAborted, order{Do: doWhy})
				r.owner.nothing(receiveQueue)
				r.stays(1, 2, 1)
			})
		}
	}
}

// TestSharedReceiveForgedDuringMessage: when the connection ends, forged statements about the
// receive that the message has taken have no effect.
func TestSharedReceiveForgedDuringMessage(t *testing.T) {
	r := newStar(t, setup{}, nd.SharedReceiveQueueConfig{}, 2)
	for context := uint64(1); context <= 2; context++ {
		r.owner.must(order{Do: doReceive, Context: context, Parts: mine(0, 100)})
	}
	owner, attacker := r.owner.local.endpoint(0).(*queuePair), r.peers[0].local.endpoint(0).(*queuePair)
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
	r.owner.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
	r.stays(1, 1, 2)
}

// TestPeerStateWithUnknownReceiveKind: such queue-pair state is refused.
func TestPeerStateWithUnknownReceiveKind(t *testing.T) {
	p := newPair(t, setup{Unwired: true})
	p.a.local.endpoint(0).(*queuePair).localQP.SharedReceive = 2
	addr := p.b.must(order{Do: doListen}).Addr
	connected := p.a.start(order{Do: doConnect, Addr: addr})
	p.b.refuse(nd.ConnectionAborted, order{Do: doAccept})
	p.b.must(order{Do: doCloseEndpoint})
	p.b.must(order{Do: doCloseLink})
	p.a.must(order{Do: doCloseLink})
	<-connected
}

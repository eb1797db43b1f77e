package endpoint

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/nd"
)

// revoked is the result of a Receive that invalidated a window.
func revoked(context uint64, bytes int, token nd.Token) nd.Result {
	return nd.Result{RequestType: nd.RequestReceiveAndInvalidate, RequestContext: context, BytesTransferred: uint32(bytes), InvalidatedToken: token}
}

// TestWindowInvalidatedByPeer: earlier writes and the message arrive, and the window can be bound
// again at once.
func TestWindowInvalidatedByPeer(t *testing.T) {
	const room = 100_000
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		w := p.b.newWindow()
		var dead nd.WindowDescriptor
		for i, n := range []int{0, 1, 40, 47, 48, 1000, room} {
			context := uint64(i)
			d := p.b.bind(w, 0, room, nd.AllowRead|nd.AllowWrite)
			if d.Token == dead.Token {
				t.Fatalf("round %d: the window has its old token", i)
			}
			p.a.fill(0, 0, 2*room, context)
			p.b.must(order{Do: doReceive, Context: context, Parts: mine(room, n)})
			p.a.must(order{Do: doWrite, Context: context, Parts: mine(0, room), Far: d, Flags: nd.SilentSuccess})
			p.a.must(order{Do: doSendRevoking, Context: context, Parts: mine(room, n), Far: d})
			p.b.expect(receiveQueue, revoked(context, n, d.Token))
			p.a.expect(initiatorQueue, success(nd.RequestSend, context, n))
			if p.b.sum(0, 0, room) != p.a.sum(0, 0, room) {
				t.Errorf("round %d: the data of the write differ", i)
			}
			if p.b.sum(0, room, n) != p.a.sum(0, room, n) {
				t.Errorf("round %d: the message differs", i)
			}
			if now := p.b.must(order{Do: doDescriptor, Window: w}).Far; now != d {
				t.Errorf("round %d: descriptor %v of the invalid window, want the last one", i, now)
			}
			dead = d
		}
		p.b.nothing(initiatorQueue) // the owner has requested nothing
		p.b.must(order{Do: doDeregister, Region: p.b.spare(w)})
		p.offend(doWrite, mine(0, 8), dead)
	})
}

// spare binds a window to a region of its own, and invalidates it again.
func (s *side) spare(w int) int {
	s.t.Helper()
	n := s.must(order{Do: doRegion, Len: 100, Rights: nd.AllowLocalWrite}).N
	s.must(order{Do: doBind, Context: 1, Region: n, Window: w, Len: 100, Flags: nd.AllowWrite})
	s.must(order{Do: doInvalidate, Context: 2, Window: w})
	s.expect(initiatorQueue, success(nd.RequestBind, 1, 0), success(nd.RequestInvalidate, 2, 0))
	return n
}

// TestWindowsInvalidatedByConsecutiveMessages: each message invalidates its own window.
func TestWindowsInvalidatedByConsecutiveMessages(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		var bound []nd.WindowDescriptor
		var received, sent []nd.Result
		for i := range 10 {
			bound = append(bound, p.b.bind(p.b.newWindow(), 100*i, 200, nd.AllowWrite)) // they overlap
			p.b.must(order{Do: doReceive, Context: uint64(i)})
		}
		for i, d := range bound {
			p.a.must(order{Do: doWrite, Context: 50, Parts: mine(0, 200), Far: d})
			p.a.must(order{Do: doSendRevoking, Context: uint64(i), Far: d})
			sent = append(sent, success(nd.RequestWrite, 50, 200), success(nd.RequestSend, uint64(i), 0))
			received = append(received, revoked(uint64(i), 0, d.Token))
		}
		p.b.expect(receiveQueue, received...)
		p.a.expect(initiatorQueue, sent...)
		p.b.must(order{Do: doDeregister})
	})
}

// TestWindowInvalidationRefused: the message is not placed, its receive fails, and the connection
// ends.
func TestWindowInvalidationRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]func(p *pair) nd.WindowDescriptor{
		"no token": func(*pair) (d nd.WindowDescriptor) { return },
		"unknown":  func(p *pair) nd.WindowDescriptor { return nd.WindowDescriptor{Token: p.b.memory.Token ^ 1<<28} },
		"another bind of the window": func(p *pair) nd.WindowDescriptor {
			w := p.b.newWindow()
			d := p.b.bind(w, 0, 100, nd.AllowWrite)
			p.b.invalidate(w)
			p.b.bind(w, 0, 100, nd.AllowWrite)
			return d
		},
		"invalidated by its owner": func(p *pair) nd.WindowDescriptor {
			w := p.b.newWindow()
			d := p.b.bind(w, 0, 100, nd.AllowWrite)
			p.b.invalidate(w)
			return d
		},
		"invalidated by the peer": func(p *pair) nd.WindowDescriptor {
			d := p.b.bind(p.b.newWindow(), 0, 100, nd.AllowWrite)
			p.b.must(order{Do: doReceive})
			p.a.must(order{Do: doSendRevoking, Far: d})
			p.b.expect(receiveQueue, revoked(0, 0, d.Token))
			p.a.expect(initiatorQueue, success(nd.RequestSend, 0, 0))
			return d
		},
		"closed": func(p *pair) nd.WindowDescriptor {
			w := p.b.newWindow()
			d := p.b.bind(w, 0, 100, nd.AllowWrite)
			p.b.must(order{Do: doCloseWindow, Window: w})
			return d
		},
		"region's remote token": func(p *pair) nd.WindowDescriptor { return p.b.memory },
		"region's local token": func(p *pair) nd.WindowDescriptor {
			return nd.WindowDescriptor{Token: nd.Token(p.b.must(order{Do: doRegionInfo}).Sum)}
		},
		"sender's own window": func(p *pair) nd.WindowDescriptor {
			return p.a.bind(p.a.newWindow(), 0, 100, nd.AllowWrite)
		},
	}
	for name, token := range cases {
		t.Run(name, func(t *testing.T) {
			for _, s := range append(someSetups(setup{}), setup{Processes: true}) {
				for _, n := range []int{0, 8, 70_000} {
					t.Run(fmt.Sprintf("%d bytes/%v", n, s), func(t *testing.T) {
						p := newPair(t, s)
						p.failToRevoke(token(p), n, 0)
					})
				}
			}
		})
	}
}

// failToRevoke sends an invalidation that the receiver refuses, over the connection of the first
// endpoints.
func (p *pair) failToRevoke(d nd.WindowDescriptor, n int, flags nd.OpFlags) {
	p.a.t.Helper()
	p.a.fill(0, 0, n, 1)
	p.b.fill(0, 0, n+1000, 2)
	before := p.b.sum(0, 0, n+1000)
	p.b.must(order{Do: doReceive, Context: 0xc0, Parts: mine(0, n)})
	p.b.must(order{Do: doReceive, Context: 0xc1})
	p.a.must(order{Do: doReceive, Context: 0xc2})
	p.a.must(order{Do: doSendRevoking, Context: 0xc3, Parts: mine(0, n), Far: d, Flags: flags})
	p.a.must(order{Do: doSend, Context: 0xc4})
	p.a.expect(initiatorQueue, failure(nd.RequestSend, 0xc3, nd.RemoteError), failure(nd.RequestSend, 0xc4, nd.Canceled))
	p.a.expect(receiveQueue, failure(nd.RequestReceive, 0xc2, nd.Canceled))
	p.b.expect(receiveQueue, failure(nd.RequestReceive, 0xc0, nd.InvalidDeviceRequest), failure(nd.RequestReceive, 0xc1, nd.Canceled))
	p.a.must(order{Do: doNotify})
	p.b.must(order{Do: doNotify})
	p.a.refuse(nd.RemoteError, order{Do: doWhy})
	p.b.refuse(nd.InvalidDeviceRequest, order{Do: doWhy})
	if p.b.sum(0, 0, n+1000) != before {
		p.a.t.Error("the message has changed memory")
	}
}

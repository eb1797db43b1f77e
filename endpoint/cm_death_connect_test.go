package endpoint

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// TestPeerDeathWhileConnecting kills the peer of a Connect, an Accept or a CompleteConnect in
// progress.
func TestPeerDeathWhileConnecting(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, p *pair){
		"before Connect": func(t *testing.T, p *pair) {
			addr := p.b.must(order{Do: doListen}).Addr
			p.b.process.kill()
			r := p.a.do(order{Do: doConnect, Addr: addr})
			if r.Status != nd.HostUnreachable {
				t.Errorf("connect returns %v (%s)", r.Status, r.Text)
			}
		},
		"in Connect": func(t *testing.T, p *pair) {
			addr := p.b.must(order{Do: doListen}).Addr
			done := p.a.start(order{Do: doConnect, Addr: addr})
			time.Sleep(time.Millisecond)
			p.b.process.kill()
			if r := <-done; r.Status != nd.HostUnreachable {
				t.Errorf("connect returns %v (%s)", r.Status, r.Text)
			}
		},
		"between Connect and CompleteConnect": func(t *testing.T, p *pair) {
			addr := p.b.must(order{Do: doListen}).Addr
			p.b.start(order{Do: doAccept})
			p.a.must(order{Do: doConnect, Addr: addr})
			p.b.process.kill()
			proctest.Eventually(t, "the death is known", func() bool { return p.arena.Deaths() != 0 })
			want := fmt.Sprintf("%v (pid %d) has died or left", p.b.id, p.b.process.PID())
			if r := p.a.refuse(nd.ConnectionAborted, order{Do: doComplete}); !strings.Contains(r.Text, want) {
				t.Errorf("the error is %q, want %q", r.Text, want)
			}
		},
		"in Accept": func(t *testing.T, p *pair) {
			addr := p.a.must(order{Do: doListen}).Addr
			done := p.a.start(order{Do: doAccept})
			p.a.must(order{Do: doReceive, Context: 1})
			p.b.must(order{Do: doConnect, Addr: addr})
			p.b.process.kill()
			if r := <-done; r.Status != nd.ConnectionRefused {
				t.Errorf("accept returns %v (%s)", r.Status, r.Text)
			}
			p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
		},
		"after Accept": func(t *testing.T, p *pair) {
			addr := p.a.must(order{Do: doListen}).Addr
			done := p.a.start(order{Do: doAccept})
			p.a.must(order{Do: doReceive, Context: 1})
			p.b.must(order{Do: doConnect, Addr: addr})
			p.b.must(order{Do: doComplete})
			p.b.process.kill()
			if r := <-done; r.Status != nd.Success {
				t.Errorf("accept returns %v (%s)", r.Status, r.Text)
			}
			p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{Processes: true, Unwired: true})
			before := p.a.member.InUse()
			test(t, p)
			p.a.must(order{Do: doCloseEndpoint})
			p.settledAfterDeath(t, before)
		})
	}
}

// TestConnectRequestOfDeadPeer: a dead peer's request is in the listener's queue or in a connector, and
// its memory already belongs to another member. No call writes to it.
func TestConnectRequestOfDeadPeer(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(t *testing.T, s *side, c nd.Connector){
		"queued": func(t *testing.T, s *side, _ nd.Connector) {
			if err := s.listener.Close(); err != nil {
				t.Error(err)
			}
		},
		"accepted": func(t *testing.T, s *side, c nd.Connector) {
			wantStatus(t, c.Accept(s.ctx, s.endpointAt(0), nd.ConnectParams{}), nd.ConnectionAborted)
		},
		"rejected": func(t *testing.T, _ *side, c nd.Connector) {
			wantStatus(t, c.Reject(make([]byte, wire.MaxPrivateData)), nd.ConnectionAborted)
		},
		"read": func(t *testing.T, _ *side, c nd.Connector) {
			_, err := c.GetPrivateData(nil)
			wantStatus(t, err, nd.ConnectionAborted)
		},
		"closed": func(t *testing.T, _ *side, c nd.Connector) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{Processes: true, Unwired: true})
			s := p.a
			addr := p.a.must(order{Do: doListen}).Addr
			p.b.start(order{Do: doConnect, Addr: addr, Data: []byte("about to die")})
			l := s.listener.(*listener)
			proctest.Eventually(t, "the request is there", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.queue) == 1
			})
			record := l.queue[0].record.Offset
			c := s.connectorAt(0)
			if name != "queued" {
				if err := s.listener.GetConnectionRequest(s.ctx, c); err != nil {
					t.Fatal(err)
				}
			}
			p.b.process.kill()
			p.settledAfterDeath(t, s.member.InUse())
			// The next owner of that memory.
			other, err := p.arena.Join(shm.NoRank)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Leave()
			mem := claim(t, p.arena, other, record)
			fill(mem, 5)
			use(t, s, c)
			want := make([]byte, len(mem))
			fill(want, 5)
			for i := range mem {
				if mem[i] != want[i] {
					t.Fatalf("byte %d of memory that was freed and reused has changed", i)
				}
			}
		})
	}
}

// claim allocates until a given offset is part of the member's memory.
func claim(t *testing.T, arena *shm.Arena, m *shm.Member, at shm.Offset) []byte {
	t.Helper()
	for range 1000 {
		off, err := m.Alloc(chunkSize)
		if err != nil {
			t.Fatal(err)
		}
		if off <= at && at < off+chunkSize {
			mem, err := arena.Bytes(off, chunkSize)
			if err != nil {
				t.Fatal(err)
			}
			return mem
		}
	}
	t.Fatal("the dead member's memory was not reused")
	return nil
}

// TestConnectRequestBehindDeadPeer: a request in the inbox behind that of a dead member is not lost.
func TestConnectRequestBehindDeadPeer(t *testing.T) {
	t.Parallel()
	arena := newArena(t)
	a := newSide(t, arena, "a", sideOptions{}, false)
	first := newSide(t, arena, "first", sideOptions{}, false)
	dying := newSide(t, arena, "dying", sideOptions{}, true)
	addr := a.must(order{Do: doListen}).Addr
	// This process does not read its inbox meanwhile.
	a.provider.inboxMu.Lock()
	unlock := sync.OnceFunc(a.provider.inboxMu.Unlock)
	t.Cleanup(unlock) // closing the side needs the lock, also if the test fails before
	connected := first.start(order{Do: doConnect, Addr: addr})
	proctest.Eventually(t, "the first request is in the inbox", a.member.HasMail)
	dying.start(order{Do: doConnect, Addr: addr})
	time.Sleep(20 * time.Millisecond) // so that the second request precedes it in the list
	dying.process.kill()
	proctest.Eventually(t, "the death is known", func() bool { return arena.Deaths() != 0 })
	time.Sleep(2 * busyInterval) // the dead member's memory would be reclaimed by now
	unlock()
	accepted := a.start(order{Do: doAccept})
	if r := <-connected; r.Status != nd.Success {
		t.Fatal(r.Text)
	}
	first.must(order{Do: doComplete})
	if r := <-accepted; r.Status != nd.Success {
		t.Fatal(r.Text)
	}
}

// TestCloseRefusesRequests: a request that a provider has not read when it closes is refused.
func TestCloseRefusesRequests(t *testing.T) {
	arena := newArena(t)
	a := newSide(t, arena, "a", sideOptions{}, false)
	b := newSide(t, arena, "b", sideOptions{}, false)
	addr := b.must(order{Do: doListen}).Addr
	b.provider.inboxMu.Lock()
	unlock := sync.OnceFunc(b.provider.inboxMu.Unlock)
	t.Cleanup(unlock)
	connected := a.start(order{Do: doConnect, Addr: addr})
	proctest.Eventually(t, "the request is in the inbox", b.member.HasMail)
	closed := soon(b.provider.Close)
	proctest.Eventually(t, "the engine ends", b.provider.engine.quit.Load)
	time.Sleep(busyInterval)
	unlock()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if r := <-connected; r.Status != nd.ConnectionRefused {
		t.Errorf("%v: %s", r.Status, r.Text)
	}
}

// TestDeathOfEarlierPeer: the peer of a Connect that has failed dies when the endpoint has another connection, which goes on.
func TestDeathOfEarlierPeer(t *testing.T) {
	a, b, addr := unconnectedPair(t)
	ca, ea, eb := a.newConnector().(*connector), a.newEndpoint().(*queuePair), b.newEndpoint()
	earlier := must(ca.startConnect(a.ctx, ea, nil, addr, nd.ConnectParams{}))
	earlier.record.Move(cm.Withdraws)
	ca.mu.Lock()
	ca.undoConnect(earlier)
	ca.mu.Unlock()
	connected := soon(func() error { return ca.Connect(a.ctx, ea, addr, nd.ConnectParams{}) })
	accepted := soon(func() error { return b.request().Accept(b.ctx, eb, nd.ConnectParams{}) })
	a.good(<-connected)
	earlier.peerDied() // as if it had been another process
	a.good(ca.CompleteConnect(a.ctx))
	b.good(<-accepted)
}

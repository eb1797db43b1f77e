package endpoint

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// survivors' resources: memory and objects that the arena and a provider hold.
func (p *pair) settledAfterDeath(t *testing.T, before uint64) {
	t.Helper()
	s := p.a
	proctest.Eventually(t, "the survivor's memory for the connection is free", func() bool { return s.member.InUse() <= before })
	p.reclaimedAfterDeath(t)
}

func (p *pair) reclaimedAfterDeath(t *testing.T) {
	t.Helper()
	proctest.Eventually(t, "the dead member's memory is reclaimed", func() bool {
		// A member's record is reused when all that it owned is freed.
		m, err := p.arena.Join(shm.NoRank)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Leave()
		return m.ID().Slot() == p.b.id.Slot()
	})
}

// TestPeerDeathUnderLoad kills the peer at random moments while it transfers and while the survivor
// uses it.
func TestPeerDeathUnderLoad(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	const n = 2*window.ChunkSize - 3000 // a death can come between two chunks
	peers := map[string]func(p *pair){
		"idle":    func(*pair) {},
		"writing": func(p *pair) { p.b.start(repeat(doWrite, n, p.a.memory)) },
		"reading": func(p *pair) { p.b.start(repeat(doRead, n, p.a.memory)) },
		"sending": func(p *pair) {
			for i := range 60 {
				p.a.must(order{Do: doReceive, Context: uint64(i), Parts: mine(0, n)})
			}
			p.b.start(repeat(doSend, n, nd.WindowDescriptor{}))
		},
		"waiting": func(p *pair) { p.b.start(order{Do: doWait, N: 1}) },
	}
	survivors := map[string]verb{"writes": doWrite, "reads": doRead, "sends": doSend}
	for _, executor := range []Executor{Auto, Target} {
		for _, private := range []bool{false, true} {
			for peer, busy := range peers {
				for name, do := range survivors {
					s := setup{Processes: true, Executors: [2]Executor{executor, executor}, Private: [2]bool{private, private}, Both: sideOptions{Size: n}}
					t.Run(fmt.Sprintf("%s/peer is %s/survivor %s", s, peer, name), func(t *testing.T) {
						p := newPair(t, s)
						before := p.a.member.InUse()
						for i := range 60 {
							p.b.must(order{Do: doReceive, Context: uint64(i), Parts: mine(0, n)})
						}
						busy(p)
						notice := p.a.start(order{Do: doNotify})
						far := p.b.memory
						if do == doSend {
							far = nd.WindowDescriptor{}
						}
						fate := p.a.start(repeat(do, n, far))
						time.Sleep(time.Duration(random.IntN(5000)) * time.Microsecond)
						p.b.process.kill()
						// A Send without a receive may fail first.
						if r := <-fate; r.Status != nd.Canceled && !(do == doSend && r.Status == nd.IOTimeout) {
							t.Errorf("the survivor's request ends with %v (%s), seed %d", r.Status, r.Text, seed)
						}
						if r := <-notice; r.Status != nd.Success {
							t.Error(r.Text)
						}
						p.a.refuse(nd.ConnectionAborted, disconnect)
						p.a.must(order{Do: doDeregister}) // no transfer uses it
						p.a.must(order{Do: doCloseEndpoint})
						p.settledAfterDeath(t, before)
					})
				}
			}
		}
	}
}

// repeat is an order to repeat a transfer.
func repeat(do verb, n int, far nd.WindowDescriptor) order {
	return order{Do: doRepeat, Data: []byte(do), Parts: mine(0, n), Far: far, N: 8}
}

// TestPeerDeathFlushesOutstanding: after the peer's death everything outstanding is canceled
// in order, and windows bound for it are revoked.
func TestPeerDeathFlushesOutstanding(t *testing.T) {
	for _, s := range everySetup(setup{Both: sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}}}) {
		if !s.Processes {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, s)
			w := p.a.newWindow()
			p.a.bind(w, 0, 100, nd.AllowWrite)
			p.b.process.Stop()
			var sends, receives []nd.Result
			for i := range uint64(10) {
				p.a.must(order{Do: doReceive, Context: i, Parts: mine(0, 10)})
				p.a.must(order{Do: doSend, Context: i, Parts: mine(0, int(i)*20)}) // the peer posts no receive
				receives = append(receives, failure(nd.RequestReceive, i, nd.Canceled))
				sends = append(sends, failure(nd.RequestSend, i, nd.Canceled))
			}
			p.a.refuse(nd.DeviceBusy, order{Do: doDeregister})
			p.b.process.kill()
			p.a.expect(initiatorQueue, sends...)
			p.a.expect(receiveQueue, receives...)
			p.a.refuse(nd.ConnectionAborted, order{Do: doWhy})
			p.a.must(order{Do: doNotify})
			p.a.must(order{Do: doDeregister})
			p.a.refuse(nd.ConnectionAborted, disconnect)
		})
	}
}

// TestPeerDeathAfterDelivery: messages that the peer sent before its death arrive, even if the
// receiver polls only later.
func TestPeerDeathAfterDelivery(t *testing.T) {
	t.Parallel()
	for range 10 {
		p := newPair(t, setup{Processes: true})
		var want []nd.Result
		for i, n := range []int{8, 5000, 48, 70_000} {
			p.a.must(order{Do: doReceive, Context: uint64(i), Parts: mine(0, n)})
			want = append(want, success(nd.RequestReceive, uint64(i), n))
		}
		p.a.must(order{Do: doReceive, Context: 9, Parts: mine(0, 100)})
		for i, r := range want {
			p.b.must(order{Do: doSend, Context: uint64(i), Parts: mine(0, int(r.BytesTransferred)), Flags: nd.SilentSuccess})
		}
		p.b.must(order{Do: doWrite, Context: 5, Parts: mine(0, 8), Far: p.a.memory})
		p.b.expect(initiatorQueue, success(nd.RequestWrite, 5, 8))
		p.b.process.kill()
		p.a.expect(receiveQueue, append(want, failure(nd.RequestReceive, 9, nd.Canceled))...)
	}
}

// TestPeerStoppedDuringCopy: an Invalidate, a Deregister and a window's Close wait for a requester
// that is in the middle of a copy, until it dies.
func TestPeerStoppedDuringCopy(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]order{
		"invalidate":   {Do: doInvalidate},
		"close window": {Do: doCloseWindow},
		"flush":        {Do: doFlush},
	} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/kill=%v", name, kill), func(t *testing.T) {
				const n = 1 << 20
				p := newPair(t, setup{Processes: true, Both: sideOptions{Size: n}})
				w := p.a.newWindow()
				d := p.a.bind(w, 0, n, nd.AllowWrite)
				p.b.fill(0, 0, n, 1)
				fate := p.b.start(repeat(doWrite, n, d))
				p.stopInMidCopy(t, d.Token)

				done := p.a.start(o)
				time.Sleep(20 * time.Millisecond)
				switch o.Do {
				case doCloseWindow:
					select {
					case r := <-done:
						t.Errorf("it has not waited for the copy: %v", r)
					default:
					}
				case doInvalidate:
					p.a.nothing(initiatorQueue)
				case doFlush:
					p.a.refuse(nd.DeviceBusy, order{Do: doDeregister})
				}
				if kill {
					p.b.process.kill()
				} else {
					p.b.process.Resume()
				}
				if r := <-done; r.Status != nd.Success {
					t.Fatal(r.Text)
				}
				if o.Do == doInvalidate {
					p.a.expect(initiatorQueue, success(nd.RequestInvalidate, 0, 0))
				}
				if o.Do != doFlush {
					before := p.a.sum(0, 0, n)
					time.Sleep(2 * time.Millisecond)
					if p.a.sum(0, 0, n) != before {
						t.Error("memory changes after the end of the grant")
					}
				}
				if r := <-fate; !kill && r.Status != nd.AccessViolation && r.Status != nd.Canceled {
					t.Errorf("the peer's write ends with %v (%s)", r.Status, r.Text)
				}
				proctest.Eventually(t, "the region is free", func() bool { return p.a.do(order{Do: doDeregister}).Status == nd.Success })
			})
		}
	}
}

// stopInMidCopy stops the remote side while a token is in its hazard word.
func (p *pair) stopInMidCopy(t *testing.T, token nd.Token) {
	t.Helper()
	ep := p.a.endpointAt(0).(*queuePair)
	proctest.Eventually(t, "the peer is caught in the middle of a copy", func() bool {
		p.b.process.Stop()
		hazard := ep.conn.peerQP.Hazard.Load()
		if nd.Token(hazard>>32) == token || nd.Token(hazard) == token {
			return true
		}
		p.b.process.Resume()
		return false
	})
}

// TestDeregisterWaitsForCopy: Deregister waits until its context ends, on each call, and Close
// until the copy ends.
func TestDeregisterWaitsForCopy(t *testing.T) {
	t.Parallel()
	for _, do := range []verb{doDeregister, doCloseRegion} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/kill=%v", do, kill), func(t *testing.T) {
				const n = 1 << 20
				p := newPair(t, setup{Processes: true, Both: sideOptions{Size: n}})
				p.b.start(repeat(doWrite, n, p.a.memory))
				p.stopInMidCopy(t, p.a.memory.Token)
				p.a.refuse(nd.Canceled, order{Do: doDeregister, Timeout: 20 * time.Millisecond})
				p.a.refuse(nd.Canceled, order{Do: doDeregister, Timeout: 20 * time.Millisecond})
				done := p.a.start(order{Do: do})
				time.Sleep(20 * time.Millisecond)
				select {
				case r := <-done:
					t.Fatalf("it has not waited for the copy: %v (%s)", r.Status, r.Text)
				default:
				}
				if kill {
					p.b.process.kill()
				} else {
					p.b.process.Resume()
				}
				if r := <-done; r.Status != nd.Success {
					t.Error(r.Text)
				}
			})
		}
	}
}

// TestOwnerDeathDuringInvalidate kills the owner while its Invalidate waits for the drain. Its peers
// continue.
func TestOwnerDeathDuringInvalidate(t *testing.T) {
	p := newPair(t, setup{Processes: true, Both: sideOptions{Size: 1 << 20}})
	w := p.b.newWindow()
	d := p.b.bind(w, 0, 1<<20, nd.AllowWrite)
	// This process holds a hazard for the whole test, like a copy that never ends.
	ep := p.a.endpointAt(0).(*queuePair)
	ep.mu.Lock()
	ep.localQP.Hazard.Store(uint64(d.Token) << 32)
	p.b.must(order{Do: doInvalidate, Window: w})
	p.b.nothing(initiatorQueue)
	p.b.process.kill()
	ep.localQP.Hazard.Store(0)
	ep.mu.Unlock()
	p.a.must(order{Do: doNotify})
	p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: d})
	p.a.expect(initiatorQueue, failure(nd.RequestWrite, 0, nd.Canceled))
}

// TestPeerDeathWithoutProgress: when the dead peer's memory is reclaimed, the endpoint has ended although
// nothing has driven it. The next post would use that memory otherwise.
func TestPeerDeathWithoutProgress(t *testing.T) {
	for _, at := range []cm.QPState{cm.QPAccepted, cm.QPConnected, cm.QPFailed} {
		t.Run(at.String(), func(t *testing.T) {
			p := newPair(t, setup{Processes: true, Unwired: true, Both: sideOptions{Size: 1 << 20}})
			ep := p.a.endpointAt(0).(*queuePair)
			addr := p.b.must(order{Do: doListen}).Addr
			accepting := p.b.start(order{Do: doAccept})
			p.a.must(order{Do: doConnect, Addr: addr})
			if at != cm.QPAccepted {
				p.a.must(order{Do: doComplete})
				if r := <-accepting; r.Status != nd.Success {
					t.Fatal(r.Text)
				}
			}
			if at == cm.QPFailed { // and the peer is in the middle of a copy
				p.b.start(repeat(doWrite, 1<<20, p.a.memory))
				p.stopInMidCopy(t, p.a.memory.Token)
			}
			p.a.provider.engine.stop()
			if at == cm.QPFailed {
				ep.mu.Lock()
				ep.terminate(ep.opError("test", nd.Canceled, "ended by the test", ""))
				ep.mu.Unlock()
			}
			p.b.process.kill()
			p.reclaimedAfterDeath(t)
			ep.mu.Lock()
			defer ep.mu.Unlock()
			if s := ep.state(); s != cm.QPFailed || ep.life.teardown == usesPeerState {
				t.Errorf("the endpoint is %v and may use the memory", s)
			}
		})
	}
}

// chunkSize is the unit in which members own heap memory, in bytes.
const chunkSize = 64 << 10

// TestHazardsOfDeadPeerIgnored, whichever goroutine notices the death first.
func TestHazardsOfDeadPeerIgnored(t *testing.T) {
	p := newPair(t, setup{Processes: true})
	region := must(p.a.adapter.(*adapter).domain.NewRegion())
	if err := region.Register(make([]byte, 8), 0, nil); err != nil {
		t.Fatal(err)
	}
	ep := p.a.endpointAt(0).(*queuePair)
	ep.conn.peerQP.Hazard.Store(uint64(localToken(region)))
	if err := region.Deregister(); err != nil {
		t.Fatal(err)
	}
	if region.EndInvalidation() {
		t.Error("a token is drained while a live peer uses it")
	}
	p.b.process.kill()
	proctest.Eventually(t, "the token is drained", region.EndInvalidation)
}

// A peer can overwrite the record of a living member. The connections of that member then end on
// both sides, and new ones are refused, although no member has died.
func TestDamagedMemberRecordEndsConnections(t *testing.T) {
	t.Parallel()
	const records, stride = 4096, 512
	for _, nonsense := range []uint64{0, 1, 77, 1<<32 | 2, ^uint64(0)} {
		for _, damaged := range []int{cm.Active, cm.Passive} {
			t.Run(fmt.Sprintf("%#x/%d", nonsense, damaged), func(t *testing.T) {
				p := newPair(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}}})
				p.a.must(order{Do: doReceive, Context: 1, Parts: mine(0, 10)})
				p.b.must(order{Do: doReceive, Context: 2, Parts: mine(0, 10)})
				victim := [...]*side{p.a, p.b}[damaged]
				state, err := shm.At[atomic.Uint64](p.arena, shm.Offset(records+stride*victim.id.Slot()))
				if err != nil {
					t.Fatal(err)
				}
				state.Store(nonsense)
				p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
				p.b.expect(receiveQueue, failure(nd.RequestReceive, 2, nd.Canceled))
				p.a.refuse(nd.ConnectionAborted, order{Do: doWhy})
				p.b.refuse(nd.ConnectionAborted, order{Do: doWhy})
				if why := victim.why(); !strings.Contains(why, "marked dead in the arena") {
					t.Errorf("the member whose record is damaged says: %s", why)
				}
			})
		}
	}
}

package endpoint

import (
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// A program that posts and polls without a pause, and always finds a result, still serves its
// peers. Here a peer reads memory that only the program's process can reach.
func TestBusyProgramServesItsPeer(t *testing.T) {
	p := newPair(t, setup{Private: [2]bool{true, false}})
	x, y := p.a, p.b
	here := nd.One(nd.SGE{Buffer: x.regionAt(0).cut(0, 8), Token: x.regionAt(0).mr.LocalToken()})
	there := nd.One(nd.SGE{Buffer: y.regionAt(0).cut(64, 64), Token: y.regionAt(0).mr.LocalToken()})
	var stop atomic.Bool
	var writes atomic.Int64
	ended := make(chan error, 1)
	go func() {
		var results [16]nd.Result
		for !stop.Load() {
			if err := x.endpointAt(0).Write(1, here, p.b.memory.Address, p.b.memory.Token, 0); err != nil {
				ended <- err
				return
			}
			for x.queues[initiatorQueue].Poll(results[:]) == 0 {
			}
			writes.Add(1)
		}
		ended <- nil
	}()
	const tooMany = 10_000_000
	fewest := int64(math.MaxInt64) // on a busy machine the reader may wait for its processor
	for range 5 {
		// Long enough for the engine to notice that the program polls.
		for before := writes.Load(); writes.Load() < before+int64(rounds(1_000_000)) && len(ended) == 0; {
			runtime.Gosched()
		}
		posted := writes.Load()
		if err := y.endpointAt(0).Read(2, there, p.a.memory.Address, p.a.memory.Token, 0); err != nil {
			t.Fatal(err)
		}
		var results [4]nd.Result
		n, err := y.queues[initiatorQueue].Wait(y.ctx, results[:])
		if err != nil || n != 1 || results[0].Status != nd.Success {
			t.Fatal(n, results[0], err)
		}
		fewest = min(fewest, writes.Load()-posted)
	}
	if fewest > tooMany {
		t.Errorf("the program made %d writes or more before it served its peer", fewest)
	}
	stop.Store(true)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A peer that publishes a message and takes it back at once harms only the connection.
func TestPeerThatTakesMessagesBack(t *testing.T) {
	p := newPair(t, setup{})
	x, y := p.a, p.b
	ex, ey := any(x.endpointAt(0)).(*queuePair), any(y.endpointAt(0)).(*queuePair)
	words, err := shm.Slice[atomic.Uint64](p.arena, shm.Offset(ey.localQP.Ring), ey.localQP.RingSlots*8)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for !stop.Load() {
			n := ex.inbound.Load().Consumed()
			at := (n % ey.localQP.RingSlots) * 8
			words[at+1].Store(wire.PlainSend(8))
			for range 3 {
				words[at].Store(n + 1)
				words[at].Store(0)
			}
		}
	}()
	defer func() {
		stop.Store(true)
		<-stopped
	}()
	m := x.regionAt(0)
	there := nd.One(nd.SGE{Buffer: m.cut(0, 8), Token: m.mr.LocalToken()})
	var results [64]nd.Result
	for range rounds(3_000_000) {
		if ex.state() != cm.QPConnected {
			break
		}
		_ = ex.Receive(1, there) // the queue may be full
		for _, r := range results[:x.queues[receiveQueue].Poll(results[:])] {
			if r.Status == nd.Success && r.BytesTransferred != 8 {
				t.Fatal(r)
			}
		}
	}
}

// rounds is how often a test tries; the race detector makes each attempt slow.
func rounds(n int) int {
	if raceDetector {
		return n / 50
	}
	return n
}

// awaitEngineSleeps returns when the engine of a side in this process sleeps, or is about to.
func awaitEngineSleeps(t *testing.T, p *side) {
	t.Helper()
	proctest.Eventually(t, "the engine sleeps", p.provider.engine.bell.Armed)
	time.Sleep(20 * time.Millisecond) // it arms its doorbell before it sleeps
}

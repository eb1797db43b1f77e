package endpoint

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/shm"
)

// A peer that floods an inbox with requests delays no call for long. Each request has a record
// of its own, so each of them is distinct.
func TestInboxFlooded(t *testing.T) {
	const requests = 60_000 // comparing all with each other would take a minute; otherwise it takes a fraction of a second
	arena := newArena(t)
	victim := newSide(t, arena, "victim", sideOptions{}, false)
	attacker, err := arena.Join(shm.NoRank)
	if err != nil {
		t.Fatal(err)
	}
	defer attacker.Leave()
	const stride = (wire.ConnectionRecordSize + 63) / 64 * 64
	base, err := attacker.Alloc(requests * stride)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := arena.Peer(victim.member.ID())
	if err != nil {
		t.Fatal(err)
	}
	victim.provider.inboxMu.Lock() // so that all requests are read at once
	unlock := sync.OnceFunc(victim.provider.inboxMu.Unlock)
	defer unlock() // before the cleanups, if the test fails
	for i := range shm.Offset(requests) {
		r, err := shm.At[wire.ConnectionRecord](arena, base+i*stride)
		if err != nil {
			t.Fatal(err)
		}
		r.Member[cm.Active], r.Member[cm.Passive] = uint64(attacker.ID()), uint64(peer.ID())
		r.Address[cm.Passive] = addressWord(victim.provider.address())
		r.Port[cm.Passive] = 7 // no listener has this port
		r.State.Store(uint32(cm.ConnRequested))
		if err := peer.SendMail(base+i*stride, &r.Link); err != nil {
			t.Fatal(err)
		}
	}
	unlock()
	bounded, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := processorTime(t)
	err = victim.provider.WaitFor(bounded, statuspage.Call{}, func() bool { return false })
	if took := processorTime(t) - began; err == nil || took > 30*time.Second {
		t.Errorf("a call bounded to 200 ms returns %v after %v of processor time", err, took)
	} else {
		t.Logf("a call bounded to 200 ms took %v of processor time", took)
	}
	p := victim.provider
	p.inboxMu.Lock() // otherwise the housekeeper may still be at one of the requests
	defer p.inboxMu.Unlock()
	if victim.member.HasMail() {
		t.Error("the inbox has not been emptied")
	}
	p.deferred.Run() // the engine may have taken the list
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) > 0 || len(p.requests) > 0 || !p.deferred.IsEmpty() {
		t.Errorf("of refused requests whose sender does not detach, %d connections, %d requests and perhaps deferred calls are kept", len(p.conns), len(p.requests))
	}
}

package endpoint

import (
	"context"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/nd"
)

// TestCloseDuringAcceptWaitsForCopy: the active side is connected while Accept has not returned at
// the passive side, and copies into a posted receive. The close of the passive endpoint gives that
// receive back only when the copy has ended, and after the messages that count as delivered.
func TestCloseDuringAcceptWaitsForCopy(t *testing.T) {
	r := newFuzzPair(t)
	defer r.begin(t)()
	r.arrive(t)
	v, l := r.victim, r.attacker
	v.receive(0)
	v.receive(0)
	conn := l.dial(t, v)
	if err := v.accept(t); err != nil {
		t.Fatal(err)
	}
	if err := l.complete(conn); err != nil {
		t.Fatal(err)
	}
	if err := l.ep.Send(l.context(), nd.One(l.sge(inArena, small, 0, 8)), 0); err != nil {
		t.Fatal(err)
	}
	l.ledger.requests = append(l.ledger.requests, 0)
	l.collect(t)
	if l.ledger.success != 1 {
		t.Fatalf("%d Sends have succeeded, want 1", l.ledger.success)
	}
	if s := v.ep.state(); s != cm.QPConnecting {
		t.Fatalf("the passive endpoint is in state %v, want connecting", s)
	}
	l.ep.localQP.Hazard.Store(uint64(v.areas[inArena].local[local]) << 32) // a copy is in progress
	v.ep.Close()
	v.provider.deferred.Run()
	v.collect(t)
	if v.ledger.delivered != 0 {
		t.Errorf("%d receives are given back in the middle of a copy", v.ledger.delivered)
	}
	l.ep.localQP.Hazard.Store(0)
	v.provider.deferred.Run()
	var results [4]nd.Result
	n := v.received.pop(results[:])
	if n != 2 || results[0].Status != nd.Success || results[0].BytesTransferred != 8 || results[1].Status != nd.Canceled {
		t.Errorf("results %v, want the message of 8 bytes and a canceled receive", results[:n])
	}
	v.ledger.delivered = len(v.ledger.receives)
	_ = v.connector.Disconnect(context.Background())
	r.part(t)
}

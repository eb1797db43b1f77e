package endpoint

import (
	"net/netip"
	"testing"
)

// A listener without a limit of the program has one: peers could make its process run out of memory.
func TestBacklogIsBounded(t *testing.T) {
	p := newPair(t, setup{Unwired: true})
	for backlog, want := range map[int]int{0: maxBacklog, 1: 1, maxBacklog: maxBacklog, maxBacklog + 1: maxBacklog} {
		l := must(p.a.local.adapter.CreateListener(t.Context())).(*listener)
		if err := l.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); err != nil {
			t.Fatal(err)
		}
		if err := l.Listen(backlog); err != nil || l.backlog != want {
			t.Errorf("backlog %d: %d requests may wait, %v; want %d", backlog, l.backlog, err, want)
		}
		l.queue = make([]*connection, want)
		if !l.isFull() {
			t.Errorf("backlog %d: not full with %d requests", backlog, want)
		}
		l.queue = nil
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

//go:build amd64 && !race

package asym

import (
	"sync/atomic"
	"testing"
	"time"
)

// An owner whose stack has moved is the owner again as soon as it has locked once.
func TestOwnerIsKnownAfterItMoved(t *testing.T) {
	if !ownable {
		t.Skip("no goroutine becomes an owner without the kernel's help")
	}
	done := make(chan struct{})
	go func() { // with a small stack
		defer close(done)
		var m Mutex
		for range 2 * streakForOwner {
			once(&m)
		}
		first := m.latest
		deep(64, func() {})
		once(&m)
		if !m.Enter() {
			t.Error("the owner is somebody else")
			return
		}
		m.Unlock()
		if m.latest == first {
			t.Error("the stack has not moved")
		}
	}()
	<-done
}

// Only who runs on the owner's stack, where the owner is still, is the owner.
func TestWhoIsTheOwner(t *testing.T) {
	deep(64, func() {}) // from now on there is room enough
	me := mine()
	here, below, above := *me, stack{me.lo - 4096, me.lo}, stack{me.hi, me.hi + 4096}
	part := stack{me.lo, me.hi - 8}
	for name, c := range map[string]struct {
		now  *stack
		then stack
		want bool
	}{
		"this goroutine":                       {me, here, true},
		"another, which has left us its stack": {&below, here, false},
		"another, which has left us a part":    {&part, here, false},
		"another, below":                       {&below, below, false},
		"another, above":                       {&above, above, false},
		"this goroutine, before it moved":      {me, below, false},
	} {
		m := Mutex{latest: &owner{now: c.now, then: c.then}}
		atomic.StorePointer(&m.owner, pointer(m.latest))
		if got := m.Enter(); got != c.want {
			t.Errorf("%s: Enter says %v, want %v", name, got, c.want)
		}
	}
}

// A wait for an owner that stays inside for a second looks some hundred times, not 50,000 times.
func TestWaitForOwnerBacksOff(t *testing.T) {
	looks, waited := 0, time.Duration(0)
	for ; waited < time.Second; looks++ {
		pause := nap(looks)
		if looks < briefWait && pause != 0 || looks >= briefWait && pause < shortestNap {
			t.Fatalf("pause of %v after %d looks", pause, looks)
		}
		waited += pause
	}
	if looks > 1000 {
		t.Errorf("%d looks in a second", looks)
	}
}

//go:build amd64 && !race

package asym

import (
	"sync/atomic"
	"testing"
	"time"
)

// withAndWithoutBias runs f twice: as the checks of Register decide, and as if the check of the runtime's stacks had failed.
func withAndWithoutBias(t *testing.T, f func(t *testing.T)) {
	t.Run("as checked", f)
	t.Run("stack check fails", func(t *testing.T) {
		failStackCheck(t)
		f(t)
	})
}

// failStackCheck makes the package behave, until the test ends, as in a process in which the check of stacks fails.
func failStackCheck(t *testing.T) {
	saved := canBias
	_, canBias = detect(func() bool { return false })
	t.Cleanup(func() { canBias = saved })
}

func TestMutexHasNoBiasIfStackCheckFails(t *testing.T) {
	failStackCheck(t)
	var m BiasedMutex
	for range 10 * biasThreshold {
		lockOnce(&m)
		if m.LockBiased() {
			t.Fatal("the mutex has a bias")
		}
	}
	if m.bias != nil || m.latest != nil {
		t.Error("the mutex had a bias")
	}
}

// A goroutine whose stack has moved gets the bias back with its next lock.
func TestBiasReturnsAfterStackMoved(t *testing.T) {
	if !canBias {
		t.Skip("no mutex has a bias here: membarrier is refused, or the stack check fails")
	}
	done := make(chan struct{})
	go func() { // with a small stack
		defer close(done)
		var m BiasedMutex
		for range 2 * biasThreshold {
			lockOnce(&m)
		}
		first := m.latest
		deep(64, func() {})
		lockOnce(&m)
		if !m.LockBiased() {
			t.Error("the mutex has no bias toward this goroutine")
			return
		}
		m.Unlock()
		if m.latest == first {
			t.Error("the stack has not moved")
		}
	}()
	<-done
}

// LockBiased accepts only a goroutine that runs on the recorded stack, while that stack is where it was.
func TestLockBiasedKnowsItsGoroutine(t *testing.T) {
	deep(64, func() {}) // from now on the stack is large enough not to move
	me := currentStack()
	here, below, above := *me, stack{me.lo - 4096, me.lo}, stack{me.hi, me.hi + 4096}
	part := stack{me.lo, me.hi - 8}
	for name, c := range map[string]struct {
		record *stack
		bounds stack
		want   bool
	}{
		"this goroutine":                            {me, here, true},
		"this goroutine, before its stack moved":    {me, below, false},
		"another, whose old stack this one has":     {&below, here, false},
		"another, of whose old stack this has some": {&part, here, false},
		"another, below":                            {&below, below, false},
		"another, above":                            {&above, above, false},
	} {
		m := BiasedMutex{latest: &bias{record: c.record, bounds: c.bounds}}
		atomic.StorePointer(&m.bias, pointer(m.latest))
		if got := m.LockBiased(); got != c.want {
			t.Errorf("%s: LockBiased returns %v, want %v", name, got, c.want)
		}
	}
}

// A goroutine that waits for a biased holder for a second checks some hundred times, not 50,000 times.
func TestLockBacksOff(t *testing.T) {
	checks, waited := 0, time.Duration(0)
	for ; waited < time.Second; checks++ {
		pause := nap(checks)
		if checks < yieldChecks && pause != 0 || checks >= yieldChecks && pause < shortestNap {
			t.Fatalf("pause of %v after %d checks", pause, checks)
		}
		waited += pause
	}
	if checks > 1000 {
		t.Errorf("%d checks in a second, want at most 1000", checks)
	}
}

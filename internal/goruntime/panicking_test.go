package goruntime

import (
	"runtime"
	"testing"
)

// Whether PostponeIfPanicking is called before a panic, while it unwinds, or after it.
func TestPostpone(t *testing.T) {
	released := make(chan bool)
	release := func() { released <- PostponeIfPanicking(func() {}) }
	if PostponeIfPanicking(release) {
		t.Error("postponed without a panic")
	}
	for _, raise := range []func(){
		func() { panic("a panic") },
		func() {
			var none *int
			*none = 1
		},
	} {
		direct, nested := false, false
		func() {
			defer func() { _ = recover() }()
			defer func() { nested = func() bool { return PostponeIfPanicking(release) }() }()
			defer func() { direct = PostponeIfPanicking(release) }()
			raise()
		}()
		if !direct || !nested {
			t.Errorf("postponed while a panic unwinds: %t, and by a deferred function's callee: %t", direct, nested)
		}
		for range 2 {
			if <-released {
				t.Error("the release is postponed again")
			}
		}
		if PostponeIfPanicking(release) {
			t.Error("postponed after the panic was recovered")
		}
	}
	exited := make(chan bool)
	go func() {
		defer func() { exited <- PostponeIfPanicking(release) }()
		runtime.Goexit() // as in a test that fails
	}()
	if <-exited {
		t.Error("postponed in a goroutine that exits without a panic")
	}
}

package panicking

import (
	"runtime"
	"testing"
)

// Whether Postpone is called before a panic, while it unwinds, or after it.
func TestPostpone(t *testing.T) {
	released := make(chan bool)
	release := func() { released <- Postpone(func() {}) }
	if Postpone(release) {
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
			defer func() { nested = func() bool { return Postpone(release) }() }()
			defer func() { direct = Postpone(release) }()
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
		if Postpone(release) {
			t.Error("postponed after the panic was recovered")
		}
	}
	exited := make(chan bool)
	go func() {
		defer func() { exited <- Postpone(release) }()
		runtime.Goexit() // as in a test that fails
	}()
	if <-exited {
		t.Error("postponed in a goroutine that exits without a panic")
	}
}

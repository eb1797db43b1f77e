package window

import (
	"sync/atomic"
	"testing"
)

// TestHazardThatWasNotAdded: the end of an executor that a domain does not know has no effect.
func TestHazardThatWasNotAdded(t *testing.T) {
	s := join(t, newArena(t))
	var word, other atomic.Uint64
	s.domain.AddHazard(&word, nil)
	for _, w := range []*atomic.Uint64{&other, &word, &word} {
		s.domain.RemoveHazard(w, nil)
	}
	s.domain.AddHazard(&word, nil)
	if h := s.domain.places; len(h[executor{&word, nil}]) != 1 || len(h[executor{&other, nil}]) != 0 {
		t.Errorf("places of executors: %v", h)
	}
	s.domain.RemoveHazard(&word, nil)
}

func TestFaultsHaveText(t *testing.T) {
	seen := make(map[string]bool)
	for f := NoFault + 1; int(f) < len(faultText); f++ {
		if s := f.String(); s == "" || seen[s] {
			t.Errorf("fault %d is %q", f, s)
		} else {
			seen[s] = true
		}
	}
	if s := Fault(len(faultText)).String(); seen[s] {
		t.Errorf("a fault that does not exist is %q", s)
	}
}

//go:build amd64 && !race

package asym

import (
	"testing"
	"unsafe"
)

func TestStackCheckAcceptsThisRuntime(t *testing.T) {
	if !stacksAreAsExpected() {
		t.Error("the runtime does not keep stacks as LockBiased relies on: every BiasedMutex is a sync.Mutex, which is slower")
	}
}

// The check covers a stack that has moved. Otherwise it would accept a record that does not follow its stack.
func TestStackCheckMovesStacks(t *testing.T) {
	moved := make(chan bool)
	go func() {
		first := sight()
		descend(growthFrames, func() { moved <- sight().bounds != first.bounds })
	}()
	if !<-moved {
		t.Error("the stack has not moved")
	}
}

func TestStackCheckRefusesOtherRuntimes(t *testing.T) {
	records := [2]stack{}
	one := sighting{record: &records[0], bounds: stack{0x1000, 0x2000}, local: 0x1800}
	two := sighting{record: &records[1], bounds: stack{0x3000, 0x5000}, local: 0x4000}
	if !areAsExpected([2]sighting{one, one}, [2]sighting{two, two}) {
		t.Fatal("sound stacks are refused")
	}
	change := func(s sighting, f func(*sighting)) sighting { f(&s); return s }
	for name, bad := range map[string][2]sighting{
		"there is no record":              {change(one, func(s *sighting) { s.record = nil }), change(one, func(s *sighting) { s.record = nil })},
		"the variable is below":           {one, change(one, func(s *sighting) { s.local = s.bounds.lo - 1 })},
		"the variable is above":           {one, change(one, func(s *sighting) { s.local = s.bounds.hi })},
		"the bounds do not follow a move": {one, change(one, func(s *sighting) { s.local = 0x9000 })},
		"the record changes":              {one, change(one, func(s *sighting) { s.record = (*stack)(unsafe.Pointer(&struct{ a, b uintptr }{})) })},
		"the record is the other's":       {change(one, func(s *sighting) { s.record = two.record }), change(one, func(s *sighting) { s.record = two.record })},
		"the stacks overlap":              {one, change(one, func(s *sighting) { s.bounds.hi = 0x4000 })},
		"the bounds cover all memory":     {one, change(one, func(s *sighting) { s.bounds = stack{0, ^uintptr(0)} })},
	} {
		if areAsExpected(bad, [2]sighting{two, two}) || areAsExpected([2]sighting{two, two}, bad) {
			t.Errorf("%s: accepted", name)
		}
	}
}

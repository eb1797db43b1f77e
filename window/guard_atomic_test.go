package window

import (
	"testing"

	"github.com/softnd/softnd/nd"
)

// Change runs each atomic, at the owner and at a peer, and refuses bytes that are not aligned, out of range, or without the right.
func TestChange(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 64)
	r := owner.region(t, mem, allRights)
	token := bind(t, owner.window(t), r, mem, Atomic, 0, false)
	words, err := nd.View[uint64](mem)
	if err != nil {
		t.Fatal(err)
	}
	words[1] = 5
	at := func(offset uint64, peer *FarEnd) *Operand {
		return &Operand{Token: token, Rights: Remote | Atomic, Address: r.Address() + offset, Far: peer}
	}
	for _, tc := range []struct {
		guard         *Guard
		peer          *FarEnd
		kind          nd.RequestType
		operand, swap uint64
		old, now      uint64
	}{
		{owner.guard, nil, nd.RequestFetchAndAdd, 3, 0, 5, 8},
		{executor.guard, to, nd.RequestFetchAndAdd, ^uint64(0), 0, 8, 7},
		{executor.guard, to, nd.RequestCompareAndSwap, 6, 9, 7, 7},
		{executor.guard, to, nd.RequestCompareAndSwap, 7, 9, 7, 9},
		{owner.guard, nil, nd.RequestCompareAndSwap, 9, 1, 9, 1},
		{executor.guard, to, nd.RequestSwap, 4, 0, 1, 4},
	} {
		if old, f := tc.guard.Change(at(8, tc.peer), tc.kind, tc.operand, tc.swap); old != tc.old || f != NoFault || words[1] != tc.now {
			t.Errorf("%+v: %d, %v, now %d", tc, old, f, words[1])
		}
	}
	refused := []struct {
		o    *Operand
		want Fault
	}{{at(4, nil), faultUnaligned}, {at(4, to), faultUnaligned}, {at(64, to), faultOutOfRange}, {at(60, nil), faultOutOfRange},
		{&Operand{Token: token, Rights: Remote | Write, Address: r.Address(), Far: to}, faultNoRight}}
	for _, tc := range refused {
		guard := executor.guard
		if tc.o.Far == nil {
			guard = owner.guard
		}
		if _, f := guard.Change(tc.o, nd.RequestSwap, 1, 0); f != tc.want {
			t.Errorf("%+v: %v, want %v", tc.o, f, tc.want)
		}
	}
	if words[0] != 0 || words[1] != 4 {
		t.Errorf("a refused change has stored: %v", words)
	}
	if owner.guard.HazardOverwritten() || owner.hazard.Load() != 0 || executor.hazard.Load() != 0 {
		t.Error("a hazard is left")
	}
}

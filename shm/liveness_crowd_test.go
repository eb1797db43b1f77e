package shm

import (
	"testing"
	"time"
)

// A hostile process can make every free record look alive. Their deaths are found in one check, which does not take long.
func TestCrowdOfFalseMembers(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	for round := range 3 {
		for slot := range maxMembers {
			if slot != m.slot {
				a.member(slot).deathEpoch.Store(0)
				a.member(slot).state.Store(uint64(stateOf(statusLive, 5)))
			}
		}
		began := time.Now()
		m.CheckLiveness(noDrop)
		took := time.Since(began)
		t.Logf("round %d: %v, %d are left", round, took, a.LiveMemberCount())
		if took > time.Second {
			t.Errorf("the check takes %v", took)
		}
		if n := a.LiveMemberCount(); n != 1 {
			t.Errorf("%d members count as alive", n)
		}
	}
}

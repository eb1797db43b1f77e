package shm

import (
	"testing"
	"time"
)

// A hostile process can make every free record look alive. One check finds all their deaths. The log shows how long it
// takes, which is milliseconds on an idle machine.
func TestCrowdOfFalseMembers(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	a.header().slots.Store(1 << 40)
	for round := range 3 {
		for slot := range maxMembers {
			if slot != m.slot {
				a.member(slot).deathEpoch.Store(0)
				a.member(slot).state.Store(uint64(stateOf(statusLive, 5)))
			}
		}
		began := time.Now()
		m.CheckLiveness(noDrop)
		t.Logf("round %d: %v, %d are left", round, time.Since(began), a.LiveMemberCount())
		if n := a.LiveMemberCount(); n != 1 {
			t.Errorf("%d members count as alive", n)
		}
	}
}

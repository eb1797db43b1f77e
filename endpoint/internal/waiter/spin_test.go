package waiter

import "testing"

// try spins once, and ends the spin if there is one.
func try(s *Spin, found bool) int {
	rounds := s.Rounds(SpinRounds)
	if rounds > 0 {
		s.Ended(found)
	}
	return rounds
}

func TestSpinAdapts(t *testing.T) {
	s := new(Spin)
	for i, step := range []struct {
		found  bool
		rounds int
	}{
		{true, SpinRounds}, {true, SpinRounds}, {false, SpinRounds}, {true, SpinRounds / 2},
		{false, SpinRounds}, {false, SpinRounds / 2}, {true, SpinRounds / 4}, {false, SpinRounds / 2},
		{false, SpinRounds / 4}, {true, SpinRounds / 8}, {false, SpinRounds / 4}, {false, SpinRounds / 8}, {false, 0},
	} {
		if rounds := try(s, step.found); rounds != step.rounds {
			t.Fatalf("spin %d: %d rounds, want %d", i, rounds, step.rounds)
		}
	}
	// The waits until the next try become more, up to a limit.
	waits := firstRest - 1
	for range maxDoublings + 2 {
		for ; waits > 0; waits-- {
			if rounds := try(s, false); rounds != 0 {
				t.Fatalf("%d rounds %d waits before the next try", rounds, waits)
			}
		}
		if rounds := try(s, false); rounds != SpinRounds {
			t.Fatalf("a try has %d rounds, want %d", rounds, SpinRounds)
		}
		waits = firstRest << s.doublings.Load()
	}
	if waits != firstRest<<maxDoublings {
		t.Errorf("%d waits between two tries, want %d", waits, firstRest<<maxDoublings)
	}
	for range waits {
		try(s, false)
	}
	// After a try that finds its event, waits spin again.
	for i, rounds := range []int{SpinRounds, SpinRounds, SpinRounds} {
		if n := try(s, true); n != rounds {
			t.Errorf("spin %d after the rest: %d rounds, want %d", i, n, rounds)
		}
	}
	// So does a next series of failures, with the shortest rest.
	for range maxHalvings + 1 {
		try(s, false)
	}
	for i := range firstRest {
		if n := try(s, true); n != 0 {
			t.Errorf("wait %d of the rest: %d rounds", i, n)
		}
	}
	if n := try(s, true); n != SpinRounds {
		t.Errorf("after the rest: %d rounds, want %d", n, SpinRounds)
	}
}

func TestPhaseHasLimit(t *testing.T) {
	s := new(Spin)
	if p := s.Phase(); p != (Phase{SpinRounds, spinLimit}) {
		t.Errorf("at first %+v", p)
	}
	s.Ended(false)
	if p := s.Phase(); p != (Phase{SpinRounds / 2, spinLimit / 2}) {
		t.Errorf("after a spin in vain %+v", p)
	}
	for rounds, want := range map[int]Phase{1: {1, spinLimit}, SpinRounds: {SpinRounds, spinLimit}, SpinRounds + 1: {Rounds: SpinRounds + 1}} {
		if p := FixedSpin(rounds); p != want {
			t.Errorf("%d rounds of the program: %+v, want %+v", rounds, p, want)
		}
	}
}

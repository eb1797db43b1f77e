package bench

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLineBouncesBetweenTwoMappings(t *testing.T) {
	f, err := NewLineFile()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	here, err := MapLine(f)
	if err != nil {
		t.Fatal(err)
	}
	there, err := MapLine(f)
	if err != nil {
		t.Fatal(err)
	}
	echoed := make(chan uint64)
	go func() {
		there.Echo()
		echoed <- there.pong.Load()
	}()
	const rounds = 1000
	for range rounds {
		here.Bounce()
	}
	here.Stop()
	if got := <-echoed; got != rounds {
		t.Errorf("the last word echoed is %d, want %d", got, rounds)
	}
	for _, l := range []*Line{here, there} {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
}

// twoSides returns the two mappings of a line.
func twoSides(t *testing.T) (sides [2]*Line) {
	t.Helper()
	f, err := NewLineFile()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range sides {
		if sides[i], err = MapLine(f); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sides[i].close() })
	}
	return sides
}

// A line serves any number of meetings and of runs, one after the other.
func TestLineRestarts(t *testing.T) {
	sides := twoSides(t)
	const runs, rounds = 5, 100
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range runs {
			sides[1].Meet(1)
			sides[1].Echo()
			sides[1].Meet(1)
		}
	}()
	for range runs {
		sides[0].Restart()
		sides[0].Meet(0)
		for range rounds {
			sides[0].Bounce()
		}
		sides[0].Stop()
		sides[0].Meet(0)
	}
	<-ended
	if got := sides[1].pong.Load(); got != runs*rounds {
		t.Errorf("the last word echoed is %d, want %d", got, runs*rounds)
	}
}

func TestPinLeavesOneCore(t *testing.T) {
	done := make(chan error)
	var set unix.CPUSet
	go func() { // the thread ends with the goroutine that stays locked to it
		err := Pin(1)
		if err == nil {
			err = unix.SchedGetaffinity(0, &set)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if set.Count() != 1 {
		t.Errorf("%d cores after Pin, want 1", set.Count())
	}
}

// TestLineOnOneCore: two threads that share a core hand it over.
func TestLineOnOneCore(t *testing.T) {
	sides := twoSides(t)
	echoed := make(chan error)
	go func() {
		echoed <- OnCore(0, func() error { sides[1].EchoYielding(); return nil })
	}()
	const rounds = 100
	err := OnCore(0, func() error {
		for range rounds {
			sides[0].BounceYielding()
		}
		sides[0].Stop()
		return nil
	})
	if other := <-echoed; err != nil || other != nil {
		t.Fatal(err, other)
	}
	if got := sides[1].pong.Load(); got != rounds {
		t.Errorf("the last word echoed is %d, want %d", got, rounds)
	}
}

func TestOnCoreGivesTheCoresBack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, within, after unix.CPUSet
	look := func(set *unix.CPUSet) error { return unix.SchedGetaffinity(0, set) }
	if err := errors.Join(look(&before), OnCore(1, func() error { return look(&within) }), look(&after)); err != nil {
		t.Fatal(err)
	}
	if within.Count() != 1 || after != before {
		t.Errorf("%d cores before, %d within, %d after", before.Count(), within.Count(), after.Count())
	}
}

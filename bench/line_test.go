package bench

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

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
		t.Cleanup(func() { sides[i].mem.Unmap() })
	}
	return sides
}

// TestLineRestarts: a line serves any number of meetings and runs, also runs without a round trip.
func TestLineRestarts(t *testing.T) {
	sides := twoSides(t)
	runs := []int{100, 0, 0, 1000, 100}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range runs {
			sides[1].Meet(1)
			sides[1].Echo(false)
			sides[1].Meet(1)
		}
	}()
	want := uint64(0)
	for _, rounds := range runs {
		sides[0].Meet(0)
		for range rounds {
			sides[0].Bounce()
			want++
		}
		sides[0].Meet(0)
	}
	<-ended
	if got := sides[1].pong.Load(); got != want {
		t.Errorf("the last number echoed is %d, want %d", got, want)
	}
}

func TestPinLeavesOneCore(t *testing.T) {
	done := make(chan error)
	var set unix.CPUSet
	go func() { // the thread ends with the goroutine that stays locked to it
		_, err := Pin(1)
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
	onCore := func(f func()) error {
		restore, err := Pin(0)
		if err != nil {
			return err
		}
		f()
		return restore()
	}
	echoed := make(chan error)
	go func() {
		echoed <- onCore(func() {
			sides[1].Echo(true)
			sides[1].Meet(1)
		})
	}()
	const rounds = 100
	err := onCore(func() {
		for range rounds {
			sides[0].BounceYielding()
		}
		sides[0].Meet(0)
	})
	if other := <-echoed; err != nil || other != nil {
		t.Fatal(err, other)
	}
	if got := sides[1].pong.Load(); got != rounds {
		t.Errorf("the last number echoed is %d, want %d", got, rounds)
	}
}

func TestPinRestoresCores(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, within, after unix.CPUSet
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(unix.SchedGetaffinity(0, &before))
	restore, err := Pin(1)
	check(err)
	check(unix.SchedGetaffinity(0, &within))
	check(restore())
	check(unix.SchedGetaffinity(0, &after))
	if within.Count() != 1 || after != before {
		t.Errorf("%d cores before, %d within, %d after", before.Count(), within.Count(), after.Count())
	}
}

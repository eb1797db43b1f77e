package bench

import (
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
		if err := l.Close(); err != nil {
			t.Error(err)
		}
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

package main

import (
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestRunning(t *testing.T) {
	for text, want := range map[string]int{"0.42 0.50 0.61 3/812 4711\n": 3, "0.00 0.00 0.00 1/90 7": 1, "": 0, "a b c d e": 0} {
		if got := running(text); got != want {
			t.Errorf("running(%q) = %d, want %d", text, got, want)
		}
	}
}

// TestBusyness: a process that ran once causes no warning.
func TestBusyness(t *testing.T) {
	for _, c := range []struct {
		b     busyness
		quiet bool
	}{{busyness{}, true}, {busyness{40, 10}, true}, {busyness{40, 11}, false}, {busyness{40, 40}, false}} {
		if got := c.b.String(); (got == "") != c.quiet {
			t.Errorf("%+v: %q", c.b, got)
		}
	}
	var b busyness
	b.check()
	if b.checks != 1 {
		t.Errorf("%+v after one check", b)
	}
	// Threads of this process do not count.
	var stop, started atomic.Bool
	defer stop.Store(true)
	go func() {
		for !stop.Load() {
			started.Store(true)
		}
	}()
	proctest.Eventually(t, "the goroutine and this one run", func() bool { return started.Load() && ownRunning() >= 2 })
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	proctest.Eventually(t, "the busy process is counted", func() bool {
		var b busyness
		b.check()
		return b.busy == 1
	})
}

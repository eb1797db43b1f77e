package measure

import (
	"context"
	"fmt"
	"testing"

	"github.com/softnd/softnd/nd"
)

// TestLoopsAllocateNothing: the timed loops allocate no memory.
func TestLoopsAllocateNothing(t *testing.T) {
	inPairs(t, func(ctx context.Context, w *World) error {
		l, err := openLink(ctx, w, Options{Pairs: 3}, linkConfig{size: 8, depth: 16, receives: 32, repost: true})
		if err != nil {
			return err
		}
		if !l.active() {
			return l.Close()
		}
		var failed error
		for name, step := range map[string]func() error{
			"writes":             func() error { return l.writes(10) },
			"reads":              func() error { return l.reads(10) },
			"consecutive writes": func() error { return l.flow(nd.RequestWrite, 100, 0) },
			"consecutive reads":  func() error { return l.flow(nd.RequestRead, 100, 0) },
			"on one pair":        func() error { return l.flowOut(nd.RequestWrite, 100) },
		} {
			// The other rank and the runtime allocate at times, in the same process. An
			// allocation in every round is the loop's.
			n := 1.0
			for round := 0; n != 0 && round < 20 && failed == nil; round++ {
				n = testing.AllocsPerRun(100, func() {
					if err := step(); err != nil {
						failed = err
					}
				})
			}
			if n != 0 && failed == nil {
				failed = fmt.Errorf("%s: %v allocations", name, n)
			}
			if failed != nil {
				return failed
			}
		}
		return l.Close()
	})
}

package measure

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/softnd/softnd/nd"
)

// TestEndedWaitsLeaveNoLoads checks that the loads of a wait that has ended do not count in the next one.
func TestEndedWaitsLeaveNoLoads(t *testing.T) {
	inPairs(t, func(ctx context.Context, w *World) error {
		for _, c := range []struct {
			name  string
			o     Options
			waits [2]func(l *link) error // of the ranks; nil: none
		}{
			{"complete", Options{}, [2]func(l *link) error{func(l *link) error { return l.writes(1) }}},
			{"arrive", Options{}, [2]func(l *link) error{func(l *link) error { return l.pingWrites(1) }, func(l *link) error { return l.pongWrites(1) }}},
			{"serve", Options{Private: true}, [2]func(l *link) error{(*link).signal, (*link).serve}},
			{"flow", Options{}, [2]func(l *link) error{
				func(l *link) error { return l.flow(nd.RequestSend, 2, 0) }, func(l *link) error { return l.flow(nd.RequestSend, 0, 2) },
			}},
		} {
			l, err := openLink(ctx, w, c.o, linkConfig{size: 8, depth: 4, receives: 4})
			if err != nil {
				return err
			}
			err = restless(l, c.waits[w.Job.Rank()])
			if err = errors.Join(err, l.Close()); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	})
}

// restless fails if loads are left after wait.
func restless(l *link, wait func(l *link) error) error {
	if wait == nil {
		return nil
	}
	l.rests = 1 // of an earlier wait
	if err := wait(l); err != nil {
		return err
	}
	if l.rests != 0 {
		return fmt.Errorf("%d loads count in the next wait, want 0", l.rests)
	}
	return nil
}
